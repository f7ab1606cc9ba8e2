"""State whose columns were different once: the cases that Spark accepts, and their reading."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import late_workers
import pytest
from dataset.golden_states import flattened, in_order
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from queries.small.flow import session_options

import state_store
from state_store.errors import DamagedError, MissingError

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]

UNCHECKED = {
    "spark.sql.streaming.stateStore.stateSchemaCheck": "false",
    "spark.sql.streaming.stateStore.formatValidation.enabled": "false",
}


class Stream:
    """Files of records; each run of a query reads the unread ones as one batch."""

    def __init__(self, spark, directory: Path) -> None:
        self._spark = spark
        self._source = directory / "records"
        self._source.mkdir(parents=True)
        self.checkpoint = str(directory / "checkpoint")
        self._batches = 0

    def events(self) -> DataFrame:
        return self._spark.readStream.schema("key long, value long").json(str(self._source))

    def batch(self, query: DataFrame, keys: Sequence[int] = range(6)) -> None:
        """Run a query over a new file, which has two records of each key."""
        rows = [{"key": key, "value": 10 * self._batches + key} for key in keys for _ in range(2)]
        text = "\n".join(map(json.dumps, rows))
        (self._source / f"{self._batches}.json").write_text(text, encoding="utf-8")
        self._batches += 1
        writer = query.writeStream.outputMode("update").option("checkpointLocation", self.checkpoint)
        late_workers.run(writer.trigger(availableNow=True).foreachBatch(lambda frame, _: frame.count()).start)

    def read_by_spark(self, **options: Any) -> list[dict[str, Any]]:
        frame = self._spark.read.format("statestore").options(**options).load(self.checkpoint)
        return in_order(flattened(row) for row in frame.toArrow().to_pylist())


@pytest.fixture
def stream(spark, tmp_path) -> Stream:
    return Stream(spark, tmp_path)


def test_columns_keep_the_names_of_the_first_batch(stream):
    """Spark compares types, not names, and keeps its file: the state has the first names."""
    for key, name in (("carrier", "total"), ("other", "sum_of_all")):
        events = stream.events().withColumnRenamed("key", key)
        stream.batch(events.groupBy(key).agg(F.sum("value").alias(name)))
    with state_store.open(stream.checkpoint) as state:
        assert state.schema.names == ["carrier", "sum", "partition_id"]
        assert in_order(state.to_arrow().to_pylist()) == stream.read_by_spark()
        assert {row["change"] for row in state.diff(1).read_all().to_pylist()} == {"changed"}


@pytest.mark.tier("long")
def test_rows_of_unchecked_columns_are_read_by_the_first_schema(spark, tmp_path):
    """Spark refuses other columns, unless its check is off; its file stays that of the first batch.

    Then additional columns are not shown, by Spark's source either, and rows that lack a column raise an
    error.
    """
    total, largest = F.sum("value").alias("total"), F.max("value").alias("most")
    grown, shrunk = (Stream(spark, tmp_path / name) for name in ("grown", "shrunk"))
    grown.batch(grown.events().groupBy("key").agg(total))
    with pytest.raises(StreamingQueryException, match="STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"):
        grown.batch(grown.events().groupBy("key").agg(total, largest))
    with session_options(spark, UNCHECKED):
        grown.batch(grown.events().where("key < 2").groupBy("key").agg(total, largest))
        shrunk.batch(shrunk.events().groupBy("key").agg(total, largest))
        shrunk.batch(shrunk.events().groupBy("key").agg(total), keys=[0, 1])
    with state_store.open(grown.checkpoint) as state:
        assert in_order(state.to_arrow().to_pylist()) == grown.read_by_spark()
        changed = {row["key"]: row["after"]["sum"] for row in state.diff(1).read_all().to_pylist()}
        assert changed.keys() == {0, 1} and changed[1] > 2
    with state_store.open(shrunk.checkpoint) as state:
        for reading in (state.to_arrow, state.diff(1).read_all, state.changes(1).read_all):
            with pytest.raises(DamagedError, match="written with other columns than Spark's file"):
                reading()
        assert state.get(5)["sum"] == 10
    with state_store.open(shrunk.checkpoint, version=1) as state:
        assert in_order(state.to_arrow().to_pylist()) == shrunk.read_by_spark(batchId=0)


def counting(variables: Sequence[str], gone: Sequence[str] = ()) -> StatefulProcessor:
    """Count records in some variables, and drop others; workers get the class with the query."""

    class Counting(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.states = [handle.getValueState(name, "n long") for name in variables]
            for name in gone:
                handle.deleteIfExists(name)

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
            count = sum(1 for _ in rows)
            for state in self.states:
                state.update((count + (state.get()[0] if state.exists() else 0),))
            yield Row(key=key[0])

        def close(self) -> None:
            pass

    return Counting()


@pytest.mark.tier("long")
def test_each_version_has_the_variables_of_its_time(stream):
    """Each version has the variables of its time; the error for a missing one names its versions."""

    def query(*variables: str, gone: Sequence[str] = ()) -> DataFrame:
        processor = counting(variables, gone)
        return stream.events().groupBy("key").transformWithState(processor, "key long", "update", "none")

    stream.batch(query("kept"))
    stream.batch(query("kept", "late"))
    stream.batch(query("kept", gone=["late"]), keys=[0, 1])
    directory = stream.checkpoint
    for version, counts in ((1, {2}), (2, {4}), (3, {4, 6})):
        with state_store.open(directory, store="kept", version=version) as state:
            assert {row["n"] for row in state.to_arrow().to_pylist()} == counts
    with state_store.open(directory, store="late", version=2) as state:
        assert state.count() == 6
        assert {row["n"] for row in state.to_arrow().to_pylist()} == {2}
        assert {row["change"] for row in state.diff(1).read_all().to_pylist()} == {"added"}
    for version in (1, 3):
        with pytest.raises(MissingError, match=r"there are: kept; it is there from version 2 to 2$"):
            state_store.open(directory, store="late", version=version)
    with pytest.raises(MissingError, match=r"no store 'nothing'; there are: kept$"):
        state_store.open(directory, store="nothing")


SHAPES = {
    "point": "st_geomfromwkb(unhex('0101000000000000000000F03F0000000000000040'))",
    "placed": "st_setsrid(st_geomfromwkb(unhex('0101000000000000000000F03F0000000000000040')), 4326)",
    "globe": "st_geogfromwkb(unhex('0101000000000000000000F03F0000000000000040'))",
}


def test_shapes_are_spark_s(spark, stream):
    """Geometries and geographies are read as values and in arrays of structs, with nulls and times."""
    shapes = [F.expr(f"if(key = 3, null, {shape})").alias(name) for name, shape in SHAPES.items()]
    nested = F.expr(f"array(named_struct('at', {SHAPES['point']}, 'n', value), null)").alias("nested")
    clock = F.expr("cast('12:34:56.789' as time(6))").alias("clock")
    with session_options(spark, {"spark.sql.timeType.enabled": "true"}):
        stream.batch(stream.events().groupBy("key").agg(F.last(F.struct(*shapes, nested, clock)).alias("x")))
        frame = spark.read.format("statestore").load(stream.checkpoint)
        expected = in_order(flattened(_plain(row)) for row in frame.collect())
    with state_store.open(stream.checkpoint) as state:
        table = state.to_arrow()
        table.validate(full=True)
        assert in_order(table.to_pylist()) == expected
    assert len(expected) == 6 and expected[0]["last"]["clock"] == datetime.time(12, 34, 56, 789_000)


def _plain(value: Any) -> Any:
    """Return Spark's rows as Arrow's: Spark does not pass nullable shapes to Arrow."""
    if isinstance(value, Row):
        return {name: _plain(item) for name, item in value.asDict().items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {"srid": value.srid, "wkb": bytes(value.wkb)} if hasattr(value, "wkb") else value


@pytest.mark.tier("long")
def test_shapes_are_no_keys(stream):
    """Spark cannot hash them, so it cannot find the partition."""
    events = stream.events().selectExpr("key", f"if(key < 9, {SHAPES['point']}, null) as shape")
    with pytest.raises(StreamingQueryException, match="MatchError"):
        stream.batch(events.dropDuplicates(["shape"]))
