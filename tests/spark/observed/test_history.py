"""The History Server shows the checkpoints of an application that has ended, if it has the jar."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
import quick_java
from observed.schema import check
from observed.ui_application import Running, ask, awaited

from state_store.session.jar import jar_path

pytestmark = [pytest.mark.spark, pytest.mark.older(more=("4.2", "4.1", "4.0")), pytest.mark.tier("more")]

BATCHES = 5


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the event log of an application that had a query of five batches."""
    room = tmp_path_factory.mktemp("history")
    (room / "events").mkdir()
    options = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{room}/events",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    with Running(room / "app", **options) as app:
        app.start("totals")
        app.feed("totals", BATCHES)
        app.do("stop", name="totals")
    return room / "events"


@contextmanager
def history_server(room: Path, events: Path, class_path: str) -> Iterator[tuple[str, Path]]:
    """Run a History Server; yield its address and its log."""
    room.mkdir(exist_ok=True)
    log = room / "log"
    settings = {
        "history.fs.logDirectory": f"file:{events}",
        "history.ui.port": "0",
        "history.fs.update.interval": "1s",
    }
    java = " ".join(f"-Dspark.{name}={value}" for name, value in settings.items())
    environment = {
        **os.environ,
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_CLASSPATH": class_path,
        "SPARK_DAEMON_JAVA_OPTS": quick_java.QUICK_START,
        "SPARK_HISTORY_OPTS": java,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = Path(pyspark.__file__).parent / "bin/spark-class"
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(command), "org.apache.spark.deploy.history.HistoryServer"],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=room,
        )

    def address() -> str | None:
        found = [line for line in log.read_text().splitlines() if "Bound HistoryServer to" in line]
        assert process.poll() is None, log.read_text()[-3000:]
        return found[0].rsplit(" ", 1)[-1].strip() if found else None

    try:
        yield awaited(address, "the History Server has started"), log
    finally:
        process.terminate()
        process.wait()


def application(server: str) -> str:
    """Return the address of the application, which the server has read."""

    def found() -> str | None:
        listed = ask(f"{server}/api/v1/applications").json
        return f"{server}/history/{listed[0]['id']}" if listed else None

    return awaited(found, "the application is listed")


def test_the_tab_exists_after_the_application_has_ended(tmp_path: Path, events: Path) -> None:
    with history_server(tmp_path / "server", events, str(jar_path())) as (server, _):
        app = application(server)
        assert "Checkpoints" in ask(f"{app}/jobs/").text
        assert 'id="state-store"' in ask(f"{app}/checkpoints/").text
        api = f"{app}/checkpoints/api/v1"
        service = ask(api).json
        check(service, "Service", "history")
        assert (service["source"], service["full_checkpoints"]) == ("history", False)
        (query,) = ask(f"{api}/queries").json["queries"]
        check(query, "Query", "history")
        assert (query["name"], query["version"], query["running"]) == ("totals", BATCHES, False)
        for path, definition in (
            ("verdict", "Verdict"),
            ("stores", "Stores"),
            ("checkpoints", "Checkpoints"),
            ("checkpoints/latest", "CheckpointDetails"),
            ("config", "Configuration"),
            ("merges", "Merges"),
        ):
            answer = ask(f"{api}/queries/totals/{path}")
            assert answer.status == 200, answer.text
            check(answer.json, definition, "history")
        history = ask(f"{api}/queries/totals/checkpoints").json["history"]
        assert [version["version"] for version in history] == list(range(BATCHES, 0, -1))
        assert all(version["batch_ms"] >= version["commit_ms"] for version in history)
        refused = ask(f"{api}/queries/totals/checkpoints", method="POST", body={})
        assert refused.status in (403, 405)
        assert "state-store full" in refused.text or refused.status == 403


def test_a_server_without_the_jar_runs_without_the_tab(tmp_path: Path, events: Path) -> None:
    with history_server(tmp_path / "server", events, "") as (server, _):
        app = application(server)
        assert "Checkpoints" not in ask(f"{app}/jobs/").text
        assert ask(f"{app}/StreamingQuery/").status == 200


def test_an_event_is_a_small_part_of_spark_s_log(events: Path) -> None:
    (log,) = [path for path in events.rglob("*") if path.is_file() and path.stat().st_size > 1000]
    lines = log.read_text("utf-8").splitlines()
    ours = [line for line in lines if json.loads(line)["Event"].endswith("StoresReported")]
    assert BATCHES <= len(ours) <= BATCHES + 1, "one for each batch, and one for the end"
    sizes = [len(line) for line in ours]
    print(
        f"{max(sizes)} bytes an event of 2 stores, {sum(sizes) / sum(map(len, lines)):.2%} of the event log"
    )
    assert max(sizes) < 4000
