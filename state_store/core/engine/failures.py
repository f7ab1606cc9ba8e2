"""Errors of RocksDB as ours: rocksdict raises bare exceptions whose text starts with RocksDB's status."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from state_store.core.storage.local_disk import code_in, remedy
from state_store.errors import (
    BusyError,
    DamagedError,
    InternalError,
    LocalDiskError,
    StateStoreError,
    StorageError,
)

_SST = re.compile(r"[\w./-]*?(\d{6,}\.sst)")


@contextmanager
def translated(action: str, directory: str) -> Iterator[None]:
    """Turn exceptions of rocksdict in the block into errors that name the database, or the file in it.

    Args:
        action: the verb of the message, such as "open".
        directory: the directory of the database, or the file.

    Raises:
        DamagedError: For a corruption.
        LocalDiskError: For a disk that is full or cannot be written.
        StorageError: For another input/output error.
        BusyError: For a lock or a cancelled compaction.
        InternalError: For anything else.
    """
    try:
        yield
    except StateStoreError:
        raise
    except Exception as error:
        raise _translate(action, directory, str(error)) from error


def _translate(action: str, directory: str, text: str) -> StateStoreError:
    found = _SST.search(text)
    file = f"{directory}/{found[1]}" if found else directory
    message = f"cannot {action} '{file}': RocksDB says: {text}"
    status = text.partition(":")[0].strip().lower()
    if status == "corruption" or "corrupt" in text.lower() or "checksum mismatch" in text.lower():
        return DamagedError(message, file=file)
    if status == "invalid argument" and ("does not exist" in text or "not an sstable" in text):
        return DamagedError(message, file=file)
    code = code_in(text)
    if code is not None and code != errno.ENOENT:
        return LocalDiskError(f"{message} ({remedy(code)})", file=file)
    if status == "io error" and "lock" in text.lower():
        return BusyError(message, file=file)
    if status in ("io error", "no space", "not found") or "No such file" in text:
        return StorageError(message, file=file)
    if status in ("operation aborted", "shutdown in progress", "resource busy", "operation timed out"):
        return BusyError(message, file=file)
    return InternalError(message, file=file)
