"""Breaks of `state_store/cli`."""

from __future__ import annotations

from mutants.mutant import Mutant

_VERIFICATION = "state_store/data/maintenance/verification.py"

MUTANTS = [
    Mutant(
        "a file that could not be read is discarded",
        "state_store/data/maintenance/repair.py",
        "    if unread:\n",
        "    if False:\n",
        ("tests/cli/test_repair.py",),
    ),
    Mutant(
        "a file that was read wrongly once is damaged",
        _VERIFICATION,
        "            if read(path) is None:\n",
        "            if False:\n",
        ("tests/cli/test_verify.py", "tests/cli/test_repair.py"),
    ),
    Mutant(
        "verify does not count the rows of a family",
        _VERIFICATION,
        "if keys != rows_of[number]:",
        "if False:",
        ("tests/cli/test_verify.py",),
    ),
    Mutant(
        "verify does not count the rows of a store",
        _VERIFICATION,
        "if base.keys != rows:",
        "if False:",
        ("tests/cli/test_verify.py",),
    ),
]
