"""The disk of this machine: how files appear on it, and the errors that tell its failures from storage's.

This is the only way in which this program makes files that appear atomically and durably. A file is written
under a temporary name (`<name>.<random>.tmp`, in the same directory), synced, and renamed in one step; then
the directory is synced. After the return the file survives a power cut; before it the name is absent or what
it was. On failure the temporary file is deleted; after a crash it stays, and retention sweeps it by age.
Before FileExistsError is raised, the directory is synced, too: the process that made the file may have died
before that, and the caller may take the file for its own.

A function that makes files raises OSError. Its caller knows if the disk is storage or this machine's own; the
second half turns the errors of the latter into LocalDiskError, with what a user can do.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

from state_store.core.checkpoint.names import TEMPORARY_SUFFIX
from state_store.core.runtime import SYSTEM
from state_store.errors import LocalDiskError

_LOG = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

StrPath = str | os.PathLike[str]

_WITHOUT_LINKS: set[int] = set()

_UNSYNCED: set[int] = set()

_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF)
"""Errors of file systems that sync files, but not directories."""

_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of two paths that cannot be linked. FUSE without links (gcsfuse) has no function for them."""

_FULL = (errno.ENOSPC, errno.EDQUOT)

_UNWRITABLE = (*_FULL, errno.EROFS, errno.EFBIG)

_ELSEWHERE = "use another directory: `localDir` for a query, TMPDIR for a command"

_NOT_ALLOWED = "let this process's user write there"

_NO_DIRECTORY = "remove the file that stands where a directory has to be"

_REMEDIES = {
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "delete files of this user there, have the quota raised",
    errno.EROFS: "mount that file system so that it can be written",
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.ENOTDIR: _NO_DIRECTORY,
    errno.EEXIST: _NO_DIRECTORY,
    errno.ENOENT: "keep cleaners of temporary files away from it",
    errno.EIO: "replace that disk, whose faults the kernel's log describes",
    errno.EFBIG: "raise the limit 'ulimit -f'",
    errno.ENAMETOOLONG: "shorten the path",
    errno.EMFILE: "raise the limit 'ulimit -n'",
    errno.ENFILE: "raise the limit fs.file-max of this machine",
}

_EVERYWHERE = (errno.EMFILE, errno.ENFILE)
"""Failures that another directory would not change."""


# ---- files that appear whole and stay -------------------------------------------------------------------


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

    A file that this user may only read is copied: RocksDB opens the files that it takes over for writing. So
    is one that is replaced at this moment: Linux finds its name, and then refuses to link what has none left.
    """
    with contextlib.suppress(FileNotFoundError):  # reading says it again if there is no file
        if os.access(source, os.W_OK) and _link(source, target):
            return
    with open(source, "rb") as reader, open(target, "xb") as writer:
        try:
            shutil.copyfileobj(reader, writer, 1 << 20)
            if sync:
                writer.flush()
                os.fsync(writer.fileno())
        except BaseException:
            remove_unneeded(target)
            raise


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
    if device not in _WITHOUT_LINKS:
        _WITHOUT_LINKS.add(device)
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
        if error.errno in _NO_LINK:
            return False
        raise
    return True


def make_directory(directory: Path) -> None:
    """Make `directory` and its parents durably: the parent of each new directory is synced."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    _sync(directory.parent)


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


def remove_unneeded(path: StrPath) -> None:
    """Remove a file that nobody needs, if it is there: after an error, or after all else is done.

    Raises nothing: a file that a failing disk keeps stays, and the error that led here is the one to show.
    """
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108 - in every commit


@contextlib.contextmanager
def temporary_directory(prefix: str) -> Iterator[Path]:
    """Make a directory for temporary files and remove it afterwards.

    Raises:
        LocalDiskError: If it cannot be made, or the system fails in the block.
    """
    try:
        new_directory = tempfile.TemporaryDirectory(prefix=prefix)
    except OSError as error:
        raise LocalDiskError(
            f"cannot make a directory for temporary files: {error} (set TMPDIR to a directory that can be "
            "written)"
        ) from error
    with new_directory as name, local_disk_errors(name):
        yield Path(name)


def free_bytes(directory: Path) -> int:
    """Return the bytes that this process may still write on a disk.

    Raises:
        LocalDiskError: The system does not say.
    """
    with local_disk_errors(directory):
        return shutil.disk_usage(directory).free


# ---- errors of this machine's disks ---------------------------------------------------------------------


@contextlib.contextmanager
def local_disk_errors(file: StrPath | None = None) -> Iterator[None]:
    """Turn any OSError inside into a LocalDiskError; use around work on local files alone.

    Args:
        file: The file or directory that is named if the error names none.

    Raises:
        LocalDiskError: If the system fails.
    """
    try:
        yield
    except OSError as error:
        raise local_disk_error(error, file) from error


def of_local_disk(directory_of: Callable[..., Path]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Do as `local_disk_errors` around each call of a function; `directory_of` gets the call's arguments."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with local_disk_errors(directory_of(*args, **kwargs)):
                return function(*args, **kwargs)

        return call

    return decorate


def local_disk_error(error: OSError, file: StrPath | None = None) -> LocalDiskError:
    """Return the error to raise for `error`, which is about the local file `file` unless it names another."""
    named = error.filename2 or error.filename or file
    name = None if named is None else os.fspath(named)
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        place = "a disk of this machine" if name is None else f"the disk of '{Path(name).parent}'"
        return LocalDiskError(f"{place} is full: {reason} ({remedy(error.errno)})", file=name)
    failure = reason if name is None else f"'{name}': {reason}"
    return LocalDiskError(f"{failure} ({remedy(error.errno)})", file=name)


def remedy(code: int | None) -> str:
    """Return what a user can do about a local disk that failed with this number of the operating system."""
    known_remedy = _REMEDIES.get(code or 0)
    if known_remedy is not None and code in _EVERYWHERE:
        return known_remedy
    return _ELSEWHERE if known_remedy is None else f"{known_remedy}, or {_ELSEWHERE}"


def code_in(text: str) -> int | None:
    """Return the number of the error of a local disk that a message of RocksDB names, or None."""
    return next((code for code in _REMEDIES if os.strerror(code) in text), None)


def tells_full_disk(text: str) -> bool:
    """Return True if a message of another program names the error of a full disk."""
    return any(os.strerror(code) in text for code in _FULL)


def blames_local_file(error: OSError, local: StrPath) -> bool:
    """Return True if `error`, raised while a stored file was copied to `local`, is about `local`.

    Only writing meets a full or read-only disk. A directory that cannot be written fails without saying which
    of the two files it is about.
    """
    if error.errno in _UNWRITABLE or error.filename == os.fspath(local):
        return True
    return error.errno in (errno.EACCES, errno.EPERM) and not os.access(Path(local).parent, os.W_OK)


def failed_download(why: str, local: str, size_bytes: int) -> LocalDiskError | None:
    """Return the error of the local disk if a download failed because of it, else None.

    Args:
        why: The message of whoever read the stored file and wrote the local one. Reading fills no disk, and
            needs none that can be written.
        local: The local file.
        size_bytes: Bytes that were to be written. If the disk has no room for them, it is full, in whatever
            language the message says so.
    """
    code = next((code for code in _UNWRITABLE if os.strerror(code) in why), None)
    if code is None:
        try:
            is_full = free_bytes(Path(local).parent) < size_bytes
        except LocalDiskError as failure:
            return failure
        if not is_full:
            return None
        code = errno.ENOSPC
    return local_disk_error(OSError(code, os.strerror(code), local))
