"""What a mutant is: one line of the code made wrong, and the tests of which one must then fail."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """In `file`, `old` (which is there once) becomes `new`; one of `tests` (pytest's arguments) must fail.

    `name` says what no longer holds.
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
    """The text that a mutant changes is not there, or is there more than once."""


def mutated(text: str, mutant: Mutant) -> str:
    """The file's text with the break in it. Raises StaleMutantError."""
    count = text.count(mutant.old)
    if count != 1:
        raise StaleMutantError(f"its text is there {count} times in {mutant.file}")
    return text.replace(mutant.old, mutant.new)
