"""A file that is cached by pages: those that are on the disk, and the notes of their uses beside it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from state_store.core.compat import zip
from state_store.core.files.checksums import read_end
from state_store.core.files.holes import data_ranges
from state_store.core.files.sst_end import metadata_bytes

PAGE_BYTES = 4 << 10
"""A block of about 4 KiB lies in two pages. File systems free whole blocks, usually of 4 KiB."""

USES_SUFFIX = ".uses"

WANTED = b"\2"
"""Use of a page that is not there, and is fetched when it is asked for again."""

_TAIL_BYTES = 64 << 10

FileKey = tuple[str, str]
"""Location of a store, and the path of a file of it in checkpoint storage."""


class CachedFile:
    """The pages of one file, which bases may share as hard links. Not safe for threads: the cache locks."""

    def __init__(self, key: FileKey, local: Path, size_bytes: int) -> None:
        self.key = key
        self.size_bytes = size_bytes
        self.paths: dict[Path, Path] = {}
        """By base, the place of the file there."""
        self.tail_at = size_bytes - (metadata_bytes(read_end(local, _TAIL_BYTES)[1]) or size_bytes)
        pages = max(0, self.tail_at) // PAGE_BYTES
        self.resident = bytearray(pages)
        """For each page below the tail, 1 if it is there."""
        for start, end in data_ranges(local, pages * PAGE_BYTES):
            for page in range(start // PAGE_BYTES, -(-end // PAGE_BYTES)):
                self.resident[page] = 1
        self.other_bytes = size_bytes - pages * PAGE_BYTES + _make_uses(uses_of(local), pages)

    def read_uses(self, start: int, end: int) -> bytearray:
        """Return the uses of pages. If they cannot be read, no page counts as used."""
        uses = bytearray(end - start)
        with contextlib.suppress(OSError), self._opened_uses() as descriptor:
            read = os.pread(descriptor, end - start, start)
            uses[: len(read)] = read
        return uses

    def write_uses(self, stretches: Iterable[tuple[int, bytes]]) -> None:
        """Set the uses of pages, given by the first page and a byte for each. A failure does no harm."""
        with contextlib.suppress(OSError), self._opened_uses() as descriptor:
            for start, uses in stretches:
                os.pwrite(descriptor, uses, start)

    @contextmanager
    def _opened_uses(self) -> Iterator[int]:
        for path in self.paths.values():
            try:
                descriptor = os.open(uses_of(path), os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:  # that base is being removed
                continue
            try:
                yield descriptor
            finally:
                os.close(descriptor)
            return
        raise FileNotFoundError(f"no base has '{self.key[1]}'")


def uses_of(path: Path) -> Path:
    """Return the file of uses beside a cached file."""
    return path.with_name(path.name + USES_SUFFIX)


def _make_uses(path: Path, pages: int) -> int:
    """Make the file of uses if it is missing, and return its length.

    It has no hole: a full disk would kill those who write it through a mapping.
    """
    length = max(1, pages)
    if not path.exists() or path.stat().st_size != length:
        path.write_bytes(WANTED * length)
    return length


def changes(first: int, before: bytes, after: bytearray) -> Iterator[tuple[int, bytes]]:
    """Yield the stretch of bytes that differ, with its place from `first` on, if any do."""
    differing = [number for number, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    if differing:
        start, end = differing[0], differing[-1] + 1
        yield first + start, bytes(after[start:end])
