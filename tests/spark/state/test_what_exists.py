"""Readers and tools count the existing partitions, not those in Spark's metadata."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from itertools import permutations
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import quick_java
from pyspark.sql import functions as F
from queries.session_settings import PREFIX
from queries.small.flow import session_options
from queries.store_choices import HDFS, OURS, OURS_IDS, ROCKSDB_IDS, Store

import state_store
from state_store.cli.main import main
from state_store.data.dataset.rewriting.copying import copy, repartition
from state_store.data.dataset.rewriting.importing import import_state
from state_store.data.migration import migrate
from state_store.data.query import Query
from state_store.errors import MissingError

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]

PARTITIONS = 3
BATCHES = [[], [(1, 10), (2, 10), (3, 20)], [(4, 30)]]
"""The records of each file, `n` and a second; the first batch is empty."""

CONF = {f"spark.hadoop.{name}": value for name, value in quick_java.CHECKPOINT_FILES.items()}


def _sum(frame: Any) -> Any:
    return frame.agg(F.sum("n").alias("total"), F.count("*").alias("count"))


QUERIES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "global": (_sum, "complete"),
    "limit": (lambda frame: frame.limit(3), "append"),
    "literal": (lambda frame: frame.select(F.lit(1).alias("x")).distinct(), "append"),
    "chained": (lambda frame: _sum(frame.dropDuplicates(["n"])), "complete"),
    "one key": (lambda frame: frame.groupBy((F.col("n") * 0).alias("key")).count(), "complete"),
}
PARTITIONS_OF = {"global": [1], "limit": [1], "literal": [3], "chained": [1, 3], "one key": [3]}
ROWS_OF = {
    "global": [[10, 4]],
    "limit": [[None, 3]],
    "literal": [[1]],
    "chained": [[10, 4]],
    "one key": [[0, 4]],
}


GROWN = {**ROWS_OF, "global": [[15, 5]], "chained": [[15, 5]], "one key": [[0, 5]]}
"""The rows after one more record, with another `n`."""

COMMANDS = {
    **dict.fromkeys(("checkpoints", "chain", "files", "show", "stats", "estimate", "verify", "repair"), ()),
    **dict.fromkeys(("doctor", "full"), ()),
    "stats --exact": (),
    "sql": ("from state",),
    "diff": ("0",),
    "export": (TARGET := "<TARGET>",),
    "cp": (TARGET,),
    "repartition": (TARGET, "--partitions", "5"),
    "import": (ROWS := "<ROWS>", TARGET),
}
"""Commands with their arguments after the checkpoint; those that have a target leave a checkpoint there."""

OPTIONS = {
    f"{PREFIX}checkpointFormatVersion": "1",
    f"{PREFIX}compression.codec": "zstd",
    f"{PREFIX}rowChecksum.enabled": "true",
    f"{PREFIX}minDeltasForSnapshot": "2",
    f"{PREFIX}incremental.maxDeltas": "1",
    f"{PREFIX}incremental.snapshotCompression": "lz4",
    f"{PREFIX}incremental.restoreMode": "lazy",
    f"{PREFIX}incremental.fullAfterDeltas": "1",
    f"{PREFIX}incremental.retainedCheckpoints": "2",
    "spark.sql.streaming.minBatchesToRetain": "2",
}
"""Options that another run of a query may have: of Spark's, and of this store's."""


class Checkpoints:
    """Make queries that have run three batches, each on several stores."""

    def __init__(self, spark: Any, root: Path) -> None:
        self._spark = spark
        self.root = root
        self.input = root / "input"
        self.input.mkdir(parents=True)
        for number, rows in enumerate(BATCHES):
            self.feed(number, rows)

    def feed(self, number: int, rows: list[tuple[int, int]]) -> None:
        lines = [json.dumps({"n": n, "second": second}) for n, second in rows]
        (self.input / f"{number}.json").write_text("\n".join(lines))

    def run(
        self,
        name: str,
        checkpoint: Path,
        store: Store,
        partitions: int = PARTITIONS,
        options: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        query, mode = QUERIES[name]
        conf = {**store.conf(), "spark.sql.shuffle.partitions": str(partitions), **options}
        with session_options(self._spark, conf):
            stream = self._spark.readStream.schema("n int, second int").option("maxFilesPerTrigger", 1)
            writer = query(stream.json(str(self.input))).writeStream.format("noop").outputMode(mode)
            writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
            writer.start().awaitTermination()

    def run_again(self, name: str, checkpoint: Path, store: Store, **others: Any) -> None:
        """Go on with a query by one more record."""
        self.feed(90, [(5, 40)])
        try:
            self.run(name, checkpoint, store, **others)
        finally:
            (self.input / "90.json").unlink()

    def path(self, name: str, store: Store) -> Path:
        """Return a checkpoint of the query on a store; the first call runs the query."""
        checkpoint = self.root / str(store) / name
        if not checkpoint.exists():
            self.run(name, checkpoint, store)
        return checkpoint

    def copied(self, name: str, store: Store, target: Path) -> Path:
        return Path(shutil.copytree(self.path(name, store), target))

    def spark_s_rows(self, checkpoint: Path, store: Store, operator: int = 0) -> list[list[Any]]:
        """Return the rows that Spark's own source reads, without partitions and placeholders."""
        with session_options(self._spark, store.conf()):
            source = self._spark.read.format("statestore").option("operatorId", operator)
            found = [row.asDict(recursive=True) for row in source.load(str(checkpoint)).collect()]
        for row in found:
            row["value"].pop("__dummy__", None)
        return [[*row["key"].values(), *row["value"].values()] for row in found]


@pytest.fixture(scope="module")
def checkpoints(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkpoints]:
    yield Checkpoints(spark, tmp_path_factory.mktemp("what-exists"))


def rows(checkpoint: Path | str, operator: int = 0) -> list[dict[str, Any]]:
    with state_store.open(str(checkpoint), operator) as state:
        found = state.to_arrow().drop_columns(["partition_id"]).to_pylist()
        assert state.count() == len(found) == state.stats(sample=None).rows
        return found


@pytest.mark.parametrize("store", [OURS_IDS, OURS], ids=str)
@pytest.mark.parametrize("name", QUERIES)
def test_every_reader_finds_the_partitions_that_exist(
    checkpoints: Checkpoints, name: str, store: Store, tmp_path: Path
) -> None:
    checkpoint = checkpoints.path(name, store)
    found = rows(checkpoint)
    assert [list(row.values()) for row in found] == ROWS_OF[name]
    operators = Query.open(str(checkpoint)).operators
    assert [operator.partitions for operator in operators] == PARTITIONS_OF[name]
    verification = state_store.verify(str(checkpoint))
    assert verification.ok
    assert len(verification.verdicts) == sum(PARTITIONS_OF[name])
    made = state_store.full_checkpoint(str(checkpoint))
    assert len(made.made) == len(verification.verdicts)
    assert state_store.repair(str(checkpoint)).ok
    assert len(state_store.checkpoints(str(checkpoint))) == len(state_store.chain(str(checkpoint)))
    assert state_store.measure(str(checkpoint)).workload.partitions == PARTITIONS_OF[name][0]
    copy(str(checkpoint), str(tmp_path / "copy"))
    assert state_store.verify(str(tmp_path / "copy")).ok
    repartition(str(checkpoint), str(tmp_path / "five"), 5)
    assert rows(tmp_path / "five") == found
    with state_store.open(str(checkpoint)) as state:
        assert state.export(tmp_path / "exported") == len(found)
        import_state(str(checkpoint), state, str(tmp_path / "imported"))
    assert rows(tmp_path / "imported") == found


@pytest.mark.parametrize("name", QUERIES)
def test_every_command_finds_the_partitions_that_exist(
    checkpoints: Checkpoints, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = checkpoints.copied(name, OURS_IDS, tmp_path / "checkpoint")
    assert_commands_work(checkpoint, ROWS_OF[name], PARTITIONS_OF[name], tmp_path, capsys)


def assert_commands_work(
    checkpoint: Path,
    wanted: list[list[Any]],
    partitions: list[int],
    root: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Run each command on a checkpoint, and compare rows and numbers of stores."""
    assert main(["export", str(checkpoint), str(root / "rows")]) == 0
    stores = sum(partitions)
    for command, others in COMMANDS.items():
        places = {TARGET: str(root / command), ROWS: str(root / "rows")}
        words = [*command.split(), *(places.get(word, word) for word in others)]
        is_text = words[0] in ("export", "cp", "repartition", "import")
        capsys.readouterr()
        code = main([words[0], str(checkpoint), *words[1:], *([] if is_text else ["--json"])])
        said = capsys.readouterr()
        assert code == 0, (command, said)
        found = None if is_text else json.loads(said.out)
        if words[0] in ("show", "sql"):
            assert [
                [value for name, value in row.items() if name != "partition_id"] for row in found
            ] == wanted
        elif words[0] == "stats":
            assert found["rows"] == len(wanted)
        elif words[0] in ("verify", "repair", "full", "files", "checkpoints"):
            assert len(found["stores"]) == stores, command
        elif words[0] in ("cp", "repartition", "import"):
            assert [list(row.values()) for row in rows(root / command)] == wanted
            kept = partitions if words[0] != "repartition" else [1 if n == 1 else 5 for n in partitions]
            assert [operator.partitions for operator in Query.open(str(root / command)).operators] == kept


def test_the_row_of_a_state_without_keys_is_found_by_the_empty_key(checkpoints: Checkpoints) -> None:
    with state_store.open(str(checkpoints.path("global", OURS_IDS))) as state:
        found = state.get(())
        assert found is not None
        assert list(found.values())[:2] == [10, 4]
        assert [version.version for version in state.history(())] == sorted(
            version.version for version in state.history(())
        )
        assert state.diff(0).read_all().num_rows == 1


@pytest.mark.parametrize(
    ("source", "target"), [(OURS_IDS, ROCKSDB_IDS), (HDFS, OURS), (ROCKSDB_IDS, OURS_IDS)], ids=str
)
def test_a_state_without_keys_is_migrated_and_continues(
    checkpoints: Checkpoints, source: Store, target: Store, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    done = migrate(
        str(checkpoints.path("global", source)),
        str(moved),
        target.name,
        checkpoint_format=target.format,
        conf=CONF,
    )
    assert (done.stores, done.rows) == (1, 1)
    checkpoints.run_again("global", moved, target)
    if target.name == "incremental":
        assert [list(row.values()) for row in rows(moved)] == [[15, 5]]


def copied_unless_removed(source: str, target: str) -> None:
    """Copy a file, unless it was removed since its directory was listed."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)


EVERYWHERE = (OURS_IDS, ROCKSDB_IDS, HDFS)


@pytest.mark.tier("long")
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize(("source", "target"), [*permutations(EVERYWHERE, 2)], ids=str)
def test_every_state_is_migrated_in_every_direction_and_continues(
    checkpoints: Checkpoints, name: str, source: Store, target: Store, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    done = migrate(
        str(checkpoints.path(name, source)),
        str(moved),
        target.name,
        checkpoint_format=target.format,
        conf=CONF,
    )
    assert done.stores == sum(PARTITIONS_OF[name])
    assert checkpoints.spark_s_rows(moved, target) == ROWS_OF[name]
    checkpoints.run_again(name, moved, target)
    assert checkpoints.spark_s_rows(moved, target) == GROWN[name]


@pytest.mark.parametrize("store", [OURS_IDS, pytest.param(OURS, marks=pytest.mark.tier("long"))], ids=str)
@pytest.mark.parametrize("name", ["chained", "one key"])
def test_a_query_that_was_started_again_with_other_options_is_read_as_it_is(
    checkpoints: Checkpoints, name: str, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark keeps the partitions of the first batch, and takes the other options of the session."""
    checkpoint = checkpoints.copied(name, store, tmp_path / "checkpoint")
    checkpoints.run_again(name, checkpoint, store, partitions=7, options=OPTIONS)
    # The session's maintenance goes on with the directory of the query for a while, and removes files.
    copied = Path(shutil.copytree(checkpoint, tmp_path / "copy", copy_function=copied_unless_removed))
    assert_commands_work(copied, GROWN[name], PARTITIONS_OF[name], tmp_path, capsys)


def test_a_query_continues_with_new_partitions_and_options(checkpoints: Checkpoints, tmp_path: Path) -> None:
    before = checkpoints.path("chained", OURS_IDS)
    repartition(str(before), str(tmp_path / "five"), 5)
    checkpoints.feed(91, [(1, 40), (6, 50)])
    try:
        checkpoints.run("chained", tmp_path / "five", OURS_IDS, partitions=7)
    finally:
        (checkpoints.input / "91.json").unlink()
    assert [list(row.values()) for row in rows(tmp_path / "five")] == [[16, 5]]
    assert [operator.partitions for operator in Query.open(str(tmp_path / "five")).operators] == [1, 5]


@pytest.mark.parametrize("store", [OURS_IDS, OURS], ids=str)
def test_a_missing_partition_is_damage_too(checkpoints: Checkpoints, store: Store, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(checkpoints.path("one key", store), checkpoint)
    shutil.rmtree(checkpoint / "state/0/2")
    verification = state_store.verify(str(checkpoint))
    assert {finding.key.partition for finding in verification.findings} == {2}
    with pytest.raises(MissingError, match="partition 2 of store 'default'"):
        state_store.open(str(checkpoint))


def test_an_unknown_partition_is_named(checkpoints: Checkpoints, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(checkpoints.path("global", OURS_IDS), checkpoint)
    shutil.copytree(checkpoint / "state/0/0", checkpoint / "state/0/1")
    (finding,) = state_store.verify(str(checkpoint)).findings
    assert (finding.key.partition, finding.file) == (1, "state/0/1")


def test_the_error_beside_a_checkpoint_names_its_directory(checkpoints: Checkpoints) -> None:
    with pytest.raises(MissingError, match=r"has the checkpoint directories .*/chained[,.]"):
        state_store.open(str(checkpoints.path("global", OURS_IDS).parent))
    with pytest.raises(MissingError, match=r"is a part of the checkpoint directory .*global"):
        state_store.open(str(checkpoints.path("global", OURS_IDS) / "state/0"))


def test_state_without_metadata_is_no_smaller_query(checkpoints: Checkpoints, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(checkpoints.path("chained", OURS_IDS), checkpoint)
    shutil.rmtree(checkpoint / "state/1/_metadata")
    with pytest.raises(state_store.StateStoreError, match="has state of operator 1"):
        state_store.open(str(checkpoint))
