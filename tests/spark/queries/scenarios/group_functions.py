"""Arbitrary stateful processing: `applyInPandasWithState`, and Scala's (flat)MapGroupsWithState.

All of them follow one rule, told once in `follow` for Python and once in Scala: count and add up the values
of a key, forget the key at a value of 0, and with time-outs close it when it has been silent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import DataFrame as SparkDataFrame
from pyspark.sql.streaming.state import GroupStateTimeout

from queries.scenarios.event_time import on_time, watermarks
from queries.scenarios.records import DELAY_S, Record
from queries.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

DELAY = f"{DELAY_S} seconds"
SILENCE_S = 12
SILENCE_MS = 400
OUTPUT = "key string, kind string, n long, total long"
STATE = "n long, total long, note string"
COLUMNS = ["key", "kind", "n", "total"]
NOTHING: Mapping[str, tuple[int, int]] = MappingProxyType({})
NEVER_S = 1 << 60


def follow(
    key: tuple, frames: Iterable[pd.DataFrame], state: GroupState, timeout: str
) -> Iterator[pd.DataFrame]:
    n, total, note = state.get if state.exists else (0, 0, "")
    if state.hasTimedOut:
        state.remove()
        yield _row(key, "closed", n, total)
        return
    records = pd.concat(list(frames))
    n, total = n + len(records), total + int(records["value"].sum())
    if (records["value"] == 0).any():
        if state.exists:
            state.remove()
        yield _row(key, "forgotten", n, total)
        return
    state.update((n, total, (note + "+" * len(records))[-40:]))
    if timeout == GroupStateTimeout.EventTimeTimeout:
        state.setTimeoutTimestamp((int(records["ts"].max().timestamp()) + SILENCE_S) * 1000)
    elif timeout == GroupStateTimeout.ProcessingTimeTimeout:
        state.setTimeoutDuration(SILENCE_MS)
    yield _row(key, "seen", n, total)


def _row(key: tuple, kind: str, n: int, total: int) -> pd.DataFrame:
    return pd.DataFrame([(key[0], kind, n, total)], columns=COLUMNS)


def _pandas(events: DataFrame, timeout: str, mode: str) -> DataFrame:
    def call(key: tuple, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        return follow(key, frames, state, timeout)

    columns = events.select("key", "ts", "value", "id")
    return columns.groupBy("key").applyInPandasWithState(call, OUTPUT, STATE, mode, timeout)


def _without_timeout(events: DataFrame, _answers: DataFrame) -> DataFrame:
    return _pandas(events, GroupStateTimeout.NoTimeout, "update")


def _event_time(events: DataFrame, _answers: DataFrame) -> DataFrame:
    return _pandas(events.withWatermark("ts", DELAY), GroupStateTimeout.EventTimeTimeout, "append")


def _processing_time(events: DataFrame, _answers: DataFrame) -> DataFrame:
    return _pandas(events, GroupStateTimeout.ProcessingTimeTimeout, "update")


def _scala(method: str, *more: Any) -> Any:
    def query(events: DataFrame, _answers: DataFrame) -> DataFrame:
        scala = events.sparkSession._jvm.statestore.queries.GroupsWithState
        return SparkDataFrame(getattr(scala, method)(events._jdf, *more), events.sparkSession)

    return query


def _replay_without_timeout(history: list[list[Record]]) -> list[list[dict]]:
    return replay(history, timeouts=False)


def _replay_event_time(history: list[list[Record]]) -> list[list[dict]]:
    return replay(history, timeouts=True)


def _replay_map(history: list[list[Record]]) -> list[list[dict]]:
    """Return the results without forgetting: mapGroupsWithState returns a row for each key of a batch."""
    counts = {"k01": (1000, 0)}  # the initial state of the Scala query
    output = []
    for records in history:
        touched = _by_key(records)
        for key, group in touched.items():
            n, total = counts.get(key, (0, 0))
            counts[key] = (n + len(group), total + sum(record.value for record in group))
        output.append([_expected(key, "seen", *counts[key]) for key in touched])
        if not output[:-1]:  # the first batch returns the keys of the initial state, too
            output[-1] += [_expected(key, "seen", *counts[key]) for key in {"k01"} - set(touched)]
    return output


def replay(
    history: list[list[Record]], timeouts: bool, initial: Mapping[str, tuple[int, int]] = NOTHING
) -> list[list[dict]]:
    """Return the required output of each batch; `initial` has counts and sums, which are never silent."""
    state = {key: (n, total, NEVER_S) for key, (n, total) in initial.items()}
    output = []
    for records, marks in zip(history, watermarks(history), strict=True):
        touched = _by_key(on_time(records, marks) if timeouts else records)
        rows = [_step(state, key, group) for key, group in touched.items()]
        silent = [key for key in state if timeouts and key not in touched and state[key][2] < marks.eviction]
        for key in silent:
            n, total, _ = state.pop(key)
            rows.append(_expected(key, "closed", n, total))
        output.append(rows)
    return output


def _step(state: dict[str, tuple[int, int, int]], key: str, group: list[Record]) -> dict:
    n, total, _ = state.get(key, (0, 0, 0))
    n, total = n + len(group), total + sum(record.value for record in group)
    if any(record.value == 0 for record in group):
        state.pop(key, None)
        return _expected(key, "forgotten", n, total)
    state[key] = (n, total, max(record.ts for record in group) + SILENCE_S)
    return _expected(key, "seen", n, total)


def _by_key(records: Iterable[Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.key, []).append(record)
    return groups


def _expected(key: str, kind: str, n: int, total: int) -> dict:
    return {"key": key, "kind": kind, "n": n, "total": total}


SCENARIOS = [
    Scenario("pandas-no-timeout", _without_timeout, "update", replay=_replay_without_timeout),
    Scenario("pandas-event-time", _event_time, replay=_replay_event_time),
    Scenario("pandas-processing-time", _processing_time, "update", until_state_is_empty=True),
    Scenario(
        "scala-flat-map-no-timeout",
        _scala("flatMapWithoutTimeout"),
        "update",
        replay=_replay_without_timeout,
    ),
    Scenario(
        "scala-flat-map-event-time",
        _scala("flatMapWithEventTime", DELAY, SILENCE_S * 1000),
        replay=_replay_event_time,
    ),
    Scenario(
        "scala-flat-map-processing-time",
        _scala("flatMapWithProcessingTime", SILENCE_MS),
        "update",
        until_state_is_empty=True,
    ),
    Scenario("scala-map", _scala("map"), "update", replay=_replay_map),
]
