"""Mutant: a one-line break of the code, and the tests of which one must then fail."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """In `file`, `old`, which occurs once, becomes `new`; one of `tests` (arguments of pytest) must fail.

    `name` is the property that no longer holds.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def is_scala(self) -> bool:
        return self.file.endswith(".scala")


class StaleMutantError(Exception):
    """The text that a mutant changes does not occur exactly once."""


def mutated(text: str, mutant: Mutant) -> str:
    """Return the file's text with the break. Raises StaleMutantError."""
    count = text.count(mutant.old)
    if count != 1:
        raise StaleMutantError(f"its text occurs {count} times in {mutant.file}")
    return text.replace(mutant.old, mutant.new)
