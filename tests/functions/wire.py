"""Batches in the layout in which the JVM sends groups, and what the answers to them say."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from state_store.functions.group_context import Header

NO_TIMEOUT = -1


def schema(ddl: dict[str, str], nullable: bool = True) -> StructType:
    """Return a Spark schema of simple types by name; types may be dicts of Spark's own JSON."""
    fields = [{"name": n, "type": t, "nullable": nullable, "metadata": {}} for n, t in ddl.items()]
    return StructType.fromJson({"type": "struct", "fields": fields})


def header(
    key: StructType,
    rows: StructType,
    state: StructType,
    output: StructType,
    *,
    timeout_conf: str = "NoTimeout",
    timed_out: bool = False,
    batch_time_ms: int = 1_000_000,
    watermark_ms: int | None = None,
    max_records: int = 10_000,
) -> str:
    return json.dumps(
        {
            "key": key.jsonValue(),
            "rows": rows.jsonValue(),
            "state": state.jsonValue(),
            "output": output.jsonValue(),
            "timeout_conf": timeout_conf,
            "timed_out": timed_out,
            "batch_time_ms": batch_time_ms,
            "watermark_ms": NO_TIMEOUT if watermark_ms is None else watermark_ms,
            "watermark_present": watermark_ms is not None,
            "time_zone": "America/Los_Angeles",
            "large_types": False,
            "max_group_bytes": 1024,
            "max_records": max_records,
            "runner": {"spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName": "true"},
        }
    )


def batch(text: str | None, parsed: Header, groups: list[dict[str, Any]]) -> pa.RecordBatch:
    """Return a batch. A group has `key`, `rows`, `state` (tuple, bytes or None), `flags`, `timeout`."""

    def struct(fields: pa.Schema) -> pa.DataType:
        return pa.struct([pa.field(str(i), f.type) for i, f in enumerate(fields)])

    def positional(value: tuple[Any, ...]) -> dict[str, Any]:
        return {str(i): item for i, item in enumerate(value)}

    pickled = any(isinstance(g.get("state"), bytes) for g in groups)
    states = [g.get("state") for g in groups]
    state_type = pa.binary() if pickled else struct(parsed.state_schema)
    columns = [
        pa.array([text] + [None] * (len(groups) - 1), pa.string()),
        pa.array([g.get("flags", 0) for g in groups], pa.int8()),
        pa.array([g.get("timeout", NO_TIMEOUT) for g in groups], pa.int64()),
        pa.array([positional(g["key"]) for g in groups], struct(parsed.key_schema)),
        pa.array([s if pickled or s is None else positional(s) for s in states], state_type),
        pa.array([[positional(r) for r in g["rows"]] for g in groups], pa.list_(struct(parsed.row_schema))),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["header", "flags", "timeout", "key", "state", "rows"])


def answer(reply: pa.RecordBatch) -> dict[str, Any]:
    """Return an answer's columns, and its changes by group as (change, timeout)."""
    columns = {name: reply.column(name)[0].as_py() for name in reply.schema.names}
    names = ("put", "keep", "clear", "remove")
    columns["changes"] = {
        g: (names[c], t)
        for g, c, t in zip(columns["group"], columns["change"], columns["timeout"], strict=True)
    }
    return columns
