"""Local files of which only a part is there: as long as the stored file, with holes, filled piece by piece.

A piece that is not there reads as zeros, which no block of an SST is: its checksum tells.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from state_store.files.parts import check_count, fetch_part, make_hole
from state_store.files.sst_end import is_plain_end, metadata_bytes, other_bytes
from state_store.files.transfer import Wanted
from state_store.storage.contract import Storage, write_at

_LEAST_END_BYTES = 64 << 10
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


def make_sparse(storage: Storage, wanted: Wanted, directory: Path) -> SparseFile | None:
    """Makes the file at its target, below `directory`, with nothing in it but its end: index, filter,
    properties. None, and no file, where that cannot be told from the rest, or that it is the file that is
    meant; or it is compressed.

    Of a file that names itself the end is not compared: its reader asks it for its reserved record, which
    is there, too.
    Raises MissingError, DamagedError when the stored file is shorter, StorageError when the disk fails.
    """
    if not wanted.verifiable or (wanted.tail_sha256 is None and not wanted.names_itself):
        return None
    size = wanted.size_bytes
    length = end_bytes(size)
    end = _read(storage, wanted.path, size - length, length)
    needed = metadata_bytes(end)
    if needed is None or needed > size or not is_plain_end(end):
        return None
    if needed > length:
        needed = min(size, needed + _RECORD_BYTES)
        end = _read(storage, wanted.path, size - needed, needed - length) + end
    record_at, record = _record(storage, wanted, end) if wanted.names_itself else (0, b"")
    if (
        wanted.tail_sha256 is not None
        and hashlib.sha256(end[-wanted.tail_bytes :]).hexdigest() != wanted.tail_sha256
    ):
        return None
    make_hole(wanted.target, size)
    write_at(wanted.target, end, size - len(end))
    if record:
        write_at(wanted.target, record, record_at)
    name = wanted.target.relative_to(directory).as_posix()
    return SparseFile(name, wanted.path, size, wanted.sha256, wanted.crc32)


def _record(storage: Storage, wanted: Wanted, end: bytes) -> tuple[int, bytes]:
    """Where the last data of a delta of this end is, and what of it is not in the end: changes that the
    batch made again lie between."""
    data_end = wanted.size_bytes - (other_bytes(end) or 0)
    at = max(0, data_end - _RECORD_BYTES)
    length = min(data_end, wanted.size_bytes - len(end)) - at
    return at, _read(storage, wanted.path, at, length) if length > 0 else b""


def fill(storage: Storage, file: SparseFile, directory: Path, offset: int, length: int) -> int:
    """Fetches `length` bytes from `offset` on, or those up to the end, to their place; how many. Raises as
    `fetch_part` does."""
    length = min(length, file.size_bytes - offset)
    if length <= 0:
        return 0
    fetch_part(storage, file.path, directory / file.name, offset, length)
    return length


def _read(storage: Storage, path: str, offset: int, length: int) -> bytes:
    data = storage.read(path, offset, length)
    check_count(storage, path, offset, length, len(data))
    return data
