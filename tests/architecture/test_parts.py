"""Every test is in one part of a tier, and the tests of each tier run somewhere."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import parts
import pytest

TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def files() -> list[str]:
    return sorted(path.relative_to(TESTS).as_posix() for path in TESTS.glob("**/test_*.py"))


def test_each_file_is_in_one_part(files: list[str]) -> None:
    for file in files:
        assert sum(part.collects(file) for part in (*parts.PARTS, *parts.OWN)) == 1, file


def test_each_path_of_a_part_exists() -> None:
    for part in (*parts.PARTS, *parts.OWN):
        assert [path for path in (*part.paths, *part.ignored) if not (TESTS / path).exists()] == []


@pytest.mark.parametrize("tier", ["more", "long"])
def test_a_rare_test_runs_in_a_part_of_its_tier(tier: str, files: list[str]) -> None:
    marker = f'mark.tier("{tier}")'
    rare = [file for file in files if marker in (TESTS / file).read_text(encoding="utf-8")]
    assert rare
    selecting = [part for part, selected in parts.parts_of(tier) if selected == tier]
    for file in rare:
        named = re.findall(r"mark\.release\(\"(.+?)\"\)", (TESTS / file).read_text(encoding="utf-8"))
        for spark in named or [parts.NEWEST]:
            assert any(part.spark == spark and part.collects(file) for part in selecting), (file, spark)


def test_older_releases_run_their_tests(files: list[str]) -> None:
    older = [file for file in files if "mark." + "older(" in (TESTS / file).read_text(encoding="utf-8")]
    assert older
    for file in older:
        assert file.startswith(("spark/", "functions/")), f"no part runs {file} on an older Spark"


def test_a_command_selects_a_tier_and_leaves_out_what_others_run() -> None:
    command = next(part for part in parts.PARTS if part.name == "spark").command("more")
    assert command[1:5] == ["-m", "pytest", "--tier", "more"]
    assert "--ignore=tests/spark/state" in command
    assert command[-1] == "tests/spark"


FAKE = """
import pathlib, sys
import pytest

RUNS = pathlib.Path(__file__).parent / "runs"

def test_passes():
    RUNS.open("a").write("passes ")

def test_fails_first():
    RUNS.open("a").write("first ")
    assert RUNS.read_text().count("first") > 1

@pytest.mark.parametrize("n", range({broken}))
def test_fails_always(n):
    RUNS.open("a").write("always ")
    raise AssertionError
"""


@pytest.mark.parametrize(
    "broken, runs, failed, unstable",
    [
        (0, "passes first first ", [], ["test_fails_first"]),
        (1, "passes first always first always ", ["trial (every)"], []),
        (3, "passes first always always always ", ["trial (every)"], []),
    ],
)
def test_few_failures_run_once_more(
    broken: int,
    runs: str,
    failed: list[str],
    unstable: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "test_trial.py").write_text(FAKE.format(broken=broken), encoding="utf-8")
    monkeypatch.setattr(parts, "CHECKOUT", tmp_path)
    monkeypatch.setattr(
        parts.Part,
        "command",
        lambda self, tier, tests=(): [sys.executable, "-m", "pytest", "-q", *(tests or ["test_trial.py"])],
    )
    found = parts.run([(parts.Part("trial"), "every")], 1, dict(os.environ))
    assert (tmp_path / "runs").read_text() == runs
    assert found == (failed, [f"test_trial.py::{name}" for name in unstable])
