"""Sparse files: local files as long as the stored ones, with holes that are filled piece by piece.

A missing piece reads as zeros. No block of an SST is zeros, so its checksum shows that it is missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from state_store.core.files.checksums import read_end
from state_store.core.files.ranges import Ranges
from state_store.core.files.sst_end import is_plain_end, metadata_bytes, other_bytes
from state_store.core.files.transfer import (
    Wanted,
    copy_ranges,
    difference,
    fetch_part,
    fetch_part_with_retry,
    make_hole,
)
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage.contract import Storage
from state_store.core.storage.durable import remove_unneeded
from state_store.core.storage.local_disk import local_disk_errors

_MIN_END_BYTES = 64 << 10
"""Least size of a tail. The properties and the list of metadata, which name the places of the rest, take a
few KB.
"""

_END_SHARE = 32
"""Share of a file that its tail is. Index, filter and properties take a fortieth if rows have 100 bytes."""

_RECORD_BYTES = 16 << 10
"""Bytes at the end of a delta's data that have its reserved record, with the rest of its block."""

INCOMING_PREFIX = "incoming-"
"""Beginning of the names of files, in the directory of a base, that downloads go to."""


@dataclass(frozen=True)
class SparseFile:
    """An SST that is stored at `path`, with its local path `name` below the directory of a base."""

    name: str
    path: str
    size_bytes: int
    sha256: str | None
    crc32: int | None = None

    def wanted(self, directory: Path) -> Wanted:
        """Return the file as one that is verified as a whole."""
        return Wanted(self.path, self.size_bytes, directory / self.name, sha256=self.sha256, crc32=self.crc32)


def drop_data(path: Path, kept: Iterable[tuple[int, int]] = ()) -> None:
    """Replace a complete file by a sparse one that has its tail. Other links to the file keep it.

    Args:
        path: The file.
        kept: Start and end of other ranges that stay.

    Raises:
        LocalDiskError: The disk fails.
    """
    size, end = read_end(path, _MIN_END_BYTES)
    tail = max(metadata_bytes(end) or size, min(size, _MIN_END_BYTES))
    aside = path.with_name(f"{path.name}.tail")
    with local_disk_errors(aside):
        aside.unlink(missing_ok=True)
        make_hole(aside, size)
        copy_ranges(path, aside, [*kept, (size - tail, size)])
        aside.replace(path)


def end_bytes(size_bytes: int) -> int:
    """Return the length of the tail that a lazy restore fetches first, of a file of that size."""
    return min(size_bytes, max(_MIN_END_BYTES, size_bytes // _END_SHARE))


def make_sparse(storage: Storage, wanted: Wanted, directory: Path) -> tuple[SparseFile | None, int]:
    """Make a file at its target, below `directory`, that has only its tail: index, filter, properties.

    The tail proves that the file is the right one. A delta has no such tail: its reader asks for its reserved
    record, which is fetched, too. A request that fails is made once more.

    Returns:
        The file, and the number of requests. None, and no file is left, if the file is compressed, if its
        tail cannot be found, or if it is not the right one.

    Raises:
        MissingError: The stored file does not exist.
        DamagedError: The stored file is shorter than it should be.
        StorageError: The storage or the disk fails.
    """
    if not wanted.verifiable or (wanted.tail_sha256 is None and not wanted.names_itself):
        return None, 0
    make_hole(wanted.target, wanted.size_bytes)
    try:
        is_made, requests = _bring_end(storage, wanted)
    except BaseException:
        remove_unneeded(wanted.target)
        raise
    if not is_made:
        wanted.target.unlink()
        return None, requests
    name = wanted.target.relative_to(directory).as_posix()
    return SparseFile(name, wanted.path, wanted.size_bytes, wanted.sha256, wanted.crc32), requests


def _bring_end(storage: Storage, wanted: Wanted) -> tuple[bool, int]:
    """Fetch the tail of a file.

    Returns:
        False if it is not that of the right file, or does not tell where it begins; and the number of
        requests.
    """
    size = wanted.size_bytes
    fetched = end_bytes(size)
    fetch_part_with_retry(storage, wanted.path, wanted.target, size - fetched, fetched)
    tail = read_end(wanted.target, min(fetched, max(_MIN_END_BYTES, wanted.tail_bytes)))[1]
    needed = metadata_bytes(tail)
    if needed is None or needed > size or not is_plain_end(tail):
        return False, 1
    if wanted.tail_sha256 is not None:
        sha256 = hashlib.sha256(tail[-wanted.tail_bytes :]).hexdigest()
        if sha256 != wanted.tail_sha256:
            return False, 1
    requests = 1
    if needed > fetched:
        needed = min(size, needed + _RECORD_BYTES)
        fetch_part_with_retry(storage, wanted.path, wanted.target, size - needed, needed - fetched)
        fetched, requests = needed, requests + 1
    if wanted.names_itself:
        at, length = _record(size, fetched, tail)
        if length > 0:
            fetch_part_with_retry(storage, wanted.path, wanted.target, at, length)
            requests += 1
    return True, requests


def _record(size_bytes: int, fetched_bytes: int, tail: bytes) -> tuple[int, int]:
    """Return the offset of the last data of a delta, and the bytes of it that were not fetched with the tail.

    Changes that the batch made again lie between the data and the tail.
    """
    data_end = size_bytes - (other_bytes(tail) or 0)
    at = max(0, data_end - _RECORD_BYTES)
    return at, min(data_end, size_bytes - fetched_bytes) - at


class SparseBytes:
    """The bytes of one sparse file that are local, besides its tail. Safe for any thread.

    A reader verifies a block when it first reads it, and never again. So bytes that arrive later, and may be
    damaged, do not replace those that it has read: requests are downloaded aside, and copied to their places
    one after the other.

    Bytes that an earlier process has copied are not known. So the parts of a file that is *inherited* from
    one stay aside until all are there, and are copied only if together they are the right file: right bytes
    may be written over those that a reader has verified.

    Args:
        file: The file.
        directory: The base.
        runtime: Makes the lock and the names of downloads.
        is_inherited: An earlier process may have placed bytes of it.
    """

    def __init__(
        self,
        file: SparseFile,
        directory: Path,
        runtime: Runtime = SYSTEM,
        *,
        is_inherited: bool = False,
    ) -> None:
        self._file = file
        self._directory = directory
        self._runtime = runtime
        self._lock = runtime.lock()
        self._placed = Ranges()
        self._placed_since: list[Ranges] = []
        self.is_inherited = is_inherited
        self._aside: Path | None = None

    def fetch(self, storage: Storage, offset: int, length: int) -> int:
        """Fetch `length` bytes from `offset` on, or up to the end of the file, but replace nothing.

        Returns:
            The number of bytes.

        Raises:
            DamagedError: The stored file is too short.
            StateStoreError: The storage or the disk fails.
        """
        if not self.is_inherited:
            return self._fetch(storage, [(offset, length)], lambda: self._placed)
        length = min(length, self._file.size_bytes - offset)
        if length <= 0:
            return 0
        with self._lock:
            aside = self._aside
            if aside is None:
                aside = self._incoming()
                make_hole(aside, self._file.size_bytes)
                self._aside = aside
        fetch_part(storage, self._file.path, aside, offset, length)
        return length

    def difference(self) -> str | None:
        """Compare the file, all parts of which were fetched, with its checksum.

        Parts that were kept aside are copied to their places if they are right, and removed.

        Returns:
            The difference; None if the file is right.

        Raises:
            OSError: A file cannot be read.
            StateStoreError: The disk fails.
        """
        wanted = self._file.wanted(self._directory)
        aside = self._aside
        if aside is None:
            return difference(wanted)
        size_bytes = self._file.size_bytes
        tail = (size_bytes - end_bytes(size_bytes), size_bytes)
        copy_ranges(wanted.target, aside, [tail])
        wrong = difference(replace(wanted, target=aside))
        if wrong is None:
            with self._lock:
                copy_ranges(aside, wanted.target, [(0, size_bytes)])
                self._note_placed(0, size_bytes)
        self.drop_parts()
        return wrong

    def drop_parts(self) -> None:
        """Remove the parts that were kept aside."""
        aside, self._aside = self._aside, None
        if aside is not None:
            aside.unlink(missing_ok=True)

    def fetch_again(self, storage: Storage, pieces: Sequence[tuple[int, int]]) -> int:
        """Fetch bytes that a reader has missed or found damaged. Only what was placed meanwhile stays.

        One request brings all bytes from the first piece to the last; those between pieces are left out,
        since the reader may have verified them.

        Args:
            storage: The storage.
            pieces: Offset and length of each, in order.

        Returns:
            The number of bytes of the pieces, which the file may end before.

        Raises:
            DamagedError: The stored file is too short.
            StateStoreError: The storage or the disk fails.
        """
        placed_since = Ranges()
        with self._lock:
            self._placed_since.append(placed_since)
        try:
            return self._fetch(storage, pieces, lambda: placed_since)
        finally:
            with self._lock:
                self._placed_since = [other for other in self._placed_since if other is not placed_since]

    def _fetch(self, storage: Storage, pieces: Sequence[tuple[int, int]], kept: Callable[[], Ranges]) -> int:
        size_bytes = self._file.size_bytes
        places = [(start, min(start + length, size_bytes)) for start, length in pieces if start < size_bytes]
        if not places:
            return 0
        first, last = places[0][0], max(end for _, end in places)
        aside = self._incoming()
        make_hole(aside, last)
        try:
            fetch_part(storage, self._file.path, aside, first, last - first)
            with self._lock:
                gaps = [gap for place in places for gap in kept().gaps(*place)]
                copy_ranges(aside, self._directory / self._file.name, gaps)
                for place in places:
                    self._note_placed(*place)
        finally:
            remove_unneeded(aside)
        return sum(end - start for start, end in places)

    def _incoming(self) -> Path:
        return self._directory / f"{INCOMING_PREFIX}{self._runtime.unique(8)}"

    def _note_placed(self, start: int, end: int) -> None:
        for ranges in (self._placed, *self._placed_since):
            ranges.add(start, end)
