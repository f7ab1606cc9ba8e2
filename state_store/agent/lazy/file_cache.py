"""The local disk of an executor for files in checkpoint storage, within the limit that an option sets.

A base that fits into half of the limit is local *as a whole*, as all bases are without a limit: its files are
fetched before or while they are read (`prefetch`), and mapped. Any other has *pages*: its files are sparse,
pages of them are fetched when they are read, and evicted as holes when others need their room. The JVM
verifies the checksum of a block whenever it reads the block from such a file, and asks again for what is not
there. So nobody has to know when a page is evicted, and a page that is evicted and fetched at the same time
costs another request.

Beside each file with pages lies a file of uses with a byte for each page: 1 if the page was read since the
hand of the clock has passed. The JVM writes it through a mapping. The agent opens it for a moment only: there
may be more files than a process may have open. The tail of a file stays, whatever the limit is.

Most keys that are announced to a store are not read again soon: the JVM reads their blocks past the cache,
and notes 2 for their pages. If it finds that 2 the next time, it has the page fetched into the cache. The
hand takes the notes away, too, so the cache takes pages that are asked for twice while the hand goes round.
All pages of a new file have a 2, so that a cache that is not full takes what it is asked for.

On a disk that was full the cache has half of the room that it had, and more when there is space.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from state_store.agent.lazy.local_file import WANTED, FileKey, LocalFile, PagedFile, Stretch, uses_of
from state_store.agent.lazy.prefetch import Prefetch, PrefetchThreads
from state_store.core.files.sparse import (
    PAGE_BYTES,
    HolesUnsupportedError,
    SparseFile,
    fetch_spans,
    punch_hole,
    spans_of,
)
from state_store.core.runtime import Runtime
from state_store.core.storage.contract import Span, Storage
from state_store.core.storage.local_disk import free_bytes, local_disk_errors
from state_store.errors import InternalError, LocalDiskError

QUIET_MS = 60_000.0
"""Time without a full disk after which the room grows, and time between two steps."""

MAX_QUIET_MS = 3_600_000.0

_MIN_PAGES = 16
"""Pages that the cache has however small the disk is."""

MIN_BYTES = 16 << 20
"""Room that pages have however low the limit is: more than the JVM reads at a time, so that it can go on."""

MAX_AT_ONCE_BYTES = 32 << 20
"""Bytes of pages that a call brings at most, or a quarter of the room: they stay until they are read."""

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


def changes(first: int, before: bytes, after: bytearray) -> Iterator[tuple[int, bytes]]:
    """Yield the stretch of bytes that differ, with its place from `first` on, if any do."""
    differing = [number for number, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    if differing:
        start, end = differing[0], differing[-1] + 1
        yield first + start, bytes(after[start:end])


@dataclass(frozen=True)
class SparseBase:
    """A base with sparse files, by their names below its directory. Without a `prefetch` it has pages."""

    directory: Path
    files: MutableMapping[str, LocalFile]
    prefetch: Prefetch | None = None


class _Piece(NamedTuple):
    """A stretch of pages of a file."""

    file: PagedFile
    start: int
    end: int

    @property
    def pages(self) -> range:
        return range(self.start // PAGE_BYTES, min(-(-self.end // PAGE_BYTES), len(self.file.present)))


class FileCache:
    """The local disk of all stores of an executor. Safe for any thread.

    It is at most the limit, or the bases that are local as a whole, the tails of other files and MIN_BYTES if
    that is more. A base that was removed is forgotten when room is needed.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.threads = PrefetchThreads(runtime)
        """The threads that fetch files of bases that are local as a whole."""
        self._lock = runtime.lock()
        self._limit_bytes = 0
        self._whole: dict[Path, tuple[str, int]] = {}
        self._reserved_bytes = 0
        self._files: dict[FileKey, PagedFile] = {}
        self._ring: list[PagedFile] = []
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
    def has_limit(self) -> bool:
        """True if there is a limit, so that bases may have pages."""
        return self._limit_bytes > 0

    @property
    def disk_bytes(self) -> int:
        """Bytes of disk that the files with pages take, with pages that are being fetched."""
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
        """Link a file to `target`, below the directory of another base, with the pages that it has.

        Args:
            location: The location of the store.
            stored_path: The path of the file in checkpoint storage.
            target: The new place, which must not exist.

        Returns:
            False if no base has the file.
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
        """Replace `target` by `source`, a file with pages, together with the uses of these."""
        with local_disk_errors(target):
            uses_of(source).replace(uses_of(target))
            source.replace(target)

    def paged(self, location: str, directory: Path, specs: Sequence[SparseFile]) -> SparseBase:
        """Return a base that has pages, those that its files have.

        Raises:
            OSError: The disk fails.
        """
        with self._lock:
            self._forget_gone()
            files: dict[str, PagedFile] = {}
            for spec in specs:
                key, local = (location, spec.path), directory / spec.name
                file = self._files.get(key)
                if file is None or not any(_is_same(local, path) for path in file.paths.values()):
                    file = PagedFile(key, spec, local, self._runtime)
                files[spec.name] = file
            # Nothing fails from here on: all files of a base are known, or none.
            for name, file in files.items():
                if not file.paths:
                    self._files[file.key] = file
                    self._ring.append(file)
                    self._count(file, 1)
                file.paths[directory] = directory / name
            self._make_room(0)
        return SparseBase(directory, {**files})

    def keep_apart(self, base: SparseBase) -> None:
        """Link no file of a base to another one any more."""
        with self._lock:
            for key in [key for key, file in self._files.items() if base.directory in file.paths]:
                del self._files[key]

    # ---- reading -----------------------------------------------------------------------------------------

    def read(self, storage: Storage, base: SparseBase, ranges: Sequence[tuple[str, int, int]]) -> int:
        """Fetch the pages that have these bytes, even those that are there.

        Pages that lie close together come with one request, and many requests run at a time. The rest of
        files that are local as a whole comes before that of others.

        Args:
            storage: The storage of the base's files.
            base: The base.
            ranges: Name of a file, offset and length.

        Returns:
            The number of bytes of all ranges that the files have.

        Raises:
            InternalError: The base has no such file.
            LocalDiskError: The disk is full, and is so with half as many pages, to which the cache keeps
                until there is space again.
            StateStoreError: The storage failed.
        """
        parts_by_file: dict[LocalFile, list[tuple[int, int]]] = {}
        count = 0
        for name, offset, length in ranges:
            file = base.files.get(name)
            if file is None:
                raise InternalError(f"'{base.directory / name}' is not a file of which parts are remote")
            parts_by_file.setdefault(file, []).append((offset, length))
            count += max(0, min(length, file.spec.size_bytes - offset))
        if base.prefetch is not None:
            base.prefetch.prefer(parts_by_file)
            self._read_aside(storage, parts_by_file)
        else:
            self._read_pages(storage, base.directory, parts_by_file)
        return count

    def _read_aside(self, storage: Storage, parts_by_file: Mapping[LocalFile, list[tuple[int, int]]]) -> None:
        with ExitStack() as stack:
            spans: list[Span] = []
            for file, parts in parts_by_file.items():
                stretches = file.stretches(parts)
                if stretches:
                    asked_stretches = [(offset, offset + length) for offset, length in parts]
                    aside = stack.enter_context(file.arriving(stretches, asked_stretches))
                    spans += spans_of(file.spec.path, aside, stretches)
            fetch_spans(storage, spans, self._runtime)

    def _read_pages(
        self,
        storage: Storage,
        directory: Path,
        parts_by_file: Mapping[LocalFile, list[tuple[int, int]]],
    ) -> None:
        pieces: list[_Piece] = []
        spans: list[Span] = []
        for file, parts in parts_by_file.items():
            stretches: list[Stretch] = file.stretches(parts)
            assert isinstance(file, PagedFile)
            pieces += [_Piece(file, start, end) for start, end in stretches]
            spans += spans_of(file.spec.path, file.paths.get(directory, file.local), stretches)
        for attempt in range(2):
            shrinks = self._grow(directory)
            try:
                with self._room(pieces):
                    fetch_spans(storage, spans, self._runtime)
                return
            except LocalDiskError:
                if attempt or not self._evict_half(shrinks):
                    raise

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
            pages, present = piece.pages, piece.file.present
            self._resident_pages += len(pages) - present.count(1, pages.start, pages.stop)
            present[pages.start : pages.stop] = b"\1" * len(pages)
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
        count = len(file.present)
        first = min(first, count)  # the hand may have been in a longer file, which is gone
        last = min(count, first + _LOOK_PAGES)
        uses = file.read_uses(first, last)
        seen = bytes(uses)
        evicted, page = 0, first
        while evicted < limit and (start := file.present.find(1, page, last)) >= 0:
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

    def _punch(self, file: PagedFile, first: int, last: int) -> bool:
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
        file.present[first:last] = bytes(last - first)
        self._resident_pages -= last - first
        return True

    def _forget_gone(self) -> None:
        self._whole = {path: taken for path, taken in self._whole.items() if not _is_gone(path)}
        gone = {path for path in {path for file in self._ring for path in file.paths} if _is_gone(path)}
        for file in self._ring:
            file.paths = {path: local for path, local in file.paths.items() if path not in gone}
        unused = [file for file in self._ring if not file.paths]
        if unused:
            for file in unused:
                self._count(file, -1)
                if self._files.get(file.key) is file:
                    del self._files[file.key]
            self._ring = [file for file in self._ring if file.paths]

    def _count(self, file: PagedFile, sign: int) -> None:
        self._resident_pages += sign * file.cached_pages
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


def _is_idle(file: PagedFile, uses: bytearray, first: int, page: int) -> bool:
    return bool(file.present[page]) and not uses[page - first]


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except FileNotFoundError:
        return False
