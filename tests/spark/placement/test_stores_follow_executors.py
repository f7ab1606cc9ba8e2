"""Stores follow the executors of a real cluster with two hosts; the state stays exact.

Spark alone gives no store away here: it does so when a task waits for longer than `spark.locality.wait`.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from chaos.cluster import Cluster
from chaos.processes import Process
from observed.ui_application import SETTINGS, Running, awaited

import state_store

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]

QUERIES = ("totals", "joined", "processed")
PARTITIONS = 6
BATCHES = 200
"""Batches of a query whose executors come and go."""

OPTIONS = {
    "spark.executor.memory": "600m",
    "spark.executor.cores": "2",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.locality.wait": "120s",
    "spark.decommission.enabled": "true",
    "spark.python.authenticate.socketTimeout": "600s",
}
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


def application(
    room: Path, cluster: Cluster, settings: dict[str, str] | None = None, **options: str
) -> Running:
    asked = {**SETTINGS, "maxDeltas": "100", "placement": "balanced", **(settings or {})}
    return Running(room / "app", cluster.url, asked, cluster.environment(), **{**OPTIONS, **options})


def executors(app: Running) -> dict[str, str]:
    """Return the hosts of the executors that have started, by their ids."""
    listed = app.get(f"/api/v1/applications/{app.application}/executors").json
    started = [known for known in listed if known["id"] != "driver" and known["maxMemory"] > 0]
    return {known["id"]: known["hostPort"].rpartition(":")[0] for known in started}


def placement(app: Running, query: str) -> list[int]:
    """Return the numbers of partitions by executor, the largest first, after a look at their stores."""
    stores = app.get(f"queries/{query}/stores").json["stores"]
    places = {(store["partition"], store["executor"]) for store in stores}
    assert len(places) == PARTITIONS, f"stores of a partition are on several executors: {places}"
    assert {store["version"] for store in stores} == {max(store["version"] for store in stores)}
    return sorted(Counter(executor for _, executor in places).values(), reverse=True)


def fed_until(app: Running, query: str, expected: list[int], batches: int) -> list[list[int]]:
    """Feed at most some batches until the placement is as expected. Returns that of each batch."""
    seen = []
    for _ in range(batches):
        app.feed(query)
        seen.append(placement(app, query))
        if seen[-1] == expected:
            return seen
    raise AssertionError(f"{query} is not spread as {expected}, but {seen}")


def metrics(app: Running) -> list[str]:
    return app.get("/checkpoints/metrics").text.splitlines()


def check_state(app: Running, query: str) -> None:
    """Compare the state with that which follows from all input."""
    files = sorted((app.room / query / "input").iterdir())
    records = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    values = sorted((record["key"], record["value"]) for record in records)
    totals: Counter[str] = Counter()
    for key, value in values:
        totals[key] += value
    sums = sorted(totals.items())
    checkpoint = app.room / query / "checkpoint"
    if query == "totals":
        assert rows(checkpoint, "key", "sum") == sums
    elif query == "joined":
        assert rows(checkpoint, "l", "left", store="left") == values
        assert rows(checkpoint, "r", "right", store="right") == values
    else:
        assert rows(checkpoint, "key", "total", store="sums") == sums
    assert not [found for found in state_store.verify(str(checkpoint)).findings if found.key]


def rows(checkpoint: Path, *columns: str, store: str | None = None) -> list[tuple[Any, ...]]:
    with state_store.open(str(checkpoint), store=store) as state:
        return sorted(tuple(row[column] for column in columns) for row in state.to_arrow().to_pylist())


@pytest.mark.parametrize("checkpoint_format", [2, 1])
def test_stores_follow_executors_that_join_and_leave(tmp_path: Path, checkpoint_format: int) -> None:
    with (
        Cluster(tmp_path / "cluster", workers=1) as cluster,
        application(tmp_path, cluster, **{FORMAT: str(checkpoint_format)}) as app,
    ):
        for query in QUERIES:
            app.start(query, query)
            app.feed(query, 2)
            assert placement(app, query) == [PARTITIONS]
        cluster.start_worker(1)
        awaited(lambda: len(executors(app)) == 2, "a second executor starts")
        for query in QUERIES:
            seen = fed_until(app, query, [3, 3], batches=3)  # the event of the executor may take a batch
            assert [4, 2] in seen, "the new executor was not given time to warm up"
            app.feed(query)
            assert placement(app, query) == [3, 3]
            shown = app.get(f"queries/{query}").json["executors"]
            assert [found["stores"] for found in shown] == [
                app.get(f"queries/{query}/stores").json["total"] // 2
            ] * 2
            assert f'state_store_moved_total{{query="{query}"}} {shown[1]["stores"]}' in metrics(app)
        for process in cluster.machines()[1]:
            process.kill()
        awaited(lambda: len(executors(app)) == 1, "the second executor is gone")
        for query in QUERIES:
            fed_until(app, query, [PARTITIONS], batches=1)
            app.feed(query)
            app.do("stop", name=query)
            check_state(app, query)


def test_stores_move_before_a_decommissioned_executor_goes(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster") as cluster, application(tmp_path, cluster) as app:
        awaited(lambda: len(executors(app)) == 2, "two executors start")
        app.start("totals")
        app.feed("totals", 2)
        fed_until(app, "totals", [3, 3], batches=2)
        leaving = next(executor for executor, host in executors(app).items() if host == "127.0.0.2")
        process = next(
            process
            for process in executor_processes(cluster)
            if f"--executor-id {leaving} " in process.arguments
        )
        process.stop()  # it stays until it is woken up
        assert app.do("decommission", executor=leaving)["accepted"]
        app.feed("totals")
        assert placement(app, "totals") == [PARTITIONS]
        assert leaving in executors(app), "it is gone: the stores may have moved because of that"
        stages = app.get(f"/api/v1/applications/{app.application}/stages?details=true").json
        last = max((stage for stage in stages if stage["numTasks"] == PARTITIONS), key=lambda s: s["stageId"])
        assert {task["taskLocality"] for task in last["tasks"].values()} == {"PROCESS_LOCAL"}
        process.resume()
        awaited(lambda: leaving not in executors(app), "the executor goes")
        app.feed("totals")
        app.do("stop", name="totals")
        check_state(app, "totals")


def test_stores_stay_if_spark_places_them(tmp_path: Path) -> None:
    with (
        Cluster(tmp_path / "cluster", workers=1) as cluster,
        application(tmp_path, cluster, {"placement": "spark"}) as app,
    ):
        app.start("totals")
        app.feed("totals", 2)
        cluster.start_worker(1)
        awaited(lambda: len(executors(app)) == 2, "a second executor starts")
        app.feed("totals", 4)
        assert placement(app, "totals") == [PARTITIONS]
        shown = app.get("queries/totals").json["executors"]
        assert [found["stores"] for found in shown] == [PARTITIONS, 0]
        assert 'state_store_moved_total{query="totals"} 0' in metrics(app)
        app.do("stop", name="totals")
        check_state(app, "totals")


@pytest.mark.tier("long")
@pytest.mark.parametrize("checkpoint_format", [2, 1])
def test_state_stays_exact_while_executors_come_and_go(tmp_path: Path, checkpoint_format: int) -> None:
    """Let Spark add and remove executors for many batches, and kill executors and machines meanwhile."""
    options = {
        FORMAT: str(checkpoint_format),
        "spark.executor.cores": "1",
        "spark.locality.wait": "1s",
        "spark.log.level": "INFO",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
        "spark.dynamicAllocation.minExecutors": "1",
        "spark.dynamicAllocation.maxExecutors": "4",
        "spark.dynamicAllocation.executorIdleTimeout": "2s",
        "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
        "spark.task.maxFailures": "100",
        "spark.stage.maxConsecutiveAttempts": "100",
    }
    draw = random.Random(checkpoint_format)
    ended = threading.Event()
    kills = []
    fed = 0

    def kill(cluster: Cluster) -> None:
        last = 0
        while not ended.wait(draw.uniform(2, 15)):
            if fed == last:
                continue  # the executors of a slow machine would never get a batch done
            last = fed
            alone = [[process] for process in executor_processes(cluster)]
            victims = cluster.machines() if draw.random() < 0.2 else alone
            for process in draw.choice(victims) if victims else []:
                kills.append(process.kill())
            cluster.replace_workers()

    with Cluster(tmp_path / "cluster") as cluster, application(tmp_path, cluster, **options) as app:
        for query in QUERIES:
            app.start(query, query)
        killer = threading.Thread(target=kill, args=(cluster,))
        killer.start()
        try:
            while fed < BATCHES:
                app.feed(QUERIES[fed % len(QUERIES)], shown=False)
                fed += 1
        finally:
            ended.set()
            killer.join()
        for query in QUERIES:
            app.do("stop", name=query)
            check_state(app, query)
        assert any(kills)
        assert "partitions of the operators 0 of the run" in app.log.read_text()


def executor_processes(cluster: Cluster) -> list[Process]:
    return [process for process in cluster.processes() if process.role == "executor"]
