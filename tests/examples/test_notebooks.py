"""The notebooks that are scripts run from their first to their last cell."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from dataset.golden_states import checkpoint, expected

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("name", ["types", "flights"])
def test_the_notebook_about_the_content_of_a_state_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["notebook", str(checkpoint(name, tmp_path))])
    runpy.run_path(str(EXAMPLES / "what_is_in_my_state.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert f"{len(expected(name, 4))} rows in 2 partitions" in printed
    assert "version 4: " in printed and "'change_count'" in printed
    assert not list(tmp_path.glob("*/state/0/*/lease/*.json"))


def test_why_is_my_restore_slow(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["notebook", str(checkpoint("flights", tmp_path))])
    runpy.run_path(str(EXAMPLES / "why_is_my_restore_slow.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "store 0/0/default: from the merge checkpoint 3 and 1 deltas" in printed
    assert "operator 0 (" in printed and "2 partitions: 4 versions, " in printed
    assert "much is history" in printed


@pytest.mark.parametrize("name", ["what_is_in_my_state", "why_is_my_restore_slow", "embedded_store"])
def test_notebooks_show_their_usage_without_a_directory(name, monkeypatch):
    monkeypatch.setattr(sys, "argv", [name])
    with pytest.raises(SystemExit, match=rf"python examples/{name}.py /"):
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
