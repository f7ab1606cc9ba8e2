"""The runner of the mutants on a small project: it separates caught mutants from survivors."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from mutants import generated, run, workshop
from mutants.mutant import Mutant

CONFTEST = """
from hypothesis import settings
settings.register_profile("mutants")
"""
CODE = "def double(n):\n    return n + n\n\n\ndef half(n):\n    return n // 2\n"
TESTS = "from code_of_toy import double\n\n\ndef test_double():\n    assert double(3) == 6\n"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a repository with a function that is tested and one that is not."""
    root = tmp_path / "toy"
    (root / "tests").mkdir(parents=True)
    (root / "conftest.py").write_text(CONFTEST)
    (root / "code_of_toy.py").write_text(CODE)
    (root / "tests" / "test_toy.py").write_text(TESTS)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    monkeypatch.setattr(run, "TESTS", root / "tests")
    return root


def broken(name: str, old: str, new: str) -> Mutant:
    return Mutant(name, "code_of_toy.py", old, new, ("tests/test_toy.py",))


SEEN = broken("double is triple", "n + n", "n + n + n")
UNSEEN = broken("half is a third", "n // 2", "n // 3")
STALE = broken("is not there", "n ** 2", "n")
SYNTAX = broken("is no Python", "def double(n):", "def double(n:")


def test_no_mutant_of_the_project_is_stale(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--list"]) == 0, capsys.readouterr().out


def is_generated(mutant: Mutant) -> bool:
    """Return True for a mutant that mutmut makes, too: a number or a comparison in a function is another."""
    if re.match(r"[A-Z_]+ = ", mutant.old):  # a constant of the module: mutmut breaks functions
        return False
    old, new = (re.findall(r"\w+|[<>=!]=?|\S", text) for text in (mutant.old, mutant.new))
    changed = [pair for pair in zip(old, new, strict=False) if pair[0] != pair[1]]
    words = {word for pair in changed for word in pair}
    return (
        len(old) == len(new)
        and len(changed) == 1
        and all(re.fullmatch(r"\d+|[<>=!]=?", word) for word in words)
    )


def test_rooms_with_a_floor_have_no_chosen_mutant_that_is_generated() -> None:
    rooms = tuple(f"state_store/core/{room}/" for room, floor in generated.FLOORS.items() if floor)
    chosen = [mutant for mutant in run.ALL if mutant.file.startswith(rooms)]
    assert [mutant.name for mutant in chosen if is_generated(mutant)] == []


def test_other_numbers_and_comparisons_are_generated() -> None:
    assert is_generated(broken("", "if len(deltas) > 1:", "if len(deltas) > 2:"))
    assert is_generated(broken("", "if a > b:", "if a >= b:"))
    assert not is_generated(broken("", "if a > b:", "if False:"))
    assert not is_generated(broken("", "_TRIES = 3\n", "_TRIES = 1\n"))


@pytest.mark.tier("more")
def test_all_are_caught(
    toy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "ALL", [SEEN])
    assert run.main(["--jobs", "1"]) == 0
    printed = capsys.readouterr().out
    assert "caught   code_of_toy.py: double is triple" in printed
    assert "FAILED tests/test_toy.py::test_double" in printed
    assert printed.splitlines()[-1].startswith("caught 1 of 1")
    assert (toy / "code_of_toy.py").read_text() == CODE


@pytest.mark.tier("more")
def test_surviving_mutants_are_reported_and_fail(
    toy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "ALL", [UNSEEN, SEEN, STALE, SYNTAX])
    assert run.main(["--jobs", "2"]) == 1
    printed = capsys.readouterr().out
    for outcome, mutant in (
        ("SURVIVED", UNSEEN),
        ("caught  ", SEEN),
        ("STALE   ", STALE),
        ("BROKEN  ", SYNTAX),
    ):
        assert f"{outcome} code_of_toy.py: {mutant.name}" in printed
    assert printed.splitlines()[-1].startswith("caught 1 of 4")


def test_tests_that_fail_without_a_mutant_prove_nothing(
    toy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (toy / "code_of_toy.py").write_text(CODE.replace("n + n", "n - n"))
    monkeypatch.setattr(run, "ALL", [UNSEEN])
    assert run.main(["--jobs", "1"]) == 1
    assert "fail on the code as it is" in capsys.readouterr().out


def test_tests_that_do_not_end_decide_nothing(
    toy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        run, "ALL", [broken("double never ends", "return n + n", "import time; time.sleep(600)")]
    )
    monkeypatch.setattr(workshop, "TEST_LIMIT_S", 3)
    assert run.main(["--jobs", "1"]) == 1
    assert "NO END   code_of_toy.py: double never ends" in capsys.readouterr().out


def test_a_sample_is_drawn_by_its_seed(
    toy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "ALL", [SEEN, UNSEEN, STALE])

    def listed(*arguments: str) -> str:
        run.main(["--list", *arguments])
        return capsys.readouterr().out

    assert listed("--sample", "2", "--seed", "3") == listed("--sample", "2", "--seed", "3")
    assert len({listed("--sample", "1", "--seed", str(seed)) for seed in range(20)}) > 2
    assert "double" in listed("--only", "double") and "half" not in listed("--only", "double")


def test_words_that_no_mutant_has_are_an_error(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "ALL", [SEEN])
    with pytest.raises(SystemExit, match=r"no mutant has 'nothing/' or 'none/' in its name or file"):
        run.main(["--only", "nothing/", "--only", "none/", "--sample", "3"])
    with pytest.raises(SystemExit, match=r"no mutant has 'nothing/' in"):
        run.main(["--only", "double", "--only", "nothing/", "--list"])


@pytest.mark.parametrize("words", [["--sample", "0"], ["--sample", "-1"], ["--jobs", "0"]])
def test_a_run_that_would_try_no_mutant_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main(words)
    assert ended.value.code == 2
