"""Whole queries on Google Cloud Storage and Azure: through the JVM, with the connectors that users set.

Each life of a query is a process of its own, with an empty local disk: what it begins with is from storage.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import maven_jars
import owned_processes
import pytest
import quick_java

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import state_store
from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.observe.look import Looker
from state_store.observe.rest_answers import Store

from . import cloud_application
from .clouds import CloudService, azurite, fake_gcs

pytestmark = [pytest.mark.spark, pytest.mark.tier("long")]

QUERIES = tuple(cloud_application.QUERIES)
STORES, BATCHES = 2, 12
"""The partitions of each query, and the batches of all its lives."""

SETTINGS = {
    "maxDeltas": 1,
    "minPauseBetweenMerges": "0s",
    "fullAfterMerges": 100,
    "fullScheduleJitter": "0s",
    "memoryBudget": "64m",
    "localRecovery": "false",
}
RUN_S = 1200
_TESTS = Path(__file__).resolve().parents[2]
PYTHON_PATH = os.pathsep.join(map(str, (_TESTS, _TESTS.parent, Path(__file__).parent)))


@dataclass(frozen=True)
class Place:
    """A directory of a service: `checkpoints` is its URI for queries, `own` that for the command line."""

    checkpoints: str
    own: str
    options: Mapping[str, str] = field(default_factory=dict)
    jars: Sequence[Path] = ()


@pytest.fixture(scope="module")
def gcs_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudService]:
    with fake_gcs(tmp_path_factory.mktemp("gcs")) as service:
        yield service


@pytest.fixture(scope="module")
def azure_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudService]:
    pytest.importorskip("azure.storage.blob")
    with azurite(tmp_path_factory.mktemp("azurite")) as service:
        yield service


@pytest.fixture
def gcs(gcs_service: CloudService, monkeypatch: pytest.MonkeyPatch) -> Place:
    directory = str(uuid.uuid4())
    for name, value in gcs_service.environment.items():
        monkeypatch.setenv(name, value)
    return Place(
        f"gs://bucket/{directory}",
        f"gs://anonymous@bucket/{directory}",
        gcs_service.hadoop_properties,
        maven_jars.gcs_jars(),
    )


@pytest.fixture
def azure(azure_service: CloudService, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name, value in azure_service.environment.items():
        monkeypatch.setenv(name, value)
    uri = f"abfs://bucket@devstoreaccount1.dfs.core.windows.net/{uuid.uuid4()}"
    return Place(uri, uri, azure_service.hadoop_properties, maven_jars.abfs_jars())


def text_of(batch: int) -> str:
    """Return the file of a batch; some values are 0, at which `groups` forgets the key."""
    records = [
        {"key": f"key-{(batch * 7 + number * 3) % 40}", "value": (batch + number) % 9} for number in range(30)
    ]
    return "".join(json.dumps(record) + "\n" for record in records)


class Lives:
    """The lives of the queries at a place, one after the other, which read the same files as at others."""

    def __init__(self, room: Path, place: Place) -> None:
        self.room, self.place = room, place
        self.input, self.output = room / "input", room / "output"
        self.input.mkdir(parents=True)
        self.batches = self.lives = 0

    def live(self, batches: int, *, ask: bool = False, **settings: Any) -> None:
        """Run the queries on some more batches until they have read and merged them."""
        before = self.batches
        for _ in range(batches):
            path = self.input / f"{self.batches:03}.json"
            path.write_text(text_of(self.batches))
            os.utime(path, (1_700_000_000 + self.batches,) * 2)
            self.batches += 1
        self.lives += 1
        local = self.room / f"local-{self.lives}"
        local.mkdir()
        plan = {
            "conf": {**self._conf(settings), "spark.local.dir": str(local)},
            "input": str(self.input),
            "before": before,
            "checkpoints": self.place.checkpoints,
            "own": self.place.own,
            "output": str(self.output),
            "ask": ask,
        }
        log = self.room / f"log-{self.lives}"
        command = [sys.executable, cloud_application.__file__, json.dumps(plan)]
        environment = {**os.environ, "PYTHONPATH": PYTHON_PATH, "PYSPARK_PYTHON": sys.executable}
        options = {"stdout": log.open("w"), "stderr": subprocess.STDOUT, "env": environment}
        with options["stdout"], owned_processes.started(command, **options) as process:
            assert process.wait(RUN_S) == 0, log.read_text()[-20_000:]

    def _conf(self, settings: Mapping[str, Any]) -> dict[str, str]:
        return {
            **state_store.spark_conf({**SETTINGS, **settings}),
            "spark.ui.port": "0",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "1500m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraClassPath": os.pathsep.join(map(str, self.place.jars)),
            "spark.driver.extraJavaOptions": quick_java.QUICK_START,
            "spark.sql.shuffle.partitions": str(STORES),
            "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
            "spark.executorEnv.PYTHONPATH": PYTHON_PATH,
            **{f"spark.hadoop.{name}": value for name, value in self.place.options.items()},
        }

    def rows(self, query: str) -> dict[str, list[str]]:
        """Return the rows of each batch, and of the state, by the file's name."""
        files = sorted((self.output / query).glob("*.json"))
        return {file.name: json.loads(file.read_text()) for file in files if file.name != "metrics.json"}

    def restored(self, query: str) -> tuple[int, int]:
        """Return how many stores the newest life has restored at first, and with how many deltas."""
        first = json.loads((self.output / query / "metrics.json").read_text())[0]
        return first["incrementalRestoreCount"], first["incrementalRestoreDeltas"]

    def stores(self, query: str) -> list[Store]:
        """Return what the command line finds in storage."""
        found = Looker(f"{self.place.own}/{query}").look().stores
        assert len(found) == STORES
        return found

    def fulls(self, query: str) -> set[tuple[int | None, int | None]]:
        """Return the versions of each store's newest full checkpoint and newest snapshot."""
        return {(store.full_version, store.snapshot_version) for store in self.stores(query)}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[str]]]:
    """Return the rows on a local disk by the query, from one life."""
    room = tmp_path_factory.mktemp("local")
    local = Lives(room / "lives", Place(str(room / "checkpoints"), str(room / "checkpoints")))
    local.live(BATCHES)
    return {query: local.rows(query) for query in QUERIES}


@pytest.mark.parametrize("service", ["gcs", "azure"])
def test_queries_live_on_with_what_is_in_storage(
    service: str,
    expected: dict[str, dict[str, list[str]]],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lives = Lives(tmp_path / "lives", request.getfixturevalue(service))

    lives.live(5)
    for query in QUERIES:
        own = f"{lives.place.own}/{query}"
        capsys.readouterr()
        assert main(["checkpoints", own, "--json"]) == ExitCode.OK
        stores = json.loads(capsys.readouterr().out)["stores"]
        lines = [line for store in stores for line in store["checkpoints"]]
        assert {"delta", "merge"} <= {kind for line in lines for kind in line["wrote"]}
        assert main(["full", own]) == ExitCode.OK
        assert lives.fulls(query) == {(5, 5)}

    lives.live(3, ask=True)
    for query in QUERIES:
        assert lives.restored(query) == (STORES, 0)
        assert lives.fulls(query) == {(8, 8)}
        assert all("REST API" in str(store.snapshot_reason) for store in lives.stores(query))

    lives.live(4, fullAfterDeltas=1)
    assert lives.batches == BATCHES
    for query in QUERIES:
        assert lives.restored(query) == (STORES, 0)
        for store in lives.stores(query):
            assert store.full_version == store.snapshot_version and store.full_version > 8
            assert "fullAfterDeltas" in str(store.snapshot_reason)
        assert main(["verify", f"{lives.place.own}/{query}"]) == ExitCode.OK
        assert len(expected[query]) == BATCHES + 1 and expected[query]["state.json"]
        assert lives.rows(query) == expected[query]
