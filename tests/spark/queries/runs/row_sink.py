"""Sink that keeps the rows of every micro-batch, and accepts a repeated batch only with equal rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rows_of(frame: DataFrame) -> list[str]:
    """Return the rows as JSON texts, sorted: equal lists mean equal content."""
    text = frame.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}))
    return sorted(row[0] for row in text.collect())


@dataclass(frozen=True)
class Batch:
    """A micro-batch in the sink: its rows, and the number of the last input file read by then."""

    last_file: int
    rows: list[dict]


def batch_writer(directory: Path, offsets: Path) -> Callable[[DataFrame, int], None]:
    """A foreachBatch function that writes one file per batch, atomically; `offsets` is the offset log.

    Raises AssertionError when a batch that was written before is run again with another result.
    """
    directory.mkdir(parents=True, exist_ok=True)

    def write(frame: DataFrame, batch_id: int) -> None:
        path = directory / f"{batch_id:06}.json"
        batch = {"last_file": _last_file(offsets / str(batch_id)), "rows": rows_of(frame)}
        if path.exists():
            before = json.loads(path.read_text())
            assert before == batch, f"batch {batch_id} was {before}, and run again it is {batch}"
        fresh = path.with_suffix(".tmp")
        fresh.write_text(json.dumps(batch))
        fresh.replace(path)

    return write


def _last_file(offset: Path) -> int:
    first_source = offset.read_text().splitlines()[2]
    return json.loads(first_source)["logOffset"]


def read_batches(directory: Path) -> list[Batch]:
    """Return all batches, in order of batch number."""
    contents = [json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))]
    return [Batch(batch["last_file"], [json.loads(row) for row in batch["rows"]]) for batch in contents]
