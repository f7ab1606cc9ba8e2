"""Sessions in processes of their own, started as users start theirs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

PATIENCE_S = 900


def write_source(directory: Path) -> None:
    """Write four rows of the keys `a`, `b` and null as a source of Parquet files."""
    directory.mkdir()
    rows = pa.table({"k": ["a", "b", "a", None], "v": [1.0, 2.0, 3.0, 4.0]})
    pq.write_table(rows, directory / "0.parquet")


def run(program: str, directory: Path, *arguments: str) -> tuple[Any, str]:
    """Run `program` with `directory` and `arguments`; return what it printed after FOUND, and its log."""
    tests = Path(__file__).parent
    places = [tests.parents[1], tests, tests / "processors", tests.parent, os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(map(str, places))
    done = subprocess.run(
        [sys.executable, "-c", program, str(directory), *arguments],
        env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stdout[-2000:] + done.stderr[:4000] + done.stderr[4000:][-4000:]
    return json.loads(lines[0].removeprefix("FOUND ")), done.stderr
