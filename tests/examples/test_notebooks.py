"""The notebooks that are scripts run from their first to their last cell."""

from __future__ import annotations

import importlib
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


@pytest.mark.tier("more")
def test_the_notebook_shows_tables(tmp_path, monkeypatch):
    """Its cells run in order in a kernel, and those that end with an object of the store show HTML."""
    nbclient, nbformat = importlib.import_module("nbclient"), importlib.import_module("nbformat")
    place = checkpoint("flights", tmp_path)
    monkeypatch.setenv("CHECKPOINT", str(place))
    notebook = nbformat.read(EXAMPLES / "state_in_a_notebook.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "the file is kept without outputs"
    nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3").execute(cwd=str(tmp_path))
    shown = {
        cell.source.splitlines()[-1]: output.data
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result"
    }
    assert sum("text/html" in data for data in shown.values()) >= 6
    assert shown["state"]["text/plain"].startswith("State(closed, operator 0 (applyInPandasWithState)")
    assert "C1" in shown["state.to_pandas().head()"]["text/html"]
    assert not list(place.glob("state/0/*/lease/*.json"))
