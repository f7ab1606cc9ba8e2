"""Verification of stored files that are not kept: they pass through memory, and take no local disk."""

from __future__ import annotations

import hashlib
import zlib

from state_store.core.files.transfer import Wanted
from state_store.core.storage.contract import Storage
from state_store.errors import DamagedError, StorageError

PIECE_BYTES = 2 << 20
"""Bytes of a request."""

MOST_AT_ONCE = 16
"""Files that are read at a time at most, each with a piece in memory."""

_TRIES = 2


def verify_stored(storage: Storage, wanted: Wanted) -> str | None:
    """Compare a stored file with its checksum. Where it differs, it is read again once.

    Args:
        storage: Checkpoint storage.
        wanted: The file; a checksum of it is known. Nothing is looked for at its target.

    Returns:
        A warning if it was right the second time.

    Raises:
        MissingError: The file does not exist.
        DamagedError: The file is damaged.
        StorageError: The storage fails.
    """
    return _verified(storage, wanted)[1]


def sha256_of_stored(storage: Storage, wanted: Wanted) -> str:
    """Return the SHA-256 of a stored file, which is verified as `verify_stored` does.

    Raises:
        MissingError: The file does not exist.
        DamagedError: The file is damaged.
        StorageError: The storage fails.
    """
    return _verified(storage, wanted)[0]


def _verified(storage: Storage, wanted: Wanted) -> tuple[str, str | None]:
    """Return the SHA-256 of a file, and a warning if it was right the second time only."""
    sha256, first = _read_through(storage, wanted)
    if first is None:
        return sha256, None
    sha256, again = _read_through(storage, wanted)
    if again is not None:
        file = f"{storage.location}/{wanted.path}"
        raise DamagedError(f"'{file}' is damaged: {again}", file=file)
    return sha256, f"the first download of '{wanted.path}' was damaged ({first}); it was read again"


def _read_through(storage: Storage, wanted: Wanted) -> tuple[str, str | None]:
    """Return the SHA-256 of a file, and in words how it differs from the wanted one."""
    digest, crc, size_bytes = hashlib.sha256(), 0, 0
    while size_bytes < wanted.size_bytes:
        piece = _read(storage, wanted.path, size_bytes, min(PIECE_BYTES, wanted.size_bytes - size_bytes))
        if not piece:
            return "", f"it has {size_bytes} bytes instead of {wanted.size_bytes}"
        size_bytes += len(piece)
        digest.update(piece)
        if wanted.sha256 is None:
            crc = zlib.crc32(piece, crc)
    sha256 = digest.hexdigest()
    if wanted.sha256 is not None and sha256 != wanted.sha256:
        return sha256, f"its SHA-256 is {sha256} instead of {wanted.sha256}"
    if wanted.sha256 is None and crc != wanted.crc32:
        return sha256, f"its CRC-32 is {crc:08x} instead of {wanted.crc32:08x}"
    return sha256, None


def _read(storage: Storage, path: str, offset: int, length: int) -> bytes:
    """Read a piece, and once more if that fails: without it, one failure would make the others useless."""
    for attempt in range(_TRIES):
        try:
            return storage.read(path, offset, length)
        except StorageError:
            if attempt == _TRIES - 1:
                raise
    raise AssertionError("unreachable")
