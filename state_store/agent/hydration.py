"""Tables that are read before they are local: blocks as the JVM asks for them, the rest in the background.

A restore leaves sparse files behind, of which only the ends are there (`files.sparse`). The JVM finds a block
that is not there by its checksum, asks for the bytes around it, and reads on. Meanwhile whole files are
fetched, those that were asked for first; a merge waits until the files that it builds on are whole. Both
write the same bytes to the same places, so neither needs to know of the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from state_store.agent.files import background
from state_store.errors import BusyError, DamagedError, InternalError, MissingError, StateStoreError
from state_store.files.checksums import sha256_of
from state_store.files.deadline import Deadline
from state_store.files.sparse import SparseFile, fill
from state_store.runtime import Runtime
from state_store.snapshots.context import StoreContext

LIST_NAME = "sparse.json"
"""In the directory of a base: its sparse files, for an agent that replaces another."""

_CHUNK_BYTES = 8 << 20
_THREADS = 4
_RETRY_S = 2.0
_POLL_S = 0.5


@dataclass(frozen=True)
class Progress:
    """Bytes that the JVM asked for, that came in the background, and that are to come."""

    on_demand_bytes: int = 0
    hydrated_bytes: int = 0
    left_bytes: int = 0


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
        self._context = context
        self._directory = directory
        self._files = {file.name: file for file in files}
        self._rate_limit_bytes = -(-rate_limit_bytes // _THREADS)
        self._found_damage = found_damage
        self._changed = context.runtime.condition()
        self._queue = list(self._files)
        self._missing = set(self._files)
        self._hydrated_bytes = dict.fromkeys(self._files, 0)
        self._failure: StateStoreError | None = None
        self._stopped = False
        self._on_demand_bytes = 0

    def start(self) -> None:
        """Fetches them in threads of its own, until they are whole, their directory goes, or `stop`."""
        for _ in range(min(_THREADS, len(self._files))):
            self._context.runtime.start(self._run, name="hydration")

    def stop(self) -> None:
        """No more is fetched, once the reads that are under way have ended."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def progress(self) -> Progress:
        """What was fetched so far."""
        with self._changed:
            hydrated_bytes = sum(self._hydrated_bytes.values())
            all_bytes = sum(file.size_bytes for file in self._files.values())
            return Progress(self._on_demand_bytes, hydrated_bytes, all_bytes - hydrated_bytes)

    def read(self, name: str, offset: int, length: int) -> int:
        """Fetches bytes of a file now, and all of it before others; how many. Raises as the storage does."""
        file = self._files.get(name)
        if file is None:
            raise InternalError(f"'{self._directory / name}' is no file that is fetched bit by bit")
        with self._changed:
            if name in self._queue:
                self._queue.remove(name)
                self._queue.insert(0, name)
        count = fill(self._context.storage, file, self._directory, offset, length)
        with self._changed:
            self._on_demand_bytes += count
        return count

    def wait(self, deadline: Deadline) -> None:
        """Until all files are whole. Raises BusyError past the deadline or when it was stopped, and what kept
        a file from being fetched."""
        with self._changed:
            while self._missing and self._failure is None and not self._stopped:
                deadline.check()
                self._changed.wait(_POLL_S)
            if self._missing:
                raise self._failure or BusyError(f"'{self._directory}' is no longer fetched")

    def _run(self) -> None:
        with background():
            while (file := self._next()) is not None:
                try:
                    self._hydrate(file)
                except (MissingError, DamagedError) as error:
                    self._failed(error)
                except StateStoreError:
                    self._put_back(file)

    def _next(self) -> SparseFile | None:
        with self._changed:
            if self._stopped or not self._queue:
                return None
            return self._files[self._queue.pop(0)]

    def _put_back(self, file: SparseFile) -> None:
        """Storage fails: again a little later."""
        with self._changed:
            self._queue.append(file.name)
            if not self._stopped:
                self._changed.wait(_RETRY_S)

    def _failed(self, error: StateStoreError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()
        self._found_damage(error)

    def _hydrate(self, file: SparseFile) -> None:
        """Fetches what is left of the file, from where an attempt before this one came to."""
        context = self._context
        chunk_bytes = min(_CHUNK_BYTES, self._rate_limit_bytes or _CHUNK_BYTES)
        for offset in range(self._hydrated_bytes[file.name], file.size_bytes, chunk_bytes):
            start_s = context.runtime.monotonic_s()
            if self._stopped or not self._directory.exists():
                self.stop()
                return
            count = fill(context.storage, file, self._directory, offset, chunk_bytes)
            with self._changed:
                self._hydrated_bytes[file.name] += count
            self._pause(count, context.runtime.monotonic_s() - start_s)
        target = self._directory / file.name
        found = sha256_of(target)
        if found != file.sha256:
            stored = f"{context.storage.location}/{file.path}"
            raise DamagedError(
                f"'{stored}' is damaged: its SHA-256 is {found} instead of {file.sha256}", file=stored
            )
        context.cache.keep(file.path, target)
        with self._changed:
            self._missing.discard(file.name)
            self._changed.notify_all()

    def _pause(self, count: int, took_s: float) -> None:
        if self._rate_limit_bytes:
            with self._changed:
                self._changed.wait(max(0.0, count / self._rate_limit_bytes - took_s))


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
