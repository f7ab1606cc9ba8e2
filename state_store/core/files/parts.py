"""Large files on their way from far storage: in parts, so that several requests of one file are under way.

A file is made in its full length at first, as one hole, and its parts come to their places in any order. It
is nobody's before all have come: whoever begins a file of parts removes it when one does not come.
"""

from __future__ import annotations

import os
from pathlib import Path

from state_store.core.storage.contract import Storage
from state_store.errors import ConflictError, DamagedError, StorageError

PART_BYTES = 8 << 20
"""What one request fetches of a larger file: a request costs object stores 10 to 50 ms, as much as one or a
few MB do, and a part that fails is fetched again alone."""

_TRIES = 2


def parts_of(size_bytes: int, part_bytes: int) -> list[tuple[int, int]]:
    """Offset and length of the parts of that many bytes, all about as long as `part_bytes`: the last is never
    so short that a request for it is not worth its time.
    """
    count = max(1, (size_bytes + part_bytes // 2) // part_bytes)
    each = max(1, -(-size_bytes // count))
    return [(at, min(each, size_bytes - at)) for at in range(0, size_bytes, each)]


def make_hole(local: Path, size_bytes: int) -> None:
    """Makes the file `local`, which must not exist, with nothing in it. Raises ConflictError when it exists,
    StorageError when the disk fails.
    """
    try:
        with open(local, "xb", buffering=0) as file:
            os.ftruncate(file.fileno(), size_bytes)
    except FileExistsError as error:
        raise ConflictError(f"'{local}' exists already", file=str(local)) from error
    except OSError as error:
        local.unlink(missing_ok=True)
        raise StorageError(f"cannot make '{local}': {error.strerror}", file=str(local)) from error


def fetch_part(storage: Storage, path: str, local: Path, offset: int, length: int) -> None:
    """Brings `length` bytes from `offset` on to their place. Raises as the storage does, DamagedError when
    the stored file ends before.
    """
    check_count(storage, path, offset, length, storage.download_part(path, local, offset, length))


def check_count(storage: Storage, path: str, offset: int, length: int, count: int) -> None:
    """Raises DamagedError when of `length` bytes from `offset` on there were only `count`."""
    if count != length:
        file = f"{storage.location}/{path}"
        raise DamagedError(
            f"'{file}' is damaged: it ends at {offset + count}, and not at {offset + length} or later",
            file=file,
        )


def fetch_part_again(storage: Storage, path: str, local: Path, offset: int, length: int) -> None:
    """As `fetch_part`; what fails once is tried once more, since the other parts would be fetched
    for nothing.
    """
    for attempt in range(_TRIES):
        try:
            fetch_part(storage, path, local, offset, length)
            return
        except (StorageError, DamagedError):
            if attempt == _TRIES - 1:
                raise
