"""Expired rows: by a time-out, by a time to live, or because the watermark has passed their window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from state_store.data.dataset.layout.columns import Columns
from state_store.data.dataset.layout.views import EVENT_TIMERS, EXPIRES_MS, TIMER_MS, View
from state_store.data.query import Query

if TYPE_CHECKING:
    import pyarrow

WATERMARK, TIME = "watermark", "time"
"""The clocks: the watermark that a batch left, and the time at which the next batch ran, or now."""

_TIMEOUT, _EXPIRES_MICROS = "timeoutTimestamp", "expiresAtMicros"


@dataclass(frozen=True)
class Expired:
    """The number of rows that have expired; the next batch may remove them.

    Attributes:
        column: the column that says when a row expires.
        clock: `watermark` or `time`.
        at_ms: the clock's value for the next batch, in ms since 1970 UTC.
        rows: the number of expired rows.
        looked_at: the number of rows examined.
    """

    column: str
    clock: str
    at_ms: int
    rows: int
    looked_at: int

    @property
    def share(self) -> float:
        """The share of expired rows; 0 if there are no rows."""
        return self.rows / self.looked_at if self.looked_at else 0.0


class Expiry:
    """The rule by which rows of a view expire, with the clock's value for the next batch."""

    def __init__(self, view: View, column: str, clock: str, at_ms: int) -> None:
        self.column = column
        self.clock = clock
        self.at_ms = at_ms
        self.columns = Columns(view, [column])

    @classmethod
    def of(cls, query: Query, view: View, batch: int, now_ms: int) -> Expiry | None:
        """Return the rule for the state after a batch.

        The result is None if no column of the view says when a row expires, or if Spark has forgotten the
        batch.
        """
        watermark_ms = query.logs.next_watermark_ms(batch)
        if watermark_ms is None:
            return None
        next_ms = query.logs.batch_ms(batch + 1)
        time_ms = now_ms if next_ms is None else next_ms
        names = {column.name: column.type for column in Columns(view).schema}
        if EXPIRES_MS in names:
            return cls(view, EXPIRES_MS, TIME, time_ms)
        if view.has_timers:
            by_watermark = view.schema.family.startswith(EVENT_TIMERS)
            clock = (WATERMARK, watermark_ms) if by_watermark else (TIME, time_ms)
            return cls(view, TIMER_MS, *clock)
        if _EXPIRES_MICROS in names:
            return cls(view, _EXPIRES_MICROS, WATERMARK, watermark_ms)
        if view.has_groups and _TIMEOUT in names:
            # Without a watermark in the query, time-outs go by the time of the batches.
            clock = (WATERMARK, watermark_ms) if watermark_ms else (TIME, time_ms)
            return cls(view, _TIMEOUT, *clock)
        window = next((name for name, type_ in names.items() if _is_window(type_)), None)
        return cls(view, window, WATERMARK, watermark_ms) if window is not None and watermark_ms else None

    def count(self, batch: pyarrow.RecordBatch) -> int:
        """Return the number of expired rows in a batch of `columns`."""
        import pyarrow
        import pyarrow.compute

        times, least = batch.column(0), -(2**63)
        if pyarrow.types.is_struct(times.type):
            times = times.flatten()[times.type.get_field_index("end")].cast(pyarrow.int64())
        at = self.at_ms if self.column in (_TIMEOUT, EXPIRES_MS, TIMER_MS) else self.at_ms * 1000
        if self.column == _TIMEOUT:  # -1 is none; Spark takes times before the watermark
            at, least = at - 1, 0
        is_over = pyarrow.compute.and_(
            pyarrow.compute.greater_equal(times, least), pyarrow.compute.less_equal(times, at)
        )
        return int(pyarrow.compute.sum(is_over).as_py() or 0)


def _is_window(type_: Any) -> bool:
    import pyarrow

    names = (
        [type_.field(place).name for place in range(type_.num_fields)]
        if pyarrow.types.is_struct(type_)
        else []
    )
    return names == ["start", "end"] and all(
        pyarrow.types.is_timestamp(type_.field(place).type) and type_.field(place).type.unit == "us"
        for place in range(2)
    )
