"""A worker holds back a few megabytes of output at most, and a few values of a large map."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import Row
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from state_store.functions.processors import task_state as operations
from state_store.functions.processors.processor_loop import FrameOutput, RowOutput
from state_store.functions.processors.task_state import RowCodec, Session
from state_store.functions.processors.variables import BatchedMap

MEGABYTE = 1 << 20
LONG = StructType([StructField("n", LongType())])
TEXTS = {
    "text": (StringType(), "x" * MEGABYTE),
    "texts": (ArrayType(StringType()), ["x" * (MEGABYTE // 2)] * 2),
}


def settings() -> Any:
    """Return the facts of a task that frames need."""
    runner = {"spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName": "true"}
    flag = {name: value == "true" for name, value in runner.items()}
    return SimpleNamespace(time_zone="UTC", large_types=False, flag=lambda name: flag.get(name, False))


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("form", ["rows", "frames"])
def test_large_output_is_sent_before_there_is_much_of_it(form, kind):
    spark_type, text = TEXTS[kind]
    schema = StructType([StructField("k", LongType()), StructField("t", spark_type)])
    output: Any = RowOutput(schema) if form == "rows" else FrameOutput(schema, settings())
    sent = []
    for group in range(40):
        row = Row(k=group, t=text)
        result = row if form == "rows" else pd.DataFrame({"k": [group], "t": [text]})
        sent += list(output.add(iter([result])))
    assert [batch.num_rows for batch in sent] == [16, 16]
    sent += list(output.flush_all())
    assert [key for batch in sent for key in batch.column(0).to_pylist()] == list(range(40))


def test_small_output_waits_for_that_of_other_groups():
    schema = StructType([StructField("k", LongType())])
    output = RowOutput(schema)
    assert [batch for group in range(9_999) for batch in output.add(iter([Row(k=group)]))] == []
    assert [batch.num_rows for batch in output.add(iter([Row(k=1)]))] == [10_000]


class Store:
    """Answers reads of a map that has twice its key for each key."""

    def call(self, name: str, waiting: list[Any], keys: list[Any], fetches: list[Any]) -> Any:
        """Return the answer to the last of the operations that wait."""
        assert name == "run"
        read = [(2 * waiting[-1][0],)] if waiting and waiting[-3] == operations.MAP_GET else []
        return [read, []]


def test_few_values_of_a_large_map_are_kept():
    session = Session(Store(), RowCodec(LONG), 10_000)  # type: ignore[arg-type]
    entries = BatchedMap(session, 0, LONG, LONG)
    session.begin([(1,)])
    session.enter(0)
    assert [entries.getValue((number,)).n for number in range(5_000)] == list(range(0, 10_000, 2))
    assert len(entries.known[0].values) <= 1024
    assert entries.getValue((4_999,)).n == 9_998
