"""State that only some queries have is migrated to another store and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from queries import session_settings
from queries.scenarios.joins import FORMAT
from queries.small import census
from queries.small.flow import Flow, session_options, totals
from queries.store_choices import HDFS, OURS, OURS_IDS, ROCKSDB, ROCKSDB_IDS, ROCKSDB_SNAPSHOTS, Store

from state_store.data.migration import migrate
from state_store.data.query import Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

pytestmark = [
    pytest.mark.spark,
    pytest.mark.tier("long"),
    pytest.mark.timeout(900),
    *([pytest.mark.older(long=("4.2", "4.1"))] if pyspark.__version__.startswith("4.2.") else []),
]

CHECKSUMS = f"{session_settings.PREFIX}rowChecksum.enabled"
AGGREGATION = "spark.sql.streaming.aggregation.stateFormatVersion"
AVRO = {f"{session_settings.PREFIX}encodingFormat": "avro"}
# In processing time a batch is always due, so the query would not end.
BY_THE_CLOCK = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
FORMAT_4 = {FORMAT: "4"}
OF_TESTS = {"spark.sql.streaming.join.stateFormatV4.enabled": "true"}
"""State format 4 of joins, which Spark 4.2 has for tests only."""

BRIEF_MS = 300
"""A time to live that ends during the move of a query."""

BRIEF = ("brief", "briefTimes", "briefDigits")
# (key, seconds): a key has several rows at a time, some of them on both sides of a join.
LEGS = [
    [[("a", 10), ("a", 10), ("b", 20), ("c", 7)], [("a", 12), ("a", 11), ("d", 31), ("d", 31), ("d", 30)]],
    [[("a", 21), ("d", 33), ("e", 40), ("e", 40)]],
    [[("b", 45), ("e", 41), ("e", 43), ("c", 60)], [("f", 95), ("d", 94)]],
]


class Forgetful(census.RowCensus):
    """Processor with variables, some of which are dropped before the next leg."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self.brief = handle.getValueState("brief", "at long", ttlDurationMs=BRIEF_MS)
        self.brief_times = handle.getListState("briefTimes", "at long", ttlDurationMs=BRIEF_MS)
        self.brief_digits = handle.getMapState("briefDigits", "digit long", "n long", ttlDurationMs=BRIEF_MS)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        records = list(rows)
        self.brief.update((records[0].value,))
        for row in records:
            self.brief_times.appendValue((row.value,))
            self.brief_digits.updateValue((row.value % 10,), (row.value,))
        yield from super().handleInputRows(key, iter(records), timerValues)


class Growing(StatefulProcessor):
    """Processor with more columns in each leg: rows that no batch writes keep their columns."""

    def __init__(self, columns: int):
        self.columns = columns

    def init(self, handle: StatefulProcessorHandle) -> None:
        schema = ", ".join(["n long", "total long", "latest string"][: self.columns])
        self.sums = handle.getValueState("sums", schema)
        self.listed = handle.getListState("listed", schema)
        self.by_digit = handle.getMapState("byDigit", "digit long", schema)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        seconds = [row.value for row in rows]
        before = self.sums.get() if self.sums.exists() else None
        n = len(seconds) + (before[0] if before else 0)
        shown = [*map(repr, self.listed.get()), *map(repr, sorted(self.by_digit.iterator()))]
        row = (n, sum(seconds), f"{key[0]}-{n}")[: self.columns]
        self.sums.update(row)
        self.listed.appendValue(row)
        self.by_digit.updateValue((n % 10,), row)
        yield Row(key=key[0], before=repr(before), told=" ".join(shown))


def forgetful(records: DataFrame) -> DataFrame:
    return records.groupBy("key").transformWithState(Forgetful(), census.OUTPUT, "update", "processingTime")


def growing(leg: int) -> Callable[[DataFrame], DataFrame]:
    def query(records: DataFrame) -> DataFrame:
        schema = "key string, before string, told string"
        return records.groupBy("key").transformWithState(Growing(leg + 1), schema, "update", "none")

    return query


def joined(how: str) -> Callable[[DataFrame], DataFrame]:
    def query(records: DataFrame) -> DataFrame:
        timed = records.withColumn("ts", F.timestamp_seconds("value"))
        left = timed.where("value % 2 = 0").selectExpr("key as l_key", "value as l_value", "ts as l_ts")
        right = timed.where("value % 2 = 1").selectExpr("key as r_key", "value as r_value", "ts as r_ts")
        on = F.expr(
            "l_key = r_key and r_ts >= l_ts - interval 25 seconds and r_ts <= l_ts + interval 25 seconds"
        )
        both = left.withWatermark("l_ts", "5 seconds").join(right.withWatermark("r_ts", "5 seconds"), on, how)
        return both.select("l_key", "l_value", *(() if how == "left_semi" else ("r_key", "r_value")))

    return query


@dataclass(frozen=True)
class Case:
    """A query that is in one store in each leg.

    `query` makes the query of a leg. `read` are the options of Spark's state reader with which states are
    compared. `gone` are variables of which a state has what the last batch wrote alone.
    """

    name: str
    query: Callable[[int], Callable[[DataFrame], DataFrame]]
    stores: tuple[Store, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    mode: str = "update"
    read: tuple[Mapping[str, Any], ...] = ({},)
    gone: tuple[str, ...] = ()

    def __str__(self) -> str:
        encoding = ("avro",) if AVRO.items() <= self.options.items() else ()
        return "-".join((self.name, *encoding, *map(str, self.stores)))


def _always(query: Callable[[DataFrame], DataFrame]) -> Callable[[int], Callable[[DataFrame], DataFrame]]:
    return lambda _leg: query


def _variables(names: Sequence[str]) -> tuple[dict[str, Any], ...]:
    return tuple({"stateVarName": name} for name in names)


SIDES = ({"joinSide": "left"}, {"joinSide": "right"})
THERE_AND_BACK = (ROCKSDB_IDS, OURS_IDS, ROCKSDB_IDS)
OF_PROCESSORS = (*_variables((*census.VARIABLES, *census.WITH_TTL)), {"readRegisteredTimers": True})
if pyspark.__version__.startswith("4.2."):
    FORMAT_4.update(OF_TESTS)
HAS_FORMAT_4 = pyspark.__version__.startswith(("4.2.", "4.3."))
CASES = [
    *(
        Case("ttl", _always(forgetful), stores, {**encoding, **BY_THE_CLOCK}, read=OF_PROCESSORS, gone=BRIEF)
        for encoding, stores in (
            ({}, THERE_AND_BACK),
            ({}, (OURS_IDS, ROCKSDB_SNAPSHOTS, OURS)),
            (AVRO, THERE_AND_BACK),
            (AVRO, (OURS, ROCKSDB, OURS_IDS)),
        )
    ),
    *(
        Case("schemas", growing, stores, AVRO, read=_variables(("sums", "listed", "byDigit")))
        for stores in (THERE_AND_BACK, (OURS, ROCKSDB, OURS_IDS))
    ),
    *(
        Case("checksums", _always(totals), stores, {CHECKSUMS: "true"})
        for stores in ((HDFS, OURS_IDS, HDFS), (HDFS, ROCKSDB_IDS, HDFS), THERE_AND_BACK)
    ),
    Case("join-full_outer-3", _always(joined("full_outer")), THERE_AND_BACK, {FORMAT: "3"}, "append", SIDES),
    *(
        Case(f"join-{how}-4", _always(joined(how)), stores, FORMAT_4, "append", SIDES)
        for how, stores in (
            ("inner", THERE_AND_BACK),
            ("full_outer", THERE_AND_BACK),
            ("full_outer", (ROCKSDB, OURS, ROCKSDB_SNAPSHOTS)),
            ("left_outer", THERE_AND_BACK),
            ("left_semi", THERE_AND_BACK),
        )
        if HAS_FORMAT_4
    ),
    Case("aggregation-1", _always(totals), (HDFS, OURS_IDS, ROCKSDB), {AGGREGATION: "1"}),
]


def lived(spark: Any, directory: Path, case: Case, stores: Sequence[Store]) -> Flow:
    """Run a query that is stopped after each leg, and moved if the next leg has another store."""
    flow = Flow(spark, directory, case.query(0), case.mode, **case.options)
    flow.options["spark.sql.shuffle.partitions"] = 1
    for leg, (before, store) in enumerate(zip((stores[0], *stores), stores, strict=False)):
        if store != before:
            target = directory / f"moved-{leg}"
            migrate(str(flow.checkpoint), str(target), store.name, checkpoint_format=store.format)
            flow.checkpoint = target
        flow.query = case.query(leg)
        flow.options.update(store.conf())
        flow.run(*LEGS[leg])
    return flow


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_moved_query_continues_like_one_that_stays(spark, tmp_path, case):
    first = case.stores[0]
    stays = lived(spark, tmp_path / "stays", case, [first] * len(LEGS))
    moves = lived(spark, tmp_path / "moves", case, case.stores)
    assert [sorted(map(repr, rows)) for rows in moves.batches] == [
        sorted(map(repr, rows)) for rows in stays.batches
    ]
    assert any(stays.batches)
    pinned = Query.of_any_store(str(stays.checkpoint)).logs.pinned_conf()
    for name in case.options.keys() - BY_THE_CLOCK.keys() - OF_TESTS.keys():
        assert pinned[name] == case.options[name], "Spark has taken another value"
    states = [read(flow, case.read) for flow in (moves, stays)]
    assert states[0] == states[1]
    assert all(states[0]), f"nothing to read with one of {case.read}"
    with session_options(spark, moves.options):
        for name in case.gone:
            keys = {row["key"]["key"] for row in moves.state(stateVarName=name)}
            assert keys == {key for key, _ in LEGS[-1][-1]}, name


def read(flow: Flow, asked: Iterable[Mapping[str, Any]]) -> list[Counter[str]]:
    """Return the state as Spark's reader shows it, requested in several ways."""
    with session_options(flow.spark, flow.options):
        return [flow.timeless_state(**options) for options in asked]
