"""A query that is moved to another state store, broken off in a batch, goes on as it goes on without."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import late_workers
import pyspark
import pytest
import quick_java
from pyspark.errors import StreamingQueryException
from queries import records
from queries.catalogue import SCENARIOS
from queries.flow import session_options
from queries.sink import rows_of
from queries.stores import HDFS, OURS, OURS_IDS, ROCKSDB, ROCKSDB_IDS, ROCKSDB_SNAPSHOTS, Store

from state_store.migration.migrate import Migrated, migrate

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]

BATCHES = 6
FIRST = 3
"""The batch in which a query breaks off, before it is moved."""

AT_ONCE = 2
CONF = {f"spark.hadoop.{name}": value for name, value in quick_java.CHECKPOINT_FILES.items()}


@dataclass(frozen=True)
class Case:
    name: str
    source: Store
    target: Store

    def __str__(self) -> str:
        return f"{self.name}-{self.source}-{self.target}"


# Spark 4.0 has one format of RocksDB's archives in a JVM, whatever its queries have.
ONE_FORMAT = pyspark.__version__.startswith("4.0.")
FEW = [
    Case("session-window-append", HDFS, OURS_IDS),
    Case("join-full", ROCKSDB_IDS, OURS),
    Case("pandas-event-time", OURS_IDS, HDFS),
    Case("processor-scala-event-time", ROCKSDB_IDS if ONE_FORMAT else ROCKSDB, OURS_IDS),
    Case("processor-scala-event-time", OURS_IDS, ROCKSDB_IDS),
]
PAIRS = [(HDFS, OURS_IDS), (ROCKSDB_IDS, OURS_IDS), (OURS_IDS, HDFS), (OURS_IDS, ROCKSDB_IDS)]
MORE_PAIRS = [
    (HDFS, OURS),
    (ROCKSDB, OURS_IDS),
    (ROCKSDB_SNAPSHOTS, OURS),
    (OURS, ROCKSDB),
    (OURS, OURS_IDS),
    (HDFS, ROCKSDB_IDS),
]
# By the clock: their output is never the same.
LEFT_OUT = [name for name in SCENARIOS if "processing-time" in name]


def _has_families(name: str) -> bool:
    return name.startswith("processor") or "column-families" in name


ALL = [
    Case(name, source, target)
    for name in SCENARIOS
    if name not in LEFT_OUT
    for source, target in (*PAIRS, *(MORE_PAIRS if name in {one.name for one in FEW} else ()))
    if not (_has_families(name) and HDFS in (source, target))
]


def _marks(case: Case) -> list[pytest.MarkDecorator]:
    """Few run in `make test`, and on every Spark in `make test-long`; one in `make test` on each."""
    if case not in FEW:
        return [pytest.mark.long]
    return [pytest.mark.spark42_long, *([pytest.mark.oldest] if case == FEW[0] else [])]


CASES = [
    pytest.param(case, id=str(case), marks=_marks(case))
    for case in [*ALL, *(one for one in FEW if one not in ALL)]
]


class Moves:
    """Queries that broke off in a batch, and went on twice: as they were, and on another state store."""

    def __init__(self, spark, root: Path, cases: list[Case]):
        self.spark, self.root, self.cases = spark, root, cases
        self.moved: dict[Case, Migrated] = {}
        self._outputs: dict[str, list[str]] = {}
        self._inputs = {"events": records.batches(5, BATCHES), "answers": records.batches(6, BATCHES)}

    def play(self) -> None:
        sources = sorted({(one.name, one.source) for one in self.cases}, key=str)
        self._feed(slice(FIRST + 1))
        self._run([(name, store, "before") for name, store in sources], breaks_off=True)
        for name, store in sources:
            shutil.copytree(self._checkpoint(name, store, "before"), self._checkpoint(name, store, "same"))
        for case in self.cases:
            before = self._checkpoint(case.name, case.source, "before")
            target = self._checkpoint(case.name, case.target, str(case.source))
            self.moved[case] = migrate(
                str(before), str(target), case.target.name, checkpoint_format=case.target.format, conf=CONF
            )
            assert not (target / f"commits/{FIRST}").exists() and (target / f"offsets/{FIRST}").exists()
        self._feed(slice(FIRST + 1, None))
        self._run([(name, store, "same") for name, store in sources])
        for name, store in sources:  # what the others wrote cannot be in the way, nor be read
            shutil.rmtree(self._checkpoint(name, store, "before"))
        self._run([(one.name, one.target, str(one.source)) for one in self.cases])

    def output(self, name: str, store: Store, way: str) -> list[str]:
        return self._outputs[f"{name}-{store}-{way}"]

    def _checkpoint(self, name: str, store: Store, way: str) -> Path:
        return self.root / "checkpoints" / f"{name}-{store}-{way}"

    def _feed(self, part: slice) -> None:
        for stream, batches in self._inputs.items():
            scratch = self.root / "scratch" / stream
            records.write(scratch, batches)
            (self.root / stream).mkdir(exist_ok=True)
            for path in sorted(scratch.iterdir())[part]:
                path.rename(self.root / stream / path.name)
            shutil.rmtree(scratch)

    def _run(self, queries: list[tuple[str, Store, str]], *, breaks_off: bool = False) -> None:
        for some in (queries[first : first + AT_ONCE] for first in range(0, len(queries), AT_ONCE)):
            if breaks_off:
                for one in some:
                    with pytest.raises(StreamingQueryException, match="broken off"):
                        late_workers.run(partial(self._start, *one, breaks_off))
            else:
                late_workers.run_all(partial(self._start, *one, breaks_off) for one in some)

    def _start(self, name: str, store: Store, way: str, breaks_off: bool):
        scenario = SCENARIOS[name]
        output = self._outputs.setdefault(f"{name}-{store}-{way}", [])

        def sink(frame, batch):
            rows = rows_of(frame)
            if breaks_off and batch == FIRST:
                raise RuntimeError("broken off")
            output.extend(rows)

        with session_options(self.spark, {**scenario.conf, **store.conf()}):
            events, answers = (
                self.spark.readStream.schema(records.SCHEMA)
                .option("maxFilesPerTrigger", 1)
                .json(str(self.root / stream))
                for stream in ("events", "answers")
            )
            writer = scenario.query(events, answers).writeStream.outputMode(scenario.mode)
            writer = writer.option("checkpointLocation", str(self._checkpoint(name, store, way)))
            return writer.trigger(availableNow=True).foreachBatch(sink).start()


@pytest.fixture(scope="module")
def moves(spark, tmp_path_factory, request) -> Iterator[Moves]:
    cases = [item.callspec.params["case"] for item in request.session.items if item.module is request.module]
    found = Moves(spark, tmp_path_factory.mktemp("moves"), cases)
    with pytest.MonkeyPatch.context() as patch:  # for the JVMs of the migrations
        patch.setenv("JAVA_TOOL_OPTIONS", quick_java.QUICK_START)
        found.play()
    yield found


@pytest.mark.parametrize("case", CASES)
def test_a_query_goes_on_on_another_store(moves, case):
    same = moves.output(case.name, case.source, "same")
    moved = moves.output(case.name, case.target, str(case.source))
    assert sorted(moved) == sorted(same)
    assert same or moves.output(case.name, case.source, "before")
    done = moves.moved[case]
    assert (done.source, done.target, done.checkpoint_format) == (
        case.source.name,
        case.target.name,
        case.target.format,
    )
    assert done.version == FIRST and done.rows > 0
