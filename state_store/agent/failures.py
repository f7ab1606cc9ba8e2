"""From any exception to the error that the JVM is told."""

from __future__ import annotations

import errno
import traceback
from pathlib import Path

from state_store.core.storage.local_disk import local_disk_error
from state_store.errors import InternalError, StateStoreError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def as_state_store_error(error: BaseException) -> StateStoreError:
    """Return the error itself if it is ours, or a LocalDiskError, or an InternalError (a defect of ours)."""
    if isinstance(error, StateStoreError):
        return error
    if isinstance(error, OSError) and (error.filename is not None or error.errno in _FULL):
        return local_disk_error(error)
    return InternalError(f"{type(error).__name__}: {error} (at {_places(error)})")


def _places(error: BaseException) -> str:
    """The innermost frames."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
