"""Scenario: a stateful query over the input streams, and its required result."""

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
    """A streaming query.

    `query` maps the two input streams (events, answers) to the result. The expected rows are those of the
    same function over the same files in batch mode, unless `replay` returns, in plain Python, the rows of
    every micro-batch. With `upsert` the last row of each key counts (update mode), with mode `complete` only
    the last batch. With `late_counts` the query has no watermark, and late records are part of the answer.
    With `flush_counts` it answers at once, and the records that push the watermark are part of the answer,
    too.
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
