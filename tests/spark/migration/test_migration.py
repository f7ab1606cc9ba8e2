"""A query that is moved between state stores, interrupted each time, continues like one that stays."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import late_workers
import pyspark
import pytest
import quick_java
from pyspark.errors import StreamingQueryException
from queries.runs.row_sink import rows_of
from queries.scenarios import records
from queries.scenarios.catalogue import SCENARIOS
from queries.store_choices import HDFS, OURS, OURS_IDS, ROCKSDB, ROCKSDB_IDS, ROCKSDB_SNAPSHOTS, Store

from state_store.data.migration import Migrated, migrate

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]

FIRST = 2
"""The batch in which a query is interrupted for the first time; then each batch is interrupted."""

MIN_BATCHES = 5
AT_ONCE = 2
CONF = {f"spark.hadoop.{name}": value for name, value in quick_java.CHECKPOINT_FILES.items()}


@dataclass(frozen=True)
class Journey:
    """A query and the stores that it is in, one after the other."""

    name: str
    stores: tuple[Store, ...]

    @property
    def hops(self) -> list[tuple[Store, Store]]:
        return list(zip(self.stores, self.stores[1:], strict=False))

    @property
    def batches(self) -> int:
        """The number of batches of records."""
        return max(FIRST + len(self.hops), MIN_BATCHES)


FEW = [
    Journey("session-window-append", (HDFS, OURS_IDS)),
    Journey("join-full", (ROCKSDB_IDS, OURS)),
    Journey("processor-scala-event-time", (OURS_IDS, ROCKSDB_IDS)),
]
ROUND = (HDFS, OURS_IDS, ROCKSDB_IDS, OURS_IDS, HDFS)
EVERY_FORMAT = (ROCKSDB_SNAPSHOTS, OURS, ROCKSDB, OURS_IDS, HDFS, OURS, OURS_IDS, HDFS, ROCKSDB_IDS)
IN_EVERY_FORMAT = [*(journey.name for journey in FEW), "pandas-event-time"]
# They go by the clock: their output is never the same.
LEFT_OUT = [name for name in SCENARIOS if "processing-time" in name]
NOT_THERE = []
if pyspark.__version__.startswith("4.0."):
    LEFT_OUT.append("limit")  # it fails under checkpoint format 2, on every store
    NOT_THERE.append(ROCKSDB)  # a JVM has one format of RocksDB's archives for all queries


def journey(name: str, stores: tuple[Store, ...]) -> Journey:
    """Move through the stores that can have the query."""
    has_families = name.startswith("processor") or "column-families" in name
    without = [*NOT_THERE, *([HDFS] if has_families else [])]
    return Journey(name, tuple(store for store in stores if store not in without))


LONG = [
    *(journey(name, ROUND) for name in SCENARIOS if name not in LEFT_OUT),
    *(journey(name, EVERY_FORMAT) for name in IN_EVERY_FORMAT),
]


class Played:
    """Outcome of a journey: a query that moved, and another one that stayed in the first store."""

    def __init__(self, spark, root: Path, journey: Journey):
        self.spark, self.root, self.journey = spark, root, journey
        self.moved: list[Migrated] = []
        self.staying: dict[int, list[str]] = {}
        """Return the rows of each batch."""
        self.moving: dict[int, list[str]] = {}
        self.error: Exception | None = None

    def play(self) -> None:
        """Keep an error, and the results before it."""
        for seed, stream in enumerate(("events", "answers"), start=5):
            records.write(self.root / stream, records.batches(seed, self.journey.batches))
        stays = partial(self._start, self.spark.newSession(), 0, self.root / "stays", self.staying, None)
        with ThreadPoolExecutor(max_workers=1) as executor:
            staying = executor.submit(late_workers.run, stays)
            try:
                self._move()
                staying.result()
            except Exception as error:
                self.error = error

    def commits(self, checkpoint: str) -> list[str]:
        return sorted(path.name for path in (self.root / checkpoint / "commits").glob("[0-9]*"))

    @property
    def last(self) -> str:
        """Return the last checkpoint of the query that moved."""
        return f"leg-{len(self.journey.hops)}"

    def _move(self) -> None:
        session = self.spark.newSession()
        for leg, (_, store) in enumerate(self.journey.hops):
            source, target, breaks_off = self.root / f"leg-{leg}", self.root / f"leg-{leg + 1}", FIRST + leg
            with pytest.raises(StreamingQueryException, match="broken off"):
                late_workers.run(partial(self._start, session, leg, source, self.moving, breaks_off))
            done = migrate(str(source), str(target), store.name, checkpoint_format=store.format, conf=CONF)
            assert not (target / f"commits/{breaks_off}").exists()
            assert (target / f"offsets/{breaks_off}").exists()
            shutil.rmtree(source)  # so that nothing can read it any more
            self.moved.append(done)
        last = len(self.journey.hops)
        late_workers.run(partial(self._start, session, last, self.root / self.last, self.moving, None))

    def _start(
        self, session, leg: int, checkpoint: Path, output: dict[int, list[str]], breaks_off: int | None
    ):
        scenario = SCENARIOS[self.journey.name]
        for name, value in {**scenario.conf, **self.journey.stores[leg].conf()}.items():
            session.conf.set(name, value)

        def sink(frame, batch):
            rows = rows_of(frame)
            if batch == breaks_off:
                raise RuntimeError("broken off")
            output[batch] = rows

        events, answers = (
            session.readStream.schema(records.SCHEMA)
            .option("maxFilesPerTrigger", 1)
            .json(str(self.root / stream))
            for stream in ("events", "answers")
        )
        writer = scenario.query(events, answers).writeStream.outputMode(scenario.mode)
        writer = writer.option("checkpointLocation", str(checkpoint))
        return writer.trigger(availableNow=True).foreachBatch(sink).start()


@pytest.fixture(scope="module")
def played(spark, tmp_path_factory, request) -> Iterator[Callable[[Journey], Played]]:
    """Yield the journeys of the running tests, in their order, some at a time."""

    def play(journey: Journey) -> Played:
        outcome = Played(spark, tmp_path_factory.mktemp("journey"), journey)
        outcome.play()
        return outcome

    items = [item for item in request.session.items if item.module is request.module]
    journeys = dict.fromkeys(item.callspec.params["journey"] for item in items)
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(AT_ONCE) as lanes:
        patch.setenv("JAVA_TOOL_OPTIONS", quick_java.QUICK_START)  # for the JVMs of the migrations
        playing = {journey: lanes.submit(play, journey) for journey in journeys}
        yield lambda journey: playing[journey].result()
        lanes.shutdown(cancel_futures=True)


def _cases(journey: Journey) -> Iterator:
    for hop, (source, target) in enumerate(journey.hops):
        if journey in FEW:
            stands = (pytest.mark.dear("stands for migrations"), pytest.mark.timeout(900))
            marks = stands if journey is FEW[0] else ()
            yield pytest.param(journey, hop, id=f"{journey.name}-{source}-{target}", marks=marks)
        else:
            marks = (pytest.mark.tier("long"), pytest.mark.older(long=("4.2", "4.1", "4.0")))
            name = f"{journey.name}-{len(journey.hops)}.{hop + 1}-{source}-{target}"
            yield pytest.param(journey, hop, id=name, marks=marks)


@pytest.mark.parametrize(("journey", "hop"), [case for each in (*FEW, *LONG) for case in _cases(each)])
def test_a_query_continues_on_another_store(played, journey, hop):
    journeyed = played(journey)
    source, target = journey.hops[hop]
    is_last = hop == len(journey.hops) - 1
    if len(journeyed.moved) <= hop or (is_last and journeyed.error):
        raise AssertionError(f"came to store {len(journeyed.moved)} of its journey") from journeyed.error
    done = journeyed.moved[hop]
    assert (done.source, done.target, done.checkpoint_format) == (source.name, target.name, target.format)
    assert done.version == FIRST + hop and done.rows > 0
    first = FIRST + hop
    after = [batch for batch in sorted(journeyed.staying) if batch == first or (is_last and batch > first)]
    assert [journeyed.moving.get(batch) for batch in after] == [journeyed.staying[batch] for batch in after]
    if is_last:
        assert journeyed.moving.keys() == journeyed.staying.keys() and any(journeyed.staying.values())
        assert journeyed.commits(journeyed.last) == journeyed.commits("stays")
