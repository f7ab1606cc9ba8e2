"""Whole histories of a cluster, each decided by a seed: nothing is lost, wrong, or left over.

One that fails is run again by `python -m tests.simulation SEED --trace` (with `--format 1` without ids, with
`--partitions 1` one of a single partition).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.cluster_history import History
from simulation.machine import no_system
from simulation.troubles import TROUBLES
from simulation.turns import Scheduler
from state_store.core.runtime import SYSTEM


def run(seed: int, **how: object) -> History:
    history = History(seed, **how)
    try:
        history.run()
    except BaseException as error:
        raise AssertionError(
            f"seed {seed} ({how}): {error}\n`python -m tests.simulation {seed} --trace` runs it again"
        ) from error
    return history


@pytest.mark.dear("stands for the simulated histories")
def test_five_histories_lose_nothing() -> None:
    priority = os.getpriority(os.PRIO_PROCESS, 0)
    for seed in range(5):
        run(seed, ids=seed % 5 < 3, batches=6, profile="damaging" if seed % 4 == 1 else None)
    assert os.getpriority(os.PRIO_PROCESS, 0) == priority, "the tests that follow wait for all others"


@pytest.mark.tier("more")
@pytest.mark.parametrize("trouble", sorted(TROUBLES))
def test_a_history_with_each_trouble_loses_nothing(trouble: str) -> None:
    run(1, batches=8, troubles=[trouble])


@pytest.mark.tier("more")
def test_a_hundred_histories_lose_nothing_and_have_everything() -> None:
    """They have something of everything: a simulation that comes to do less is seen, too. Three of four are
    short, one of four reads what is not what was written, every other has two partitions.
    """
    counts: dict[str, int] = {}
    for seed in range(100):
        shape = {"batches": 6 if seed % 4 else None, "profile": "damaging" if seed % 4 == 1 else None}
        history = run(seed, ids=seed % 5 < 3, partitions=1 + seed % 2, **shape)
        for name, count in history.counts.items():
            counts[name] = counts.get(name, 0) + count
    assert {
        "ask_for_a_snapshot",
        "base read again",
        "damage that a reader found",
        "end_driver",
        "full_from_outside",
        "jump",
        "kill_agent",
        "kill_executor",
        "merge: pages",
        "merges of two stores at once",
        "move",
        "pause_agent",
        "pause_executor",
        "power_cut",
        "restore: loose_deltas",
        "restore: no base",
        "restore: page_bytes",
        "restore: sparse",
        "restore: thorough",
        "storm",
        "task: damaged",
        "task: storage",
        "task: unknown",
    } <= counts.keys()


EVIDENCE = {
    "late-effect": {"late write", "late upload", "late delete"},
    "threads": {"thread not started"},
    "local-disk": {
        "EIO of link_or_copy",
        "ENOSPC of link_or_copy",
        "EMFILE of read_end",
        "EIO of each_chunk",
    },
    "retention": {"retention changed"},
    "policy": set(),
    "tools": {"sweep", "verify"},
    "storage-clock": set(),
    "second-driver": {"attempt of a second driver"},
    "woken-agent": {"agent given up", "agent given up in mid-merge"},
    "cleaner": {"clean", "local file cleaned"},
}
"""Events that histories with a trouble must have, or the simulation does less than it says."""


@pytest.mark.tier("more")
@pytest.mark.parametrize("trouble", sorted(TROUBLES))
def test_some_histories_with_each_trouble_lose_nothing(trouble: str) -> None:
    """Nothing is lost or wrong if machines, services and operators cause this trouble, too.

    Eight histories mostly have all of its events; which they have changes with the calls of the product.
    """
    counts: set[str] = set()
    for seed in range(40):
        counts |= run(seed, ids=seed % 3 > 0, batches=10, troubles=[trouble]).counts.keys()
        if seed >= 7 and EVIDENCE[trouble] <= counts:
            break
    assert EVIDENCE[trouble] <= counts


@pytest.mark.tier("long")
@pytest.mark.parametrize("trouble", [*sorted(TROUBLES), "all"])
@pytest.mark.parametrize("ids", [True, False])
def test_many_histories_with_each_trouble_lose_nothing(trouble: str, ids: bool) -> None:
    for seed in range(1000, 1200):
        run(seed, ids=ids, troubles=sorted(TROUBLES) if trouble == "all" else [trouble])


@pytest.mark.tier("long")
@pytest.mark.parametrize("hundreds", range(40))
@pytest.mark.parametrize("ids", [True, False])
def test_many_histories_lose_nothing(hundreds: int, ids: bool) -> None:
    """With Spark's ids (checkpoint format 2), and without (format 1); of two partitions."""
    for seed in range(100 * hundreds, 100 * hundreds + 100):
        run(seed, ids=ids)


def test_a_simulated_thread_takes_nothing_from_the_machine() -> None:
    """A thread that another test has left behind may."""
    scheduler = Scheduler(0)
    answers = []
    with no_system():
        SYSTEM.start(lambda: answers.append(SYSTEM.monotonic_s()), name="left behind").join()
        with pytest.raises(AssertionError, match="the machine's start is used"):
            scheduler.run(lambda: SYSTEM.start(lambda: None, name="simulated"))
    assert len(answers) == 1


@pytest.mark.tier("more")
def test_a_seed_says_everything(checkout: Path) -> None:
    """Two processes, in which Python orders sets differently, come to the same trace."""
    command = [sys.executable, "-m", "tests.simulation", "5", "--trace", "--profile", "damaging"]
    traces = set()
    for order in ("1", "2"):
        outcome = subprocess.run(
            command,
            cwd=checkout,
            env={**os.environ, "PYTHONHASHSEED": order},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        traces.add(outcome.rpartition("\n1 of 1 held")[0])
    assert len(traces) == 1
    assert len(traces.pop().splitlines()) > 100
