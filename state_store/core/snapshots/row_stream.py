"""Rows of a database whose tables are sparse: fetched ahead of the reader, and left as holes behind it.

The tables have their tails (index, filter, properties), so RocksDB opens them. A block that is not there is
zeros, which its checksum shows: RocksDB reports it as corrupt, with its place. Then a window from there on is
fetched, and the reader begins again, where it was. A block that stays wrong is damaged.

Two windows of each sorted run stay, since a reader that begins again may need the block before. It begins at
the first key of that block, or after the last row that it gave: long stretches of removed rows give none.
"""

from __future__ import annotations

import bisect
import mmap
import re
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from state_store.core.engine.database import Database
from state_store.core.engine.sst import TRAILER_BYTES, entries_of
from state_store.core.engine.table import KEY_FOOTER_BYTES, blocks
from state_store.core.files.holes import HolesUnsupportedError, punch_hole
from state_store.core.files.spans import SPAN_BYTES, fetch_spans
from state_store.core.runtime import Runtime
from state_store.core.storage.contract import Span, Storage
from state_store.errors import DamagedError

T = TypeVar("T")

_PLACE = re.compile(r"(\d{6,}\.sst) offset (\d+) size (\d+)")
_REQUEST_BYTES = SPAN_BYTES // 2
LEAST_WINDOW_BYTES = 256 << 10
"""Bytes of a table that are fetched at a time however many runs share the room."""

_ALIGNED = 4 << 10
"""Holes are made of whole blocks of the file system."""
_WINDOWS = 2
"""Windows of a run that stay."""
_TRIES = 3
"""Fetches of a block, while the reader does not move, after which it is damaged."""


@dataclass(frozen=True)
class SparseTable:
    """A sparse table of a database.

    Attributes:
        path: Its place in storage.
        data_end: The offset at which its data end.
        run: The number of its sorted run.
        order: Its place in that run.
    """

    path: str
    data_end: int
    run: int
    order: int


def first_and_last_block(path: Path) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return start and end of the first and of the last data block of a table, with their trailers.

    Raises:
        DamagedError: The index cannot be read, or is empty.
    """
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    places = [(block.offset, block.offset + block.size + TRAILER_BYTES) for block in blocks(data, path)]
    if not places:
        raise DamagedError(f"'{path}' is damaged: it has no data", file=str(path))
    return places[0], places[-1]


class _Window(NamedTuple):
    """A fetched stretch of a table."""

    name: str
    start: int
    end: int


class RowStream:
    """Reader of a database, some of whose tables are sparse. One thread.

    Nobody else may use the files: they get holes.

    Args:
        database: The database.
        tables: Its sparse tables by name. The others are complete.
        storage: Checkpoint storage.
        runtime: Makes the threads of requests.
        room_bytes: Disk for windows; the windows of all runs share it.
    """

    def __init__(
        self,
        database: Database,
        tables: Mapping[str, SparseTable],
        storage: Storage,
        runtime: Runtime,
        room_bytes: int,
    ) -> None:
        self._database = database
        self._tables = dict(tables)
        self._storage = storage
        self._runtime = runtime
        self._room_bytes = room_bytes
        self._windows: dict[int, deque[_Window]] = {}
        self._offsets: dict[str, array[int]] = {}
        self._tries: Counter[tuple[str, int]] = Counter()
        self._can_evict = True

    def take_in(self, tables: Mapping[str, SparseTable]) -> None:
        """Know these sparse tables from now on: the database has taken in others."""
        self._tables = dict(tables)

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in order; the reserved record is among them.

        Raises:
            DamagedError: A block is damaged in storage.
            StateStoreError: The storage or the disk fails.
        """
        start = last = b""
        self._tries.clear()
        while True:
            try:
                for key, value in self._database.scan(start):
                    yield key, value
                    last = key
                return
            except DamagedError as error:
                passed = max(start, last + b"\0" if last else b"", self._bring(error, self._window_bytes()))
                if passed > start:
                    start = passed
                    self._tries.clear()

    def read(self, action: Callable[[], T]) -> T:
        """Return the result of an action on the database that reads single blocks; it may be repeated."""
        self._tries.clear()
        fetched: list[_Window] = []
        while True:
            try:
                result = action()
                break
            except DamagedError as error:
                self._bring(error, 0)
                fetched += [window for windows in self._windows.values() for window in windows]
                self._windows.clear()
        for window in fetched:
            self._evict(window, None)
        return result

    def _window_bytes(self) -> int:
        runs = len({table.run for table in self._tables.values()})
        return max(LEAST_WINDOW_BYTES, self._room_bytes // (runs * _WINDOWS))

    def _bring(self, error: DamagedError, window_bytes: int) -> bytes:
        """Fetch a window from the block on that an error names, or raise the error.

        Returns:
            The first key of the block before, if that is there: a reader that came from there has passed it.
        """
        found = _PLACE.search(error.message)
        table = None if found is None else self._tables.get(found[1])
        if found is None or table is None:
            raise error
        name, offset, size = found[1], int(found[2]), int(found[3]) + TRAILER_BYTES
        self._tries[name, offset] += 1
        if self._tries[name, offset] > _TRIES:
            raise error
        window = _Window(name, offset, max(offset + size, min(table.data_end, offset + window_bytes)))
        windows = self._windows.setdefault(table.run, deque())
        passed = self._first_key_before(windows, name, offset)
        while len(windows) >= _WINDOWS:
            self._evict(windows.popleft(), window)
        windows.append(window)
        fetch_spans(self._storage, self._spans(table.path, window), self._runtime)
        return passed

    def _spans(self, path: str, window: _Window) -> list[Span]:
        local = self._database.directory / window.name
        return [
            Span(path, local, ((at, min(_REQUEST_BYTES, window.end - at)),))
            for at in range(window.start, window.end, _REQUEST_BYTES)
        ]

    def _first_key_before(self, windows: deque[_Window], name: str, offset: int) -> bytes:
        """Return the first key of the block before one, if it is in the newest window; else no key."""
        if not windows:
            return b""
        newest = windows[-1]
        if self._tables[newest.name].order > self._tables[name].order:
            return b""
        offsets = self._offsets_of(newest.name)
        last = bisect.bisect_left(offsets, offset) if newest.name == name else len(offsets) - 1
        if last < 1 or not newest.start <= offsets[last - 1] < offsets[last] <= newest.end:
            return b""
        start, end = offsets[last - 1], offsets[last]
        with (self._database.directory / newest.name).open("rb") as file:
            file.seek(start)
            block = file.read(end - start - TRAILER_BYTES)
        return next((key[:-KEY_FOOTER_BYTES] for key, _ in entries_of(block)), b"")

    def _offsets_of(self, name: str) -> array[int]:
        """Return the offsets of a table's data blocks, and the end of the last."""
        offsets = self._offsets.get(name)
        if offsets is None:
            path = self._database.directory / name
            with path.open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            offsets = array("Q", (block.offset for block in blocks(data, path)))
            offsets.append(self._tables[name].data_end)
            self._offsets[name] = offsets
        return offsets

    def _evict(self, window: _Window, kept: _Window | None) -> None:
        """Make a hole of a window but for what it shares with another one that is kept."""
        start, end = window.start, window.end
        if kept is not None and window.name == kept.name:
            if kept.start <= start:
                start = max(start, min(end, kept.end))
            else:
                end = min(end, kept.start)
        else:
            self._offsets.pop(window.name, None)
        start, end = -(-start // _ALIGNED) * _ALIGNED, end // _ALIGNED * _ALIGNED
        if start < end and self._can_evict:
            try:
                punch_hole(self._database.directory / window.name, start, end - start)
            except HolesUnsupportedError:
                self._can_evict = False
