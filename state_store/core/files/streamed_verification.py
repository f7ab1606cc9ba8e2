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
    first = _difference(storage, wanted)
    if first is None:
        return None
    again = _difference(storage, wanted)
    if again is not None:
        file = f"{storage.location}/{wanted.path}"
        raise DamagedError(f"'{file}' is damaged: {again}", file=file)
    return f"the first download of '{wanted.path}' was damaged ({first}); it was read again"


def _difference(storage: Storage, wanted: Wanted) -> str | None:
    digest, crc, size_bytes = hashlib.sha256(), 0, 0
    while size_bytes < wanted.size_bytes:
        piece = _read(storage, wanted.path, size_bytes, min(PIECE_BYTES, wanted.size_bytes - size_bytes))
        if not piece:
            return f"it has {size_bytes} bytes instead of {wanted.size_bytes}"
        size_bytes += len(piece)
        if wanted.sha256 is not None:
            digest.update(piece)
        else:
            crc = zlib.crc32(piece, crc)
    if wanted.sha256 is not None and digest.hexdigest() != wanted.sha256:
        return f"its SHA-256 is {digest.hexdigest()} instead of {wanted.sha256}"
    if wanted.sha256 is None and crc != wanted.crc32:
        return f"its CRC-32 is {crc:08x} instead of {wanted.crc32:08x}"
    return None


def _read(storage: Storage, path: str, offset: int, length: int) -> bytes:
    """Read a piece, and once more if that fails: without it, one failure would make the others useless."""
    for attempt in range(_TRIES):
        try:
            return storage.read(path, offset, length)
        except StorageError:
            if attempt == _TRIES - 1:
                raise
    raise AssertionError("unreachable")
