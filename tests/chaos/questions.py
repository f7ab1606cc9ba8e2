"""The queries, and in plain Python what each has to have written and to hold in state, whatever happened."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F

import state_store
from chaos.input_records import DELAY_S, Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

DELAY = f"{DELAY_S} seconds"
WINDOW_S = 20
PATIENCE_S = 15
OUTPUT = "key string, n long, total long"
STATE = "n long, total long, note string"
_MAX_NOTE_LENGTH = 1200

Rows = list[tuple]


@dataclass(frozen=True)
class Answer:
    """The rows written, and the rows in state of each side; the side of all but joins is ''."""

    output: Rows
    state: Mapping[str, Rows]


@dataclass(frozen=True, eq=False)
class Question:
    """A query. `answer` gets all events and all answers.

    With `upsert` the last row of each key (that many columns) counts. `actions` is the number of times that
    `foreachBatch` has the rows of a batch made and written; it first looks if there are any, if that is more
    than once.
    """

    name: str
    query: Callable[[DataFrame, DataFrame], DataFrame]
    mode: str
    answer: Callable[[list[Record], list[Record]], Answer]
    upsert: int = 0
    sides: tuple[str, ...] = ("",)
    actions: int = 1


# ---- aggregation, with and without watermark ---------------------------------------------------------------


def _totals(events: DataFrame, _answers: DataFrame) -> DataFrame:
    return events.groupBy("key").agg(*_aggregates())


def _windows(events: DataFrame, _answers: DataFrame) -> DataFrame:
    windows = events.withWatermark("ts", DELAY).groupBy(F.window("ts", f"{WINDOW_S} seconds"), "key")
    bounds = [F.col(f"window.{bound}").cast("long").alias(bound) for bound in ("start", "end")]
    return windows.agg(*_aggregates()).select(*bounds, "key", "n", "total", "newest")


def _aggregates() -> list[Any]:
    return [F.count("*").alias("n"), F.sum("value").alias("total"), F.max("id").alias("newest")]


def _answer_totals(events: list[Record], _answers: list[Record]) -> Answer:
    rows = [(key, *_aggregated(group)) for (key,), group in _grouped(events, lambda event: (event.key,))]
    return Answer(rows, {"": rows})


def _answer_windows(events: list[Record], _answers: list[Record]) -> Answer:
    def window(event: Record) -> tuple:
        start = event.ts // WINDOW_S * WINDOW_S
        return start, start + WINDOW_S, event.key

    on_time = [event for event in events if not event.late]
    rows = [(*key, *_aggregated(group)) for key, group in _grouped(on_time, window)]
    watermark = _watermark(on_time)
    return Answer(
        [row for row in rows if row[1] <= watermark], {"": [row for row in rows if row[1] > watermark]}
    )


def _aggregated(group: list[Record]) -> tuple[int, int, int]:
    return len(group), sum(record.value for record in group), max(record.id for record in group)


def _grouped(
    records: Iterable[Record], key: Callable[[Record], tuple]
) -> Iterable[tuple[tuple, list[Record]]]:
    groups: dict[tuple, list[Record]] = defaultdict(list)
    for record in records:
        groups[key(record)].append(record)
    return groups.items()


def _watermark(on_time: list[Record]) -> int:
    return max(event.ts for event in on_time) - DELAY_S


# ---- applyInPandasWithState, group by group and vectorised -------------------------------------------------


def follow(key: tuple, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Count and add up; the last record of a key ends it and has the result written."""
    n, total, _ = state.get if state.exists else (0, 0, "")
    records = pd.concat(list(frames))
    n, total = n + len(records), total + int(records["value"].sum())
    if records["last"].any():
        state.remove()
        yield pd.DataFrame([(key[0], n, total)], columns=["key", "n", "total"])
    else:
        state.update((n, total, note(key[0], n, total)))


@state_store.vectorized
def follow_all(rows: pa.Table, states: pa.Table, context: Any) -> state_store.Result:
    """Return the same for many groups in one call."""
    n = [count or 0 for count in states["n"].to_pylist()]
    total = [value or 0 for value in states["total"].to_pylist()]
    ended = [False] * states.num_rows
    columns = (rows[name].to_pylist() for name in ("__group", "value", "last"))
    for group, value, last in zip(*columns, strict=True):
        n[group] += 1
        total[group] += value
        ended[group] = ended[group] or last
    keys = states["key"].to_pylist()
    going_on = [group for group, over in enumerate(ended) if not over]
    over = [group for group, over in enumerate(ended) if over]
    return state_store.Result(
        output=pa.table(
            {
                "key": pa.array([keys[group] for group in over], pa.string()),
                "n": pa.array([n[group] for group in over], pa.int64()),
                "total": pa.array([total[group] for group in over], pa.int64()),
            }
        ),
        state=pa.table(
            {
                "__group": pa.array(going_on, pa.int32()),
                "n": pa.array([n[group] for group in going_on], pa.int64()),
                "total": pa.array([total[group] for group in going_on], pa.int64()),
                "note": pa.array([note(keys[g], n[g], total[g]) for g in going_on], pa.string()),
            }
        ),
        remove=over,
    )


def note(key: str, n: int, total: int) -> str:
    """Return a text, of any length up to `_MAX_NOTE_LENGTH`, that says from what state it comes."""
    rng = random.Random(f"{key}/{n}/{total}")
    return rng.randbytes(rng.randint(0, _MAX_NOTE_LENGTH // 2)).hex()


def _pandas(function: Callable) -> Callable[[DataFrame, DataFrame], DataFrame]:
    def query(events: DataFrame, _answers: DataFrame) -> DataFrame:
        groups = events.select("key", "value", "last").groupBy("key")
        return groups.applyInPandasWithState(function, OUTPUT, STATE, "update", "NoTimeout")

    return query


def _answer_pandas(events: list[Record], _answers: list[Record]) -> Answer:
    output, state = [], []
    for (key,), group in _grouped(events, lambda event: (event.key,)):
        n, total = len(group), sum(event.value for event in group)
        if any(event.last for event in group):
            output.append((key, n, total))
        else:
            state.append((key, n, total, note(key, n, total)))
    return Answer(output, {"": state})


# ---- deduplication, stream-stream joins --------------------------------------------------------------------


def _distinct(events: DataFrame, _answers: DataFrame) -> DataFrame:
    return events.select("key", "value").dropDuplicates(["key", "value"])


def _answer_distinct(events: list[Record], _answers: list[Record]) -> Answer:
    rows = sorted({(event.key, event.value) for event in events})
    return Answer(rows, {"": [(*row, None) for row in rows]})


_ASKING, _REPLYING = (0, 3), (1, 4)
"""The values of the events and of the answers that are joined."""


def _join(events: DataFrame, answers: DataFrame) -> DataFrame:
    left = _narrowed(events, _ASKING).alias("e")
    right = _narrowed(answers, _REPLYING).alias("a")
    on = f"e.key = a.key and a.ts >= e.ts and a.ts <= e.ts + interval {PATIENCE_S} seconds"
    return left.join(right, F.expr(on), "left_outer").selectExpr("e.key", "e.id as asks", "a.id as replies")


def _narrowed(stream: DataFrame, values: tuple[int, ...]) -> DataFrame:
    return stream.where(F.col("value").isin(*values)).withWatermark("ts", DELAY).select("key", "ts", "id")


def _answer_join(events: list[Record], answers: list[Record]) -> Answer:
    left = [event for event in events if event.value in _ASKING and not event.late]
    right = [answer for answer in answers if answer.value in _REPLYING and not answer.late]
    watermark = min(_watermark(left), _watermark(right))
    by_key = dict(_grouped(right, lambda answer: (answer.key,)))
    output: Rows = []
    for asks in left:
        replies = [
            answer.id for answer in by_key.get((asks.key,), []) if 0 <= answer.ts - asks.ts <= PATIENCE_S
        ]
        output += [(asks.key, asks.id, reply) for reply in replies]
        if not replies and asks.ts + PATIENCE_S < watermark:
            output.append((asks.key, asks.id, None))
    waiting = [event for event in left if event.ts + PATIENCE_S >= watermark]
    kept = [answer for answer in right if answer.ts >= watermark]
    return Answer(
        output,
        {
            "left": [_joined_row(record) for record in waiting],
            "right": [_joined_row(record) for record in kept],
        },
    )


def _joined_row(record: Record) -> tuple:
    return record.key, record.key, record.ts, record.id


QUESTIONS: Mapping[str, Question] = {
    question.name: question
    for question in (
        Question("totals", _totals, "update", _answer_totals, upsert=1),
        Question("totals-twice", _totals, "update", _answer_totals, upsert=1, actions=2),
        Question("windows", _windows, "append", _answer_windows),
        Question("windows-twice", _windows, "append", _answer_windows, actions=2),
        Question("pandas", _pandas(follow), "update", _answer_pandas),
        Question("vectorized", _pandas(follow_all), "update", _answer_pandas),
        Question("distinct", _distinct, "append", _answer_distinct),
        Question("join", _join, "append", _answer_join, sides=("left", "right")),
    )
}

WITH_PYTHON = frozenset({"pandas", "vectorized"})
"""Queries that have Python workers."""
