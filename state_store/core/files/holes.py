"""Holes in local files: ranges that read as zeros and take no disk. Linux only."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from state_store.core.storage.local_disk import local_disk_error

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS)


class HolesUnsupportedError(OSError):
    """The operating system or the file system cannot make holes in a file."""


@lru_cache(maxsize=1)
def _fallocate() -> Callable[..., Any] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return function


def punch_hole(path: Path, offset: int, length: int) -> None:
    """Make a range of an existing file a hole. Whole blocks of the file system in it become free.

    Raises:
        FileNotFoundError: The file does not exist.
        HolesUnsupportedError: Holes cannot be made there.
        LocalDiskError: The disk fails.
    """
    fallocate = _fallocate()
    if fallocate is None:
        raise HolesUnsupportedError(errno.ENOSYS, "this operating system makes no holes in files", str(path))
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise local_disk_error(error, path) from error
    try:
        if fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, offset, length) == 0:
            return
        code = ctypes.get_errno()
    finally:
        os.close(descriptor)
    if code in _UNSUPPORTED:
        raise HolesUnsupportedError(code, "the file system makes no holes in files", str(path))
    raise local_disk_error(OSError(code, os.strerror(code), str(path)))


def data_ranges(path: Path, end: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of the ranges below `end` that are not holes, in order.

    A file system that does not know them says that there are none.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        at = 0
        while at < end:
            try:
                start = os.lseek(descriptor, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # only a hole is left
                    return
                raise
            if start >= end:
                return
            at = min(end, os.lseek(descriptor, start, os.SEEK_HOLE))
            yield start, at
    finally:
        os.close(descriptor)
