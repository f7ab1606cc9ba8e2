"""Tables that are read before they are local: blocks as the JVM asks for them, the rest in the background.

A restore leaves sparse files behind, of which only the ends are there (`files.sparse`). The JVM finds a block
that is not there by its checksum, asks for the bytes around it, and reads on. Meanwhile whole files are
fetched, in parts, those that were asked for first; a merge waits until the files that it builds on are whole.
Both write the same bytes to the same places, so neither needs to know of the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from state_store.agent.files import background
from state_store.errors import BusyError, DamagedError, InternalError, MissingError, StateStoreError
from state_store.files.deadline import Deadline
from state_store.files.parts import PART_BYTES
from state_store.files.sparse import SparseFile, fill
from state_store.files.transfer import difference
from state_store.runtime import Runtime
from state_store.snapshots.context import StoreContext

LIST_NAME = "sparse.json"
"""In the directory of a base: its sparse files, for an agent that replaces another."""

_RETRY_S = 2.0
_POLL_S = 0.5


@dataclass(frozen=True)
class Progress:
    """Bytes that the JVM asked for, that came in the background, and that are to come."""

    on_demand_bytes: int = 0
    hydrated_bytes: int = 0
    left_bytes: int = 0


class _Parts:
    """The parts of one file: which are to be fetched next, and how much is there. Not safe for threads."""

    def __init__(self, file: SparseFile, part_bytes: int) -> None:
        self.file = file
        self.hydrated_bytes = 0
        self._part_bytes = part_bytes
        self._next = 0
        self._failed: list[int] = []

    @property
    def count(self) -> int:
        """How many parts there are."""
        return -(-self.file.size_bytes // self._part_bytes)

    def take(self) -> int | None:
        """Where a part begins that nobody fetches yet; None: all are there or under way."""
        if self._failed:
            return self._failed.pop()
        if self._next >= self.file.size_bytes:
            return None
        offset, self._next = self._next, self._next + self._part_bytes
        return offset

    def put_back(self, offset: int) -> None:
        """That part did not come."""
        self._failed.append(offset)

    def length(self, offset: int) -> int:
        """Bytes of that part."""
        return min(self._part_bytes, self.file.size_bytes - offset)

    def came(self, offset: int) -> bool:
        """That part is there; whether all are."""
        self.hydrated_bytes += self.length(offset)
        return self.hydrated_bytes == self.file.size_bytes


class Hydration:
    """The sparse files of one base. Safe for any thread."""

    def __init__(
        self,
        context: StoreContext,
        directory: Path,
        files: Sequence[SparseFile],
        *,
        rate_limit_bytes: int,
        found_damage: Callable[[StateStoreError], object],
    ) -> None:
        part_bytes = min(PART_BYTES, rate_limit_bytes or PART_BYTES)
        self._context = context
        self._directory = directory
        self._files = {file.name: _Parts(file, part_bytes) for file in files}
        self._rate_limit_bytes = rate_limit_bytes
        self._found_damage = found_damage
        self._changed = context.runtime.condition()
        self._queue = list(self._files)
        self._missing = set(self._files)
        self._failure: StateStoreError | None = None
        self._stopped = False
        self._on_demand_bytes = 0
        self._free_from_s = 0.0

    def start(self) -> None:
        """Fetches them in threads of its own, until they are whole, their directory goes, or `stop`."""
        count = sum(parts.count for parts in self._files.values())
        for _ in range(min(self._context.transfer_threads, count)):
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
            all_bytes = sum(parts.file.size_bytes for parts in self._files.values())
            return Progress(self._on_demand_bytes, hydrated_bytes, all_bytes - hydrated_bytes)

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
        return count

    def settle(self, deadline: Deadline) -> None:
        """Until all files are whole or something keeps them from being fetched. Raises BusyError past the
        deadline."""
        with self._changed:
            while self._missing and self._failure is None and not self._stopped:
                deadline.check()
                self._changed.wait(_POLL_S)

    def wait(self, deadline: Deadline) -> None:
        """Until all files are whole. Raises BusyError past the deadline or when it was stopped, and what kept
        a file from being fetched."""
        with self._changed:
            self.settle(deadline)
            if self._missing:
                raise self._failure or BusyError(f"'{self._directory}' is no longer fetched")

    def _run(self) -> None:
        with background():
            while (part := self._next()) is not None:
                parts, offset = part
                try:
                    self._hydrate(parts, offset)
                except (MissingError, DamagedError) as error:
                    self._failed(parts, error)
                except StateStoreError:
                    self._put_back(parts, offset)

    def _next(self) -> tuple[_Parts, int] | None:
        """The part that is to be fetched next. None where none is left, though one that is under way may be
        put back: by a thread that goes on then."""
        with self._changed:
            while self._queue and not self._stopped:
                parts = self._files[self._queue[0]]
                offset = parts.take()
                if offset is not None:
                    return parts, offset
                self._queue.pop(0)
            return None

    def _put_back(self, parts: _Parts, offset: int) -> None:
        """Storage fails: again a little later."""
        with self._changed:
            parts.put_back(offset)
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

    def _hydrate(self, parts: _Parts, offset: int) -> None:
        """Fetches a part; with the last one of a file that is verified, and kept."""
        context, file = self._context, parts.file
        self._pause(parts.length(offset))
        if self._stopped or not self._directory.exists():
            self.stop()
            return
        fill(context.storage, file, self._directory, offset, parts.length(offset))
        with self._changed:
            is_last = parts.came(offset)
        if is_last:
            self._check(file)
            context.cache.keep(file.path, self._directory / file.name)
            with self._changed:
                self._missing.discard(file.name)
                self._changed.notify_all()

    def _check(self, file: SparseFile) -> None:
        wrong = difference(file.wanted(self._directory))
        if wrong is not None:
            stored = f"{self._context.storage.location}/{file.path}"
            raise DamagedError(f"'{stored}' is damaged: {wrong}", file=stored)

    def _pause(self, size_bytes: int) -> None:
        """Until it is the turn of so many bytes: those of all threads together keep to the limit."""
        if not self._rate_limit_bytes:
            return
        clock_s = self._context.runtime.monotonic_s
        with self._changed:
            at_s = max(clock_s(), self._free_from_s)
            self._free_from_s = at_s + size_bytes / self._rate_limit_bytes
            while not self._stopped and (left_s := at_s - clock_s()) > 0:
                self._changed.wait(left_s)


class Hydrations:
    """Those of one store, by the directories of their bases. Safe for any thread."""

    def __init__(self, context: StoreContext, runtime: Runtime, rate_limit_bytes: int) -> None:
        self._context = context
        self._lock = runtime.lock()
        self._rate_limit_bytes = rate_limit_bytes
        self._running: dict[Path, Hydration] = {}

    def begin(
        self,
        directory: Path,
        files: Sequence[SparseFile],
        found_damage: Callable[[StateStoreError], object],
    ) -> Hydration:
        """Starts to fetch the files, and notes in the directory which they are."""
        listed = json.dumps([asdict(file) for file in files])
        (directory / LIST_NAME).write_text(listed, "utf-8")
        return self._start(directory, files, found_damage)

    def _start(
        self,
        directory: Path,
        files: Sequence[SparseFile],
        found_damage: Callable[[StateStoreError], object],
    ) -> Hydration:
        made = Hydration(
            self._context,
            directory,
            files,
            rate_limit_bytes=self._rate_limit_bytes,
            found_damage=found_damage,
        )
        with self._lock:
            self._running = {at: one for at, one in self._running.items() if at.exists()}
            self._running[directory] = made
        made.start()
        return made

    def of(self, directory: Path, found_damage: Callable[[StateStoreError], object]) -> Hydration:
        """That of a base, which an agent before this one may have begun. Raises InternalError where the base
        has no sparse files."""
        with self._lock:
            known = self._running.get(directory)
        if known is not None:
            return known
        try:
            listed = json.loads((directory / LIST_NAME).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InternalError(
                f"'{directory}' has no files that are fetched bit by bit ({error})"
            ) from error
        return self._start(directory, [SparseFile(**one) for one in listed], found_damage)

    def wait(self, directory: Path, deadline: Deadline) -> None:
        """Until all files of the base are whole. Raises as `Hydration.wait` does."""
        with self._lock:
            known = self._running.get(directory)
        if known is not None:
            known.wait(deadline)

    def settle(self, deadline: Deadline) -> None:
        """Until nothing is being fetched: what has come is local then. Raises BusyError past the deadline."""
        with self._lock:
            running = list(self._running.values())
        for one in running:
            one.settle(deadline)

    def progress(self) -> Progress:
        """Of all of them."""
        with self._lock:
            parts = [one.progress() for one in self._running.values()]
        return Progress(
            sum(part.on_demand_bytes for part in parts),
            sum(part.hydrated_bytes for part in parts),
            sum(part.left_bytes for part in parts),
        )

    def stop(self) -> None:
        """All of them."""
        with self._lock:
            running = list(self._running.values())
        for one in running:
            one.stop()
