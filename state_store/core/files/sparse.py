"""Sparse files: local files as long as the stored ones, with holes that are filled piece by piece.

A lazy restore makes them: each file has only its *end* at first, and is read while the rest arrives. A
missing piece reads as zeros. No block of an SST is zeros, so its checksum shows that it is missing.

1. Holes are ranges that read as zeros and take no disk (Linux only).
2. The end of an SST has its properties, the list of its metadata and the footer (docs/format.md). The
   properties have the process that wrote the file, the number that it gave it, and counts of entries and
   bytes: no two files have the same end. A checksum protects each block before it.
3. `make_sparse` makes a file that has only its end, fetched from storage; `drop_data` makes one of a whole
   file.
4. Spans join pieces that lie close together, so that they come with one request.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from state_store.core.engine.table import (
    FOOTER_BYTES,
    PROPERTIES,
    TRAILER_BYTES,
    entries_of,
    footer_of,
    handle_at,
)
from state_store.core.files.transfer import (
    Wanted,
    check_count,
    copy_ranges,
    fetch_part_with_retry,
    make_hole,
    parallel,
    read_end,
)
from state_store.core.runtime import Runtime
from state_store.core.storage.contract import Span, Storage
from state_store.core.storage.local_disk import local_disk_error, local_disk_errors, remove_unneeded

_KEEP_SIZE, _PUNCH_HOLE = 1, 2

_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS)

_MIN_END_BYTES = 64 << 10
"""Least size of a tail. The properties and the list of metadata, which name the places of the rest, take a
few KB.
"""

_END_SHARE = 32
"""Share of a file that its tail is. Index, filter and properties take a fortieth if rows have 100 bytes."""

_RECORD_BYTES = 16 << 10
"""Bytes at the end of a delta's data that have its reserved record, with the rest of its block."""

INCOMING_PREFIX = "incoming-"
"""Beginning of the names of files, in the directory of a base, that downloads go to."""

_FILTER = b"fullfilter."

_MAX_BYTES = 1 << 20

PAGE_BYTES = 4 << 10
"""Unit in which data comes and goes: file systems free whole blocks, usually of 4 KiB. Of a block of about
4 KiB lie parts in two pages.
"""

GAP_BYTES = 128 << 10
"""Bytes between two pieces that are read rather than skipped: they take less time than another request."""

SPAN_BYTES = 2 << 20
"""Bytes from which on a span takes no further piece, so that a large request is divided among threads."""

AT_ONCE = 32
"""Spans that are requested at a time, of storage that does not take them together."""


# ---- holes ----------------------------------------------------------------------------------------------


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


# ---- the end of an SST ----------------------------------------------------------------------------------


def metadata_bytes(end: bytes) -> int | None:
    """Return the bytes from the begin of the filter, the index and the properties to the end of a file.

    Args:
        end: The last bytes of the file.

    Returns:
        The bytes; more than were given if more are needed; None if these do not tell.
    """
    positions = _positions(end)
    return None if positions is None else max(positions.values())


def other_bytes(end: bytes) -> int | None:
    """Return the bytes of a file that are not its data, from its last bytes; None if these do not tell."""
    positions = _positions(end, every=True)
    return None if positions is None else max(positions.values())


def identity_bytes(path: Path) -> int | None:
    """Return the bytes that the end of a file has; None if that cannot be found out."""
    data = read_end(path, _MAX_BYTES)[1]
    positions = _positions(data)
    size = None if positions is None else positions[PROPERTIES]
    return size if size is not None and size <= len(data) else None


def _positions(data: bytes, *, every: bool = False) -> dict[bytes, int] | None:
    """Return the distances from the end of a file to its index, filter and properties.

    Only distances to the end of the file are known; the list of metadata ends where the footer begins.

    Args:
        data: The last bytes of the file.
        every: Include the metadata that RocksDB does not use.

    Returns:
        The distances by name; None without properties, or if the bytes are not the end of an SST.
    """
    try:
        footer = footer_of(data)
        if footer is None:
            return None
        start = len(data) - FOOTER_BYTES - TRAILER_BYTES - footer.metaindex.size
        if start < 0:
            return None
        offsets = {b"index": footer.index_block.offset}
        for name, value in entries_of(data[start : start + footer.metaindex.size]):
            if every or name == PROPERTIES or name.startswith(_FILTER):
                offsets[name] = handle_at(value, 0)[0].offset
    except (IndexError, ValueError):
        return None
    metaindex_at = footer.metaindex.offset
    if PROPERTIES not in offsets or any(offset >= metaindex_at for offset in offsets.values()):
        return None
    return {name: len(data) - start + metaindex_at - offset for name, offset in offsets.items()}


# ---- files that have only their end ---------------------------------------------------------------------


@dataclass(frozen=True)
class SparseFile:
    """An SST that is stored at `path`, with its local path `name` below the directory of a base.

    `stretches` has start and end of what was fetched when it was made, whole pages, the tail first.
    """

    name: str
    path: str
    size_bytes: int
    sha256: str | None
    crc32: int | None = None
    stretches: Sequence[Sequence[int]] = ()

    @classmethod
    def of(cls, file: Wanted, directory: Path, stretches: Sequence[Sequence[int]] = ()) -> SparseFile:
        """Return the file at its target, below `directory`, of which only `stretches` were fetched."""
        name = file.target.relative_to(directory).as_posix()
        return cls(name, file.path, file.size_bytes, file.sha256, file.crc32, stretches)

    def wanted(self, directory: Path) -> Wanted:
        """Return the file as one that is verified as a whole."""
        return Wanted(self.path, self.size_bytes, directory / self.name, sha256=self.sha256, crc32=self.crc32)


def drop_data(path: Path, ranges: Iterable[tuple[int, int]] = ()) -> None:
    """Replace a complete file by a sparse one that has its tail. Other links to the file keep it.

    Args:
        path: The file.
        ranges: Start and end of other ranges that stay.

    Raises:
        LocalDiskError: The disk fails.
    """
    size, end = read_end(path, _MIN_END_BYTES)
    tail = max(metadata_bytes(end) or size, min(size, _MIN_END_BYTES))
    aside = path.with_name(f"{path.name}.tail")
    with local_disk_errors(aside):
        aside.unlink(missing_ok=True)
        make_hole(aside, size)
        pages = [(start // PAGE_BYTES * PAGE_BYTES, _page_end(end, size)) for start, end in ranges]
        copy_ranges(path, aside, [*pages, ((size - tail) // PAGE_BYTES * PAGE_BYTES, size)])
        aside.replace(path)


def end_bytes(size_bytes: int) -> int:
    """Return the length of the tail that a lazy restore fetches first, of a file of that size."""
    least = min(size_bytes, max(_MIN_END_BYTES, size_bytes // _END_SHARE))
    return size_bytes - (size_bytes - least) // PAGE_BYTES * PAGE_BYTES


def _page_end(offset: int, size_bytes: int) -> int:
    return min(size_bytes, -(-offset // PAGE_BYTES) * PAGE_BYTES)


def make_sparse(storage: Storage, file: Wanted, directory: Path) -> tuple[SparseFile | None, int]:
    """Make a file at its target, below `directory`, that has only its tail: index, filter, properties.

    The tail proves that the file is the right one. A delta has no such tail: its reader asks for its reserved
    record, which is fetched, too. A request that fails is made once more.

    Returns:
        The file, and the number of requests. None, and no file is left, if its tail cannot be found, or if it
        is not the right one.

    Raises:
        MissingError: The stored file does not exist.
        DamagedError: The stored file is shorter than it should be.
        StorageError: The storage or the disk fails.
    """
    if not file.verifiable or (file.tail_sha256 is None and not file.names_itself):
        return None, 0
    make_hole(file.target, file.size_bytes)
    try:
        stretches, requests = _fetch_end(storage, file)
    except BaseException:
        remove_unneeded(file.target)
        raise
    if not stretches:
        file.target.unlink()
        return None, requests
    return SparseFile.of(file, directory, tuple(stretches)), requests


def _fetch_end(storage: Storage, file: Wanted) -> tuple[list[tuple[int, int]], int]:
    """Fetch the tail of a file.

    Returns:
        Start and end of what was fetched, nothing if that is not of the right file, or does not tell where
        the tail begins; and the number of requests.
    """
    size = file.size_bytes
    fetched = end_bytes(size)
    fetch_part_with_retry(storage, file.path, file.target, size - fetched, fetched)
    tail = read_end(file.target, min(fetched, max(_MIN_END_BYTES, file.tail_bytes)))[1]
    needed = metadata_bytes(tail)
    if needed is None or needed > size:
        return [], 1
    if file.tail_sha256 is not None:
        sha256 = hashlib.sha256(tail[-file.tail_bytes :]).hexdigest()
        if sha256 != file.tail_sha256:
            return [], 1
    requests = 1
    if needed > fetched:
        needed = size - (size - min(size, needed + _RECORD_BYTES)) // PAGE_BYTES * PAGE_BYTES
        fetch_part_with_retry(storage, file.path, file.target, size - needed, needed - fetched)
        fetched, requests = needed, requests + 1
    stretches = [(size - fetched, size)]
    if file.names_itself:
        at, end = _record(size, fetched, tail)
        if at < end:
            fetch_part_with_retry(storage, file.path, file.target, at, end - at)
            stretches.append((at, end))
            requests += 1
    return stretches, requests


def _record(size_bytes: int, fetched_bytes: int, tail: bytes) -> tuple[int, int]:
    """Return the pages of the last data of a delta, as far as they were not fetched with the tail.

    Changes that the batch made again lie between the data and the tail.
    """
    data_end = size_bytes - (other_bytes(tail) or 0)
    at = max(0, data_end - _RECORD_BYTES) // PAGE_BYTES * PAGE_BYTES
    return at, _page_end(data_end, size_bytes - fetched_bytes)


# ---- spans ----------------------------------------------------------------------------------------------


def spans_of(path: str, local: Path, pieces: Iterable[tuple[int, int]]) -> Iterator[Span]:
    """Join neighbouring pieces of a file into spans, each of which is fetched by one request.

    Args:
        path: The stored file.
        local: The local file that gets the bytes.
        pieces: Start and end of each piece, in ascending order.
    """
    span: list[tuple[int, int]] = []
    start = end = 0
    for first, last in pieces:
        if span and (first - end > GAP_BYTES or last - start > SPAN_BYTES):
            yield Span(path, local, tuple(span))
            span = []
        if not span:
            start = first
        span.append((first, last - first))
        end = last
    if span:
        yield Span(path, local, tuple(span))


def fetch_spans(storage: Storage, spans: Sequence[Span], runtime: Runtime) -> None:
    """Fetch spans and write each at the same offset of its local file, many at a time.

    Raises:
        DamagedError: A stored file is too short.
        StateStoreError: The storage or the disk fails.
    """
    if storage.takes_spans_together:
        counts = storage.download_spans(spans)
    else:
        counts = parallel(AT_ONCE, lambda span: storage.download_spans([span])[0], spans, runtime=runtime)
    for span, count in zip(spans, counts, strict=True):
        check_count(storage, span.path, span.pieces[0][0], span.size_bytes, count)
