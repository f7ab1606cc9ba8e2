"""Every test is in one part, each tier runs somewhere, and the runner says what happens."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import parts
import psutil
import pytest
import tiers_and_draws
from mutants.mutant import Mutant

from state_store.session import releases

TESTS = Path(__file__).resolve().parents[1]
NEWEST = releases.RELEASES[-1].minor


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
        marked = re.findall(r"mark\.release\((.+?)\)", (TESTS / file).read_text(encoding="utf-8"))
        named = [spark for names in marked for spark in re.findall(r"\"(.+?)\"", names)]
        for spark in [parts.NEWEST if minor == NEWEST else minor for minor in named] or [parts.NEWEST]:
            assert any(part.spark == spark and part.collects(file) for part in selecting), (file, spark)


def test_older_releases_run_their_tests(files: list[str]) -> None:
    older = [file for file in files if "mark." + "older(" in (TESTS / file).read_text(encoding="utf-8")]
    assert older
    for file in older:
        assert file.startswith(("spark/", "functions/")), f"no part runs {file} on an older Spark"


def test_a_change_must_pass_all_of_both_quick_tiers_and_the_programs() -> None:
    change = list(parts.parts_of("change"))
    for tier in ("every", "more"):
        assert [pair for pair in parts.parts_of(tier) if pair not in change] == []
    programs = (*parts.PROGRAMS, parts.suites_on("4.2"))
    assert [part for part in programs if part not in [chosen for chosen, _ in change]] == []
    assert (parts.suites_on("4.0"), "more") in parts.parts_of("more", ["4.0"])


def test_a_draw_begins_with_a_case_of_each_test_of_a_promise() -> None:
    promises = [f"tests/kept/a.py::{name}" for name in ("a", "b[1]", *(f"c[{n}]" for n in range(12)))]
    others = [f"tests/cli/{file}.py::{name}" for file in "abcdefghijk" for name in ("x[1]", "x[2]", "y")]
    cases = [SimpleNamespace(nodeid=name) for name in (*promises, *others)]
    first_drawn, first_files = set(), set()
    for seed in map(str, range(200)):
        first, rest = tiers_and_draws.drawn_order(cases, seed, ["tests/kept", "tests/c.py"])
        again, order = tiers_and_draws.drawn_order(cases[::-1], seed, ["tests/kept", "tests/c.py"])
        assert (again[::-1], order) == (first, rest)
        names = [case.nodeid for case in (*first, *rest)]
        assert sorted(names) == sorted((*promises, *others))
        assert sorted(case.nodeid.split("[")[0][-1] for case in first) == ["a", "b", "c"]
        files = [case.nodeid.partition("::")[0] for case in rest]
        assert [file for file, _ in itertools.groupby(files)] == list(dict.fromkeys(files))
        first_drawn |= {case.nodeid for case in first}
        first_files.add(files[0])
    assert first_drawn == set(promises)
    assert len(first_files) == 12


def test_a_break_that_no_quick_test_sees_is_seen_with_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*tests: str) -> Mutant:
        return Mutant("x", "x.py", "a", "b", tests)

    monkeypatch.setattr(tiers_and_draws.control_plane, "MUTANTS", [broken("tests/jvm/test_a.py::slow[2]")])
    python = [
        broken("tests/b/test_b.py::A::slow", "tests/b/test_c.py"),
        broken("tests/d", "tests/b/test_b.py::slow"),
    ]
    monkeypatch.setattr(tiers_and_draws.data_plane, "MUTANTS", python)
    tiers = {
        **{f"tests/jvm/test_a.py::slow[{case}]": "more" for case in range(5)},
        "tests/b/test_b.py::A::slow": "more",
        "tests/b/test_b.py::quick": "every",
        "tests/b/test_c.py::A::slow": "more",
        "tests/d/e/test_d.py::A::quick[1]": "every",
        "tests/b/test_b.py::slow": "more",
    }
    guards = tiers_and_draws.guards(tiers)
    assert guards == {"tests/jvm/test_a.py::slow[2]", "tests/b/test_b.py::A::slow", "tests/b/test_c.py"}
    cases = [SimpleNamespace(nodeid=name) for name, tier in tiers.items() if tier == "more"]
    for seed in map(str, range(20)):
        first, _ = tiers_and_draws.drawn_order(cases, seed, sorted(guards))
        assert {case.nodeid for case in first} == {
            "tests/jvm/test_a.py::slow[2]",
            "tests/b/test_b.py::A::slow",
            "tests/b/test_c.py::A::slow",
        }


DEAR_MARK, MORE, LONG = (
    pytest.mark.dear("x").mark,
    *(pytest.mark.tier(tier).mark for tier in ("more", "long")),
)


@pytest.mark.parametrize(
    ("own", "around", "tier"),
    [
        ([], [], "every"),
        ([], [MORE], "more"),
        ([MORE], [], "more"),
        ([DEAR_MARK], [], "every"),
        ([DEAR_MARK], [MORE], "every"),
        ([DEAR_MARK, MORE], [], "more"),
        ([DEAR_MARK, MORE], [MORE, LONG], "long"),
    ],
)
def test_a_test_that_stands_for_its_module_does_not_take_dear_cases_with_it(
    own: list[pytest.Mark], around: list[pytest.Mark], tier: str
) -> None:
    """A case with a tier of its own keeps it, though its function is what stands for others."""

    def named(name: str) -> list[pytest.Mark]:
        return [mark for mark in (*own, *around) if mark.name == name]

    item: Any = SimpleNamespace(
        own_markers=own, iter_markers=named, get_closest_marker=lambda name: next(iter(named(name)), None)
    )
    assert tiers_and_draws.tier_of(item, tiers_and_draws.NEWEST_SPARK) == tier


@pytest.mark.parametrize(
    ("path", "tier", "as_tier"),
    [
        ("core/test_a.py", "every", "every"),
        ("core/test_a.py", "more", "more"),
        ("packaging/test_a.py", "every", "more"),
        ("packaging/test_a.py", "long", "long"),
        ("core/test_a.py", None, "long"),
    ],
)
def test_a_test_that_runs_beside_dear_ones_may_take_as_long(
    path: str, tier: str | None, as_tier: str
) -> None:
    item: Any = SimpleNamespace(nodeid=f"tests/{path}::test_it")
    assert tiers_and_draws.bound_s(item, tier) == parts.BOUND_S[as_tier]


@pytest.mark.parametrize(("tier", "path"), [("every", "core"), ("more", "spark"), ("long", "chaos")])
def test_a_marker_that_names_more_time_than_its_tier_allows_is_refused(tier: str, path: str) -> None:
    def of(bound_s: float | None) -> Any:
        marker = bound_s and SimpleNamespace(args=(bound_s,))
        return SimpleNamespace(
            nodeid=f"tests/{path}/test_a.py::test_it", get_closest_marker=lambda name: marker
        )

    longest_s = parts.LONGEST_S[tier]
    assert [tiers_and_draws.excess_of(of(bound_s), tier) for bound_s in (None, 1, longest_s)] == ["", "", ""]
    assert tiers_and_draws.excess_of(of(longest_s + 1), tier).startswith(
        f"tests/{path}/test_a.py::test_it may take {longest_s + 1} s, and a test of its tier at most"
    )


def run_with_conftest(directory: Path, source: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of `source` with what all tests of this checkout have."""
    (directory / "conftest.py").write_text("from tests.conftest import *\n", encoding="utf-8")
    (directory / "test_trial.py").write_text(source, encoding="utf-8")
    path = os.pathsep.join((str(TESTS.parent), str(TESTS), str(TESTS / "core")))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_trial.py"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.tier("more")
def test_no_run_begins_with_a_test_that_may_take_longer_than_its_tier_allows(tmp_path: Path) -> None:
    done = run_with_conftest(tmp_path, "import pytest\n@pytest.mark.timeout(901)\ndef test_it(): pass\n")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    assert "test_it may take 901 s, and a test of its tier at most 900 s" in done.stderr, done.stderr


LEFT = """
import pytest
from pyspark import SparkContext

SparkContext._ensure_initialized()

@pytest.mark.timeout(2)
def test_is_left_in_a_call():
    SparkContext._jvm.java.lang.Thread.sleep(50_000)

def test_calls_after_the_other():
    assert SparkContext._jvm.java.lang.Integer.parseInt("7") == 7
"""


@pytest.mark.tier("more")
def test_a_test_that_is_left_in_a_call_of_the_jvm_fails_alone(tmp_path: Path) -> None:
    done = run_with_conftest(tmp_path, LEFT)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr


def test_a_draw_ends_when_its_budget_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that always run come first, and whatever they take is not taken from the others."""
    taken_s = 100.0
    monkeypatch.setattr(tiers_and_draws.run_events, "family_cpu_s", lambda: taken_s)
    draw = tiers_and_draws.Draw([f"drawn-{number}" for number in range(9)], budget_s=0.5)
    ran = []
    for name in (*(f"always-{number}" for number in range(4)), *(f"drawn-{number}" for number in range(9))):
        if draw.pytest_runtest_protocol(SimpleNamespace(nodeid=name)) is None:
            ran.append(name)
            taken_s += 0.2
    assert ran == [*(f"always-{number}" for number in range(4)), "drawn-0", "drawn-1", "drawn-2"]
    assert draw.left == 6


@pytest.mark.tier("more")
def test_pytest_passes_over_what_a_draw_leaves(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import run_events, tiers_and_draws\n"
        "def pytest_collection_modifyitems(config, items):\n"
        "    others = [item.nodeid for item in items if 'always' not in item.name]\n"
        "    config.pluginmanager.register(tiers_and_draws.Draw(others, 0.5))\n"
    )
    (tmp_path / "test_trial.py").write_text(
        "import pytest, time\n"
        "def works():\n"
        "    began_s = time.process_time()\n"
        "    while time.process_time() - began_s < 0.2: pass\n"
        "@pytest.mark.parametrize('n', range(4))\n"
        "def test_always(n): works()\n"
        "@pytest.mark.parametrize('n', range(9))\n"
        "def test_drawn(n): works()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
    )
    passed = int(re.search(r"(\d+) passed", done.stdout)[1])  # type: ignore[index]
    assert done.returncode == 0 and 4 < passed < 13, done.stdout
    assert f"{13 - passed} tests are left to other draws" in done.stdout


def test_the_page_of_promises_names_tests_that_exist() -> None:
    promised = tiers_and_draws.promised_paths()
    assert "tests/core/deletion" in promised
    assert [path for path in promised if not (parts.CHECKOUT / path).exists()] == []


def test_a_command_selects_a_tier_and_leaves_out_what_others_run() -> None:
    command = next(part for part in parts.PARTS if part.name == "data").command("more")
    assert command[command.index("--tier") + 1] == "more"
    assert "--ignore=tests/data/dataset/test_remote.py" in command
    assert command[-1] == "tests/data"


def test_a_seed_draws_of_dear_tests_and_of_the_parts_that_are_only_run_before_a_landing() -> None:
    data, packaging = next(part for part in parts.PARTS if part.name == "data"), parts.OWN[0]
    assert "--draw" in data.command("more", seed="x") and "--draw" in packaging.command("every", seed="x")
    assert "--budget" in data.command("more", seed="x")
    assert "--draw" not in data.command("every", seed="x") + packaging.command("every")
    for folder, is_apart in {"packaging": True, "chaos": True, "cli/packaging": False}.items():
        assert tiers_and_draws.is_apart(SimpleNamespace(nodeid=f"tests/{folder}/a.py::x")) == is_apart


# ---- lanes ------------------------------------------------------------------------------------------------


class Lanes:
    """Parts that run for as many looks as a test says, instead of processes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.running: list[str] = []
        self.begun: list[tuple[str, ...]] = []
        """The parts that run after each start."""
        clock = SimpleNamespace(sleep=lambda pause_s: None, monotonic=lambda: 0.0)
        monkeypatch.setattr(parts, "time", clock)
        monkeypatch.setattr(parts, "say", lambda *lines: None)
        monkeypatch.setattr(parts.run_events, "reap_orphans", lambda own: None)

    def part(self, name: str, looks: int, *, waits: bool = False) -> parts.Run:
        lanes = self

        class Played(parts.Run):
            pid, began_s = 0, 0.0

            def start(self, environment: object) -> None:
                lanes.running.append(name)
                lanes.begun.append(tuple(lanes.running))
                self._left = looks

            def look(self) -> bool:
                self._left -= 1
                return not self._left

            def end(self) -> None:
                lanes.running.remove(name)

            def write_times(self) -> None: ...

        return Played(parts.Part(name, waits=waits), "every")


def test_parts_that_wait_take_no_lane_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lanes have two parts that work, as long as there are some, whatever waits beside them."""
    lanes = Lanes(monkeypatch)
    chosen = [
        lanes.part("histories", 9, waits=True),
        lanes.part("a", 3),
        lanes.part("b", 5),
        lanes.part("agents", 2, waits=True),
        lanes.part("c", 1),
        lanes.part("d", 3),
    ]
    ended = parts.run(chosen, 2, {})
    assert lanes.begun == [
        ("histories",),
        ("histories", "a"),
        ("histories", "a", "b"),
        ("histories", "a", "b", "agents"),
        ("histories", "b", "c"),
        ("histories", "b", "d"),
    ]
    assert [entry.part.name for entry in ended] == ["agents", "a", "c", "b", "d", "histories"]


def test_parts_that_wait_begin_first_and_come_before_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = [part for part, _ in parts.parts_of("every")]
    waiting = [part for part in quick if part.waits]
    assert waiting and quick[: len(waiting)] == waiting
    commands: list[list[str]] = []
    monkeypatch.setattr(parts, "CHECKOUT", tmp_path)
    monkeypatch.setattr(parts.subprocess, "Popen", lambda command, **_: commands.append(command))
    for part in quick:
        run = parts.Run(part, "every")
        run.start({})
        run._room.cleanup()
    assert [command[0] == "nice" for command in commands] == [not part.waits for part in quick]


# ---- the runner, on a directory of its own ----------------------------------------------------------------

CONFTEST = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
import parts, run_events
parts.reset_signals()

def pytest_configure(config):
    run_events.adopt_orphans()
    config.addinivalue_line("markers", "dear(reason): x")
    config.pluginmanager.register(run_events.plugin())

def pytest_unconfigure():
    run_events.end_family()
"""

RUNNER = f"""
import os, sys
sys.path.insert(0, {str(TESTS)!r})
import parts
from pathlib import Path

parts.CHECKOUT = Path.cwd()
parts.PARTS = (parts.Part("trial", program={{program}}),)
parts.environment_of_tests = lambda: dict(os.environ)
parts.LINE_S = 0.0
for name, value in {{settings}}.items():
    setattr(parts, name, value)
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
parts.Part.command = lambda self, tier, tests=(), seed="", order="": (
    [sys.executable, *self.program] if self.program else [*PYTEST, *(tests or ["test_trial.py"])]
)
sys.exit(parts.main(["--lanes", "1"]))
"""


def run_trial(
    directory: Path,
    source: str,
    *,
    is_ignoring: bool = False,
    program: tuple[str, ...] = (),
    **settings: object,
) -> subprocess.CompletedProcess[str]:
    """Run the runner on the tests of `source`, or on a program; `is_ignoring` starts it as `nohup` does."""
    (directory / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (directory / "test_trial.py").write_text(textwrap.dedent(source), encoding="utf-8")
    (directory / "runner.py").write_text(RUNNER.format(settings=settings, program=program), encoding="utf-8")
    command = [sys.executable, "runner.py"]
    if is_ignoring:
        command = ["sh", "-c", "trap '' INT HUP; exec \"$@\"", "sh", *command]
    return subprocess.run(
        command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100
    )


FEW = """
import pathlib
import pytest

RUNS = pathlib.Path(__file__).parent / "runs"

def test_passes():
    RUNS.open("a").write("passes ")

def test_fails_first():
    print("said by the test")
    RUNS.open("a").write("first ")
    assert RUNS.read_text().count("first") > 1

@pytest.mark.parametrize("n", range({broken}))
def test_fails_always(n):
    RUNS.open("a").write("always ")
    raise AssertionError
"""


@pytest.mark.tier("more")
@pytest.mark.parametrize(
    "broken, runs, exit_code, ends",
    [
        (0, "passes first first ", 0, "unstable: test_trial.py::test_fails_first"),
        (1, "passes first always first always ", 1, "FAILED trial (every):"),
        (3, "passes first always always always ", 1, "FAILED trial (every):"),
    ],
)
def test_few_failures_run_once_more(
    broken: int, runs: str, exit_code: int, ends: str, tmp_path: Path
) -> None:
    done = run_trial(tmp_path, FEW.format(broken=broken))
    assert (tmp_path / "runs").read_text() == runs, done.stdout + done.stderr
    assert done.returncode == exit_code
    assert ends in done.stdout
    assert "== FAILED trial (every): make test TESTS=test_trial.py::test_fails_first\n" in done.stdout
    assert "said by the test" in done.stdout
    closing = f"1 passed, {1 + broken} failed, 0 skipped" if broken else "2 passed, 0 failed, 1 skipped"
    assert done.stdout.splitlines()[-1] == closing


@pytest.mark.tier("more")
@pytest.mark.parametrize(
    ("exit_codes", "ends"),
    [
        ([1, 0], "unstable: trial failed beside other tests and passed alone"),
        ([1, 1], "FAILED trial (every): it ended with exit code 1\n    1 suite failed\n"),
    ],
)
def test_a_program_that_failed_runs_once_more(exit_codes: list[int], ends: str, tmp_path: Path) -> None:
    source = f"""
    import pathlib, sys

    print("1 suite failed")
    with pathlib.Path("runs").open("a+") as runs:
        runs.write("x")
        sys.exit({exit_codes}[runs.tell() - 1])
    """
    done = run_trial(tmp_path, source, program=("test_trial.py",))
    assert (tmp_path / "runs").read_text() == "xx", done.stdout + done.stderr
    assert done.returncode == exit_codes[-1]
    assert ends in done.stdout


@pytest.mark.tier("more")
@pytest.mark.parametrize(("says", "exit_code"), [(parts.STARVED, 0), ("wrong", 1)])
def test_failures_for_a_late_worker_of_spark_run_once_more_however_many_there_are(
    says: str, exit_code: int, tmp_path: Path
) -> None:
    source = f"""
    import pathlib, pytest

    @pytest.mark.parametrize("n", range({parts.REPEATED + 2}))
    def test_fails_first(n):
        ran = pathlib.Path(__file__).parent / f"ran-{{n}}"
        assert ran.exists() or ran.touch(), {says!r}
    """
    done = run_trial(tmp_path, source)
    assert done.returncode == exit_code, done.stdout + done.stderr


def test_progress_names_the_tests_that_are_done_of_all(tmp_path: Path) -> None:
    done = run_trial(tmp_path, "import time\ndef test_a(): pass\ndef test_b(): time.sleep(1)\n")
    assert "s: trial (every) 1/2" in done.stdout
    assert "== trial (every) 2/2" in done.stdout


def test_signals_that_the_parent_ignored_are_taken_again(tmp_path: Path) -> None:
    source = """
    import os, signal, subprocess, sys
    import pytest

    def test_here():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)

    def test_in_what_is_started():
        code = "import signal; print(signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGPIPE))"
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        assert said.split() == ["0", "1"], said
    """
    done = run_trial(tmp_path, source.replace("\n    ", "\n"), is_ignoring=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("own_s", [None, 700])
def test_a_part_that_hangs_is_killed_and_the_test_is_named(
    own_s: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not before the test itself may have ended."""
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    marker = f"@pytest.mark.timeout({own_s})\n" if own_s else ""
    hangs = f"import pytest, signal\n{marker}def test_hangs(): signal.pause()\n"
    (tmp_path / "test_trial.py").write_text(hangs, encoding="utf-8")
    monkeypatch.setattr(parts, "CHECKOUT", tmp_path)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_trial.py"]
    monkeypatch.setattr(parts.Part, "command", lambda *_: command)
    trial = parts.Run(parts.Part("trial"), "every")
    trial.start(os.environ)
    try:
        while not trial.current:
            assert not trial.look()
            os.sched_yield()
        trial._heard_s -= (own_s or parts.BOUND_S["every"]) + parts.GRACE_S - 60
        trial._guard()
        assert not trial.complaint
        trial._heard_s -= 61
        while not trial.look():
            os.sched_yield()
    finally:
        trial.end()
    assert trial.complaint == "it hangs in test_trial.py::test_hangs"


@pytest.mark.tier("more")
def test_a_part_that_takes_too_much_memory_is_killed(tmp_path: Path) -> None:
    source = "import signal\ndef test_grows():\n    much = bytearray(300 << 20)\n    signal.pause()\n"
    done = run_trial(tmp_path, source, MEMORY_BYTES=200 << 20)
    assert done.returncode == 1
    assert "MiB of memory in test_trial.py::test_grows" in done.stdout


@pytest.mark.tier("more")
def test_a_run_that_dies_is_a_failure_that_names_the_test(tmp_path: Path) -> None:
    done = run_trial(tmp_path, "import os\ndef test_dies():\n    os._exit(7)\n")
    assert done.returncode == 1
    assert "it ended with exit code 7 in test_trial.py::test_dies" in done.stdout


@pytest.mark.tier("more")
@pytest.mark.parametrize(
    ("ends", "complaint"),
    [
        ("os._exit(0)", "it ended before its tests had, in test_trial.py::test_ends"),
        ("pytest.exit('enough', returncode=0)", "it ran 1 of 3 tests, up to test_trial.py::test_ends"),
    ],
)
def test_a_run_that_ends_early_is_a_failure_though_its_exit_code_is_none(
    ends: str, complaint: str, tmp_path: Path
) -> None:
    source = f"import os, pytest\ndef test_a(): pass\ndef test_ends(): {ends}\ndef test_never(): assert 0\n"
    done = run_trial(tmp_path, source)
    assert done.returncode == 1, done.stdout
    assert f"FAILED trial (every): {complaint}" in done.stdout


def test_a_part_that_runs_no_test_fails(tmp_path: Path) -> None:
    done = run_trial(tmp_path, "x = 1\n")
    assert done.returncode == 1, done.stdout
    assert "FAILED trial (every): it ran no test" in done.stdout


@pytest.mark.parametrize("left", [0, 2])
def test_tests_that_a_draw_leaves_need_not_run(left: int) -> None:
    run = parts.Run(parts.Part("trial"), "more", seed="x", collected=5, left=left)
    run.done["passed"] = 3
    assert run._lack() == ("" if left else "it ran 3 of 5 tests")


@pytest.mark.parametrize("words", [["core", "cor"], ["cor"], ["--lanes", "0"], ["--lanes", "-1", "core"]])
def test_a_misspelt_part_and_a_run_without_lanes_are_refused(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "run", lambda *_: pytest.fail("it ran"))
    with pytest.raises(SystemExit) as ended:
        parts.main(words)
    assert ended.value.code == 2


DEAR = """
import time
import pytest

def test_computes():
    until = time.process_time() + 0.8
    while time.process_time() < until:
        pass

@pytest.mark.dear("stands for the others")
def test_stands_for_others():
    test_computes()
"""


@pytest.mark.tier("more")
def test_a_dear_test_of_the_quick_tier_is_named_unless_it_has_a_reason(tmp_path: Path) -> None:
    done = run_trial(tmp_path, DEAR, DEAR_S=0.15)
    assert done.returncode == 0
    assert re.findall(r"^dear: (\S+) took", done.stdout, re.MULTILINE) == ["test_trial.py::test_computes"]


def test_nothing_is_left_of_a_run(tmp_path: Path) -> None:
    source = """
    import pathlib, subprocess, sys
    def test_leaves_a_grandchild():
        code = "from subprocess import *; print(Popen(['sleep', '99'], stdout=-3, start_new_session=1).pid)"
        pid = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True).stdout
        pathlib.Path("pid").write_text(pid)
    """
    done = run_trial(tmp_path, source.replace("\n    ", "\n"))
    assert done.returncode == 0, done.stdout
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


@pytest.mark.tier("more")
def test_an_interrupted_run_ends_its_parts(tmp_path: Path) -> None:
    run_trial(tmp_path, "def test_passes(): pass\n")  # writes the files
    (tmp_path / "test_trial.py").write_text(
        "import os, pathlib, signal\n"
        "def test_hangs():\n"
        "    pathlib.Path('fresh').write_text(str(os.getpid()))\n"
        "    pathlib.Path('fresh').rename('pid')\n"
        "    signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "runner.py"], cwd=tmp_path, stdout=subprocess.DEVNULL) as runner:
        try:
            while not (tmp_path / "pid").exists():
                assert runner.poll() is None
                os.sched_yield()
            part = psutil.Process(int((tmp_path / "pid").read_text()))
            runner.send_signal(signal.SIGTERM)
            assert runner.wait() == 128 + signal.SIGTERM
        finally:
            runner.kill()
    assert not part.is_running()
