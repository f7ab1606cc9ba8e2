"""`configure`, Delta and Iceberg in one session, in several orders: tables and state are right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pinned_jars
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.tier("more"), pytest.mark.release("4.0")]

SESSION = Path(__file__).with_name("lakehouse_session.py")
TESTS = SESSION.parents[2]
PATIENCE_S = 600

RARELY = pytest.mark.tier("long")
ORDERS = [
    pytest.param(("page",), id="page"),
    pytest.param(("store", "delta", "iceberg", "extensions"), id="first", marks=RARELY),
    pytest.param(("extensions", "iceberg", "delta", "store", "store"), id="last-twice", marks=RARELY),
    pytest.param(("store", "delta", "extensions", "store", "iceberg"), id="between", marks=RARELY),
]


@pytest.mark.parametrize("order", ORDERS)
def test_all_three_work(tmp_path: Path, order: tuple[str, ...]) -> None:
    pinned_jars.repository(tmp_path, (pinned_jars.DELTA, pinned_jars.ICEBERG))
    path = [TESTS, TESTS / "functions", os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, str(SESSION), str(tmp_path), *order],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")] or [
        done.stderr[-6000:]
    ]
    found = json.loads(line.removeprefix("FOUND "))
    assert found["rows"]["totals"] == [["a", 2, 4.0], ["b", 1, 2.0], ["b", 2, 6.0], ["c", 1, 5.0]]
    assert found["rows"]["seen"] == [["a"], ["b"], ["c"]]
    assert found["optimized"] == 1
    for name, vectorized in (("totals", 1), ("seen", 0)):
        assert [run["keys"] for run in found[name]] == [2, 3]
        for run in found[name]:
            assert run["ours"], f"another store has the state of {name}"
            assert run["warnings"] == [], "the extension of this store is not there"
            assert run["vectorized"] == vectorized
    written = found["extensions"].split(",")
    assert len(written) == len(set(written)), "an extension is there twice"
    # After a kill between the sink's commit and the query's, Delta's sink needs format 1; Iceberg's does not.
    assert found["rows"]["totals_2"] == [["a", 2, 4.0], ["b", 2, 6.0], ["c", 1, 5.0]]
    assert "ChekpointInfo length: 0" in found["again"].pop("seen_2")
    assert found["again"] == {"totals": "", "seen": "", "totals_2": ""}
