"""Breaks of `state_store/core/settings`."""

from __future__ import annotations

from mutants.mutant import Mutant

_SETTINGS = "state_store/core/settings"

MUTANTS = [
    Mutant(
        "Sunday is 0 and not 7",
        f"{_SETTINGS}/cron.py",
        "weekdays = frozenset(day % 7 for day in weekdays)",
        "weekdays = frozenset(weekdays)",
        ("tests/core/planning/test_schedule.py",),
    ),
]
