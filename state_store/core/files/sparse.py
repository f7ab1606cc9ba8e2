"""Local files of which only a part is there: as long as the stored file, with holes, filled piece by piece.

A piece that is not there reads as zeros, which no block of an SST is: its checksum tells.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from state_store.core.files.checksums import read_end
from state_store.core.files.parts import fetch_part, fetch_part_again, make_hole
from state_store.core.files.sst_end import is_plain_end, metadata_bytes, other_bytes
from state_store.core.files.transfer import Wanted
from state_store.core.storage.contract import Storage

_LEAST_END_BYTES = 64 << 10
"""Properties and the list of metadata, which say where the rest is, are a few KB of it."""

_END_SHARE = 32
"""Index, filter and properties are a fortieth of a file with rows of 100 bytes."""

_RECORD_BYTES = 16 << 10
"""Of a delta's reserved record, and of what its block has besides: the last of the data."""


@dataclass(frozen=True)
class SparseFile:
    """An SST that is stored at `path`, and lies as `name`, a path, below the directory of a base."""

    name: str
    path: str
    size_bytes: int
    sha256: str | None
    crc32: int | None = None

    def wanted(self, directory: Path) -> Wanted:
        """The same as a file to be compared as a whole."""
        return Wanted(self.path, self.size_bytes, directory / self.name, sha256=self.sha256, crc32=self.crc32)


def end_bytes(size_bytes: int) -> int:
    """How much of a file of that size is fetched at first."""
    return min(size_bytes, max(_LEAST_END_BYTES, size_bytes // _END_SHARE))


def make_sparse(storage: Storage, wanted: Wanted, directory: Path) -> tuple[SparseFile | None, int]:
    """Makes the file at its target, below `directory`, with nothing in it but its end: index, filter,
    properties; and how many requests that took. None, and no file, where that cannot be told from the rest,
    or that it is the file that is meant; or it is compressed.

    Of a file that names itself the end is not compared: its reader asks it for its reserved record, which
    is there, too.
    A request that fails is made once more, as for parts of a file. Raises MissingError, DamagedError when the
    stored file is shorter, StorageError when the storage or the disk fails.
    """
    if not wanted.verifiable or (wanted.tail_sha256 is None and not wanted.names_itself):
        return None, 0
    make_hole(wanted.target, wanted.size_bytes)
    try:
        is_made, requests = _bring_end(storage, wanted)
    except BaseException:
        wanted.target.unlink(missing_ok=True)
        raise
    if not is_made:
        wanted.target.unlink()
        return None, requests
    name = wanted.target.relative_to(directory).as_posix()
    return SparseFile(name, wanted.path, wanted.size_bytes, wanted.sha256, wanted.crc32), requests


def _bring_end(storage: Storage, wanted: Wanted) -> tuple[bool, int]:
    """Whether the end that came to its place is that of the file that is meant and tells where it begins;
    after how many requests.
    """
    size = wanted.size_bytes
    there = end_bytes(size)
    fetch_part_again(storage, wanted.path, wanted.target, size - there, there)
    tail = read_end(wanted.target, min(there, max(_LEAST_END_BYTES, wanted.tail_bytes)))[1]
    needed = metadata_bytes(tail)
    if needed is None or needed > size or not is_plain_end(tail):
        return False, 1
    if wanted.tail_sha256 is not None:
        found = hashlib.sha256(tail[-wanted.tail_bytes :]).hexdigest()
        if found != wanted.tail_sha256:
            return False, 1
    requests = 1
    if needed > there:
        needed = min(size, needed + _RECORD_BYTES)
        fetch_part_again(storage, wanted.path, wanted.target, size - needed, needed - there)
        there, requests = needed, requests + 1
    if wanted.names_itself:
        at, length = _record(size, there, tail)
        if length > 0:
            fetch_part_again(storage, wanted.path, wanted.target, at, length)
            requests += 1
    return True, requests


def _record(size_bytes: int, there_bytes: int, tail: bytes) -> tuple[int, int]:
    """Offset of the last data of a delta of this tail, and how many bytes of it are not in its end: changes
    that the batch made again lie between.
    """
    data_end = size_bytes - (other_bytes(tail) or 0)
    at = max(0, data_end - _RECORD_BYTES)
    return at, min(data_end, size_bytes - there_bytes) - at


def fill(storage: Storage, file: SparseFile, directory: Path, offset: int, length: int) -> int:
    """Fetches `length` bytes from `offset` on, or those up to the end, to their place; how many. Raises as
    `fetch_part` does.
    """
    length = min(length, file.size_bytes - offset)
    if length <= 0:
        return 0
    fetch_part(storage, file.path, directory / file.name, offset, length)
    return length
