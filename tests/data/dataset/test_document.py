"""The examples of docs/state.md run as they are written, on the checkpoint of a real query."""

from __future__ import annotations

import re
import shlex

import pytest

from dataset.golden_states import checkpoint
from state_store.cli.main import main


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> str:
    return str(checkpoint("flights", tmp_path_factory.mktemp("document")))


def page(checkout) -> str:
    return (checkout / "docs/state.md").read_text(encoding="utf-8")


def test_examples_in_python_run(checkout, directory, capsys):
    examples = re.findall(r"```python\n(.*?)```", page(checkout), re.DOTALL)
    assert len(examples) >= 4
    found: dict[str, object] = {}
    for example in examples:
        exec(example.replace("/data/checkpoint", directory), found)
    assert "C1" in capsys.readouterr().out
    assert found["changed"].num_rows and found["feed"].num_rows


def test_the_example_of_an_estimate_runs(checkout, directory, capsys):
    text = (checkout / "docs/operations.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(example.replace("/data/checkpoint", directory), {})
    assert "Range(average=" in capsys.readouterr().out


def test_examples_in_a_terminal_run(checkout, directory, tmp_path, capsys):
    commands = re.findall(r"^    (state-store .*)$", page(checkout), re.MULTILINE)
    assert len(commands) >= 6
    for command in commands:
        places = {name: str(tmp_path / name) for name in ("TARGET", "EXPORTED", "COPY", "FILLED")} | {
            "DIR": directory
        }
        words = [places.get(word, word) for word in shlex.split(command)]
        assert main(words[1:]) == 0, capsys.readouterr().err
        assert capsys.readouterr().out.strip()
