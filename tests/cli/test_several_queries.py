"""Commands and functions that are given the directory above several queries."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from dataset.golden_states import checkpoint
from dataset.readers import readers

from state_store.cli import exit_codes
from state_store.cli.commands import state_store_command
from state_store.cli.main import main
from state_store.errors import MissingError

NO_CHECKPOINT = {"options", "jar", "completion"}
GOES_ON = {"serve"}
"""It waits for the query of a directory, and its page says what `doctor` says."""

OTHERS = {
    "diff": ["1"],
    "get": ["C1"],
    "history": ["C1"],
    "sql": ["from state"],
    "cp": ["TARGET"],
    "export": ["TARGET"],
    "repartition": ["TARGET", "--partitions", "3"],
    "migrate": ["TARGET", "--to", "rocksdb"],
    "import": ["ROWS", "TARGET"],
}
SAYS = (
    r"is not the checkpoint directory of a stateful query: it has the checkpoint directories .*/a', .*/b'\. "
)


@pytest.fixture(scope="module")
def above(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("queries")
    for name in ("b", "a"):
        checkpoint("flights", directory).rename(directory / name)
    (directory / "notes").mkdir()
    return directory


@pytest.mark.parametrize("command", sorted(state_store_command.commands.keys() - NO_CHECKPOINT - GOES_ON))
def test_a_command_names_the_queries_below_its_directory(
    above: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    places = {"TARGET": str(tmp_path / "target"), "ROWS": str(tmp_path / "rows")}
    words = [places.get(word, word) for word in OTHERS.get(command, [])]
    assert any(isinstance(found, click.Argument) for found in state_store_command.commands[command].params)
    assert main([command, str(above), *words]) == exit_codes.NOT_FOUND
    assert re.search(SAYS, capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []
    assert sorted(path.name for path in above.iterdir()) == ["a", "b", "notes"]


def test_a_function_names_the_queries_below_its_directory(above: Path, tmp_path: Path) -> None:
    for name, read in readers(tmp_path).items():
        if name != "check_checkpoint":  # no query has run there, so any store may keep its state
            with pytest.raises(MissingError, match=SAYS):
                read(str(above))
                pytest.fail(f"{name} has read it")
    assert list(tmp_path.iterdir()) == []
