"""Breaks of the package `placement`: bounds of moves, and the changes after which stores move."""

from __future__ import annotations

from mutants.data_plane.places import ROOT
from mutants.mutant import Mutant

_SPREAD = ("tests/jvm/test_placement.py::test_partitions_are_spread[1-300]",)
_TIMED = ("tests/jvm/test_placement.py::test_tasks_are_timed",)
_CLUSTER = "tests/spark/placement/test_stores_follow_executors.py::"
_FOLLOW = (f"{_CLUSTER}test_stores_follow_executors_that_join_and_leave[2]",)
_DECOMMISSION = (f"{_CLUSTER}test_stores_move_before_a_decommissioned_executor_goes",)

MUTANTS = [
    Mutant(
        "a partition moves again and again",
        f"{ROOT}/placement/Assignment.scala",
        "if (!staying(partition)) movable",
        "movable",
        _SPREAD,
    ),
    Mutant(
        "a cold executor gets its share at once",
        f"{ROOT}/placement/Assignment.scala",
        "moved == most || room(lightest(better, smallest)) <= 0",
        "moved == most",
        _SPREAD,
    ),
    Mutant(
        "moves have no limit",
        f"{ROOT}/placement/Assignment.scala",
        "moved == most || ",
        "",
        _SPREAD,
    ),
    Mutant(
        "small differences move partitions",
        f"{ROOT}/placement/Assignment.scala",
        "levels.max <= Assignment.Most * mean",
        "levels.max < levels.min",
        _SPREAD,
    ),
    Mutant(
        "an executor gives and gets in one batch",
        f"{ROOT}/placement/Assignment.scala",
        "        donors -= receiver\n",
        "",
        _SPREAD,
    ),
    Mutant(
        "the first task after a move is counted",
        f"{ROOT}/placement/TaskTimes.scala",
        "if (onExecutor == executor) {",
        "if (true) {",
        _TIMED,
    ),
    Mutant(
        "tasks that failed are counted",
        f"{ROOT}/placement/TaskTimes.scala",
        "event.reason == Success && ",
        "",
        _TIMED,
    ),
    Mutant(
        "stores do not follow executors that join",
        f"{ROOT}/placement/PlacementRule.scala",
        "if (run.generation != listing.generation) run.began(listing.generation)",
        "run.generation = listing.generation",
        _FOLLOW,
    ),
    Mutant(
        "the rule acts twice in a batch",
        f"{ROOT}/placement/PlacementRule.scala",
        "case Some(run) if run.version == info.storeVersion => ()",
        "case Some(_) if info.storeVersion < 0 => ()",
        _FOLLOW,
    ),
    Mutant(
        "nobody notices that an executor is being decommissioned",
        f"{ROOT}/placement/Executors.scala",
        "if (isStale || listing.executors.exists(executor => !isActive(executor.id))) list()",
        "if (isStale) list()",
        _DECOMMISSION,
    ),
]
