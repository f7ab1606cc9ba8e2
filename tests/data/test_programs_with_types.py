"""Programs of users that a strict type checker accepts: the public functions have complete types."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import state_store

pytestmark = pytest.mark.tier("more")

PROGRAMS = {
    "rows": """
import state_store


def late(checkpoint: str) -> list[str]:
    with state_store.open(checkpoint, version=3) as state:
        print(state.schema.names, state.count(), state.batch)
        row = state.get("AA")
        print(None if row is None else row["flights"])
        names: list[str] = state.to_arrow(["carrier"], filter="flights > 8")["carrier"].to_pylist()
        return names
""",
    "sql": """
from pathlib import Path

import state_store


def total(checkpoint: Path) -> int:
    rows = state_store.sql(checkpoint, "select sum(flights) as n from state")
    total: int = rows["n"][0].as_py() + state_store.diff(checkpoint, 1).num_rows
    return total
""",
    "maintenance": """
import state_store
from state_store import ProgressUpdate


def report(update: ProgressUpdate) -> None:
    print(update)


def is_whole(checkpoint: str) -> bool:
    found = state_store.verify(checkpoint, progress=report)
    for finding in found.findings:
        print(finding.file, finding.sentence())
    state_store.full_checkpoint(checkpoint, partition=0)
    return found.ok
""",
    "errors": """
import state_store
from state_store import StateStoreError


def verdict(checkpoint: str) -> str:
    try:
        return state_store.doctor(checkpoint).verdict.sentence
    except StateStoreError as error:
        return f"{error.kind}: {error.message}"
""",
    "session": """
from __future__ import annotations

from typing import Any

import state_store


def conf() -> dict[str, Any]:
    return state_store.spark_conf({"restoreObjective": "5s"})


def size_a_job() -> state_store.Estimate:
    return state_store.estimate(state_store.Workload(1e6, 24, 80, 1e4))
""",
}


WRONG = "import state_store\n\nstate_store.open(1).nothing\n"


def test_programs_are_accepted_by_a_strict_type_checker_and_a_wrong_one_is_not(tmp_path: Path) -> None:
    for name, text in {**PROGRAMS, "wrong": WRONG}.items():
        (tmp_path / f"{name}_program.py").write_text(text.lstrip())
    words = ["--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache"), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words],
        env={**os.environ, "MYPYPATH": str(Path(state_store.__file__).resolve().parents[1])},
        capture_output=True,
        text=True,
        timeout=400,
        cwd=tmp_path,
    )
    lines = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert {line.partition(":")[0] for line in lines} == {"wrong_program.py"}, done.stdout + done.stderr
    assert any("[arg-type]" in line for line in lines)
    assert any('"State" has no attribute "nothing"' in line for line in lines)
