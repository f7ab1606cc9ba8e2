"""The demo leaves the checkpoint that it names, and the commands that it prints work."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def examples_on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(CHECKOUT / "examples"))


@pytest.fixture
def checkpoint(tmp_path):
    """Make the checkpoint of a query with one store and three batches."""
    import query_directory

    query = query_directory.QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch", partitions=1)
    for number in range(3):
        query.commit(query_directory.rows(number, 4))
    return query.root


@pytest.mark.dear("stands for the demo")
def test_the_commands_that_are_printed_work(checkpoint, monkeypatch):
    import next_steps

    monkeypatch.chdir(checkpoint.parent)
    printed = [line.split("#")[0] for line in next_steps.text(checkpoint).splitlines()[1:-2]]
    assert len(printed) == len(next_steps.LOOKS)
    for line in printed:
        done = subprocess.run(shlex.split(line), capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        assert done.stdout.strip(), line


def test_the_checkpoint_stays_until_the_next_run(tmp_path, monkeypatch):
    import demo

    monkeypatch.setattr(demo, "ROOT", tmp_path / "build" / "demo")
    with demo.workplace(None) as place:
        place.checkpoint.mkdir()
        with pytest.raises(SystemExit, match="another demo runs"), demo.workplace(None):
            pass
    assert place.checkpoint.exists()
    with demo.workplace(None) as again:
        assert again == place
        assert not place.checkpoint.exists()


def test_the_line_of_a_batch_names_the_restores_that_are_a_part_of_it():
    import progress_lines

    metrics = {
        **{f"incrementalChain{name}": 2 for name in ("Files", "Bytes")},
        "incrementalDeltaBytes": 10,
        "incrementalRestoreCount": 2,
        **{f"incrementalRestore{step}Ms": 10 for step in progress_lines.RESTORE_STEPS},
    }
    progress = {
        "batchId": 8,
        "numInputRows": 1000,
        "stateOperators": [{"numRowsTotal": 5, "customMetrics": metrics}],
        "durationMs": {"triggerExecution": 9000},
    }
    assert progress_lines.batch(progress).endswith("9,000  2 stores restored in 30 ms")
    metrics["incrementalRestoreCount"] = 0
    assert progress_lines.batch(progress).endswith("9,000")


def test_an_existing_directory_is_not_used(tmp_path):
    import demo

    with pytest.raises(FileExistsError), demo.workplace(tmp_path):
        pass
    with demo.workplace(tmp_path / "new") as place:
        assert place.root.is_dir()
