"""`transformWithState` on this store and on Spark's RocksDB: equal output, state and timers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyspark
import pytest
from dataset.golden_states import in_order
from pyspark.errors import StreamingQueryException
from queries import session_settings
from queries.small.census import VARIABLES, WITH_TTL, in_pandas, in_rows
from queries.small.flow import Flow

import state_store
from state_store.core.checkpoint.stored_documents import ColumnFamily
from state_store.core.engine.rows import rows as rows_of
from state_store.data.dataset.partitions import READING, Partitions
from state_store.data.dataset.rewriting.copying import repartition
from state_store.data.dataset.rewriting.importing import import_state
from state_store.data.dataset.views import view, views
from state_store.data.query import Query

pytestmark = [pytest.mark.spark, pytest.mark.older(long=("4.2", "4.1")), pytest.mark.tier("more")]

# Before 4.2 Spark does not check the store: then the store itself reports its limits.
REFUSAL = (
    "COLUMN_FAMILIES" if pyspark.__version__.startswith("4.1.") else "STORE_BACKEND_NOT_SUPPORTED_FOR_TWS"
)
# (key, seconds) of each batch; the watermark follows the newest by 10 seconds.
BATCHES = [
    [("a", 10), ("b", 20), ("a", 35), ("c", 7)],
    [("a", 60), ("d", 61), ("d", 62), ("b", 300), ("a", 53)],
    [("e", 290), ("b", 305), ("c", 310), ("b", 299)],
]
RESTART_AFTER = 2
LISTS = ("times", "keptTimes")


def lived(
    spark: Any,
    directory: Path,
    query: Any,
    provider: str,
    encoding: str,
    between: Callable[[Flow], None] = lambda flow: None,
) -> Flow:
    """Run a query over all batches, with a restart in between."""
    options = {
        session_settings.PREFIX + "providerClass": session_settings.PROVIDERS[provider],
        session_settings.PREFIX + "encodingFormat": encoding,
        "spark.sql.shuffle.partitions": 1,
        # In processing time a batch is always due, so the query would not end.
        "spark.sql.streaming.noDataMicroBatches.enabled": str(query is in_pandas).lower(),
    }
    flow = Flow(spark, directory, query, **options)
    flow.run(*BATCHES[:RESTART_AFTER])
    between(flow)
    flow.run(*BATCHES[RESTART_AFTER:])
    return flow


def read_back(flow: Flow, variables: Iterable[str]) -> dict[str, Counter]:
    """Return the rows of Spark's state reader for each variable and the timers."""
    asked: dict[str, dict] = {name: {"stateVarName": name} for name in variables}
    asked["timers"] = {"readRegisteredTimers": True}
    return {name: flow.placeless_state(**options) for name, options in asked.items()}


@pytest.mark.parametrize(
    ("query", "variables", "encoding", "is_written_anew"),
    [
        pytest.param(in_pandas, VARIABLES, "unsaferow", False, marks=pytest.mark.tier("long")),
        pytest.param(in_rows, (*VARIABLES, *WITH_TTL), "unsaferow", True, marks=pytest.mark.tier("long")),
        (in_rows, (*VARIABLES, *WITH_TTL), "avro", True),
    ],
)
def test_output_state_and_timers_equal_those_of_rocksdb(
    spark, tmp_path, query, variables, encoding, is_written_anew
):
    """Compare also a query with changed partitions and rewritten variables and timers."""
    between = write_anew if is_written_anew else lambda flow: None
    ours = lived(spark, tmp_path / "ours", query, "incremental", encoding, between)
    theirs = lived(spark, tmp_path / "theirs", query, "rocksdb", encoding)
    check_equal(ours, theirs, variables)
    for name in variables:
        flattened = ours.state(stateVarName=name, flattenCollectionTypes=True)
        with state_store.open(str(ours.checkpoint), store=name) as opened:
            assert in_order(map(_leaves, opened.to_arrow().to_pylist())) == in_order(map(_leaves, flattened))


def write_anew(flow: Flow) -> None:
    """Write the checkpoint with other partitions, and import the exported rows of variables."""
    before, moved, filled, shuffled = (
        str(flow.checkpoint) + end for end in ("", "-moved", "-filled", "-shuffled")
    )
    repartition(before, moved, 4)
    taken = {}
    for name in (*VARIABLES, *WITH_TTL, "timers"):
        with state_store.open(moved, store=name) as state:
            taken[name] = state.to_arrow()
            rows = taken[name].to_pylist()
            assert rows and (name in LISTS or all(state.get(_key_of(state, row)) == row for row in rows))
    import_state(moved, taken, filled)
    assert raw(filled) == raw(moved)
    frames = {
        name: flow.spark.createDataFrame(table.drop_columns("partition_id"))
        for name, table in taken.items()
        if name not in LISTS
    }
    import_state(moved, frames, shuffled)
    assert raw(shuffled) == raw(moved)
    for name in everything(before):
        assert contents(filled, name) == contents(moved, name), name
        assert without_place(filled, name) == without_place(before, name), name
        assert contents(filled, name) or not name.startswith(("$ttl_", "$procTimers")), name
    assert Query.open(filled).operators[0].stores == {"default": 4}
    flow.checkpoint = Path(filled)


def raw(checkpoint: str) -> list[tuple[dict[str, ColumnFamily], list[tuple[bytes, bytes]]]]:
    """Return the column families of each partition, and all of its stored rows."""
    query, found = Query.open(checkpoint), []
    version = (query.committed_batch() or 0) + 1
    with closing(Partitions(query, view(query, 0, "n"), version)) as partitions:
        for number in partitions.numbers:
            base = partitions.base(number)
            pages = rows_of(base.directory, READING, b"\0\0", b"\xff\xff")
            rows = [
                row for page in pages for row in zip(page.keys.to_list(), page.values.to_list(), strict=True)
            ]
            found.append((dict(base.column_families), sorted(rows)))
    return found


def _key_of(state: Any, row: dict) -> dict:
    return {name: row[name] for name in state.columns.key_names}


def without_place(checkpoint: str, store: str) -> list[dict]:
    rows = contents(checkpoint, store)
    return in_order({name: value for name, value in row.items() if name != "partition_id"} for row in rows)


def everything(checkpoint: str) -> list[str]:
    query = Query.open(checkpoint)
    return sorted(views(query, query.operators[0]))


def contents(checkpoint: str, store: str) -> list[dict]:
    with state_store.open(checkpoint, store=store) as state:
        return in_order(state.to_arrow().to_pylist())


def check_equal(first: Flow, second: Flow, variables: Iterable[str]) -> None:
    assert [sorted(map(repr, rows)) for rows in first.batches] == [
        sorted(map(repr, rows)) for rows in second.batches
    ]
    assert any(row["timer"] > 0 for rows in first.batches for row in rows), "no timer has expired"
    state = read_back(first, variables)
    assert state == read_back(second, variables)
    assert all(state.values()), f"nothing to read: {[name for name, rows in state.items() if not rows]}"


def _leaves(value: Any) -> list[Any]:
    """Return the leaves of a nested row; moments in milliseconds."""
    return (
        [leaf for inner in value.values() for leaf in _leaves(inner)] if isinstance(value, dict) else [value]
    )


def test_another_store_is_refused_as_spark_refuses_it(spark, tmp_path):
    hdfs = {
        session_settings.PREFIX + "providerClass": session_settings.PROVIDERS["hdfs"],
        session_settings.PREFIX + "checkpointFormatVersion": 1,
    }
    flow = Flow(spark, tmp_path / "flow", in_pandas, **hdfs)
    with pytest.raises(StreamingQueryException, match=REFUSAL):
        flow.run(BATCHES[0])
