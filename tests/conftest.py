"""Fixtures of all tests: the directory of the checkout, and Spark workers that run this Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import parts
import pytest
import run_events
import tiers_and_draws
from hypothesis import HealthCheck, Phase, settings
from minihdfs import hdfs_cluster  # noqa: F401 -- a fixture
from minis3 import s3_server  # noqa: F401 -- a fixture

CHECKOUT = Path(__file__).resolve().parent.parent

# Nobody's habits reach the tests: signals that a shell or `nohup` had this process ignore, and Python without
# byte code, by which every process of a test compiles pandas and pyspark anew.
parts.reset_signals()
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads are a fifth of the CPU of short processes
sys.dont_write_bytecode = False

# A busy machine is not a failure. In continuous integration the random cases are the same in each run, so
# that a change is judged by what it changes. For mutants only a failure counts, not its smallest example.
IN_CHECKS = "CI" in os.environ or os.environ.get("STATE_STORE_TEST_TOOLS") == "required"
FIXED = {"derandomize": True, "database": None} if IN_CHECKS else {}
settings.register_profile("checks", deadline=None, suppress_health_check=[HealthCheck.too_slow], **FIXED)
settings.register_profile("mutants", settings.get_profile("checks"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("checks")

TIER_VARIABLE = "STATE_STORE_TEST_TIER"
"""Variable with the tier of a run that names none."""

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)

# matplotlib keeps a list of fonts: in the tests' cache, and not in a directory of its own.
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "incremental-state-store"
os.environ.setdefault("MPLCONFIGDIR", str(_CACHE / "matplotlib"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses a tier."""
    parser.addoption(
        "--tier",
        choices=(*tiers_and_draws.TIERS, parts.CHANGE),
        default=os.environ.get(TIER_VARIABLE, "every"),
        help="run only the tests of this tier; change: those of every and more",
    )
    parser.addoption(
        "--draw",
        metavar="SEED",
        help="run some of the tests of the tier more, drawn by this word: a case of each test that "
        "docs/reliability.md names, and others within the budget",
    )
    parser.addoption(
        "--budget", type=float, default=60.0, metavar="SECONDS", help="processor time of a draw (default: 60)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Tell the runner of the parts how it goes, and adopt what tests leave running."""
    run_events.adopt_orphans()
    plugin = run_events.plugin()
    if plugin is not None:
        config.pluginmanager.register(plugin)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """End all that tests have left running."""
    run_events.end_family()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of other tiers, unless they are named; bound the time of each by its tier."""
    try:
        spark = ".".join(metadata.version("pyspark").split(".")[:2])
    except metadata.PackageNotFoundError:  # as on an executor, where only the agent's tests run
        spark = tiers_and_draws.NEWEST_SPARK
    named = any("::" in argument for argument in config.args)
    tiers = {id(item): tiers_and_draws.tier_of(item, spark) for item in items}
    tier = config.getoption("tier")
    wanted = ("every", "more") if tier == parts.CHANGE else (tier,)
    chosen = [item for item in items if named or tiers[id(item)] in wanted]
    seed = config.getoption("draw")
    if seed and not named:
        drawn = [item for item in chosen if tiers[id(item)] == "more" or tiers_and_draws.is_apart(item)]
        kept = {*tiers_and_draws.promised_paths()}
        if spark == tiers_and_draws.NEWEST_SPARK:
            kept |= tiers_and_draws.guards({item.nodeid: tiers[id(item)] for item in items})
        first, others = tiers_and_draws.drawn_order(drawn, seed, sorted(kept))
        draw = tiers_and_draws.Draw([item.nodeid for item in others], config.getoption("budget"))
        config.pluginmanager.register(draw, run_events.DRAW)
        of_draw = set(map(id, drawn))
        chosen = [*(item for item in chosen if id(item) not in of_draw), *first, *others]
    for item in chosen:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(tiers_and_draws.bound_s(item, tiers[id(item)])))
    if excesses := [text for item in chosen if (text := tiers_and_draws.excess_of(item, tiers[id(item)]))]:
        raise pytest.UsageError("\n".join(excesses))
    of_run = set(map(id, chosen))
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in of_run])
    items[:] = chosen


@pytest.fixture(scope="session")
def checkout() -> Path:
    """Return the directory of the checkout that the tests run in."""
    return CHECKOUT


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a directory on another file system than `tmp_path`, to which hard links are impossible."""
    for root in map(Path, ("/dev/shm", "/var/tmp")):
        if root.is_dir() and root.stat().st_dev != tmp_path.stat().st_dev:
            with tempfile.TemporaryDirectory(dir=root, prefix="state-store-test-") as directory:
                yield Path(directory)
            return
    pytest.skip("needs two file systems")


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer() -> Iterator[Any]:
    """Print the stacks of the JVMs' threads if a test takes too long, and leave its call, before it fails."""
    was_set = yield
    fail = signal.getsignal(signal.SIGALRM)

    def show_and_fail(*of_signal: Any) -> None:
        for pid in _java_processes():
            print(f"threads of JVM {pid}:\n{_threads_of(pid)}")
        _leave_call()
        fail(*of_signal)

    if callable(fail):
        signal.signal(signal.SIGALRM, show_and_fail)
    return was_set


def _leave_call() -> None:
    """Close this thread's connection to Spark's JVM: the next call would take the answer of the last one."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    gateway = context._gateway if context else None
    connection = gateway._gateway_client.get_thread_connection() if gateway else None
    if connection:
        connection.close()


def _java_processes() -> list[int]:
    """Return the JVMs among the descendants of this process."""
    listing = subprocess.run(["ps", "-eo", "pid=,ppid=,comm="], capture_output=True, text=True, check=True)
    processes = [line.split(None, 2) for line in listing.stdout.splitlines()]
    family = {os.getpid()}
    for _ in processes:  # after a wrap-around of process ids a parent may follow its child
        family |= {int(pid) for pid, parent, _ in processes if int(parent) in family}
    return [int(pid) for pid, _, command in processes if int(pid) in family and command.strip() == "java"]


def _threads_of(pid: int) -> str:
    try:
        return subprocess.run(["jstack", "-l", str(pid)], capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"not known: {error}"
