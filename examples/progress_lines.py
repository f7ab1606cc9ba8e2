"""One line a batch, from the progress that Spark reports."""

from __future__ import annotations

from typing import Any

WHERE_NEXT = "Where next: README.md, docs/operations.md, `state-store --help`."


def batch(progress: dict[str, Any]) -> str:
    """``progress`` (StreamingQueryProgress as JSON) in a line: rows, keys, bytes, chain, merges, time."""
    (operator,) = progress["stateOperators"]
    total_ms = progress["durationMs"].get("triggerExecution", 0)
    return (
        f"batch {progress['batchId']:>3}  {progress['numInputRows']:>6,} rows  "
        f"{operator['numRowsTotal']:>6,} keys in state  {total_ms:>6,} ms"
    )
