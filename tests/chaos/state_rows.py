"""The rows of a query's state, read in two ways: by Spark's `statestore` source and by `state_store`."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from state_store.data.embedded import EmbeddedStore
from state_store.data.query import Query
from state_store.data.rows.decoder import decode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[tuple]


def write_by_spark(spark: SparkSession, checkpoint: str, side: str, to: Path) -> None:
    """Write the rows that Spark reads, and their schema, into the file `to`."""
    reader = spark.read.format("statestore")
    if side:
        reader = reader.option("joinSide", side)
    frame = reader.load(checkpoint).select("key", "value")
    rows = [tuple(_flat(row)) for row in frame.collect()]
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps({"schema": frame.schema.jsonValue(), "rows": rows}))


def by_spark(written: Path) -> Rows:
    """Return the rows that `write_by_spark` wrote."""
    return [tuple(row) for row in json.loads(written.read_text())["rows"]]


def by_state_store(checkpoint: str, side: str, written: Path) -> Rows:
    """The same rows, of the version that Spark committed last, decoded without Spark; only the schema is
    taken from the file that `write_by_spark` wrote.
    """
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    schema = to_arrow_schema(StructType.fromJson(json.loads(written.read_text())["schema"]), timezone="UTC")
    rows: Rows = []
    for key, version in Query.open(checkpoint).committed().items():
        family = "default"
        if side and key.name == "default":
            family = f"{side}-keyWithIndexToValue"
        elif side and key.name != f"{side}-keyWithIndexToValue":
            continue
        with EmbeddedStore.open(
            f"{checkpoint}/{key.path}", version=version, has_checkpoint_ids=version.checkpoint_id is not None
        ) as store:
            pairs = list(store.scan(family=family))
        keys = _decoded([pair[0] for pair in pairs], schema.field("key").type)
        values = _decoded([pair[1] for pair in pairs], schema.field("value").type)
        rows += [tuple(_flat([key, value])) for key, value in zip(keys, values, strict=True)]
    return rows


def _decoded(rows: list[bytes], struct: pa.StructType) -> list[tuple]:
    """Rows of Spark's encoding, with structs and columns without a type in them."""
    columns = decode(rows, pa.schema([_readable(field) for field in struct])).columns
    values = [column.to_pylist() for column in columns]
    for place, field in enumerate(struct):
        if pa.types.is_struct(field.type):
            values[place] = _decoded([b"\0" + value for value in values[place]], field.type)
        elif pa.types.is_null(field.type):
            values[place] = [None] * len(rows)
    return list(zip(*values, strict=True))


def _readable(field: pa.Field) -> pa.Field:
    if pa.types.is_struct(field.type):
        return pa.field(field.name, pa.binary())
    return pa.field(field.name, pa.int64()) if pa.types.is_null(field.type) else field


def _flat(row: Any) -> Iterator[Any]:
    for value in row:
        if isinstance(value, tuple | list):
            yield from _flat(value)
        elif isinstance(value, datetime.datetime):
            yield int(value.timestamp())
        else:
            yield value
