"""Local files of which only a part is there: as long as the stored file, with holes, filled piece by piece.

A piece that is not there reads as zeros, which no block of an SST is: its checksum tells.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from state_store.errors import DamagedError, StorageError
from state_store.files.sst_end import is_plain_end, metadata_bytes
from state_store.files.transfer import Wanted
from state_store.storage.contract import Storage

_LEAST_END_BYTES = 64 << 10
_END_SHARE = 32
"""Index, filter and properties are a fortieth of a file with rows of 100 bytes."""


@dataclass(frozen=True)
class SparseFile:
    """An SST that is stored at `path`, and lies as `name` in the directory of a base."""

    name: str
    path: str
    size_bytes: int
    sha256: str


def make_sparse(storage: Storage, wanted: Wanted) -> SparseFile | None:
    """Makes the file at its target with nothing in it but its end: index, filter, properties. None, and no
    file, where that cannot be told from the rest, or that it is the file that is meant; or it is compressed.

    Raises MissingError, DamagedError when the stored file is shorter, StorageError when the disk fails.
    """
    if wanted.sha256 is None or wanted.tail_sha256 is None:
        return None
    size = wanted.size_bytes
    length = min(size, max(_LEAST_END_BYTES, size // _END_SHARE))
    end = _read(storage, wanted.path, size - length, length)
    needed = metadata_bytes(end)
    if needed is None or needed > size or not is_plain_end(end):
        return None
    if needed > length:
        end = _read(storage, wanted.path, size - needed, needed)
    if hashlib.sha256(end[-wanted.tail_bytes :]).hexdigest() != wanted.tail_sha256:
        return None
    try:
        with open(wanted.target, "xb", buffering=0) as file:
            os.ftruncate(file.fileno(), size)
            os.pwrite(file.fileno(), end, size - len(end))
    except OSError as error:
        raise StorageError(
            f"cannot make '{wanted.target}': {error.strerror}", file=str(wanted.target)
        ) from error
    return SparseFile(wanted.target.name, wanted.path, size, wanted.sha256)


def fill(storage: Storage, file: SparseFile, directory: Path, offset: int, length: int) -> int:
    """Fetches `length` bytes from `offset` on, or those up to the end, to their place; how many. Raises as
    the storage does, DamagedError when the stored file is shorter, StorageError when the disk fails."""
    length = min(length, file.size_bytes - offset)
    if length <= 0:
        return 0
    data = _read(storage, file.path, offset, length)
    target = directory / file.name
    try:
        with open(target, "r+b", buffering=0) as local:
            os.pwrite(local.fileno(), data, offset)
    except OSError as error:
        raise StorageError(f"cannot write '{target}': {error.strerror}", file=str(target)) from error
    return length


def _read(storage: Storage, path: str, offset: int, length: int) -> bytes:
    data = storage.read(path, offset, length)
    if len(data) != length:
        file = f"{storage.location}/{path}"
        raise DamagedError(
            f"'{file}' is damaged: it ends at {offset + len(data)}, and not at {offset + length} or later",
            file=file,
        )
    return data
