"""Texts as Java's `DataOutputStream` writes them: the encoding of Spark's schema files."""

from __future__ import annotations

import struct
from typing import Any

from state_store.errors import DamagedError

_PIECES_LIMIT = 1 << 10
"""Number of pieces of a text that no schema reaches."""


class JavaTexts:
    """A reader of texts and numbers, one after the other. Methods raise DamagedError where bytes lack."""

    def __init__(self, data: bytes, path: str) -> None:
        self._data, self._path, self._at = data, path, 0

    def text(self) -> str:
        """Read a text of `writeUTF`: 2 bytes with its length, then modified UTF-8."""
        size = self.number(">H")
        data = self._data[self._at : self._at + size]
        self._at += size
        if len(data) != size:
            raise self._damaged()
        try:
            return _from_java(data)
        except ValueError as error:
            raise self._damaged() from error

    def pieces(self) -> str:
        """Read a long text that is written in pieces: 4 bytes with their number, then each as a text."""
        count = self.number(">i")
        if not 0 <= count < _PIECES_LIMIT:
            raise self._damaged()
        return "".join(self.text() for _ in range(count))

    def numbered_pieces(self) -> tuple[int, str]:
        """Read pieces that may have a number of 2 bytes before them; return the number (0 without one) too.

        The two cases differ, because both numbers read as one of 4 bytes exceed any number of pieces.
        """
        start, number = self._at, 0
        if not 0 < self.number(">i") < _PIECES_LIMIT:
            self._at = start
            number = self.number(">h")
            start += 2
        self._at = start
        return number, self.pieces()

    def number(self, form: str) -> int:
        """Read an integer in the form that `struct` calls `form`."""
        (found,) = self._take(form)
        return int(found)

    def _take(self, form: str) -> tuple[Any, ...]:
        size = struct.calcsize(form)
        data = self._data[self._at : self._at + size]
        self._at += size
        if len(data) != size:
            raise self._damaged()
        return struct.unpack(form, data)

    def _damaged(self) -> DamagedError:
        return DamagedError(f"'{self._path}' is damaged: it is no schema of Spark's", file=self._path)


def _from_java(data: bytes) -> str:
    """Decode Java's modified UTF-8: surrogates are encoded each by itself, and zero as two bytes."""
    return (
        data.replace(b"\xc0\x80", b"\0")
        .decode("utf-8", "surrogatepass")
        .encode("utf-16-le", "surrogatepass")
        .decode("utf-16-le")
    )
