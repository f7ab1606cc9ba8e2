"""Failures of this machine's own disk, told apart from those of checkpoint storage."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from state_store.errors import LocalDiskError

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


def remedy(code: int | None) -> str:
    """Return what a user can do about a local disk that failed with this number of the operating system."""
    known_remedy = _REMEDIES.get(code or 0)
    if known_remedy is not None and code in _EVERYWHERE:
        return known_remedy
    return _ELSEWHERE if known_remedy is None else f"{known_remedy}, or {_ELSEWHERE}"


def code_in(text: str) -> int | None:
    """Return the number of the error of a local disk that a message of RocksDB names, or None."""
    return next((code for code in _REMEDIES if os.strerror(code) in text), None)


def blames_local_file(error: OSError, local: str | os.PathLike[str]) -> bool:
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


def free_bytes(directory: Path) -> int:
    """Return the bytes that this process may still write on a disk.

    Raises:
        LocalDiskError: The system does not say.
    """
    with local_disk_errors(directory):
        return shutil.disk_usage(directory).free


def local_disk_error(error: OSError, file: str | os.PathLike[str] | None = None) -> LocalDiskError:
    """Return the error to raise for `error`, which is about the local file `file` unless it names another."""
    named = error.filename2 or error.filename or file
    name = None if named is None else os.fspath(named)
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        place = "a disk of this machine" if name is None else f"the disk of '{Path(name).parent}'"
        return LocalDiskError(f"{place} is full: {reason} ({remedy(error.errno)})", file=name)
    failure = reason if name is None else f"'{name}': {reason}"
    return LocalDiskError(f"{failure} ({remedy(error.errno)})", file=name)


@contextmanager
def local_disk_errors(file: str | os.PathLike[str] | None = None) -> Iterator[None]:
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


@contextmanager
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
