"""A query that is moved to another state store, broken off in a batch, goes on as it goes on without."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import late_workers
import pyspark
import pytest
import quick_java
from pyspark.errors import StreamingQueryException
from queries.runs.sink import rows_of
from queries.scenarios import records
from queries.scenarios.catalogue import SCENARIOS
from queries.small.flow import session_options
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
    Case("processor-scala-event-time", OURS_IDS, ROCKSDB_IDS),
]
ON_EVERY_SPARK = [
    *FEW,
    Case("pandas-event-time", OURS_IDS, HDFS),
    Case("processor-scala-event-time", ROCKSDB_IDS if ONE_FORMAT else ROCKSDB, OURS_IDS),
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
    for source, target in (*PAIRS, *(MORE_PAIRS if name in {one.name for one in ON_EVERY_SPARK} else ()))
    if not (_has_families(name) and HDFS in (source, target))
]


def _marks(case: Case) -> list[pytest.MarkDecorator]:
    """Few run in `make test`, those and two more on every Spark in `make test-long`."""
    return [
        *([] if case in FEW else [pytest.mark.long]),
        *([pytest.mark.spark42_long] if case in ON_EVERY_SPARK else []),
    ]


CASES = [
    pytest.param(case, id=str(case), marks=_marks(case))
    for case in [*ALL, *(one for one in ON_EVERY_SPARK if one not in ALL)]
]


class Run(NamedTuple):
    """A query on a state store: which is to break off, went on as it was, or was moved."""

    name: str
    store: Store
    way: str

    @property
    def origin(self) -> tuple[str, str]:
        """The query that it is a copy of."""
        return self.name, str(self.store) if self.way in ("before", "same") else self.way


def side_by_side(runs: Iterable[Run]) -> Iterator[list[Run]]:
    """Runs that may be at a time: when a query starts, Spark stops another one that is a copy of the same."""
    left = defaultdict(list)
    for run in runs:
        left[run.origin].append(run)
    while left:
        most = sorted(left, key=lambda origin: len(left[origin]), reverse=True)[:AT_ONCE]
        yield [left[origin].pop() for origin in most]
        left = {origin: copies for origin, copies in left.items() if copies}


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
        self._run([Run(name, store, "before") for name, store in sources], breaks_off=True)
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
        self._run([Run(name, store, "same") for name, store in sources])
        for name, store in sources:  # what the others wrote cannot be in the way, nor be read
            shutil.rmtree(self._checkpoint(name, store, "before"))
        self._run([Run(one.name, one.target, str(one.source)) for one in self.cases])

    def output(self, name: str, store: Store, way: str) -> list[str]:
        return self._outputs[f"{name}-{store}-{way}"]

    def commits(self, name: str, store: Store, way: str) -> list[str]:
        return sorted(path.name for path in (self._checkpoint(name, store, way) / "commits").glob("[0-9]*"))

    def _checkpoint(self, name: str, store: Store, way: str) -> Path:
        return self.root / "checkpoints" / f"{name}-{store}-{way}"

    def _feed(self, part: slice) -> None:
        for stream, batches in self._inputs.items():
            records.write(self.root / stream, batches, part)

    def _run(self, runs: list[Run], *, breaks_off: bool = False) -> None:
        for some in side_by_side(runs):
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
    assert moves.commits(case.name, case.target, str(case.source)) == moves.commits(
        case.name, case.source, "same"
    )
    done = moves.moved[case]
    assert (done.source, done.target, done.checkpoint_format) == (
        case.source.name,
        case.target.name,
        case.target.format,
    )
    assert done.version == FIRST and done.rows > 0
