"""Expired rows of every kind of state whose rows expire."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from state_store.data.dataset.stats import TIME, WATERMARK, Expiry
from state_store.data.dataset.views import DEFAULT_FAMILY, FamilySchema, View
from state_store.data.query import Operator
from state_store.data.rows.decoder import KeyLayout

MS = pa.timestamp("us", "UTC")
WINDOW = pa.struct([("start", MS), ("end", MS)])
WATERMARK_MS, NEXT_MS, NOW_MS = 50_000, 60_000, 90_000

KEY = [pa.field("key", pa.string())]
TIMER = [pa.field("key", pa.struct(KEY)), pa.field("expiryTimestampMs", pa.int64())]
FAMILIES = {"event timers": "$eventTimers_keyToTimestamp", "processing timers": "$procTimers_keyToTimestamp"}
VIEWS = {
    "time-out": (
        KEY,
        [pa.field("groupState", pa.struct([("n", pa.int64())])), pa.field("timeoutTimestamp", pa.int64())],
    ),
    "deduplication": (KEY, [pa.field("expiresAtMicros", pa.int64())]),
    "time to live": (
        KEY,
        [pa.field("value", pa.struct([("n", pa.int64())])), pa.field("ttlExpirationMs", pa.int64())],
    ),
    "window": ([pa.field("window", WINDOW), *KEY], [pa.field("count", pa.int64())]),
    "event timers": (TIMER, [pa.field("__dummy__", pa.null())]),
    "processing timers": (TIMER, [pa.field("__dummy__", pa.null())]),
    "plain": (KEY, [pa.field("count", pa.int64())]),
}


def expiry(
    kind: str, *, watermark_ms: int | None = WATERMARK_MS, next_ms: int | None = NEXT_MS
) -> Expiry | None:
    key, value = VIEWS[kind]
    schema = FamilySchema(FAMILIES.get(kind, DEFAULT_FAMILY), pa.schema(key), pa.schema(value), KeyLayout(()))
    view = View("default", Operator(0, "test", {"default": 1}), "default", schema)
    logs = SimpleNamespace(next_watermark_ms=lambda batch: watermark_ms, batch_ms=lambda batch: next_ms)
    query = SimpleNamespace(logs=logs)
    return Expiry.of(query, view, 7, NOW_MS)


def rows(found: Expiry, values: list) -> pa.RecordBatch:
    (field,) = found.columns.schema
    return pa.RecordBatch.from_arrays([pa.array(values, field.type)], schema=pa.schema([field]))


@pytest.mark.parametrize(
    ("kind", "column", "clock", "values", "over"),
    [
        ("time-out", "timeoutTimestamp", WATERMARK, [-1, None, 49_999, 50_000, 50_001], 1),
        ("deduplication", "expiresAtMicros", WATERMARK, [None, 49_999_999, 50_000_000, 50_000_001], 2),
        ("time to live", "ttlExpirationMs", TIME, [None, 59_999, 60_000, 60_001], 2),
        ("event timers", "expiryTimestampMs", WATERMARK, [49_999, 50_000, 50_001], 2),
        ("processing timers", "expiryTimestampMs", TIME, [59_999, 60_000, 60_001], 2),
        (
            "window",
            "window",
            WATERMARK,
            [{"start": 0, "end": 50_000_000}, {"start": 0, "end": 50_000_001}],
            1,
        ),
    ],
)
def test_each_kind_has_its_clock(kind, column, clock, values, over) -> None:
    found = expiry(kind)
    assert found is not None
    assert (found.column, found.clock) == (column, clock)
    assert found.at_ms == (WATERMARK_MS if clock == WATERMARK else NEXT_MS)
    assert found.count(rows(found, values)) == over
    assert found.count(rows(found, [])) == 0


def test_time_outs_without_a_watermark_go_by_the_time() -> None:
    found = expiry("time-out", watermark_ms=0)
    assert found is not None and (found.clock, found.at_ms) == (TIME, NEXT_MS)
    waiting = expiry("time-out", watermark_ms=0, next_ms=None)
    assert waiting is not None and waiting.at_ms == NOW_MS


@pytest.mark.parametrize("kind", ["window", "plain"])
def test_states_without_expiry_have_no_rule(kind) -> None:
    assert expiry(kind, watermark_ms=0) is None
    assert expiry("time to live", watermark_ms=None) is None
