"""Long texts in values, lists and maps: all readers take memory by the bytes, not by the longest."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import late_workers
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from traced_memory import bounded_memory

import state_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StatefulProcessor

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]

LENGTHS = (100, 1_000, 16_000, 100_000, 1 << 20)
SHORT = 200
SPARE_BYTES = 48 << 20
MAX_COPIES = 12
KEYS = {"value": "k", "list": "k", "map": "key"}
"""Variables, each with the column of its table that has the grouping key; that of a map is a struct."""

LONGEST = f"k{max(LENGTHS)}"


def texts() -> tuple[pa.Table, pa.Table]:
    """Return two batches of keys with texts of all lengths, among short ones."""
    keys = [f"{number:06}" for number in range(SHORT)] + [f"k{length}" for length in LENGTHS]
    first = [f"v{number}" for number in range(SHORT)] + ["x" * length for length in LENGTHS]
    second = [f"w{number}" for number in range(SHORT)] + ["y" * length for length in LENGTHS]
    return pa.table({"k": keys, "s": first}), pa.table({"k": keys, "s": second})


def kept(variable: str, batches: tuple[pa.Table, ...]) -> set[tuple[str, ...]]:
    """Return the rows that a variable has after the batches."""
    rows = [(row["k"], row["s"]) for batch in batches for row in batch.to_pylist()]
    if variable == "value":
        return set(dict(rows).items())
    return {(k, s, s) if variable == "map" else (k, s) for k, s in rows}


def processor() -> StatefulProcessor:
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor

    class Texts(StatefulProcessor):  # in a function, so that its pickle has its code
        def init(self, handle: Any) -> None:
            self.value = handle.getValueState("value", "text string")
            self.list = handle.getListState("list", "text string")
            self.map = handle.getMapState("map", "word string", "text string")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            for row in rows:
                self.value.update((row.s,))
                self.list.appendValue((row.s,))
                self.map.updateValue((row.s,), (row.s,))
            yield Row(k=key[0])

        def close(self) -> None:
            pass

    return Texts()


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the checkpoint of a query that has had both batches."""
    root = tmp_path_factory.mktemp("texts")
    (root / "source").mkdir()
    for number, batch in enumerate(texts()):
        file = root / "source" / f"{number}.parquet"
        pq.write_table(batch, file)
        os.utime(file, (1_700_000_000 + number,) * 2)  # Spark reads files in this order
    read = spark.readStream.schema("k string, s string").option("maxFilesPerTrigger", 1)
    groups = read.parquet(str(root / "source")).groupBy("k")
    rows = groups.transformWithState(processor(), "k string", "update", "none")
    writer = rows.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
    late_workers.run(writer.option("checkpointLocation", str(root / "checkpoint")).start)
    return str(root / "checkpoint")


def rows_of(table: pa.Table) -> set[tuple[str, ...]]:
    """Return the rows of a table of a variable, whose columns are in the order of `kept`."""
    columns = [name for name in table.column_names if name != "partition_id"]
    return set(zip(*(column.to_pylist() for column in table.select(columns).flatten()), strict=True))


def opened(checkpoint: str, variable: str, root: Path) -> None:
    with state_store.open(checkpoint, store=variable) as state:
        assert rows_of(state.to_arrow()) == kept(variable, texts())


def shown(checkpoint: str, variable: str, root: Path) -> None:
    table = state_store.show(checkpoint, store=variable, order_by=KEYS[variable])
    assert rows_of(table) == kept(variable, texts())


def counted(checkpoint: str, variable: str, root: Path) -> None:
    assert state_store.stats(checkpoint, store=variable).rows >= len(texts()[0])


def exported(checkpoint: str, variable: str, root: Path) -> None:
    with state_store.open(checkpoint, store=variable) as state:
        assert state.export(root / "rows.parquet") == len(kept(variable, texts()))


def imported(checkpoint: str, variable: str, root: Path) -> None:
    with state_store.open(checkpoint, store=variable) as state:
        rows = state.to_arrow()
    state_store.import_state(checkpoint, rows, str(root / "again"), store=variable)
    opened(str(root / "again"), variable, root)


def compared(checkpoint: str, variable: str, root: Path) -> None:
    changes = state_store.diff(checkpoint, 1, store=variable)
    keys = changes.select([KEYS[variable]])
    keys = keys.flatten() if variable == "map" else keys
    assert set(keys.column(0).to_pylist()) == set(texts()[0]["k"].to_pylist())
    assert set(changes["change"].to_pylist()) == {"added" if variable == "map" else "changed"}


def remembered(checkpoint: str, variable: str, root: Path) -> None:
    if variable == "map":
        key: Any = {"key": {"k": LONGEST}, "userKey": {"word": "y" * max(LENGTHS)}}
    else:
        key = LONGEST
    versions = state_store.history(checkpoint, key, store=variable)
    assert [entry.version for entry in versions] == ([2] if variable == "map" else [1, 2])


def queried(checkpoint: str, variable: str, root: Path) -> None:
    table = state_store.sql(checkpoint, f'select * exclude (partition_id) from "{variable}"')
    assert rows_of(table) == kept(variable, texts())


def repartitioned(checkpoint: str, variable: str, root: Path) -> None:
    state_store.repartition(checkpoint, root / "parts", 3)
    opened(str(root / "parts"), variable, root)


def verified(checkpoint: str, variable: str, root: Path) -> None:
    assert state_store.verify(checkpoint, store=variable).ok


READS = [
    opened,
    shown,
    counted,
    exported,
    imported,
    compared,
    remembered,
    queried,
    repartitioned,
    verified,
]


@pytest.mark.parametrize("variable", KEYS)
@pytest.mark.parametrize("read", READS)
def test_memory_is_by_the_bytes(made: str, tmp_path: Path, read: Callable[..., None], variable: str) -> None:
    first, second = texts()
    with bounded_memory(SPARE_BYTES + MAX_COPIES * (first.nbytes + second.nbytes)):
        read(made, variable, tmp_path)
