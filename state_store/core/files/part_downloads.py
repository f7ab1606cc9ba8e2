"""Downloads of large remote files in parts, several of which are requested at the same time.

A file is made in its full length at first, as one hole, and its parts are written to their places in any
order. Nobody reads it before all parts are there. The caller that begins a file removes it if a part fails.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from state_store.core.storage.contract import Storage
from state_store.core.storage.durable import remove_unneeded
from state_store.core.storage.local_disk import local_disk_error, local_disk_errors
from state_store.errors import ConflictError, DamagedError, StorageError

PART_BYTES = 8 << 20
"""Size of a part. A request costs object stores 10 to 50 ms, as much as one or a few MB do; and a part that
fails is fetched again alone.
"""

_TRIES = 2
_COPY_BYTES = 1 << 20


def parts_of(size_bytes: int, part_bytes: int) -> list[tuple[int, int]]:
    """Return offset and length of each part of that many bytes.

    All parts are about as long as `part_bytes`: a request for a short last one would not be worth its time.
    """
    count = max(1, (size_bytes + part_bytes // 2) // part_bytes)
    each = max(1, -(-size_bytes // count))
    return [(at, min(each, size_bytes - at)) for at in range(0, size_bytes, each)]


def make_hole(local: Path, size_bytes: int) -> None:
    """Make the file `local`, which must not exist, with nothing in it.

    Raises:
        ConflictError: It exists.
        LocalDiskError: The disk fails.
    """
    try:
        with open(local, "xb", buffering=0) as file:
            os.ftruncate(file.fileno(), size_bytes)
    except FileExistsError as error:
        raise ConflictError(f"'{local}' exists already", file=str(local)) from error
    except OSError as error:
        remove_unneeded(local)
        raise local_disk_error(error, local) from error


def fetch_part(storage: Storage, path: str, local: Path, offset: int, length: int) -> None:
    """Download `length` bytes from `offset`, and write them at the same offset of the local file.

    Raises:
        DamagedError: The stored file is too short.
        StateStoreError: The storage fails.
    """
    check_count(storage, path, offset, length, storage.download_part(path, local, offset, length))


def check_count(storage: Storage, path: str, offset: int, length: int, count: int) -> None:
    """Raise DamagedError if storage returned only `count` of the `length` bytes from `offset`."""
    if count != length:
        file = f"{storage.location}/{path}"
        raise DamagedError(
            f"'{file}' is damaged: it ends at {offset + count}, and not at {offset + length} or later",
            file=file,
        )


def fetch_part_again(storage: Storage, path: str, local: Path, offset: int, length: int) -> None:
    """Download a part as `fetch_part` does, and once more if that fails.

    Without it, one failure would make the other parts useless.
    """
    for attempt in range(_TRIES):
        try:
            fetch_part(storage, path, local, offset, length)
            return
        except (StorageError, DamagedError):
            if attempt == _TRIES - 1:
                raise


def copy_ranges(source: Path, target: Path, ranges: Iterable[tuple[int, int]]) -> None:
    """Copy the bytes between start and end of each range to the same place of the existing file `target`.

    Raises:
        LocalDiskError: The disk is full or fails.
        StorageError: The source is shorter.
    """
    with (
        local_disk_errors(target),
        open(source, "rb", buffering=0) as read,
        open(target, "r+b", buffering=0) as written,
    ):
        for start, end in ranges:
            while start < end:
                data = os.pread(read.fileno(), min(_COPY_BYTES, end - start), start)
                if not data:
                    raise StorageError(f"'{source}' ends at {start}, and not at {end}", file=str(source))
                start += os.pwrite(written.fileno(), data, start)
