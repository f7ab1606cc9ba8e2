"""Files on a local disk that appear atomically and durably: the one way in which this program makes them.

A file is written under a temporary name (`<name>.<random>.tmp`, in the same directory), synced, given its
name in one step, and the directory is synced: after a return, the file survives a power cut; before it, the
name is either absent or what it was. On failure the temporary file is removed; after a crash it stays, and
retention sweeps it by age. A name that exists already is synced too before FileExistsError says so: the
process that made it may have died before it did that, and the caller may take the file for its own.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Union

from state_store.core.checkpoint.names import TEMPORARY_SUFFIX
from state_store.core.runtime import SYSTEM

StrPath = Union[str, os.PathLike[str]]

_LOG = logging.getLogger(__name__)
_SAID_OF: set[int] = set()


def write_durable(path: Path, data: bytes, *, overwrite: bool) -> None:
    """Makes `path` with exactly `data`. Raises FileExistsError unless
    `overwrite`, and OSError as the system does.
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
    """Makes `path` a hard link to `source`, or a copy of it where the file system cannot link the two.

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
    """Makes `target`, which must not exist, a hard link to `source`, or a copy (synced if asked to)."""
    if _link(source, target):
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
        Path(target).unlink(missing_ok=True)
        raise


def make_directory(directory: Path) -> None:
    """Makes `directory` and its parents, durably: the parent of each directory that is made is synced."""
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
        # After a link the temporary name is left over; so it is after a rename between two links of one file.
        temporary.unlink(missing_ok=True)
    _sync(path.parent)


def _rename_new(temporary: Path, path: Path) -> None:
    """Without hard links the name is looked up first: of two writers at the same moment the later wins."""
    _say_that_files_are_copied(path.parent)
    if path.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    temporary.rename(path)


def _say_that_files_are_copied(directory: Path) -> None:
    """Once for a file system."""
    device = directory.stat().st_dev
    if device not in _SAID_OF:
        _SAID_OF.add(device)
        _LOG.warning(
            "the file system of '%s' has no hard links: files are copied, and two writers of one name are "
            "told apart only if one of them was earlier",
            directory,
        )


def _link(source: StrPath, target: StrPath) -> bool:
    """False when these two places cannot be linked; FileExistsError when the target exists."""
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
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
