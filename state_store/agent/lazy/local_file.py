"""A local sparse file of a base, and the pages of its data that are there.

A file is as long as the stored one. Its *tail* (index, filter, properties) is there from the beginning; its
data comes in pages, each as a whole. Of pages that are there only bytes are replaced that a reader asks for.
An agent that replaces another finds out from the file system what is there: all that is not a hole.

A file of a base that *stays* is read from a mapping, each block of which is verified once. So bytes that
arrive, and may be damaged, do not replace those that may have been verified: they are downloaded aside, and
copied to their places. Pages of a `PagedFile` may be evicted, and its reader verifies whatever it reads: its
pages come to their places at once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from state_store.core.files.sparse import INCOMING_PREFIX, PAGE_BYTES, SparseFile, data_ranges, metadata_bytes
from state_store.core.files.transfer import copy_ranges, make_hole, read_end
from state_store.core.runtime import Runtime
from state_store.core.storage.local_disk import remove_unneeded

Stretch = tuple[int, int]
"""Start and end of bytes of a file."""

Stretches = Iterable[Stretch] | None

FileKey = tuple[str, str]
"""Location of a store, and the path of a file of it in checkpoint storage."""

USES_SUFFIX = ".uses"

WANTED = b"\2"
"""Use of a page that is not there, and is fetched when it is asked for again."""

_TAIL_BYTES = 64 << 10


class LocalFile:
    """The pages of one file. Readers and downloads may be in any thread.

    Args:
        spec: The file.
        local: Its place.
        runtime: Makes the lock, and names of downloads.
        stretches: Those that are there; None: all that are not holes of the file.
    """

    def __init__(self, spec: SparseFile, local: Path, runtime: Runtime, stretches: Stretches = None) -> None:
        self.spec = spec
        self.local = local
        self._runtime = runtime
        self._lock = runtime.lock()
        size_bytes = spec.size_bytes
        fetched_bytes = size_bytes - spec.stretches[0][0] if spec.stretches else size_bytes
        self.tail_at = size_bytes - (metadata_bytes(read_end(local, _TAIL_BYTES)[1]) or fetched_bytes)
        pages = max(0, self.tail_at) // PAGE_BYTES
        self.present = bytearray(pages)
        """For each page below the tail, 1 if it is there."""
        for start, end in data_ranges(local, pages * PAGE_BYTES) if stretches is None else stretches:
            self._note(start, end)

    def stretches(self, parts: Iterable[tuple[int, int]]) -> list[Stretch]:
        """Return the pages of some parts (offset and length) below the tail, joined and in order."""
        return _joined(
            (offset // PAGE_BYTES * PAGE_BYTES, min(_page_end(offset + length), self.tail_at))
            for offset, length in parts
            if length > 0 and offset < self.tail_at
        )

    def gaps(self, first: int, last: int) -> list[Stretch]:
        """Return the stretches between two pages that are not there."""
        gaps = []
        while (start := self.present.find(0, first, last)) >= 0:
            first = self.present.find(1, start, last)
            first = last if first < 0 else first
            gaps.append((start * PAGE_BYTES, first * PAGE_BYTES))
        return gaps

    @property
    def missing_bytes(self) -> int:
        """Bytes of pages that are not there."""
        return self.present.count(0) * PAGE_BYTES

    @contextmanager
    def arriving(
        self, stretches: Sequence[Stretch], replaced_stretches: Iterable[Stretch] = ()
    ) -> Iterator[Path]:
        """Put bytes to their places that the body writes to another file.

        Args:
            stretches: Whole pages, in order, one at least. Those that were there before the body, or came
                meanwhile, stay as they are.
            replaced_stretches: Bytes among these that replace what was there before the body.

        Yields:
            The file that gets them, at the same offsets.
        """
        before = bytes(self.present)
        aside = self.local.with_name(f"{INCOMING_PREFIX}{self._runtime.unique(8)}")
        make_hole(aside, stretches[-1][1])
        try:
            yield aside
            with self._lock:
                copy_ranges(aside, self.local, self._places(stretches, replaced_stretches, before))
                for start, end in stretches:
                    self._note(start, end)
        finally:
            remove_unneeded(aside)

    def _places(
        self, stretches: Iterable[Stretch], replaced_stretches: Iterable[Stretch], before: bytes
    ) -> Iterator[Stretch]:
        for start, end in stretches:
            yield from self.gaps(start // PAGE_BYTES, min(len(before), -(-end // PAGE_BYTES)))
        for start, end in replaced_stretches:
            while start < min(end, self.tail_at):
                page, page_end = start // PAGE_BYTES, min(end, _page_end(start + 1), self.tail_at)
                if page >= len(before) or before[page]:
                    yield start, page_end
                start = page_end

    def _note(self, start: int, end: int) -> None:
        pages = range(start // PAGE_BYTES, min(len(self.present), -(-end // PAGE_BYTES)))
        self.present[pages.start : pages.stop] = b"\1" * len(pages)


def _page_end(offset: int) -> int:
    return -(-offset // PAGE_BYTES) * PAGE_BYTES


def _joined(stretches: Iterable[Stretch]) -> list[Stretch]:
    joined: list[Stretch] = []
    for start, end in sorted(stretches):
        if start >= end:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined


class PagedFile(LocalFile):
    """A file whose pages may be evicted, which bases may share as hard links. The cache locks."""

    def __init__(self, key: FileKey, spec: SparseFile, local: Path, runtime: Runtime) -> None:
        super().__init__(spec, local, runtime)
        self.key = key
        self.paths: dict[Path, Path] = {}
        """By base, the place of the file there."""
        pages = len(self.present)
        self.other_bytes = spec.size_bytes - pages * PAGE_BYTES + _make_uses(uses_of(local), pages)

    @property
    def cached_pages(self) -> int:
        """Number of pages that are there."""
        return self.present.count(1)

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
    """Return the file of uses beside a file with pages."""
    return path.with_name(path.name + USES_SUFFIX)


def _make_uses(path: Path, pages: int) -> int:
    """Make the file of uses if it is missing, and return its length.

    It has no hole: a full disk would kill those who write it through a mapping.
    """
    length = max(1, pages)
    if not path.exists() or path.stat().st_size != length:
        path.write_bytes(WANTED * length)
    return length
