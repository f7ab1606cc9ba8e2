"""The examples of the pages state.md, operations.md and cookbook.md run as they stand, on a checkpoint."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from dataset.golden_states import checkpoint
from state_store.cli.main import main

BLOCK = re.compile(r"(<!-- with Spark -->\n)?```python\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory in the place of `/data`, with a checkpoint."""
    directory = tmp_path_factory.mktemp("data")
    checkpoint("flights", directory).rename(directory / "checkpoint")
    return directory


def page(checkout: Path, name: str) -> str:
    return (checkout / "docs" / name).read_text(encoding="utf-8")


def run(example: str, data: Path, found: dict[str, object]) -> None:
    exec(example.replace('"/data/', f'"{data}/'), found)


def test_examples_in_python_run(checkout: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    examples = [code for with_spark, code in BLOCK.findall(page(checkout, "state.md")) if not with_spark]
    assert len(examples) >= 8
    found: dict[str, object] = {}
    for example in examples:
        run(example, data, found)
    assert "C1" in capsys.readouterr().out
    assert found["changed"].num_rows and found["feed"].num_rows  # type: ignore[attr-defined]
    assert sorted(path.name for path in data.iterdir()) == ["checkpoint", "checkpoint-filled", "counts"]


def test_examples_of_the_cookbook_run(checkout: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    examples = [code for with_spark, code in BLOCK.findall(page(checkout, "cookbook.md")) if not with_spark]
    assert len(examples) == 2
    for example in examples:
        run(example, data, {})
    assert "keys differ from version 1" in capsys.readouterr().out


def test_the_alert_on_skew_of_the_cookbook_fails_where_there_is_some(checkout: Path, data: Path) -> None:
    example = BLOCK.findall(page(checkout, "cookbook.md"))[-1][1]
    eager = example.replace("stats.skew > 10", "stats.skew > 1").replace("1_000_000", "1")
    assert eager != example
    with pytest.raises(SystemExit, match="partition 0 has 1 times the rows of a mean one"):
        run(eager, data, {})


def test_the_example_of_an_estimate_runs(
    checkout: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ((_, example),) = BLOCK.findall(page(checkout, "operations.md"))
    run(example, data, {})
    assert "Range(average=" in capsys.readouterr().out


@pytest.mark.tier("more")
def test_examples_in_a_terminal_run(
    checkout: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = re.findall(r"^    (state-store .*)$", page(checkout, "state.md"), re.MULTILINE)
    assert len(commands) >= 6
    places = {name: str(tmp_path / name) for name in ("TARGET", "NEW", "EXPORTED", "COPY", "FILLED")}
    for command in commands:
        words = [
            {**places, "DIR": str(data / "checkpoint")}.get(word, word)
            for word in shlex.split(command, comments=True)
        ]
        assert main(words[1:]) == 0, capsys.readouterr().err
        assert capsys.readouterr().out.strip()
