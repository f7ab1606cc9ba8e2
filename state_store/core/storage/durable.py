"""Files on a local disk that appear atomically and durably: the one way in which this program makes them.

A file is written under a temporary name (`<name>.<random>.tmp`, in the same directory), synced, and renamed
in one step; then the directory is synced. After the return the file survives a power cut; before it the name
is absent or what it was. On failure the temporary file is deleted; after a crash it stays, and retention
sweeps it by age. Before FileExistsError is raised, the directory is synced, too: the process that made the
file may have died before that, and the caller may take the file for its own.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Union

from state_store.core.checkpoint.names import TEMPORARY_SUFFIX
from state_store.core.runtime import SYSTEM

StrPath = Union[str, os.PathLike[str]]

_LOG = logging.getLogger(__name__)
_LOGGED: set[int] = set()
_UNSYNCED: set[int] = set()
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF)
"""Errors of file systems that sync files, but not directories."""


def write_durable(path: Path, data: bytes, *, overwrite: bool) -> None:
    """Create `path` with exactly `data`.

    Raises:
        FileExistsError: If it exists and `overwrite` is false.
        OSError: If the system fails.
    """

    def fill(temporary: Path) -> None:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    _appear(path, fill, overwrite=overwrite)


def place_durable(source: StrPath, path: StrPath, *, overwrite: bool) -> None:
    """Make `path` a hard link to `source`, or a copy if the file system cannot link the two.

    `source` must not be modified afterwards. Raises as `write_durable` does.
    """
    _sync(source)
    parent = os.path.dirname(path)  # noqa: PTH120 - in every commit
    try:
        linked = not overwrite and _link(source, path)
    except FileExistsError:
        _sync(parent)
        raise
    if linked:
        _sync(parent)
        return
    _appear(Path(path), lambda temporary: link_or_copy(source, temporary, sync=True), overwrite=overwrite)


def link_or_copy(source: StrPath, target: StrPath, *, sync: bool = False) -> None:
    """Make `target`, which must not exist, a hard link to `source`, or a copy (synced if `sync` is set).

    A file that this user may only read is copied: RocksDB opens the files that it takes over for writing.
    """
    if os.access(source, os.W_OK) and _link(source, target):
        return
    try:
        with open(source, "rb") as reader, open(target, "xb") as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)
            if sync:
                writer.flush()
                os.fsync(writer.fileno())
    except FileExistsError:
        raise
    except BaseException:
        remove_unneeded(target)
        raise


def remove_unneeded(path: StrPath) -> None:
    """Remove a file that nobody needs, if it is there: after an error, or after all else is done.

    Raises nothing: a file that a failing disk keeps stays, and the error that led here is the one to show.
    """
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108 - in every commit


def make_directory(directory: Path) -> None:
    """Make `directory` and its parents durably: the parent of each new directory is synced."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    _sync(directory.parent)


def _appear(path: Path, fill: Callable[[Path], None], *, overwrite: bool) -> None:
    temporary = path.with_name(f"{path.name}.{SYSTEM.unique(4)}{TEMPORARY_SUFFIX}")
    try:
        fill(temporary)
        if overwrite:
            temporary.rename(path)
        elif not _link(temporary, path):
            _rename_new(temporary, path)
    except FileExistsError:
        _sync(path.parent)
        raise
    finally:
        # A link leaves the temporary name, and so does a rename between two links of one file.
        remove_unneeded(temporary)
    _sync(path.parent)


def _rename_new(temporary: Path, path: Path) -> None:
    """Rename without hard links: look the name up first; of two concurrent writers the later wins."""
    _log_that_files_are_copied(path.parent)
    if path.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    temporary.rename(path)


def _log_that_files_are_copied(directory: Path) -> None:
    """Log once for a file system that it has no hard links."""
    device = directory.stat().st_dev
    if device not in _LOGGED:
        _LOGGED.add(device)
        _LOG.warning(
            "the file system of '%s' has no hard links: files are copied, and two writers of one name are "
            "told apart only if one of them was earlier",
            directory,
        )


def _link(source: StrPath, target: StrPath) -> bool:
    """Link; return False if these two paths cannot be linked. Raises FileExistsError."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP):
            return False
        raise
    return True


def _sync(path: StrPath) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC or not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            if error.filename is None:
                error.filename = os.fspath(path)
            raise
        _warn_of_unsynced_directories(Path(path), os.fstat(descriptor).st_dev)
    finally:
        os.close(descriptor)


def _warn_of_unsynced_directories(directory: Path, device: int) -> None:
    """Warn once for each file system that cannot sync a directory: CIFS before Linux 4.17, some FUSE."""
    if device not in _UNSYNCED:
        _UNSYNCED.add(device)
        _LOG.warning(
            "the file system of '%s' cannot sync directories: a power cut may lose the newest files",
            directory,
        )


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
