"""Breaks of the package `placement`: bounds of moves, and the changes after which stores move."""

from __future__ import annotations

from mutants.data_plane.places import ROOT
from mutants.mutant import Mutant

_SPREAD = ("tests/jvm/test_placement.py::test_partitions_are_spread[1-300]",)
_TIMED = ("tests/jvm/test_placement.py::test_tasks_are_timed",)
_CHANGED = ("tests/jvm/test_placement.py::test_changes_of_executors_are_noticed",)

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
        "looks = Run.Looks",
        "looks = 0",
        _CHANGED,
    ),
    Mutant(
        "the rule acts twice in a batch",
        f"{ROOT}/placement/PlacementRule.scala",
        "if (version == ofVersion) false",
        "if (ofVersion < 0) false",
        _CHANGED,
    ),
    Mutant(
        "partitions that moved stay for good",
        f"{ROOT}/placement/PlacementRule.scala",
        "        gone = Map.empty\n",
        "",
        _CHANGED,
    ),
    Mutant(
        "nobody notices that an executor is being decommissioned",
        f"{ROOT}/placement/Executors.scala",
        "if (isStale || listing.executors.exists(executor => !isActive(executor.id))) list()",
        "if (isStale) list()",
        _CHANGED,
    ),
]
