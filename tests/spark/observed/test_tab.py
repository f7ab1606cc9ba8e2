"""The tab in Spark's UI of a running application: its API, metrics, page, and requested full checkpoints."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from observed.schema import check
from observed.ui_application import SETTINGS, Running, awaited, outcome, request_full, version

import state_store
from state_store.core.checkpoint.names import SnapshotName
from state_store.core.settings.session import PROVIDER_CLASS, PROVIDER_KEY
from state_store.observe.look import Looker
from state_store.observe.metrics import ADDED_UP, LARGEST, METRICS, SAME, ProgressMetric, progress_metrics
from state_store.observe.rest_answers import DRIVER, Store

pytestmark = [
    pytest.mark.spark,
    pytest.mark.older(more=("4.2", "4.1", "4.0")),
]

SPARKS_OWN = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HOSTILE = 'ünsafe "<script>alert(1)</script>\n\x1b[31m'


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("tab")) as running:
        running.start("totals")
        running.start("joined", "joined")
        running.start("stateless", "stateless")
        running.start(HOSTILE, directory=str(running.room / "hostile"))
        running.feed("totals", 6)
        running.feed("joined", 2)
        running.feed("stateless", 2, shown=False)
        running.feed(HOSTILE, 2)
        yield running


def kill_agents(app: Running) -> None:
    """Kill the agents of the application's JVM."""
    listed = subprocess.run(["ps", "-wweo", "pid=,ppid=,args="], text=True, capture_output=True, check=True)
    processes = [line.split(None, 2) for line in listed.stdout.splitlines()]
    below, found = {str(app.pid)}, [str(app.pid)]
    while found:
        found = [pid for pid, parent, *_ in processes if parent in found]
        below.update(found)
    agents = [int(pid) for pid, _, *args in processes if pid in below and "state-store-agent" in args[0]]
    assert agents
    for agent in agents:
        os.kill(agent, signal.SIGKILL)


def full_snapshots(directory: Path, operator: int = 0) -> dict[str, set[int]]:
    """Return the versions of the full snapshots in storage, by partition."""
    found: dict[str, set[int]] = {}
    for archive in directory.glob(f"checkpoint/state/{operator}/*/snapshot/*.zip"):
        name = SnapshotName.parse(archive.name)
        assert name is not None
        with zipfile.ZipFile(archive) as zipped:
            text = next(zipped.read(entry) for entry in zipped.namelist() if "manifest" in entry)
        if json.loads(text)["kind"] == "full":
            found.setdefault(archive.parents[1].name, set()).add(name.version)
    return found


ANSWERS = {
    "": "Service",
    "queries": "Queries",
    "queries/totals": "Query",
    "queries/totals/verdict": "Verdict",
    "queries/totals/stores?sort=deltas&limit=1&offset=1": "Stores",
    "queries/totals/checkpoints?limit=3&before=6": "Checkpoints",
    "queries/totals/checkpoints/latest": "CheckpointDetails",
    "queries/totals/checkpoints/4?partition=1": "CheckpointDetails",
    "queries/totals/config": "Configuration",
    "queries/totals/merges": "Merges",
}


@pytest.mark.dear("an application with its tab")
@pytest.mark.parametrize("path", ANSWERS)
def test_answers_follow_the_schema(app: Running, path: str) -> None:
    answer = app.get(path)
    assert answer.status == 200, answer.text
    assert answer.headers["Content-Type"].startswith("application/json")
    check(answer.json, ANSWERS[path], "driver")


@pytest.mark.dear("an application with its tab")
def test_new_bytes_are_those_that_serve_and_notebooks_show(app: Running) -> None:
    """A version has the bytes of its delta, and those of its snapshot when a merge has made one."""
    looker = Looker(str(app.room / "totals/checkpoint"))

    def in_storage() -> dict[int, int]:
        return {made.version: made.new_bytes for made in looker.look().history}

    def in_tab() -> dict[int, int]:
        history = app.get("queries/totals/checkpoints").json["history"]
        return {made["version"]: made["new_bytes"] for made in history}

    def agree() -> bool:
        stored, shown = in_storage(), in_tab()
        both = stored.keys() & shown.keys()
        return max(stored) in both and all(stored[number] == shown[number] for number in both)

    awaited(agree, "the tab shows the new bytes of the files")
    latest = app.get("queries/totals/checkpoints/latest").json["stores"]
    assert sum(store["new_bytes"] for store in latest) == in_tab()[max(in_tab())]
    merged = [made for made in looker.look().history if set(made.wrote) > {"delta"}]
    assert any(made.version in in_tab() for made in merged), "no version has a snapshot"


def test_figures_are_those_of_the_files(app: Running) -> None:
    newest = version(app, "totals")
    stores = app.get("queries/totals/checkpoints/latest").json["stores"]
    assert [store["operator_name"] for store in stores] == ["stateStoreSave"] * 2
    assert sum(store["keys"] for store in stores) == 7
    for store in stores:
        directory = app.room / "totals/checkpoint/state/0" / str(store["partition"])
        deltas = {path.name: path.stat().st_size for path in (directory / "delta").glob("*.sst")}
        mine = [size for name, size in deltas.items() if store["checkpoint_id"] in name]
        has_snapshot = newest in (store.get("snapshot_version"), store.get("full_version"))
        assert has_snapshot or store["new_bytes"] in mine
        assert store["version"] == newest


def test_history_has_every_batch_with_its_merges(app: Running) -> None:
    answer = app.get("queries/totals/checkpoints").json
    assert [made["version"] for made in answer["history"]] == list(range(version(app, "totals"), 0, -1))
    assert all(made["wrote"]["delta"] == 2 for made in answer["history"])
    merged = [made for made in answer["history"] if made["wrote"].keys() & {"merge", "full"}]
    assert merged
    assert all(made["reasons"] for made in merged)
    assert all(made["merge_ms"] >= 0 for made in merged)
    for made in answer["history"]:
        assert made["commit_ms"] >= max(made["write_ms"], made["store_ms"]) >= 0
        assert made["commit_ms"] <= made["write_ms"] + made["store_ms"]
        assert made["batch_ms"] >= made["commit_ms"], "a batch takes less time than the commits in it"
    assert answer["summary"]["commit_ms"]["max"] == answer["history"][0]["commit_ms"]
    fulls = [made["version"] for made in merged if made["wrote"].get("full") == 2]
    assert ("full_ms" in answer) == ("full_version" in answer)
    assert not fulls or answer["full_version"] >= fulls[-1]
    page = app.get("queries/totals/checkpoints?limit=2&before=5").json
    assert [made["version"] for made in page["history"]] == [4, 3]
    assert page["more"]


def test_queries_have_their_names_operators_and_stores(app: Running) -> None:
    queries = {query["name"]: query for query in app.get("queries").json["queries"]}
    joined = queries["joined"]["operators"]
    assert [operator["name"] for operator in joined] == ["symmetricHashJoin"]
    assert joined[0]["stores"]
    assert joined[0]["title"] == "join of two streams on l, left"
    assert queries["totals"]["operators"][0]["title"] == "aggregation on key"
    assert queries["totals"]["sentence"] == app.get("queries/totals/verdict").json["sentence"]
    assert "stateless" not in queries
    hostile = next(query for name, query in queries.items() if name not in ("totals", "joined"))
    assert hostile["name"] == hostile["id"], "a name that is not a path is not an address"
    assert app.get(f"queries/{hostile['id']}/stores").status == 200


@pytest.mark.tier("more")
def test_a_full_checkpoint_of_the_committed_version_is_made_once(app: Running) -> None:
    before = version(app, "totals")
    with ThreadPoolExecutor(4) as pool:
        requests = set(pool.map(lambda _: request_full(app, "totals"), range(4)))
    operation = outcome(app, "totals", min(requests))
    check(operation, "Operation", "driver")
    assert operation["made"] == operation["wanted"] == 2
    assert operation["failed"] == 0
    for request in requests:
        assert {store["version"] for store in outcome(app, "totals", request)["stores"]} == {before}
    again = outcome(app, "totals", request_full(app, "totals", triggerId="nightly-1"))
    assert {store["outcome"] for store in again["stores"]} == {"already"}
    assert request_full(app, "totals", triggerId="nightly-1") == "nightly-1"
    for versions in full_snapshots(app.room / "totals").values():
        assert before in versions
    app.feed("totals")
    stores = app.get("queries/totals/stores").json["stores"]
    assert {store["deltas_since_full"] for store in stores} == {1}


def test_only_the_stores_that_are_named_are_made(app: Running) -> None:
    operation = outcome(app, "joined", request_full(app, "joined", partition=1))
    assert {store["partition"] for store in operation["stores"]} == {1}
    assert operation["failed"] == 0


JSON = {"Content-Type": "application/json"}
BROWSER = {**JSON, "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
REFUSED: dict[str, tuple[int, dict[str, Any]]] = {
    "a form": (415, {"body": b"a=b", "headers": {"Content-Type": "application/x-www-form-urlencoded"}}),
    "text": (415, {"body": b"{}", "headers": {"Content-Type": "text/plain"}}),
    "another site": (403, {"body": {}, "headers": {**JSON, "Sec-Fetch-Site": "cross-site"}}),
    "a browser without the token": (403, {"body": {}, "headers": BROWSER}),
    "a browser with another token": (
        403,
        {"body": {}, "headers": {**BROWSER, "X-State-Store-Token": "0" * 48}},
    ),
    "a page of another site, old browser": (403, {"body": {}, "headers": {**JSON, "Origin": "http://evil"}}),
    "a prefetch": (403, {"body": {}, "headers": {**JSON, "Sec-Purpose": "prefetch"}}),
    "no JSON": (400, {"body": b"{", "headers": JSON}),
    "a list": (400, {"body": b"[]", "headers": JSON}),
    "a long body": (413, {"body": b" " * 70000, "headers": JSON}),
    "an incremental one": (400, {"body": {"checkpointType": "INCREMENTAL"}}),
    "an unknown field": (400, {"body": {"stop": True}}),
    "a trigger id with markup": (400, {"body": {"triggerId": "<b>"}}),
    "a negative partition": (400, {"body": {"partition": -1}}),
    "a partition as text": (400, {"body": {"partition": "1"}}),
    "no such operator": (404, {"body": {"operator": 9}}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_requests_are_refused(app: Running, case: str) -> None:
    status, how = REFUSED[case]

    def answered() -> Any:
        """Return the answer, unless it is that another test's full checkpoint is being made."""
        answer = app.get("queries/totals/checkpoints", method="POST", **how)
        return answer if answer.status != 409 else None

    answer = awaited(answered, "the full checkpoint of another test does not end")
    assert answer.status == status, answer.text
    assert answer.headers["Content-Type"].startswith("application/problem+json")
    check(answer.json, "Problem", "driver")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("queries/nobody", 404),
        ("queries/totals/checkpoints/99", 404),
        ("queries/totals/checkpoints/old", 400),
        ("queries/totals/checkpoints/triggers/unknown", 404),
        ("queries/totals/checkpoints/6/files", 404),
        ("queries/totals/stores?limit=0", 400),
        ("queries/totals/stores?sort=color", 400),
        ("queries/totals/stores?partition=x", 400),
        ("stop", 404),
    ],
)
def test_a_missing_resource_is_a_problem_with_advice(app: Running, path: str, status: int) -> None:
    answer = app.get(path)
    assert answer.status == status
    check(answer.json, "Problem", "driver")
    assert len(answer.json["detail"]) > 20


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_other_methods_are_refused(app: Running, method: str) -> None:
    answer = app.get("queries/totals/checkpoints", method=method)
    assert answer.status == 405
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_the_page_of_the_tab_has_the_token_that_a_browser_needs(app: Running) -> None:
    assert "/checkpoints/" in app.get("/jobs/").text
    page = app.get("/checkpoints/").text
    token = page.split('data-token="', 1)[1].split('"', 1)[0]
    assert len(token) == 48
    sent = {**BROWSER, "X-State-Store-Token": token}
    answer = app.get("queries/totals/checkpoints", method="POST", body={}, headers=sent)
    assert answer.status == 202
    assert "script>alert" not in page


@pytest.mark.parametrize("name", ["..%2f..%2fincremental-state-store.properties", "../x.js", ".js", "a/b.js"])
def test_assets_are_only_those_of_the_page(app: Running, name: str) -> None:
    answer = app.get(f"/checkpoints/assets/{name}")
    is_page = answer.text.lstrip().startswith("<!DOCTYPE html>")  # Jetty may take ".." out of the path
    assert answer.status in (400, 404) or is_page


def test_prometheus_can_read_the_metrics(app: Running) -> None:
    answer = app.get("/checkpoints/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert 'state_store_stores{query="totals"} 2' in lines
    assert any(line.startswith('state_store_merges_total{query="totals",kind="full"}') for line in lines)
    assert any(line.startswith("state_store_commit_duration_seconds_bucket") for line in lines)
    assert not any("script" in line for line in lines), "the hostile name is not in the labels"
    promtool = shutil.which("promtool")
    if promtool is not None:
        done = subprocess.run(
            [promtool, "check", "metrics"], input=answer.text, text=True, capture_output=True
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def of_series(exposition: str, query: str, series: str) -> list[float]:
    """Return the values of a series in PromQL, of one query."""
    name, _, selector = series.removesuffix("}").partition("{")
    label, is_other, wanted = selector.partition("!=") if "!=" in selector else selector.partition("=")
    values = []
    for line in exposition.splitlines():
        if line.startswith(f'{name}{{query="{query}"'):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            if not selector or (f'"{labels[label]}"' == wanted) == (is_other == "="):
                values.append(float(line.rsplit(" ", 1)[1]))
    return values


@pytest.mark.tier("more")
def test_two_names_of_one_fact_have_the_numbers_that_the_page_promises(app: Running) -> None:
    app.feed("totals", 3)
    outcome(app, "totals", request_full(app, "totals"))
    app.do("stop", name="totals")
    app.start("totals")  # restores
    app.feed("totals", 4)
    outcome(app, "totals", request_full(app, "totals"))
    before = app.get("/checkpoints/metrics").text
    app.feed("totals")
    batches = [operators[0] for operators in app.do("progress", name="totals")["batches"]]
    assert sum(batch["incrementalRestoreCount"] for batch in batches) == 2
    parts: dict[str, list[ProgressMetric]] = {}
    for metric in progress_metrics():
        if metric.series is not None and metric.relation in (SAME, ADDED_UP):
            parts.setdefault(metric.series, []).append(metric)

    def counted(series: str) -> list[float]:
        return of_series(app.get("/checkpoints/metrics").text, "totals", series)

    def has_reached(series: str, total: float) -> bool:
        return total <= sum(counted(series)) + 1e-6

    for series, metrics in parts.items():
        scale = 0.001 if "_seconds" in series else 1
        after = counted(series)
        if metrics[0].relation == SAME:
            together = max if metrics[0].kind == LARGEST else sum
            assert batches[-1][metrics[0].name] * scale == together(after), series
            continue
        total = sum(batch[metric.name] for batch in batches for metric in metrics) * scale
        # A merge that ended after the last batch is counted for Prometheus, and with the next batch.
        assert sum(of_series(before, "totals", series)) <= total + 1e-6, series
        if all(word not in series for word in ("merge", "uploaded_bytes_total")) or "delta" in series:
            assert total == pytest.approx(sum(after)), series
        else:
            awaited(partial(has_reached, series, total), f"{series} reaches {total}")


@pytest.mark.tier("more")
def test_failing_merges_are_shown_with_their_words(app: Running) -> None:
    app.start("failing")
    app.feed("failing", 1)
    for partition in (0, 1):
        directory = app.room / "failing/checkpoint/state/0" / str(partition)
        shutil.rmtree(directory / "snapshot", ignore_errors=True)
        (directory / "snapshot").write_text("in the way")
    operation = outcome(app, "failing", request_full(app, "failing"))
    assert operation["failed"] == 2
    assert operation["failure"]["message"].startswith("2 of 2 stores failed, the first because: ")
    app.feed("failing", 1)
    failed = awaited(lambda: app.get("queries/failing/merges").json["failed"], "the failures are shown")
    assert failed[0]["failure"]["kind"]
    stores = app.get("queries/failing/stores").json["stores"]
    assert all(store["failures_in_row"] >= 1 for store in stores)
    latest = app.get("queries/failing/checkpoints").json["latest_failure"]
    assert latest["message"].endswith(failed[0]["failure"]["message"])
    assert (latest["at_ms"], latest["store"]) == (failed[0]["since_ms"], "default")


@pytest.mark.tier("more")
def test_an_ended_query_stays_with_a_link_to_its_checkpoint(app: Running) -> None:
    app.start("short")
    app.feed("short", 1)
    app.do("stop", name="short")
    awaited(lambda: app.get("queries/short").json["running"] is False, "the end is shown")
    answer = app.get("queries/short/checkpoints", method="POST", body={})
    assert answer.status == 409
    assert "state-store full" in answer.json["detail"]


@pytest.mark.tier("more")
def test_a_query_that_has_failed_is_not_fine(app: Running) -> None:
    app.start("overflown")
    app.feed("overflown", 1)
    assert 'state_store_failed{query="overflown"} 0' in app.get("/checkpoints/metrics").text
    line = json.dumps({"key": "k", "value": 2**63 - 1}) + "\n"
    (app.room / "overflown/unfinished").write_text(line * 2)
    (app.room / "overflown/unfinished").rename(app.room / "overflown/input/overflow.json")
    awaited(lambda: app.get("queries/overflown").json["running"] is False, "the end is shown")
    query = app.get("queries/overflown").json
    assert query["verdict"] == "critical"
    assert query["sentence"].startswith("The query has ended with an error: ")
    findings = app.get("queries/overflown/verdict").json["findings"]
    assert [finding["code"] for finding in findings] == ["query-failed"]
    assert 'state_store_failed{query="overflown"} 1' in app.get("/checkpoints/metrics").text


@pytest.mark.tier("more")
def test_a_restarted_query_continues_its_history(app: Running) -> None:
    app.start("again")
    app.feed("again", 2)
    app.do("stop", name="again")
    app.start("again")
    app.feed("again", 1)
    answer = app.get("queries/again/checkpoints").json
    assert [entry["version"] for entry in answer["history"]] == [3, 2, 1]
    assert answer["counts"]["restored"] == 2
    restore = answer["latest_restore"]
    assert restore["version"] == 2
    assert restore["message"].startswith("Version 2 was restored on executor driver (")
    assert sum(query["name"] == "again" for query in app.get("queries").json["queries"]) == 1


@pytest.mark.tier("more")
def test_a_pinned_query_has_its_options_and_operators_whatever_the_session_asks_for(app: Running) -> None:
    app.start("pinned")
    app.feed("pinned", 1)
    app.do("stop", name="pinned")
    app.do("set", key=PROVIDER_KEY, value=SPARKS_OWN)
    try:
        app.start("pinned")
    finally:
        app.do("set", key=PROVIDER_KEY, value=PROVIDER_CLASS)
    app.feed("pinned", 1)
    options = {option["name"]: option["value"] for option in app.get("queries/pinned/config").json["options"]}
    assert options["maxDeltas"] == SETTINGS["maxDeltas"]
    (operator,) = app.get("queries/pinned").json["operators"]
    assert (operator["name"], operator["title"]) == ("stateStoreSave", "aggregation on key")


@pytest.mark.tier("more")
def test_stores_by_partition_are_in_the_order_of_serve(app: Running) -> None:
    stores = app.get("queries/joined/stores?sort=partition").json["stores"]
    places = [(store["operator"], store["store"], store["partition"]) for store in stores]
    assert len({name for _, name, _ in places}) > 1 and places == sorted(places)


UNUSUAL = {
    "last_failure": "no merge has failed",
}
"""Fields of a store that the driver has in some cases only."""


@pytest.mark.tier("more")
def test_the_driver_has_every_field_of_a_store_that_is_declared_for_it(app: Running) -> None:
    stores = app.get("queries/totals/stores").json["stores"]
    declared = {field.name for field in fields(Store) if DRIVER in field.metadata["sources"]}
    full = request_full(app, "totals")
    outcome(app, "totals", full)
    app.do("stop", name="totals")
    app.start("totals")
    app.feed("totals")
    awaited(lambda: app.get("queries/totals").json["running"], "the query runs again")
    for store in app.get("queries/totals/stores").json["stores"]:
        assert declared - store.keys() == UNUSUAL.keys(), "after a restore and a full checkpoint"
        assert (store["snapshot_kind"], store["shared_files"], store["deltas"]) == ("full", 0, 1)
        assert store["snapshot_version"] == store["full_version"] == stores[0]["version"]
        assert (store["restores"], store["damaged_files"], store["agent_restarts"]) == (1, 0, 0)
        assert store["uploaded_bytes"] >= store["new_bytes"]
        assert store["own_bytes"] == store["bytes"]


@pytest.mark.tier("more")
def test_the_driver_has_every_metric_that_is_declared_for_it(app: Running) -> None:
    app.do("stop", name="joined")
    app.start("joined", "joined")
    app.feed("joined")
    outcome(app, "joined", request_full(app, "joined"))
    lines = app.get("/checkpoints/metrics").text.splitlines()
    found = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    declared = {metric.name for metric in METRICS if DRIVER in metric.sources}
    assert declared - found == {"state_store_idle_executors"}, "absent in local mode"
    assert found <= declared
    assert 'state_store_merge_failures_total{query="joined",kind="full"} 0' in lines, "0 before the first"


@pytest.mark.tier("more")
def test_an_agent_that_was_started_again_is_counted(app: Running) -> None:
    """A commit to a local directory waits for no answer of the agent: a later one may report the restart."""
    kill_agents(app)

    def counts() -> set[int]:
        app.feed("totals")
        return {store["agent_restarts"] for store in app.get("queries/totals/stores").json["stores"]}

    awaited(lambda: counts() == {1}, "all stores report the restart")
    assert 'state_store_agent_restarts_total{query="totals"} 1' in app.get("/checkpoints/metrics").text
    assert 'state_store_damaged_files_total{query="totals"} 0' in app.get("/checkpoints/metrics").text


CHAIN = (
    *("version", "deltas", "deltas_since_full", "merges_since_full", "files", "bytes", "shared_files"),
    *("shared_bytes", "own_files", "own_bytes", "new_bytes", "snapshot_version", "full_version"),
)
"""Figures of a store that all programs show."""


@pytest.mark.dear("an application with its tab")
def test_chains_are_those_that_serve_doctor_and_notebooks_show(app: Running) -> None:
    """The tab has a chain as it was at the commit: all look until no merge came after that, or meanwhile."""
    location = str(app.room / "totals/checkpoint")

    def in_tab() -> dict[int, dict[str, Any]]:
        return {store["partition"]: store for store in app.get("queries/totals/stores").json["stores"]}

    def in_storage() -> dict[int, Store]:
        return {store.partition: store for store in Looker(location).look().stores}

    def chains(stores: Mapping[int, Any]) -> list[tuple[Any, ...]]:
        names = ("version", "snapshot_version", "full_version")  # a full snapshot may replace another
        shown = {n: store if isinstance(store, dict) else vars(store) for n, store in stores.items()}
        return sorted((n, *(store.get(name) for name in names)) for n, store in shown.items())

    def looks() -> tuple[Any, ...] | None:
        """Return what each of them shows, if all of it is of the same chains."""
        stored, shown, examined = in_storage(), in_tab(), state_store.doctor(location).look
        listed = state_store.checkpoints(location)
        if chains(stored) == chains(shown) == chains(in_storage()):
            return shown, stored, examined, listed
        app.feed("totals")
        return None

    shown, stored, examined, listed = awaited(looks, "no merge has come after the newest commit")
    assert examined is not None
    for store in examined.stores:
        figures = {name: shown[store.partition].get(name) for name in CHAIN}
        assert {name: getattr(store, name) for name in CHAIN} == figures
        assert {name: getattr(stored[store.partition], name) for name in CHAIN} == figures
        assert store.snapshot_version is not None and store.deltas < store.version, "a merge was made"
    for key, versions in listed.items():
        figures, newest = shown[key.partition], versions[-1]
        assert (newest.version.number, newest.deltas, newest.files, newest.bytes, newest.new_bytes) == tuple(
            figures[name] for name in ("version", "deltas", "files", "bytes", "new_bytes")
        )
