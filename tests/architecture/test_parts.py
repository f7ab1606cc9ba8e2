"""What `make test` leaves to `make test-more` is run there, and every test is in a part."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PARTS = (
    "test-core",
    "test-spark",
    "test-jvm",
    "test-state",
    "test-simulation",
    "test-functions",
    "test-storage",
)
MORE = ("test-more-jvm", "test-more-functions")


def make(checkout: Path, *arguments: str) -> str:
    """What make prints; it may itself have started these tests."""
    alone = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS")}
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=checkout, env=alone, capture_output=True, text=True, check=True).stdout


def commands(checkout: Path, *targets: str) -> list[list[str]]:
    """The arguments of pytest, as make would run it for each target."""
    lines = make(checkout, "--dry-run", *targets).splitlines()
    return [shlex.split(line.partition(" -m pytest ")[2]) for line in lines if " -m pytest " in line]


def runs(command: list[str], file: Path) -> bool:
    """Whether pytest collects the file, by the paths in its arguments."""
    name = file.relative_to(TESTS.parent).as_posix()

    def is_below(path: str) -> bool:
        return name == path or name.startswith(f"{path}/")

    paths = [one for one in command if one == "tests" or one.startswith("tests/")]
    ignored = [one.removeprefix("--ignore=") for one in command if one.startswith("--ignore=")]
    return any(map(is_below, paths or ["tests"])) and not any(map(is_below, ignored))


@pytest.fixture(scope="module")
def files() -> list[Path]:
    return sorted(TESTS.glob("**/test_*.py"))


def test_each_file_is_in_one_part(checkout: Path, files: list[Path]) -> None:
    parts = commands(checkout, *PARTS)
    assert len(parts) == len(PARTS)
    elsewhere = ("chaos", "packaging")  # in parts of `make test-more`
    for file in files:
        wanted = 0 if file.parent.name in elsewhere else 1
        assert sum(runs(part, file) for part in parts) == wanted, file


def test_what_is_left_to_make_test_more_is_run_there(checkout: Path, files: list[Path]) -> None:
    left = [file for file in files if "pytest.mark." + "more" in file.read_text(encoding="utf-8")]
    assert left
    parts = commands(checkout, *MORE)
    assert all("more" in part for part in parts)
    for file in left:
        assert any(runs(part, file) for part in parts), file


@pytest.mark.parametrize(("variable", "parts"), [("PARTS", PARTS), ("MORE_PARTS", MORE)])
def test_make_runs_all_parts(checkout: Path, variable: str, parts: tuple[str, ...]) -> None:
    told = make(checkout, "--dry-run", "--print-data-base", *MORE)
    (line,) = [one for one in told.splitlines() if one.startswith(f"{variable} := ")]
    assert set(parts) <= set(line.split())
