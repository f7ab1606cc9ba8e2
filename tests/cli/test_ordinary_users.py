"""Commands of a user who may not read or not write some files: they work, or name the file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dataset.golden_states import checkpoint

PROGRAM = """
import sys
from state_store.cli.main import main
for words in sys.argv[1:]:
    print("code", main(words.split()), words, flush=True)
"""


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """Return a directory whose subdirectory `shut` is read-only, with a checkpoint in it."""
    shut = tmp_path / "shut"
    checkpoint("flights", shut)
    secret = shut / "secret"
    secret.mkdir()
    for path in (shut, *shut.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    secret.chmod(0)
    (tmp_path / "own").mkdir()
    yield tmp_path
    for path in (shut, *(path for path in shut.rglob("*") if path.is_dir())):
        path.chmod(0o755)


def run(work: Path, *commands: str) -> tuple[dict[str, int], str]:
    """Run commands in the directory `own`; return the exit code of each, and all messages.

    Root runs them without its privileges.
    """
    limits: list[str] = []
    if os.getuid() == 0:
        assert shutil.which("setpriv"), "these tests run as root with 'setpriv', of the package util-linux"
        limits = ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
    done = subprocess.run(
        [*limits, sys.executable, "-c", PROGRAM, *commands],
        cwd=work / "own",
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    codes = [line.split(" ", 2) for line in done.stdout.splitlines() if line.startswith("code ")]
    return {words: int(code) for _, code, words in codes}, done.stderr


@pytest.mark.tier("more")
def test_a_checkpoint_that_may_only_be_read_can_be_looked_at_and_copied(work: Path) -> None:
    commands = [
        *(
            f"{name} ../shut/flights"
            for name in ("checkpoints", "files", "show", "stats", "verify", "doctor")
        ),
        "export ../shut/flights rows.parquet",
        "cp ../shut/flights copy",
    ]
    codes, errors = run(work, *commands)
    of_a_stopped_query = {"doctor ../shut/flights": 1}
    assert codes == {**dict.fromkeys(commands, 0), **of_a_stopped_query}, errors
    assert sorted(path.name for path in (work / "own").iterdir()) == ["copy", "rows.parquet"]


def test_a_command_that_may_not_write_says_which_file(work: Path) -> None:
    codes, errors = run(work, "full ../shut/flights", "export ../shut/flights ../shut/rows.parquet")
    assert set(codes.values()) == {4}, codes
    assert "cannot write '../shut/flights/state/0/0/lease/" in errors
    assert errors.count("Permission denied") == len(errors.strip().splitlines())


def test_a_copy_that_could_not_begin_leaves_nothing_and_does_not_claim_a_part(work: Path) -> None:
    codes, errors = run(work, "cp ../shut/flights ../shut/copy")
    assert list(codes.values()) == [4]
    assert "Permission denied" in errors
    assert "has a part of it" not in errors
    assert not (work / "shut/copy").exists()


def test_a_checkpoint_that_may_not_be_read_is_no_mistake_of_the_program(work: Path) -> None:
    commands = [f"{name} ../shut/secret" for name in ("verify", "checkpoints", "show", "files")]
    codes, errors = run(work, *commands)
    assert set(codes.values()) <= {2, 4}, codes
    assert errors.count("Permission denied") == len(commands), errors
