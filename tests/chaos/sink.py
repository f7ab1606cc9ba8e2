"""A sink that keeps the rows of every batch, and takes a repeated batch only if it says the same."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def batch_writer(directory: Path) -> Callable[[DataFrame, int], None]:
    """A foreachBatch function that writes one file for each batch, whole or not at all; several drivers may
    write.

    Raises AssertionError when a batch that was written before is run again with another result.
    """
    directory.mkdir(parents=True, exist_ok=True)

    def write(frame: DataFrame, batch_id: int) -> None:
        path = directory / f"{batch_id:06}.json"
        rows = sorted((tuple(row) for row in frame.collect()), key=repr)
        text = json.dumps(rows)
        fresh = directory / f".{batch_id:06}-{os.getpid()}"
        fresh.write_text(text)
        try:
            path.hardlink_to(fresh)
        except FileExistsError:
            before = path.read_text()
            if before != text:
                (directory / f"{batch_id:06}.differs").write_text(text)
                raise AssertionError(f"batch {batch_id} was {before}, and run again it is {text}") from None
        finally:
            fresh.unlink()

    return write


def read_batches(directory: Path) -> list[list[tuple]]:
    """The rows of all batches, in order of batch number."""
    texts = [path.read_text() for path in sorted(directory.glob("*.json"))]
    return [[tuple(row) for row in json.loads(text)] for text in texts]
