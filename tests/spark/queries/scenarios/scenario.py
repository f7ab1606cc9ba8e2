"""What a scenario is: one stateful query over the input streams, and how its answer is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from queries.scenarios.records import Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Query = Callable[["DataFrame", "DataFrame"], "DataFrame"]
Replay = Callable[[list[list[Record]]], list[list[dict]]]


@dataclass(frozen=True, eq=False)
class Scenario:
    """One streaming query.

    `query` maps the two input streams (events, answers) to the result. The expected rows are those of the
    same function over the same files in batch mode, unless `replay` gives, in plain Python, the rows of
    every micro-batch. With `upsert` the last row of each key counts (update mode), and with mode
    `complete` the last batch alone.
    `late_counts` says that the query has no watermark, so that late records are part of the answer;
    `flush_counts` that it answers at once, so that the records which push the watermark are part of it too.
    """

    name: str
    query: Query
    mode: str = "append"
    upsert: tuple[str, ...] = ()
    replay: Replay | None = None
    late_counts: bool = False
    flush_counts: bool = False
    file_sink: bool = False
    until_state_is_empty: bool = False
    conf: dict[str, str] = field(default_factory=dict)
