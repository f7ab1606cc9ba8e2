"""A small algebra of stateful functions, each in three forms with equal results.

The forms are: per group with frames, per group with plain rows, and for many groups.

A program counts rows per group; rules look at the count and the group's state and say what to do. Every state
carries the count in all the types of its schema, and the output echoes the group's last row, so that values
of all types make the way.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.state import GroupState

from state_store.functions import GROUP, Result

UTC = datetime.timezone.utc
EPOCH = datetime.datetime(
    2024, 3, 10, 9, 30, tzinfo=UTC
)  # within a night in which clocks change in Los Angeles

TYPED = {
    "long": lambda c: c * 2**40,
    "int": lambda c: -c,
    "string": lambda c: f"é{c}" * (c % 4),
    "double": lambda c: c / 7,
    "boolean": lambda c: c % 2 == 0,
    "decimal(12,3)": lambda c: decimal.Decimal(c).scaleb(-3),
    "decimal(30,2)": lambda c: decimal.Decimal(c * 10**20).scaleb(-2),
    "date": lambda c: datetime.date(2020, 1, 1) + datetime.timedelta(days=c),
    "timestamp": lambda c: EPOCH + datetime.timedelta(minutes=7 * c, microseconds=c),
    "timestamp_ntz": lambda c: datetime.datetime(2024, 3, 10, 2, 30) + datetime.timedelta(minutes=c),
    "binary": lambda c: bytes([c % 256]) * (c % 3),
    "struct<x:int,y:string>": lambda c: {"x": c, "y": None if c % 3 == 0 else str(c)},
}
"""A value of each type for a count. Every fifth count gives null instead."""


def typed(kind: str, count: int) -> Any:
    return None if count % 5 == 4 else TYPED[kind](count)


@dataclasses.dataclass(frozen=True)
class Rule:
    """Acts on groups whose count leaves `rest` when divided by `by`; the first rule that fits counts."""

    by: int
    rest: int
    update: bool
    remove: bool
    wait_ms: int | None


@dataclasses.dataclass(frozen=True)
class Program:
    keys: tuple[str, ...]
    values: tuple[str, ...]
    state: tuple[str, ...]
    rules: tuple[Rule, ...]
    timeout: str

    def state_schema(self) -> str:
        return ", ".join(["c long", *(f"s{i} {kind}" for i, kind in enumerate(self.state))])

    def output_schema(self) -> str:
        keys = [f"k{i} {kind}" for i, kind in enumerate(self.keys)]
        return ", ".join(
            [*keys, "c long", "out boolean", *(f"v{i} {kind}" for i, kind in enumerate(self.values))]
        )

    def _decide(self, count: int, timed_out: bool) -> Rule | None:
        if timed_out and count % 2:
            return Rule(1, 0, False, True, None)
        return next((rule for rule in self.rules if count % rule.by == rule.rest), None)

    def _timeout_ms(self, rule: Rule, now: int, watermark: int | None) -> int | None:
        if rule.wait_ms is None or self.timeout == "NoTimeout":
            return None
        return (now if self.timeout == "ProcessingTimeTimeout" else max(watermark or 0, 0)) + rule.wait_ms

    def _act(self, state: GroupState, new_rows: int) -> int:
        """Apply the rules to a group with this many new rows; return its count."""
        count = (state.get[0] if state.exists else 0) + new_rows
        now = state.getCurrentProcessingTimeMs()
        watermark = state.getCurrentWatermarkMs() if self.timeout == "EventTimeTimeout" else None
        rule = self._decide(count, state.hasTimedOut)
        if rule is not None:
            if rule.remove:
                state.remove()
            elif rule.update:
                state.update((count, *(_stored(kind, count) for kind in self.state)))
            at = self._timeout_ms(rule, now, watermark)
            if at is not None and self.timeout == "EventTimeTimeout":
                state.setTimeoutTimestamp(at)
            elif at is not None:
                state.setTimeoutDuration(at - now)
        return count

    def plain_rows(self, key: Any, rows: list[Any], state: GroupState) -> Iterator[tuple[Any, ...]]:
        count = self._act(state, len(rows))
        last = [getattr(rows[-1], f"v{i}") if rows else None for i in range(len(self.values))]
        yield (*key, count, state.hasTimedOut, *last)

    def per_group(
        self, key: tuple[Any, ...], pdfs: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        rows = pd.concat(list(pdfs))
        count = self._act(state, len(rows))
        last = {f"v{i}": [rows[f"v{i}"].iloc[-1] if len(rows) else None] for i in range(len(self.values))}
        keys = {f"k{i}": [value] for i, value in enumerate(key)}
        yield pd.DataFrame({**keys, "c": [count], "out": [state.hasTimedOut], **last})

    def many_groups(self, rows: pa.Table, states: pa.Table, context: Any) -> Result:
        groups = states.num_rows
        group = rows[GROUP].to_pylist()
        counts = [c or 0 for c in states["c"].to_pylist()]
        last: list[int | None] = [None] * groups
        for row, g in enumerate(group):
            counts[g] += 1
            last[g] = row
        rules = [self._decide(count, context.timed_out) for count in counts]
        put = [g for g, r in enumerate(rules) if r is not None and r.update and not r.remove]
        columns = [pa.array(put, pa.int32()), pa.array([counts[g] for g in put])]
        for kind, field in zip(self.state, list(context.state_schema)[1:], strict=True):
            columns.append(pa.array([typed(kind, counts[g]) for g in put], type=field.type))
        timeouts = [r and self._timeout_ms(r, context.batch_time_ms, context.watermark_ms) for r in rules]
        return Result(
            output=self._output(rows, states, counts, last, context),
            state=pa.Table.from_arrays(columns, names=[GROUP, *context.state_schema.names]),
            remove=[r is not None and r.remove for r in rules],
            timeout=pa.array(timeouts, pa.int64()),
        )

    def _output(
        self, rows: pa.Table, states: pa.Table, counts: list[int], last: list[Any], context: Any
    ) -> pa.Table:
        keys = [states[f"k{i}"] for i in range(len(self.keys))]
        at = pa.array(last, pa.int64())
        values = [rows[f"v{i}"].take(at) for i in range(len(self.values))]
        fixed = [pa.array(counts), pa.array([context.timed_out] * len(counts))]
        return pa.Table.from_arrays([*keys, *fixed, *values], names=context.output_schema.names)


def _stored(kind: str, count: int) -> Any:
    """Return a value for `GroupState.update`, rows by position: Spark's worker changes nested names."""
    value = typed(kind, count)
    return tuple(value.values()) if isinstance(value, dict) else value
