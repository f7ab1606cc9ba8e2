"""Tables that are read before they are local: blocks as the JVM asks for them, the rest in the background.

A restore leaves sparse files behind, of which only the ends are there (`files.sparse`). The JVM finds a block
that is not there by its checksum, asks for the bytes around it, and reads on. Meanwhile whole files are
fetched, in parts, those that were asked for first, as far as the executor's budget has room for them; a merge
waits until the files that it builds on are whole. That begins with the first file whose end is there, while
the restore still asks for others.
Both write the same bytes to the same places, so neither needs to know of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from state_store.agent.files import background
from state_store.agent.lazy.budget import HydrationBudget
from state_store.agent.merges.priority import lower_priority
from state_store.core.files.deadline import Deadline
from state_store.core.files.parts import PART_BYTES, parts_of
from state_store.core.files.sparse import SparseFile, end_bytes, fill
from state_store.core.files.transfer import difference
from state_store.core.snapshots.context import StoreContext
from state_store.errors import BusyError, DamagedError, InternalError, MissingError, StateStoreError

_RETRY_S = 2.0
_POLL_S = 0.5

_MOST_VERIFYING = 2
"""Threads that read whole files again, beside the batch that is on all cores."""


@dataclass(frozen=True)
class Progress:
    """Bytes that the JVM asked for, that came in the background, and that are to come; of these, the bytes of
    files for which the budget has no room.
    """

    on_demand_bytes: int = 0
    hydrated_bytes: int = 0
    left_bytes: int = 0
    without_room_bytes: int = 0


class _Parts:
    """The parts of one file, but for its end, which is there: which are to be fetched next, and how much is
    there; what was read of it before it had room. Not safe for threads.
    """

    def __init__(self, file: SparseFile, part_bytes: int) -> None:
        self.file = file
        self.missing_bytes = file.size_bytes - end_bytes(file.size_bytes)
        self.hydrated_bytes = 0
        self.on_demand_bytes = 0
        self.has_room = False
        self._left = parts_of(self.missing_bytes, part_bytes)
        self.count = len(self._left)

    def take(self) -> tuple[int, int] | None:
        """Offset and length of a part that nobody fetches yet; None: all are there or under way."""
        return self._left.pop(0) if self._left else None

    def put_back(self, part: tuple[int, int]) -> None:
        """That part did not come."""
        self._left.insert(0, part)

    def came(self, part: tuple[int, int]) -> bool:
        """That part is there; whether all are."""
        self.hydrated_bytes += part[1]
        return self.hydrated_bytes == self.missing_bytes


class Hydration:
    """The sparse files of one base: each that is added, until all are. Safe for any thread."""

    def __init__(
        self,
        context: StoreContext,
        directory: Path,
        *,
        budget: HydrationBudget,
        found_damage: Callable[[StateStoreError], object],
        found_no_room: Callable[[int], object],
    ) -> None:
        self._part_bytes = PART_BYTES
        if budget.bytes_per_s:  # parts are up to 1.5 times as long
            self._part_bytes = min(PART_BYTES, max(1, budget.bytes_per_s * 2 // 3))
        self._context = context
        self._directory = directory
        self._files: dict[str, _Parts] = {}
        self._budget = budget
        self._found_damage = found_damage
        self._found_no_room = found_no_room
        self._changed = context.runtime.condition()
        self._queue: list[str] = []
        self._missing: set[str] = set()
        self._unchecked: list[_Parts] = []
        self._verifying = 0
        self._has_all = False
        self._failure: StateStoreError | None = None
        self._stopped = False
        self._on_demand_bytes = 0
        self._threads = 0
        self._is_needed = False
        self._lacks_room = False
        self._told_of_room = False

    def add(self, files: Iterable[SparseFile]) -> None:
        """Fetches these, too, but those that were added before."""
        with self._changed:
            for file in files:
                if file.name not in self._files:
                    parts = self._files[file.name] = _Parts(file, self._part_bytes)
                    self._missing.add(file.name)
                    if parts.missing_bytes:
                        self._queue.append(file.name)
                    else:
                        self._unchecked.append(parts)
        self.start()

    def added_all(self) -> None:
        """No more are added. What is there is verified from now on, which would hold up those that come."""
        with self._changed:
            self._has_all = True
        self.start()

    def start(self) -> None:
        """Fetches them in threads of its own, until they are whole, their directory goes, none of those that
        are left has room, or `stop`.
        """
        with self._changed:
            count = sum(parts.count for parts in self._files.values())
            more = max(0, min(self._context.transfer_threads, max(1, count)) - self._threads)
            self._threads += more
        for _ in range(more):
            self._context.runtime.start(self._run, name="hydration")

    def stop(self) -> None:
        """No more is fetched, once the reads that are under way have ended."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def progress(self) -> Progress:
        """What was fetched so far."""
        with self._changed:
            hydrated_bytes = sum(parts.hydrated_bytes for parts in self._files.values())
            all_bytes = sum(parts.missing_bytes for parts in self._files.values())
            without_room_bytes = sum(
                parts.missing_bytes
                for parts in self._files.values()
                if self._lacks_room and not parts.has_room
            )
            return Progress(
                self._on_demand_bytes, hydrated_bytes, all_bytes - hydrated_bytes, without_room_bytes
            )

    def go_on(self) -> None:
        """Fetches files that had no room and have some now."""
        with self._changed:
            if not self._lacks_room or self._stopped or not any(map(self._has_room, self._queue)):
                return
            self._lacks_room = False
        self.start()

    def read(self, name: str, offset: int, length: int) -> int:
        """Fetches bytes of a file now, and all of it before others; how many. Raises as the storage does."""
        parts = self._files.get(name)
        if parts is None:
            raise InternalError(f"'{self._directory / name}' is no file that is fetched bit by bit")
        with self._changed:
            if name in self._queue:
                self._queue.remove(name)
                self._queue.insert(0, name)
        count = fill(self._context.storage, parts.file, self._directory, offset, length)
        with self._changed:
            self._on_demand_bytes += count
            if not parts.has_room:
                more = min(count, parts.file.size_bytes - parts.on_demand_bytes)
                parts.on_demand_bytes += more
                self._budget.take(self._directory, more, is_needed=True)
        return count

    def settle(self, deadline: Deadline) -> None:
        """Until all files are whole or something other than the budget keeps them from being fetched. Raises
        BusyError past the deadline.
        """
        with self._changed:
            self._is_needed = True
        self.go_on()
        with self._changed:
            while self._lacks_any and self._failure is None and not self._stopped:
                if self.is_abandoned:
                    return
                deadline.check()
                self._changed.wait(_POLL_S)

    def wait(self, deadline: Deadline) -> None:
        """Until all files are whole. Raises BusyError past the deadline or when it was stopped, and what kept
        a file from being fetched.
        """
        self.settle(deadline)
        with self._changed:
            if self._lacks_any:
                raise self._failure or BusyError(f"'{self._directory}' is no longer fetched")

    @property
    def is_abandoned(self) -> bool:
        """Whether the restore that added files has failed: its directory is gone."""
        return not self._has_all and not self._directory.exists()

    @property
    def _lacks_any(self) -> bool:
        return bool(self._missing) or not self._has_all

    def _run(self) -> None:
        with background():
            while (found := self._next()) is not None:
                parts, part = found
                try:
                    self._hydrate(parts, part)
                except (MissingError, DamagedError) as error:
                    self._failed(parts, error)
                except StateStoreError:
                    self._put_back(parts, part)
            if self._has_all:
                lower_priority()  # hashing takes the cores that the batch is on
                self._check_all()

    def _next(self) -> tuple[_Parts, tuple[int, int]] | None:
        """The part that is to be fetched next. None, and the thread is counted no more, where none is left
        that has room, though one that is under way may be put back: by a thread that goes on then.
        """
        with self._changed:
            while not self._stopped:
                name = next(filter(self._has_room, self._queue), None)
                if name is None:
                    break
                parts = self._files[name]
                part = parts.take()
                if part is not None:
                    return parts, part
                self._queue.remove(name)
            self._threads -= 1
            self._lacks_room = bool(self._queue)
            tell = self._lacks_room and not self._told_of_room and not self._stopped
            self._told_of_room |= tell
        if tell:
            self._found_no_room(self.progress().without_room_bytes)
        return None

    def _has_room(self, name: str) -> bool:
        parts = self._files[name]
        if not parts.has_room:
            size_bytes = parts.file.size_bytes - parts.on_demand_bytes
            parts.has_room = self._budget.take(self._directory, size_bytes, is_needed=self._is_needed)
        return parts.has_room

    def _put_back(self, parts: _Parts, part: tuple[int, int]) -> None:
        """Storage fails: again a little later."""
        with self._changed:
            parts.put_back(part)
            if parts.file.name not in self._queue:
                self._queue.append(parts.file.name)
            if not self._stopped:
                self._changed.wait(_RETRY_S)

    def _failed(self, parts: _Parts, error: StateStoreError) -> None:
        with self._changed:
            self._failure = error
            if parts.file.name in self._queue:
                self._queue.remove(parts.file.name)
            self._changed.notify_all()
        self._found_damage(error)

    def _hydrate(self, parts: _Parts, part: tuple[int, int]) -> None:
        """Fetches a part. A file whose last one has come is verified when nothing is left to fetch: what that
        takes of a core is the batch's until then, which verifies what it reads. It is verified at once where
        fetching is slowed down: it may take hours, and what is not verified is not kept.
        """
        context, file = self._context, parts.file
        self._pause(part[1])
        if self._stopped or not self._directory.exists():
            self.stop()
            return
        fill(context.storage, file, self._directory, *part)
        with self._changed:
            if parts.came(part):
                self._unchecked.append(parts)
        if self._budget.bytes_per_s:
            self._check_all()

    def _check_all(self) -> None:
        """Verifies files all of whose parts are there, and keeps them, while few other threads do so."""
        while (parts := self._next_unchecked()) is not None:
            try:
                self._check(parts.file)
            except DamagedError as error:
                self._failed(parts, error)
            except FileNotFoundError:  # the base is gone
                self.stop()
            finally:
                with self._changed:
                    self._verifying -= 1

    def _next_unchecked(self) -> _Parts | None:
        """One that this thread verifies. None where there is none; or enough threads verify others, who come
        for the next.
        """
        with self._changed:
            if self._stopped or not self._unchecked or self._verifying == _MOST_VERIFYING:
                return None
            self._verifying += 1
            return self._unchecked.pop(0)

    def _check(self, file: SparseFile) -> None:
        """Raises DamagedError where the file is not the one that is stored, FileNotFoundError where it is no
        longer there.
        """
        wrong = difference(file.wanted(self._directory))
        if wrong is not None:
            stored = f"{self._context.storage.location}/{file.path}"
            raise DamagedError(f"'{stored}' is damaged: {wrong}", file=stored)
        self._context.cache.keep(file.path, self._directory / file.name)
        with self._changed:
            self._missing.discard(file.name)
            self._changed.notify_all()

    def _pause(self, size_bytes: int) -> None:
        """Until it is the turn of this many bytes."""
        at_s = self._budget.turn_s(size_bytes)
        clock_s = self._context.runtime.monotonic_s
        with self._changed:
            while not self._stopped and (left_s := at_s - clock_s()) > 0:
                self._changed.wait(left_s)
