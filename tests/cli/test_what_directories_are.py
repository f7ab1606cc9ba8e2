"""Commands and functions that are given a directory that is not a checkpoint with state of this store."""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from dataset.golden_states import checkpoint
from dataset.readers import readers
from minis3 import S3Server

import state_store
from state_store.cli.commands import NAMES
from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.core.settings.session import PROVIDER_CLASS
from state_store.core.storage import open_storage
from state_store.errors import MissingError, StateStoreError

LEFT_OUT = {"completion", "jar", "options", "serve"}
"""All but the last have no checkpoint; `serve` waits for the query of a directory."""

OTHERS = {
    "diff": ["1"],
    "get": ["C1"],
    "history": ["C1"],
    "sql": ["from state"],
    "cp": ["TARGET"],
    "export": ["TARGET"],
    "repartition": ["TARGET", "--partitions", "3"],
    "migrate": ["TARGET", "--to", "rocksdb"],
    "import": ["ROWS", "TARGET"],
}
COMMANDS = sorted({*NAMES} - LEFT_OUT)


def with_files(*names: str) -> Callable[[Path], Path]:
    """Return a function that makes a directory with these files, empty, below another one."""

    def make(root: Path) -> Path:
        for name in names:
            file = root / "place" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        return root / "place"

    return make


def empty(root: Path) -> Path:
    (root / "place").mkdir()
    return root / "place"


def started_query(root: Path) -> Path:
    """Make a query as Spark leaves it between its start and the plan of its first batch."""
    place = empty(root)
    (place / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    for name in ("offsets", "commits", "sources"):
        (place / name).mkdir()
    return place


def planned(root: Path) -> Path:
    """Make a query whose first batch is being computed."""
    place = checkpoint("flights", root)
    for file in [*(place / "commits").iterdir(), *(place / "offsets").glob("[1-9]")]:
        file.unlink()
    return place


def without_state(root: Path) -> Path:
    place = checkpoint("flights", root)
    shutil.rmtree(place / "state")
    return place


def without_description(root: Path) -> Path:
    place = checkpoint("flights", root)
    shutil.rmtree(place / "state/0/_metadata")
    return place


def of_spark(provider: str, *, described: bool) -> Callable[[Path], Path]:
    """Return a function that makes the checkpoint of a store of Spark's, of Spark 4 or (not described) 3."""

    def make(root: Path) -> Path:
        place = checkpoint("flights", root) if described else without_description(root)
        for file in (place / "offsets").iterdir():
            name = f"org.apache.spark.sql.execution.streaming.state.{provider}"
            file.write_text(file.read_text().replace(PROVIDER_CLASS, name))
        return place

    return make


def several(root: Path) -> Path:
    for name in ("b", "a"):
        checkpoint("flights", root).rename(root / name)
    (root / "notes").mkdir()
    return root


def below(name: str) -> Callable[[Path], Path]:
    return lambda root: checkpoint("flights", root) / name


NOT_COMMITTED = r"/\w+ has no state yet: the query has not committed a batch yet\. Try again when it has\."
PART = r"/{0} is a part of the checkpoint directory (\S*/flights)\. Give \1\."
SINK = r", not the checkpoint directory of a query\. Give the directory .* not that of its sink"
HAS = r" has the checkpoint directories \S*/a, \S*/b\. Give one of them\."

CASES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "nowhere": (
        lambda root: root / "nowhere",
        r"the directory \S*/nowhere does not exist\. Give",
    ),
    "empty": (
        empty,
        r"the directory \S*/place is empty\. No query has started there, or another is meant\. ",
    ),
    "begun": (started_query, NOT_COMMITTED),
    "planned": (planned, NOT_COMMITTED),
    "without-state": (without_state, "is the checkpoint of a query that has no stateful operator"),
    "without-description": (without_description, "Spark's description of it, '.*metadata', is missing"),
    "delta": (with_files("_delta_log/0.json", "part-0.snappy.parquet"), f"is a Delta table{SINK}"),
    "hudi": (with_files(".hoodie/hoodie.properties"), f"is a Hudi table{SINK}"),
    "iceberg": (with_files("metadata/v1.metadata.json", "data/a.parquet"), f"is an Iceberg table{SINK}"),
    "sink": (with_files("_spark_metadata/0", "a.parquet"), f"is the output of a query's file sink{SINK}"),
    "parquet": (with_files("_SUCCESS", "a.parquet"), f"is a directory of Parquet files{SINK}"),
    "by-column": (
        with_files("day=1/a.parquet", "day=2/a.parquet"),
        f"a table in directories by column{SINK}",
    ),
    "flink": (with_files("chk-7/_metadata", "shared/x"), r"is a checkpoint of Flink, .*State Processor API"),
    "flink-chk": (with_files("_metadata", "0b2e"), "is a checkpoint of Flink, "),
    "rocksdb": (with_files("CURRENT", "MANIFEST-000004", "000008.sst"), "is a RocksDB database, "),
    "several": (several, HAS),
    "state": (below("state"), PART.format("state")),
    "operator": (below("state/0"), PART.format("state/0")),
    "store": (below("state/0/0"), PART.format("state/0/0")),
    "offsets": (below("offsets"), PART.format("offsets")),
    "other": (
        with_files("notes.txt"),
        "is not the checkpoint .*: it lacks state/0/_metadata/metadata",
    ),
}
STORES = {
    f"{name}-{'4' if described else '3'}": (
        of_spark(provider, described=described),
        rf"with Spark's {name} state store, org\S+{provider}\..*`state-store migrate (\S+) \1-incremental ",
    )
    for name, provider in (
        ("HDFS-backed", "HDFSBackedStateStoreProvider"),
        ("RocksDB", "RocksDBStateStoreProvider"),
    )
    for described in (True, False)
}


@pytest.mark.parametrize("case", [*CASES, *STORES])
def test_each_command_says_what_a_directory_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    make, says = {**CASES, **STORES}[case]
    root = tmp_path / "given"
    root.mkdir()
    place, before = str(make(root)), sorted(root.rglob("*"))
    places = {"TARGET": str(tmp_path / "target"), "ROWS": str(tmp_path / "rows")}
    wrong = {}
    for name in COMMANDS:
        if case in STORES and name == "migrate":
            continue
        words = [places.get(word, word) for word in OTHERS.get(name, [])]
        code, answer = main([name, place, *words]), capsys.readouterr()
        wanted = ExitCode.USAGE if case in STORES else ExitCode.NOT_FOUND
        if code != wanted or not re.search(says, answer.err) or answer.out:
            wrong[name] = code, answer
    assert wrong == {}
    assert [path.name for path in tmp_path.iterdir()] == ["given"]
    assert sorted(root.rglob("*")) == before


@pytest.mark.parametrize("case", [*CASES, *STORES])
def test_each_function_says_what_a_directory_is(tmp_path: Path, case: str) -> None:
    make, says = {**CASES, **STORES}[case]
    root = tmp_path / "given"
    root.mkdir()
    place = str(make(root))
    for name, read in readers(tmp_path).items():
        if name == "check_checkpoint" or (case in STORES and name == "migrate"):
            continue  # no query has run there, so any store may keep its state
        with pytest.raises(StateStoreError, match=says):
            read(place)
            pytest.fail(f"{name} has read it")
    assert [path.name for path in tmp_path.iterdir()] == ["given"]


def test_a_part_is_found_from_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = checkpoint("flights", tmp_path)
    monkeypatch.chdir(place / "state/0")
    with pytest.raises(MissingError, match=f"Give {place}"):
        state_store.open(".")


def test_a_name_as_that_of_a_part_is_no_part(tmp_path: Path) -> None:
    place = with_files("notes.txt")(tmp_path / "state")
    with pytest.raises(MissingError, match="it lacks state/0"):
        state_store.open(place)


def test_a_version_to_come_is_not_there_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(checkpoint("flights", tmp_path))
    says = f"there is no version 9 yet: of {place} Spark has committed batch 3 last, which is version 4"
    for words in (
        ["diff", place, "9"],
        ["diff", place, "9", "--feed"],
        ["diff", place, "1", "9"],
        ["show", place, "--version", "9"],
        ["get", place, "AA", "--batch", "8"],
        ["chain", place, "--version", "9"],
    ):
        assert main(words) == ExitCode.NOT_FOUND, words
        assert says in capsys.readouterr().err
    assert main(["diff", place, "3", "2"]) == ExitCode.USAGE
    assert "version 2 does not come after version 3" in capsys.readouterr().err


@pytest.mark.tier("more")
def test_a_remote_directory_is_named_by_its_listing(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in s3_server.environment.items():
        monkeypatch.setenv(variable, value)
    for case, (make, says) in CASES.items():
        if case == "offsets":  # a name in the way of a name
            continue
        root = tmp_path / case
        root.mkdir()
        place, uri = make(root), f"s3://bucket/{uuid.uuid4()}"
        with_storage = open_storage(uri)
        for file in [path for path in root.rglob("*") if path.is_file()]:
            with_storage.write(str(file.relative_to(root)), file.read_bytes())
        with_storage.close()
        given = f"{uri}/{place.relative_to(root)}".removesuffix("/.")
        if case in ("nowhere", "empty"):
            says = r"the directory s3:\S* is empty, or does not exist\. No query has started there"
        s3_server.requests.clear()
        with pytest.raises(MissingError, match=says):
            state_store.open(given)
        if case in ("delta", "parquet", "flink", "empty"):
            assert len(s3_server.requests) < 12, s3_server.requests
