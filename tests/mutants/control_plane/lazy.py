"""Breaks of lazy restores: a merge waits for its files, files are verified, and the disk's budget holds."""

from __future__ import annotations

from mutants.mutant import Mutant

_LAZY = "tests/agent/lazy"

MUTANTS = [
    Mutant(
        "a merge does not wait for missing files",
        "state_store/agent/merges/merging.py",
        "    if readiness is Readiness.COMING:\n",
        "    if False:\n",
        ("tests/agent/process/test_supervision.py::test_files_that_come_after_the_look_put_the_merge_back",),
    ),
    Mutant(
        "files fetched in the background are not verified",
        "state_store/agent/lazy/hydration.py",
        "        if wrong is not None:",
        "        if False:",
        (_LAZY,),
    ),
    Mutant(
        "lazy restores exceed their share of the disk",
        "state_store/agent/lazy/budget.py",
        "if self._disk_bytes and not is_needed and",
        "if False and",
        (_LAZY,),
    ),
    Mutant(
        "reserved disk space is never released",
        "state_store/agent/lazy/budget.py",
        " for at, taken in self._taken.items() if at.exists()}",
        " for at, taken in self._taken.items()}",
        (f"{_LAZY}/test_budgets.py::test_files_that_are_gone_make_room_for_others",),
    ),
    Mutant(
        "a thread that ends by an error is counted for ever",
        "state_store/agent/supervision.py",
        "                except FAILURES as error:\n                    _log_unexpected(self._name, error)\n",
        "                except ZeroDivisionError:\n                    pass\n",
        ("tests/agent/process/test_supervision.py",),
    ),
    Mutant(
        "a replaced agent writes over what the JVM has verified",
        "state_store/agent/lazy/hydrations.py",
        "found_damage, inherited=True)",
        "found_damage, inherited=False)",
        (f"{_LAZY}/test_failures.py",),
    ),
]
