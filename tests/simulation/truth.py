"""Truth of a history: the rows that were written, which a read must return."""

from __future__ import annotations

import random
from collections.abc import Callable

from state_store.data.embedded import EmbeddedStore

Rows = dict[bytes, bytes]
Changes = dict[bytes, "bytes | None"]
Version = tuple[int, str | None]

EMPTY: Version = (0, None)


class WrongRowsError(AssertionError):
    """The rows that were read are not those that were committed."""


class Truth:
    """The rows of every attempt at every version that was ever written, committed or not.

    With `any_attempt` those of each attempt at a version are right: without ids, storage that loses the delta
    of one attempt leaves another for the same number.
    """

    def __init__(self, *, any_attempt: bool = False) -> None:
        self.rows: dict[Version, Rows] = {EMPTY: {}}
        self._any_attempt = any_attempt

    def check(self, version: Version, found: Rows, subject: str) -> None:
        others = [rows for (number, _), rows in self.rows.items() if number == version[0]]
        if found != self.rows[version] and not (self._any_attempt and found in others):
            raise WrongRowsError(f"{subject} of version {version}: {found} instead of {self.rows[version]}")


def rows_of(store: EmbeddedStore) -> Rows:
    """Return the rows of an embedded store as executors have them."""
    return {b"\0\0" + key: value for key, value in store.scan()}


def changed(rows: Rows, changes: Changes) -> Rows:
    """Return the rows after these changes; None removes."""
    return {key: value for key, value in {**rows, **changes}.items() if value is not None}


def random_changes(chance: random.Random) -> Callable[[Rows], Changes]:
    """Some puts with values that no other attempt writes, some removals."""
    unique = chance.getrandbits(48)

    def change(rows: Rows) -> Changes:
        keys = [b"\0\0" + bytes([97 + chance.randrange(12)]) for _ in range(chance.randrange(0, 6))]
        return {
            key: None if chance.random() < 0.3 else f"{unique:x}.{number}".encode()
            for number, key in enumerate(dict.fromkeys(keys))
        }

    return change
