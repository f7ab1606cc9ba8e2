"""Pages of files in checkpoint storage on the disk of an executor, as many as an option allows.

A cached file is a sparse file (`core.files.sparse`) of which pages of data are fetched when they are read,
and evicted as holes when others need their room. The JVM verifies the checksum of a block whenever it reads
the block, and asks again for what is not there. So nobody has to know when a page is evicted, and a page that
is evicted and fetched at the same time costs another request.

Beside each file lies a file of uses with a byte for each page: 1 if the page was read since the hand of the
clock has passed. The JVM writes it through a mapping. The agent opens it for a moment only: there may be more
files than a process may have open. The tail of a file (index, filter, properties) stays, whatever the limit
is.

Most keys that are announced to a store are not read again soon: the JVM reads their blocks past the cache,
and notes 2 for their pages. If it finds that 2 the next time, it has the page fetched into the cache. The
hand takes the notes away, too, so the cache takes pages that are asked for twice while the hand goes round.
All pages of a new file have a 2, so that a cache that is not full takes what it is asked for.

On a disk that was full the cache has half of the room that it had, and more when there is space.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from state_store.core.compat import zip
from state_store.core.files.sparse import (
    HolesUnsupportedError,
    SparseFile,
    data_ranges,
    fetch_spans,
    metadata_bytes,
    punch_hole,
    spans_of,
)
from state_store.core.files.transfer import read_end
from state_store.core.runtime import Runtime
from state_store.core.storage.contract import Storage
from state_store.core.storage.local_disk import free_bytes, local_disk_errors
from state_store.errors import InternalError, LocalDiskError

QUIET_MS = 60_000.0
"""Time without a full disk after which the room grows, and time between two steps."""

MAX_QUIET_MS = 3_600_000.0

_MIN_PAGES = 16
"""Pages that the cache has however small the disk is."""

PAGE_BYTES = 4 << 10
"""A block of about 4 KiB lies in two pages. File systems free whole blocks, usually of 4 KiB."""

USES_SUFFIX = ".uses"

WANTED = b"\2"
"""Use of a page that is not there, and is fetched when it is asked for again."""

_TAIL_BYTES = 64 << 10

FileKey = tuple[str, str]
"""Location of a store, and the path of a file of it in checkpoint storage."""

MIN_BYTES = 16 << 20
"""Room that pages have however low the limit is: more than the JVM reads at a time, so that it can go on."""

MAX_AT_ONCE_BYTES = 32 << 20
"""Bytes of pages that a call brings at most, or a quarter of the room: they stay until they are read."""

LIST_NAME = "pages.json"
"""File in the directory of a base that lists its cached files, for an agent that replaces another."""

_LOOK_PAGES = 64 << 10
"""Pages whose uses are read at a time."""

_log = logging.getLogger(__name__)


class DiskRoom:
    """Pages that the cache may have on its disk, whatever its option allows. Not safe for threads.

    There is no bound until the disk is full. After a quiet minute the room grows, to twice its size at most,
    and leaves a quarter of its size free: deltas and merges need the disk, too. If the disk is full after
    that, the quiet time doubles, up to an hour.
    """

    def __init__(self, runtime: Runtime, page_bytes: int) -> None:
        self._runtime = runtime
        self._page_bytes = page_bytes
        self.shrinks = 0
        """Number of times that the disk was found full."""
        self.forget()

    def forget(self) -> None:
        """Take the disk for one that has room for the limit."""
        self.pages: int = sys.maxsize
        """Pages that the disk has room for."""
        self._quiet_ms = QUIET_MS
        self._grows_at_ms = 0.0
        self._has_grown = False

    def shrink(self, pages: int) -> None:
        """Keep to so many pages: the disk is full with more."""
        self.pages = max(_MIN_PAGES, pages)
        self.shrinks += 1
        if self._has_grown:
            self._quiet_ms = min(2 * self._quiet_ms, MAX_QUIET_MS)
        self._has_grown = False
        self._grows_at_ms = self._runtime.uptime_ms() + self._quiet_ms

    def grow(self, directory: Path, cached_pages: int, limit_pages: int) -> bool:
        """Grow if it is time for that and the disk has space.

        Args:
            directory: A directory of the disk.
            cached_pages: Pages that the cache has now.
            limit_pages: Pages that the option allows.

        Returns:
            True if the room has grown to what the option allows.

        Raises:
            LocalDiskError: The system does not say how much space the disk has.
        """
        now_ms = self._runtime.uptime_ms()
        if self.pages == sys.maxsize or now_ms < self._grows_at_ms:
            return False
        self._grows_at_ms = now_ms + self._quiet_ms
        spare = free_bytes(directory) // self._page_bytes - max(0, self.pages - cached_pages)
        step = min(self.pages, (4 * spare - self.pages) // 5)
        if step > 0:
            self.pages += step
            self._has_grown = True
        if self.pages < limit_pages:
            return False
        self.forget()
        return True


class CachedFile:
    """The pages of one file, which bases may share as hard links. Not safe for threads: the cache locks."""

    def __init__(self, key: FileKey, local: Path, size_bytes: int) -> None:
        self.key = key
        self.size_bytes = size_bytes
        self.paths: dict[Path, Path] = {}
        """By base, the place of the file there."""
        self.tail_at = size_bytes - (metadata_bytes(read_end(local, _TAIL_BYTES)[1]) or size_bytes)
        pages = max(0, self.tail_at) // PAGE_BYTES
        self.resident = bytearray(pages)
        """For each page below the tail, 1 if it is there."""
        for start, end in data_ranges(local, pages * PAGE_BYTES):
            for page in range(start // PAGE_BYTES, -(-end // PAGE_BYTES)):
                self.resident[page] = 1
        self.other_bytes = size_bytes - pages * PAGE_BYTES + _make_uses(uses_of(local), pages)

    def read_uses(self, start: int, end: int) -> bytearray:
        """Return the uses of pages. If they cannot be read, no page counts as used."""
        uses = bytearray(end - start)
        with contextlib.suppress(OSError), self._opened_uses() as descriptor:
            read = os.pread(descriptor, end - start, start)
            uses[: len(read)] = read
        return uses

    def write_uses(self, stretches: Iterable[tuple[int, bytes]]) -> None:
        """Set the uses of pages, given by the first page and a byte for each. A failure does no harm."""
        with contextlib.suppress(OSError), self._opened_uses() as descriptor:
            for start, uses in stretches:
                os.pwrite(descriptor, uses, start)

    @contextmanager
    def _opened_uses(self) -> Iterator[int]:
        for path in self.paths.values():
            try:
                descriptor = os.open(uses_of(path), os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:  # that base is being removed
                continue
            try:
                yield descriptor
            finally:
                os.close(descriptor)
            return
        raise FileNotFoundError(f"no base has '{self.key[1]}'")


def uses_of(path: Path) -> Path:
    """Return the file of uses beside a cached file."""
    return path.with_name(path.name + USES_SUFFIX)


def _make_uses(path: Path, pages: int) -> int:
    """Make the file of uses if it is missing, and return its length.

    It has no hole: a full disk would kill those who write it through a mapping.
    """
    length = max(1, pages)
    if not path.exists() or path.stat().st_size != length:
        path.write_bytes(WANTED * length)
    return length


def changes(first: int, before: bytes, after: bytearray) -> Iterator[tuple[int, bytes]]:
    """Yield the stretch of bytes that differ, with its place from `first` on, if any do."""
    differing = [number for number, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    if differing:
        start, end = differing[0], differing[-1] + 1
        yield first + start, bytes(after[start:end])


class _Piece(NamedTuple):
    """A stretch of pages of a file, from `start` to `end` in bytes."""

    file: CachedFile
    name: str
    start: int
    end: int

    @property
    def pages(self) -> range:
        return range(self.start // PAGE_BYTES, min(-(-self.end // PAGE_BYTES), len(self.file.resident)))


class PageCache:
    """The cached files of all stores of an executor. Safe for any thread.

    Its disk is at most the limit, or the tails of its files and MIN_BYTES if that is more. A base that was
    removed is forgotten when room is needed.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._limit_bytes = 0
        self._whole: dict[Path, tuple[str, int]] = {}
        self._reserved_bytes = 0
        self._bases: dict[Path, dict[str, CachedFile]] = {}
        self._files: dict[FileKey, CachedFile] = {}
        self._ring: list[CachedFile] = []
        self._hand = (0, 0)
        self._resident_pages = 0
        self._awaited_pages = 0
        self._other_bytes = 0
        self._cannot_evict = False
        self._has_warned = False
        self._disk = DiskRoom(runtime, PAGE_BYTES)

    def limit(self, disk_bytes: int) -> None:
        """Set the limit, as the option of the executor says, and evict what is above; 0 switches it off."""
        with self._lock:
            if disk_bytes != self._limit_bytes:
                self._disk.forget()
            self._limit_bytes = disk_bytes
            if disk_bytes:
                self._make_room(0)

    @property
    def is_on(self) -> bool:
        """True if there is a limit."""
        return self._limit_bytes > 0

    @property
    def disk_bytes(self) -> int:
        """Bytes of disk that the files take, with pages that are being fetched."""
        with self._lock:
            return self._other_bytes + PAGE_BYTES * (self._resident_pages + self._awaited_pages)

    @property
    def at_once_bytes(self) -> int:
        """Bytes of pages that a caller asks for at a time, so that they stay until it has read them."""
        with self._lock:
            return min(MAX_AT_ONCE_BYTES, self._page_limit() * PAGE_BYTES // 4)

    @property
    def merge_bytes(self) -> int:
        """Bytes of disk that a merge may take in addition: a quarter of the limit."""
        return max(MIN_BYTES, self._limit_bytes) // 4

    # ---- bases whose files are local as a whole ----------------------------------------------------------

    def take(self, location: str, directory: Path, size_bytes: int) -> bool:
        """Take room for all files of a base until its directory is gone.

        Such bases may take half of the limit. The other half is for pages, and for the base that a merge
        makes: a store takes room for the largest of its bases, since a new one soon replaces the others.

        Args:
            location: The location of the store.
            directory: The base.
            size_bytes: The bytes of its files.

        Returns:
            False if there is no room.
        """
        with self._lock:
            self._forget_gone()
            largest = {location: size_bytes}
            for store, taken_bytes in self._whole.values():
                largest[store] = max(largest.get(store, 0), taken_bytes)
            if sum(largest.values()) > self._limit_bytes // 2:
                return False
            self._whole[directory] = location, size_bytes
            self._make_room(0)
            return True

    def count(self, location: str, directory: Path) -> None:
        """Count the files of a base that is there, whatever room there is.

        Raises:
            LocalDiskError: The disk fails.
        """
        with local_disk_errors(directory):
            size_bytes = sum(path.stat().st_size for path in directory.rglob("*.sst"))
        with self._lock:
            self._whole[directory] = location, size_bytes
            self._make_room(0)

    @contextmanager
    def reserved(self, size_bytes: int) -> Iterator[None]:
        """Leave so many bytes to others while the body runs."""
        with self._lock:
            self._reserved_bytes += size_bytes
            self._make_room(0)
        try:
            yield
        finally:
            with self._lock:
                self._reserved_bytes -= size_bytes

    # ---- bases that have pages ---------------------------------------------------------------------------

    def link(self, location: str, stored_path: str, target: Path) -> bool:
        """Link a cached file to `target`, below the directory of another base, with the pages that it has.

        Args:
            location: The location of the store.
            stored_path: The path of the file in checkpoint storage.
            target: The new place, which must not exist.

        Returns:
            False if the file is not cached.
        """
        with self._lock:
            file = self._files.get((location, stored_path))
            paths = [] if file is None else list(file.paths.values())
        for path in paths:
            try:
                os.link(path, target)
                os.link(uses_of(path), uses_of(target))
                return True
            except OSError:  # that base is being removed, or the file system has no hard links
                with local_disk_errors(target):
                    target.unlink(missing_ok=True)
        return False

    @staticmethod
    def rename(source: Path, target: Path) -> None:
        """Replace `target` by `source`, a cached file, together with the counters of its pages."""
        with local_disk_errors(target):
            uses_of(source).replace(uses_of(target))
            source.replace(target)

    def add(self, location: str, directory: Path, files: Sequence[SparseFile]) -> None:
        """Take the files of a base into the cache, with the pages that they have, and list them there.

        Raises:
            LocalDiskError: The disk fails.
        """
        with local_disk_errors(directory):
            (directory / LIST_NAME).write_text(json.dumps([asdict(file) for file in files]), "utf-8")
            self._add(location, directory, files)

    def has(self, location: str, directory: Path) -> bool:
        """Return True if a base is cached by pages, here or by an earlier agent, whose files are taken over.

        Raises:
            LocalDiskError: The disk fails.
        """
        with self._lock:
            if directory in self._bases:
                return True
        with local_disk_errors(directory):
            try:
                listed = json.loads((directory / LIST_NAME).read_text("utf-8"))
            except FileNotFoundError:
                return False
            self._add(location, directory, [SparseFile(**fields) for fields in listed])
        return True

    def keep_apart(self, directory: Path) -> None:
        """Link no file of a base to another one any more; an unknown base is fine."""
        with self._lock:
            for file in self._bases.get(directory, {}).values():
                if self._files.get(file.key) is file:
                    del self._files[file.key]

    def _add(self, location: str, directory: Path, files: Sequence[SparseFile]) -> None:
        with self._lock:
            self._forget_gone()
            if directory in self._bases:
                return
            base: dict[str, CachedFile] = {}
            for spec in files:
                key, local = (location, spec.path), directory / spec.name
                file = self._files.get(key)
                if file is None or not any(_is_same(local, path) for path in file.paths.values()):
                    file = CachedFile(key, local, spec.size_bytes)
                base[spec.name] = file
            # Nothing fails from here on: all files of a base are known, or none.
            for name, file in base.items():
                if not file.paths:
                    self._files[file.key] = file
                    self._ring.append(file)
                    self._count(file, 1)
                file.paths[directory] = directory / name
            self._bases[directory] = base
            self._make_room(0)

    # ---- pages -------------------------------------------------------------------------------------------

    def read(self, storage: Storage, directory: Path, ranges: Sequence[tuple[str, int, int]]) -> int:
        """Fetch the pages that have these bytes, even those that are there.

        Pages that lie close together come with one request, and many requests run at a time.

        Args:
            storage: The storage of the base's files.
            directory: The base.
            ranges: Name of a file, offset and length.

        Returns:
            The number of bytes of all ranges that the files have.

        Raises:
            InternalError: The base has no such file.
            LocalDiskError: The disk is full, and is so with half as many pages, to which the cache keeps
                until there is space again.
            StateStoreError: The storage failed.
        """
        parts_by_file: dict[str, list[tuple[int, int]]] = {}
        for name, offset, length in ranges:
            parts_by_file.setdefault(name, []).append((offset, length))
        pieces = [
            piece for name, parts in parts_by_file.items() for piece in self._pieces(directory, name, parts)
        ]
        spans = [
            span
            for name in parts_by_file
            for span in spans_of(
                self._file(directory, name).key[1],
                directory / name,
                [(piece.start, piece.end) for piece in pieces if piece.name == name],
            )
        ]
        for attempt in range(2):
            shrinks = self._grow(directory)
            try:
                with self._room(pieces):
                    fetch_spans(storage, spans, self._runtime)
                break
            except LocalDiskError:
                if attempt or not self._evict_half(shrinks):
                    raise
        return sum(
            max(0, min(length, self._file(directory, name).size_bytes - offset))
            for name, offset, length in ranges
        )

    def _file(self, directory: Path, name: str) -> CachedFile:
        with self._lock:
            file = self._bases.get(directory, {}).get(name)
        if file is None:
            raise InternalError(f"'{directory / name}' is not a cached file")
        return file

    def _pieces(self, directory: Path, name: str, parts: list[tuple[int, int]]) -> Iterator[_Piece]:
        """Yield the stretches of pages, in order, that have these parts of a file."""
        file = self._file(directory, name)
        stretches: list[list[int]] = []
        for offset, length in sorted(parts):
            length = min(length, file.size_bytes - offset)
            if length <= 0:
                continue
            first, last = offset // PAGE_BYTES, -(-(offset + length) // PAGE_BYTES)
            end = min(file.size_bytes, last * PAGE_BYTES)
            if offset + length <= file.tail_at:
                end = min(end, file.tail_at)  # the tail was verified, and is never read again
            if stretches and first * PAGE_BYTES <= stretches[-1][1]:
                stretches[-1][1] = max(stretches[-1][1], end)
            else:
                stretches.append([first * PAGE_BYTES, end])
        for start, end in stretches:
            yield _Piece(file, name, start, end)

    @contextmanager
    def _room(self, pieces: Sequence[_Piece]) -> Iterator[None]:
        """Evict pages until these pieces fit, and reserve their room while the body of `with` fetches them.

        After the body their pages count as cached, even if it failed: some of them may be.
        """
        count = sum(len(piece.pages) for piece in pieces)
        with self._lock:
            self._make_room(count)
            self._awaited_pages += count
        try:
            yield
        finally:
            with self._lock:
                self._awaited_pages -= count
                self._note_fetched([piece for piece in pieces if piece.file.paths])

    def _note_fetched(self, pieces: Sequence[_Piece]) -> None:
        for piece in pieces:
            pages, resident = piece.pages, piece.file.resident
            self._resident_pages += len(pages) - resident.count(1, pages.start, pages.stop)
            resident[pages.start : pages.stop] = b"\1" * len(pages)
        for file, fetched in groupby(pieces, key=lambda piece: piece.file):
            file.write_uses([(piece.pages.start, b"\1" * len(piece.pages)) for piece in fetched])

    def _grow(self, directory: Path) -> int:
        """Take more room on a disk that was full, if it has space. Returns how many times it was full."""
        with self._lock:
            if self._disk.grow(directory, self._resident_pages + self._awaited_pages, self._option_pages()):
                _log.info("the local disk has space again: pages of states take what localDiskLimit allows")
            return self._disk.shrinks

    def _evict_half(self, shrinks: int) -> bool:
        """Evict half of the pages that are there, and keep to what is left: others need the disk, too.

        Args:
            shrinks: How many times the disk was full before the fetch. If that is more now, another thread
                has evicted half of the pages.

        Returns:
            False if there are none, or none can be evicted.
        """
        with self._lock:
            if self._disk.shrinks != shrinks:
                return True
            before = self._resident_pages
            self._evict(-(-before // 2))
            self._disk.shrink(self._resident_pages)
            _log.warning(
                f"the local disk is full: pages of states take {self._disk.pages * PAGE_BYTES} bytes until "
                "it has space again, and not what localDiskLimit allows"
            )
            return self._resident_pages < before

    # ---- under the lock ----------------------------------------------------------------------------------

    def _make_room(self, pages: int) -> None:
        """Evict pages until there is room for more."""
        if self._excess(pages) > 0:
            self._forget_gone()
            self._evict(self._excess(pages))

    def _excess(self, pages: int) -> int:
        return self._resident_pages + self._awaited_pages + pages - self._page_limit()

    def _page_limit(self) -> int:
        return min(self._option_pages(), self._disk.pages)

    def _option_pages(self) -> int:
        whole_bytes = sum(size_bytes for _, size_bytes in self._whole.values())
        others = self._other_bytes + whole_bytes + self._reserved_bytes
        return max(MIN_BYTES, self._limit_bytes - others) // PAGE_BYTES

    def _evict(self, pages: int) -> None:
        """Evict that many pages: the first that were not read since the hand has passed them.

        After two rounds every page has been looked at without a use, and there are no more.
        """
        try:
            passed = 0
            while pages > 0 and passed <= 2 * len(self._ring) and self._ring and not self._cannot_evict:
                pages -= self._pass(pages)
                passed += self._hand[1] == 0
        except LocalDiskError as error:  # those who write to that disk will fail, not those who evict
            if not self._has_warned:
                _log.warning(f"pages of states stay on the disk above localDiskLimit: {error.message}")
            self._has_warned = True

    def _pass(self, limit: int) -> int:
        """Move the hand over some pages of one file. Returns how many were evicted, at most `limit`.

        Raises:
            LocalDiskError: A page cannot be evicted; the hand has passed it.
        """
        number, first = self._hand
        if number >= len(self._ring):
            number, first = 0, 0
        file = self._ring[number]
        count = len(file.resident)
        first = min(first, count)  # the hand may have been in a longer file, which is gone
        last = min(count, first + _LOOK_PAGES)
        uses = file.read_uses(first, last)
        seen = bytes(uses)
        evicted, page = 0, first
        while evicted < limit and (start := file.resident.find(1, page, last)) >= 0:
            page = start + 1
            if uses[start - first]:
                uses[start - first] = 0
                continue
            while page < last and page - start < limit - evicted and _is_idle(file, uses, first, page):
                page += 1
            self._hand = (number, page)
            if not self._punch(file, start, page):
                return evicted
            evicted += page - start
        if evicted < limit:
            page = last
        passed = page - first
        file.write_uses(changes(first, seen[:passed], uses[:passed].replace(WANTED, b"\0")))
        self._hand = (number, page) if page < count else (number + 1, 0)
        return evicted

    def _punch(self, file: CachedFile, first: int, last: int) -> bool:
        """Make pages a hole. Returns False if that is not possible on this file system."""
        for directory, path in list(file.paths.items()):
            try:
                punch_hole(path, first * PAGE_BYTES, (last - first) * PAGE_BYTES)
                break
            except FileNotFoundError:  # the base is being removed
                del file.paths[directory]
            except HolesUnsupportedError as error:
                self._cannot_evict = True
                _log.warning(f"localDiskLimit cannot be kept: {error}")
                return False
        self._has_warned = False
        file.resident[first:last] = bytes(last - first)
        self._resident_pages -= last - first
        return True

    def _forget_gone(self) -> None:
        self._whole = {path: taken for path, taken in self._whole.items() if not _is_gone(path)}
        directories = [directory for directory in self._bases if _is_gone(directory)]
        for directory in directories:
            for file in self._bases.pop(directory).values():
                file.paths.pop(directory, None)
        unused = [file for file in self._ring if not file.paths]
        if unused:
            for file in unused:
                self._count(file, -1)
                if self._files.get(file.key) is file:
                    del self._files[file.key]
            self._ring = [file for file in self._ring if file.paths]

    def _count(self, file: CachedFile, sign: int) -> None:
        self._resident_pages += sign * file.resident.count(1)
        self._other_bytes += sign * file.other_bytes


def _is_gone(directory: Path) -> bool:
    """Return True if a directory does not exist; one that cannot be looked at is there."""
    try:
        directory.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _is_idle(file: CachedFile, uses: bytearray, first: int, page: int) -> bool:
    return bool(file.resident[page]) and not uses[page - first]


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except FileNotFoundError:
        return False
