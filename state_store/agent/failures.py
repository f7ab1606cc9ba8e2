"""From any exception to the error that the JVM is told."""

from __future__ import annotations

import errno
import traceback
from pathlib import Path

from state_store.errors import InternalError, StateStoreError, StorageError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def as_state_store_error(error: BaseException) -> StateStoreError:
    """The error itself where it is one of ours; StorageError for a local disk that is full or fails, with the
    directory; else InternalError, a defect of this program.
    """
    if isinstance(error, StateStoreError):
        return error
    if isinstance(error, OSError) and error.filename is not None:
        file = str(error.filename2 or error.filename)
        if error.errno in _FULL:
            return StorageError(f"the disk of '{Path(file).parent}' is full: {error.strerror}", file=file)
        return StorageError(f"'{file}': {error.strerror}", file=file)
    if isinstance(error, OSError) and error.errno in _FULL:
        return StorageError(f"a local disk is full: {error.strerror} ({_places(error)})")
    return InternalError(f"{type(error).__name__}: {error} (at {_places(error)})")


def _places(error: BaseException) -> str:
    """The innermost frames."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
