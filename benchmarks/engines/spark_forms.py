"""The workloads in the forms of Spark and of this project."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from workloads import COUNTER, FRAMES, GAP_MS, SESSIONS, step_of

import state_store

COUNTED, CLOSED = "k long, c long, t double", "k long, c long, t double, e long"
_FLAT = "c long, t double, s0 long, s1 long, s2 long"
"""State of functions whose API has no maps: Spark's frames, and tables."""


class Counter(StatefulProcessor):
    """A count and a sum in a value, and the steps in a map."""

    def init(self, handle: Any) -> None:
        self.totals = handle.getValueState("totals", "c long, t double")
        self.seen = handle.getMapState("seen", "d int", "c long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        count, total = tuple(self.totals.get()) if self.totals.exists() else (0, 0.0)
        for row in rows:
            count += 1
            total += row.v
            step = (step_of(count),)
            before = self.seen.getValue(step)[0] if self.seen.containsKey(step) else 0
            self.seen.updateValue(step, (before + 1,))
            yield Row(k=key[0], c=count, t=total)
        self.totals.update((count, total))

    def close(self) -> None:
        pass


class Sessions(StatefulProcessor):
    """The events of a session in a list, and a timer that is moved with the last of them."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.last = handle.getValueState("last", "e long")
        self.events = handle.getListState("events", "v double")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        last_ms = timer_ms = self.last.get()[0] if self.last.exists() else None
        new: list[tuple[float]] = []
        for row in sorted(rows, key=lambda row: row.ms):
            if last_ms is not None and row.ms > last_ms + GAP_MS:
                yield self._closed(key, last_ms, new)
                new = []
            new.append((row.v,))
            last_ms = row.ms
        self.events.appendList(new)
        self.last.update((last_ms,))
        if timer_ms is not None:
            self.handle.deleteTimer(timer_ms + GAP_MS)
        self.handle.registerTimer(last_ms + GAP_MS)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield self._closed(key, self.last.get()[0], [])
        self.last.clear()

    def _closed(self, key: Any, last_ms: int, new: list[tuple[float]]) -> Row:
        events = [event[0] for event in (*self.events.get(), *new)]
        self.events.clear()
        return Row(k=key[0], c=len(events), t=sum(events), e=last_ms)

    def close(self) -> None:
        pass


def counted_rows(key: Any, rows: Any, state: Any) -> Iterator[Any]:
    """Count the rows of a group in plain Python."""
    count, total, seen = state.get if state.exists else (0, 0.0, {})
    seen = dict(seen)
    for row in rows:
        count += 1
        total += row.v
        step = step_of(count)
        seen[step] = seen.get(step, 0) + 1
        yield key.k, count, total
    state.update((count, total, seen))


def session_rows(key: Any, rows: Any, state: Any) -> Iterator[Any]:
    """Follow the session of a group in plain Python."""
    last_ms, events = state.get if state.exists else (None, [])
    if state.hasTimedOut:
        yield key.k, len(events), sum(events), last_ms
        state.remove()
        return
    events = list(events)
    for row in sorted(rows, key=lambda row: row.ms):
        if last_ms is not None and row.ms > last_ms + GAP_MS:
            yield key.k, len(events), sum(events), last_ms
            events = []
        events.append(row.v)
        last_ms = row.ms
    state.update((last_ms, events))
    state.setTimeoutTimestamp(last_ms + GAP_MS)


def counted_frames(key: Any, pdfs: Any, state: Any) -> Iterator[pd.DataFrame]:
    """Count the rows of a group in pandas."""
    count, total, *seen = state.get if state.exists else (0, 0.0, 0, 0, 0)
    for pdf in pdfs:
        counts = count + np.arange(1, len(pdf) + 1)
        totals = total + pdf["v"].cumsum()
        steps = np.bincount(counts // 2 % 3, minlength=3)
        seen = [int(before + now) for before, now in zip(seen, steps, strict=True)]
        count, total = int(counts[-1]), float(totals.iloc[-1])
        yield pd.DataFrame({"k": key[0], "c": counts, "t": totals})
    state.update((count, total, *seen))


def counted_tables(rows: pa.Table, states: pa.Table, context: Any) -> Any:
    """Count the rows of all groups of a call in numpy."""
    group, groups = rows["__group"].to_numpy(), states.num_rows
    sizes = np.bincount(group, minlength=groups)
    order = np.argsort(group, kind="stable")
    first = np.repeat(np.cumsum(sizes) - sizes, sizes)
    before = {name: states[name].fill_null(0).to_numpy() for name in ("c", "t", "s0", "s1", "s2")}
    sorted_group = group[order]
    counts = before["c"][sorted_group] + np.arange(len(group)) - first + 1
    sums = np.concatenate(([0.0], np.cumsum(rows["v"].to_numpy()[order])))
    totals = before["t"][sorted_group] + sums[1:] - sums[first]
    seen = np.bincount(sorted_group * 3 + counts // 2 % 3, minlength=3 * groups).reshape(groups, 3)
    state = pa.table(
        {
            "c": before["c"] + sizes,
            "t": before["t"] + np.bincount(group, rows["v"].to_numpy(), minlength=groups),
            **{f"s{step}": before[f"s{step}"] + seen[:, step] for step in range(3)},
        }
    )
    keys = states["k"].to_numpy()[sorted_group]
    return state_store.Result(output=pa.table({"k": keys, "c": counts, "t": totals}), state=state)


def session_tables(rows: pa.Table, states: pa.Table, context: Any) -> Any:
    """Follow the sessions of all groups of a call: their kept events join the new ones, as of the last."""
    opened = states.filter(states["__exists"])
    events_before = opened["events"].combine_chunks()
    lengths = events_before.value_lengths().to_numpy()
    if context.timed_out:
        closed = {
            "k": opened["k"],
            "c": lengths,
            "t": _sums(events_before.flatten(), lengths),
            "e": opened["last"],
        }
        return state_store.Result(output=pa.table(closed), remove=states["__group"])
    group = np.concatenate([np.repeat(opened["__group"].to_numpy(), lengths), rows["__group"].to_numpy()])
    ms = np.concatenate([np.repeat(opened["last"].to_numpy(), lengths), rows["ms"].to_numpy()])
    events = np.concatenate([events_before.flatten().to_numpy(), rows["v"].to_numpy()])
    order = np.lexsort((ms, group))
    group, ms, events = group[order], ms[order], events[order]
    starts = np.flatnonzero(np.append(True, (group[1:] != group[:-1]) | (ms[1:] > ms[:-1] + GAP_MS)))
    lengths = np.diff(np.append(starts, len(group)))
    ends, of = starts + lengths - 1, group[starts]
    is_open = np.append(of[1:] != of[:-1], True)
    sessions = {
        "k": states["k"].to_numpy()[of],
        "c": lengths,
        "t": np.add.reduceat(events, starts),
        "e": ms[ends],
    }
    offsets = np.append(0, np.cumsum(lengths[is_open])).astype(np.int32)
    state = {
        "last": ms[ends][is_open],
        "events": pa.ListArray.from_arrays(offsets, events[np.repeat(is_open, lengths)]),
    }
    return state_store.Result(
        output=pa.table(sessions).filter(pa.array(~is_open)),
        state=pa.table(state),  # each group of a call has rows, so each has one open session
        timeout=pa.array(ms[ends][is_open] + GAP_MS),
    )


def _sums(values: pa.Array, lengths: np.ndarray) -> np.ndarray:
    sums = np.append(0.0, np.cumsum(values.to_numpy()))
    ends = np.cumsum(lengths)
    return sums[ends] - sums[ends - lengths]


@dataclass(frozen=True)
class Function:
    """A function of `applyInPandasWithState`: what builds it, and the columns of its state."""

    build: Callable[[], Any]
    state: str


FUNCTIONS = {
    (COUNTER, "per_group"): Function(
        lambda: state_store.per_group(counted_rows), "c long, t double, seen map<int,long>"
    ),
    (COUNTER, "vectorized"): Function(lambda: state_store.vectorized(counted_tables), _FLAT),
    (FRAMES, "spark-frames"): Function(lambda: counted_frames, _FLAT),
    (FRAMES, "accelerate"): Function(lambda: state_store.accelerate(counted_frames), _FLAT),
    (SESSIONS, "per_group"): Function(
        lambda: state_store.per_group(session_rows), "last long, events array<double>"
    ),
    (SESSIONS, "vectorized"): Function(
        lambda: state_store.vectorized(session_tables), "last long, events array<double>"
    ),
}
PROCESSORS = {COUNTER: Counter, SESSIONS: Sessions}
