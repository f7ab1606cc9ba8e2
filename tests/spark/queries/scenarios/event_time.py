"""Spark's watermark rule in plain Python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from queries.scenarios.records import DELAY_S, Record


class Watermarks(NamedTuple):
    """A batch drops what is at or before `late` and evicts what ended at `eviction` (epoch seconds)."""

    late: int
    eviction: int


def watermarks(history: list[list[Record]]) -> list[Watermarks]:
    """Return the watermarks of every batch: for eviction those of the last batches, for late rows older."""
    marks, late, eviction = [], 0, 0
    for records in history:
        marks.append(Watermarks(late, eviction))
        newest = max((record.ts for record in records), default=0)
        late, eviction = eviction, max(eviction, newest - DELAY_S)
    return marks


def on_time(records: Iterable[Record], marks: Watermarks) -> list[Record]:
    return [record for record in records if record.ts > marks.late]
