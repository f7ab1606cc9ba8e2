"""Uncommitted writes of a store: rows, removals, new column families."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from state_store.core.checkpoint.names import VersionId
from state_store.core.checkpoint.stored_documents import META_KEY, ColumnFamily
from state_store.errors import MissingError


class WriteBuffer:
    """Uncommitted writes to a version, which has these column families. One thread at a time.

    A full key has the two bytes of its column family in front.
    """

    def __init__(self, version: VersionId, families: Mapping[str, ColumnFamily]) -> None:
        self._version = version
        self._families = dict(families)
        self._values: dict[bytes, bytes | None] = {}
        self._growth: dict[int, int] = {}

    @property
    def families(self) -> dict[str, ColumnFamily]:
        """The column families, with their numbers of keys after the writes."""
        return {
            name: replace(column_family, keys=column_family.keys + self._growth.get(column_family.id, 0))
            for name, column_family in self._families.items()
        }

    @property
    def removes(self) -> int:
        """The number of removed keys, including those that did not exist."""
        return sum(value is None for value in self._values.values())

    @property
    def puts(self) -> int:
        """The number of keys that are new or have another value."""
        return len(self._values) - self.removes

    def __contains__(self, full_key: bytes) -> bool:
        return full_key in self._values

    def __getitem__(self, full_key: bytes) -> bytes | None:
        """Return the value of a written key; None if it was removed."""
        return self._values[full_key]

    def full_key(self, key: bytes, family: str) -> bytes:
        """Return the key with its column family in front. Raises MissingError for an unknown family."""
        column_family = self._families.get(family)
        if column_family is None:
            known = ", ".join(sorted(self._families))
            raise MissingError(
                f"there is no column family '{family}' in version {self._version}; there are: {known}"
            )
        return column_family.id.to_bytes(2, "big") + key

    def put(self, key: bytes, family: str, value: bytes | None, *, was_there: bool) -> None:
        """Write a key.

        Args:
            key: the key, without its column family.
            family: the name of the column family.
            value: the value; None removes the key.
            was_there: True if the key existed.

        Raises:
            MissingError: the column family is unknown.
        """
        self._values[self.full_key(key, family)] = value
        id_ = self._families[family].id
        self._growth[id_] = self._growth.get(id_, 0) + (value is not None) - was_there

    def create_family(self, name: str) -> None:
        """Make a column family, unless it exists."""
        if name not in self._families:
            taken = [column_family.id for column_family in self._families.values()]
            self._families[name] = ColumnFamily(max(taken, default=-1) + 1)

    def in_order(self) -> list[tuple[bytes, bytes | None]]:
        """Return the writes in the order of their full keys; None removes."""
        return sorted(self._values.items())

    def over(
        self, stored: Iterator[tuple[bytes, bytes]], start: bytes, until: bytes
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield stored rows from `start` up to `until`, in order, with the writes so far applied."""
        return _overlaid(stored, sorted(item for item in self._values.items() if start <= item[0] < until))


def _overlaid(
    stored: Iterator[tuple[bytes, bytes]], changes: list[tuple[bytes, bytes | None]]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield two ordered sequences as one, `changes` over `stored`; None removes."""
    pending = iter(changes)
    change = next(pending, None)
    for key, value in stored:
        while change is not None and change[0] < key:
            if change[1] is not None:
                yield change[0], change[1]
            change = next(pending, None)
        if change is not None and change[0] == key:
            if change[1] is not None:
                yield key, change[1]
            change = next(pending, None)
        elif key != META_KEY:
            yield key, value
    while change is not None:
        if change[1] is not None:
            yield change[0], change[1]
        change = next(pending, None)


def after(prefix: bytes) -> bytes:
    """Return the least key after all keys with this prefix, which has a byte below 255."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1])
