"""Breaks of `state_store/cli`."""

from __future__ import annotations

from mutants.mutant import Mutant

_VERIFICATION = "state_store/data/maintenance/verification.py"

MUTANTS = [
    Mutant(
        "verify does not count the rows of a family",
        _VERIFICATION,
        "if keys != counted[number]:",
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
