"""Breaks of `state_store/settings`."""

from __future__ import annotations

from mutants.mutant import Mutant

_SETTINGS = "state_store/settings"

MUTANTS = [
    Mutant(
        "Sunday is 0 and not 7",
        f"{_SETTINGS}/cron.py",
        "weekdays = frozenset(day % 7 for day in weekdays)",
        "weekdays = frozenset(weekdays)",
        ("tests/planning/test_schedule.py",),
    ),
]
