"""Tests of the comparison of engines: jobs are measured between batches, and other outputs are seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.engines import side_by_side
from benchmarks.engines.side_by_side import Form

_PROGRAM = """
import sys
sys.path.insert(0, {engines!r})
from counted_rows import Progress, keep_checksum, options
asked = options("a job")
progress = Progress(asked.root, asked.rows)
for _ in range(asked.rows * asked.batches):
    progress.add()
keep_checksum(asked.root, {outputs})
"""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make three programs: two whose outputs differ in their order alone, and one with another sum."""
    outputs = {
        "ordered": [(1, 1, 0.5), (2, 1, 1.5)],
        "shuffled": [(2, 1, 1.5), (1, 1, 0.5)],
        "wrong": [(1, 1, 0.5), (2, 1, 2.5)],
    }
    for name, rows in outputs.items():
        text = _PROGRAM.format(engines=str(side_by_side.HERE), outputs=rows)
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(side_by_side, "FORMS", {name: Form(name, max_rows=600) for name in outputs})
    monkeypatch.setattr(side_by_side, "HERE", tmp_path)


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(("other", "code"), [("shuffled", 0), ("wrong", 1)])
def test_outputs_of_all_forms_have_to_be_equal(other: str, code: int, tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    assert side_by_side.main(["--json", str(out), "--quick", "--engines", f"ordered,{other}"]) == code
    assert json.loads(out.read_text())["outputs_equal"] == (code == 0)


@pytest.mark.usefixtures("jobs")
def test_a_slow_form_gets_fewer_keys_with_as_many_rows_each() -> None:
    (found,) = side_by_side.measure(["ordered"], keys=1000, per_key=[20], batches=3, turns=2)["runs"]
    assert (found["keys"], found["rows"], found["rows_a_key"], found["turns"]) == (30, 600, 20, 2)


@pytest.mark.usefixtures("jobs")
def test_a_job_that_ends_early_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="after 0 batches"):
        side_by_side.run("ordered", 10, 0, 2)


@pytest.mark.usefixtures("jobs")
def test_the_others_go_on_after_a_job_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text("raise SystemExit('no engine')", encoding="utf-8")
    monkeypatch.setitem(side_by_side.FORMS, "broken", Form("broken"))
    found = side_by_side.measure(["broken", "ordered"], keys=10, per_key=[2], batches=2, turns=1)
    assert [run["form"] for run in found["runs"]] == ["ordered"]
    assert "no engine" in found["failed"]["broken"]
