"""The work that each engine does, and the files by which it tells how far it is.

Row number i has the key `i % keys` and the value `value_of(key)`. A key keeps a count and a sum, and how
often each of three steps occurred; each row gives one row out: key, count, sum. This module runs in the
environment of every engine, so it needs the standard library alone.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

MARKS = "marks"
OUTPUTS = "outputs.json"


def options(description: str) -> Any:
    """Return the options of a job's command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--form", required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True, help="rows of a batch")
    parser.add_argument("--batches", type=int, required=True)
    parser.add_argument("--root", type=Path, required=True, help="directory for all files of the job")
    parser.add_argument("--collect", action="store_true", help="keep a checksum of the outputs")
    asked = parser.parse_args()
    (asked.root / MARKS).mkdir(parents=True)
    return asked


def value_of(key: int) -> float:
    """Return a value whose sums are exact in any order."""
    return key % 97 + 0.5


def step_of(count: int) -> int:
    """Return the step that a count belongs to."""
    return count // 2 % 3


class Progress:
    """A counter of rows that leaves a file at the end of each batch."""

    def __init__(self, root: Path, rows: int) -> None:
        self._marks = root / MARKS
        self._rows = rows
        self._left = rows
        self._batch = 0

    def add(self) -> None:
        """Count a row."""
        self._left -= 1
        if not self._left:
            (self._marks / str(self._batch)).touch()
            self._batch += 1
            self._left = self._rows


def keep_checksum(root: Path, outputs: Iterable[tuple[int, int, float]]) -> None:
    """Write the number of outputs and a checksum that does not depend on their order."""
    count = total = 0
    for key, n, amount in outputs:
        count += 1
        total += zlib.crc32(f"{key},{n},{amount:.1f}".encode())
    (root / OUTPUTS).write_text(json.dumps({"rows": count, "checksum": total}))
