"""Checkpoint storage on a local (or mounted) file system, without any help from the JVM.

A mounted one may show old attributes, which breaks the protocol of docs/deletion.md: an NFS that caches them
is logged when its directory is opened.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from state_store.core.storage.contract import Entry, Storage, check_path, with_remedy
from state_store.core.storage.local_disk import (
    blames_local_file,
    link_or_copy,
    local_disk_error,
    make_directory,
    place_durable,
    write_durable,
)
from state_store.errors import ConflictError, MissingError, StorageError

_MOUNTS = Path("/proc/self/mountinfo")

_OCTAL = re.compile(r"\\([0-7]{3})")
"""A space, tab, line feed or backslash in the name of a mount."""

_LOG = logging.getLogger(__name__)

_LOGGED: set[str] = set()


class LocalStorage(Storage):
    """Files below `directory`, which the first write makes.

    A file survives a power cut once its write has returned. `upload` and `download` make hard links if source
    and target are on one file system. If that has no hard links (gcsfuse, s3fs), files are copied, which is
    logged once. A write without `overwrite` then looks the name up first: of two concurrent writers the later
    wins.
    """

    is_local = True

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self.location = str(self.directory)

    def list_files(self, directory: str) -> list[Entry]:
        entries = []
        with self._translated("list", directory):
            try:
                scan = os.scandir(self._at(directory))
            except FileNotFoundError:
                return []
            with scan:
                for item in scan:
                    entry = _entry(item)
                    if entry is not None:
                        entries.append(entry)
        return sorted(entries, key=lambda entry: entry.name)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        with self._translated("read", path), open(self._at(path), "rb") as file:
            file.seek(offset)
            return file.read(-1 if length is None else length)

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        target = self._at(path)
        with self._translated("write", path):
            try:
                write_durable(target, data, overwrite=overwrite)
            except FileNotFoundError:
                make_directory(target.parent)
                write_durable(target, data, overwrite=overwrite)

    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        target = f"{self.location}/{check_path(path)}"
        with self._translated("write", path):
            try:
                place_durable(local, target, overwrite=overwrite)
            except FileNotFoundError:
                make_directory(Path(target).parent)
                place_durable(local, target, overwrite=overwrite)

    def download(self, path: str, local: Path) -> None:
        with self._translated("read", path):
            try:
                link_or_copy(self._at(path), local)
            except OSError as error:
                if blames_local_file(error, local) and not isinstance(error, FileExistsError):
                    raise local_disk_error(error, local) from error
                raise

    def delete(self, path: str) -> None:
        with self._translated("delete", path):
            self._at(path).unlink(missing_ok=True)

    def exists(self, path: str) -> bool:
        with self._translated("look for", path):
            return self._at(path).is_file()

    def directories(self, directory: str | None = None) -> list[str]:
        at = self.directory if directory is None else self._at(directory)
        with self._translated("list", directory or ""):
            try:
                with os.scandir(at) as scan:
                    return sorted(item.name for item in scan if item.is_dir())
            except FileNotFoundError:
                return []

    def delete_directory(self, directory: str) -> None:
        with self._translated("delete", directory), suppress(FileNotFoundError):
            shutil.rmtree(self._at(directory), ignore_errors=True)  # a file that stays ends nothing
            shutil.rmtree(self._at(directory))

    def _at(self, path: str) -> Path:
        return self.directory / check_path(path)

    @contextmanager
    def _translated(self, action: str, path: str) -> Iterator[None]:
        """Turn the system's errors into ours, which name the file."""
        file = f"{self.location}/{path}"
        try:
            yield
        except FileExistsError as error:
            raise ConflictError(
                f"'{error.filename2 or error.filename or file}' exists already", file=file
            ) from error
        except FileNotFoundError as error:
            raise MissingError(f"'{error.filename or file}' does not exist", file=file) from error
        except OSError as error:
            raise StorageError(f"cannot {action} '{file}': {_advise(error)}", file=file) from error


def _entry(item: os.DirEntry[str]) -> Entry | None:
    """Return the entry of a file; None for anything else, or if it is gone since it was listed."""
    try:
        if not item.is_file():
            return None
        status = item.stat()
    except FileNotFoundError:
        return None
    return Entry(item.name, status.st_size, status.st_mtime_ns // 1_000_000)


def _advise(error: OSError) -> str:
    return with_remedy(os.strerror(error.errno) if error.errno else str(error))


def warn_of_cached_attributes(directory: Path, mounts: Path = _MOUNTS) -> None:
    """Log, once for a mount, that `directory` is on an NFS that caches attributes."""
    try:
        point = cached_mount(directory, mounts.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return
    if point is not None and point not in _LOGGED:
        _LOGGED.add(point)
        _LOG.warning(
            "'%s' is an NFS that caches attributes: executors may not see each other's files at once, and a "
            "clean-up may delete what is still needed. Mount it with 'noac', or with "
            "'lookupcache=none,actimeo=0'",
            point,
        )


def cached_mount(directory: Path, mountinfo: str) -> str | None:
    """Return the mount point of `directory` if it is an NFS with attribute caching, else None.

    Args:
        directory: any directory.
        mountinfo: the text of `/proc/self/mountinfo`.
    """
    real = os.path.realpath(directory)
    mount: tuple[str, str, set[str]] | None = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) < 6 or len(rest) < 3:
            continue
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
        is_below = real == point or real.startswith(point.rstrip("/") + "/")
        if is_below and (mount is None or len(point) >= len(mount[0])):
            mount = (point, rest[0], {*fields[5].split(","), *rest[2].split(",")})
    if mount is None or not mount[1].startswith("nfs"):
        return None
    return None if _shows_all(mount[2]) else mount[0]


def _shows_all(options: set[str]) -> bool:
    attributes = {"acregmax=0", "acdirmax=0"} <= options or "actimeo=0" in options
    return "noac" in options or (attributes and "lookupcache=none" in options)
