"""The lazy restores of one store, by the directories of their bases, and the leases on what they read.

A base is hydrated, or cached by pages. A base is *read* from before it is offered to the JVM, or to a merge,
until its directory is removed or all its files are local. That is looked at, so no way in which a base is
given up can forget its lease. One thread for all stores renews the leases, and gives back those that are
over.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from logging import LoggerAdapter
from pathlib import Path
from typing import Any

from state_store.agent.jvm_connections import background
from state_store.agent.lazy.hydration import Hydration, HydrationBudget, Progress, Readiness
from state_store.agent.lazy.page_cache import LIST_NAME as PAGES_LIST_NAME
from state_store.agent.lazy.page_cache import PAGE_BYTES, PageCache
from state_store.agent.messages import NO_PAGES, Paging
from state_store.agent.supervision import WorkerThreads
from state_store.core.deletion.lease import ReaderLease, find_under_lease
from state_store.core.files.sparse import INCOMING_PREFIX, SparseFile, drop_data
from state_store.core.files.transfer import Wanted
from state_store.core.files.workspace import discard
from state_store.core.runtime import Lock, Runtime
from state_store.core.snapshots.context import LocalDatabase, StoreContext
from state_store.core.snapshots.restore import Restored
from state_store.errors import InternalError, StateStoreError

LIST_NAME = "sparse.json"
"""File in the directory of a base that lists its sparse files, for an agent that replaces another."""

FoundDamage = Callable[[StateStoreError], object]

LOOK_S = 60.0
"""Seconds between two looks at the bases, if nobody asks for one; also the pause after a failed renewal."""


class Hydrations:
    """The hydrations of one store. Safe for any thread.

    Args:
        context: The store.
        budget: Threads and network that the executor allows.
        pages: The cache of pages that all stores of the executor share.
        log: The log of the store.
        settled: Is called when a base may have become ready for a merge.
    """

    def __init__(
        self,
        context: StoreContext,
        budget: HydrationBudget,
        pages: PageCache,
        log: LoggerAdapter[Any],
        settled: Callable[[], object] = lambda: None,
    ) -> None:
        self._context = context
        self._budget = budget
        self._pages = pages
        self._log = log
        self._settled = settled
        self._lock = context.runtime.lock()
        self._taking_over = context.runtime.lock()
        self._running: dict[Path, Hydration] = {}
        self._page_bytes_read = 0

    # ---- bases that are cached by pages ------------------------------------------------------------------

    @property
    def has_limit(self) -> bool:
        """True if the local disk has a limit, so that bases may be cached by pages, and not hydrated."""
        return self._pages.is_on and not self._context.storage.is_local

    def take(self, directory: Path, size_bytes: int) -> bool:
        """Take room for all files of a base. Returns False if there is none: it is cached by pages."""
        return self._pages.take(self._context.storage.location, directory, size_bytes)

    def merging(self, size_bytes: int) -> AbstractContextManager[None]:
        """Leave room to a merge of a base whose files are local, while the body of `with` runs."""
        return self._pages.reserved(size_bytes if self.has_limit else 0)

    @property
    def merge_bytes(self) -> int:
        """Bytes of disk that a merge may take in addition to the cache, if the state does not fit."""
        return self._pages.merge_bytes

    def link_pages(self, wanted: Wanted, directory: Path) -> SparseFile | None:
        """Link a file of another base, with the pages that it has, to its place below a new base's directory.

        Returns:
            The file, or None if no base has it.
        """
        if not self._pages.link(self._context.storage.location, wanted.path, wanted.target):
            return None
        name = wanted.target.relative_to(directory).as_posix()
        return SparseFile(name, wanted.path, wanted.size_bytes, wanted.sha256, wanted.crc32)

    def cache_pages(self, directory: Path, files: Sequence[SparseFile]) -> Paging:
        """Cache the sparse files of a base by pages.

        Returns:
            The rules by which they are read.

        Raises:
            LocalDiskError: The disk fails.
        """
        if not files:
            return NO_PAGES
        self._pages.add(self._context.storage.location, directory, files)
        stored = {file.name: file.path for file in files}
        return Paging(PAGE_BYTES, self._pages.at_once_bytes, stored)

    def take_over(self, directories: Iterable[Path]) -> None:
        """Count the disk of bases that an earlier agent has made and the JVM has open."""
        location = self._context.storage.location
        for directory in directories:
            try:
                if not self._pages.has(location, directory) and self.has_limit:
                    self._pages.count(location, directory)
            except StateStoreError as error:
                self._log.warning(f"the pages of '{directory}' are not known, and not evicted: {error}")

    def shed(self, base: LocalDatabase) -> list[SparseFile]:
        """Remove the data of a base's stored files, which nobody has opened yet, from the local disk.

        Files that the local cache keeps stay there as they are.

        Returns:
            The files, of which only the tails are local, or what another base has of them.

        Raises:
            LocalDiskError: The disk fails.
        """
        shed = []
        for name, file in base.files.items():
            if file.path is not None:
                local = base.directory / name
                wanted = Wanted(file.path, file.size_bytes, local.with_name(f"{name}.shed"))
                if self._pages.link(self._context.storage.location, wanted.path, wanted.target):
                    self._pages.rename(wanted.target, local)
                else:
                    drop_data(local)
                shed.append(SparseFile(name, file.path, file.size_bytes, file.sha256))
        return shed

    # ---- bases that are hydrated -------------------------------------------------------------------------

    def add_file(self, directory: Path, file: SparseFile, found_damage: FoundDamage) -> None:
        """Start to fetch a file of a base that is being made."""
        self._get_or_create(directory, found_damage).add([file])

    def begin(self, directory: Path, files: Sequence[SparseFile], found_damage: FoundDamage) -> Hydration:
        """Fetch the files of a base that was made, and list them in its directory.

        Raises:
            OSError: The list cannot be written.
        """
        listed = json.dumps([asdict(file) for file in files])
        (directory / LIST_NAME).write_text(listed, "utf-8")
        return self._start(directory, files, found_damage)

    def get(self, directory: Path, found_damage: FoundDamage) -> Hydration:
        """Return the hydration of a base; go on with one that an earlier agent began.

        Raises:
            InternalError: The base has no sparse files.
        """
        # The JVM sends several requests at a time: none may find a base without its files, or take another's
        # download for one that a dead agent has left.
        with self._taking_over:
            with self._lock:
                hydration = self._running.get(directory)
            if hydration is not None:
                return hydration
            try:
                files = _listed(directory / LIST_NAME)
            except (OSError, ValueError) as error:
                raise InternalError(f"'{directory}' has no lazily restored files ({error})") from error
            for unfinished in directory.glob(f"{INCOMING_PREFIX}*"):
                unfinished.unlink(missing_ok=True)
            return self._start(directory, files, found_damage, inherited=True)

    def read(self, directory: Path, ranges: Sequence[tuple[str, int, int]], found_damage: FoundDamage) -> int:
        """Fetch ranges of sparse files of a base, to the same offsets of the local files.

        Args:
            directory: The base.
            ranges: Name of a file, offset and length.
            found_damage: Is called if a file that is fetched later is missing or damaged.

        Returns:
            The number of bytes of all ranges that the files have.

        Raises:
            InternalError: The base has no such file.
            StateStoreError: The storage or the disk failed.
        """
        with self._lock:
            is_hydrated = directory in self._running
        if is_hydrated or not self._pages.has(self._context.storage.location, directory):
            return self.get(directory, found_damage).read(ranges)
        count = self._pages.read(self._context.storage, directory, ranges)
        with self._lock:
            self._page_bytes_read += count
        return count

    def listed(self, directory: Path) -> list[SparseFile]:
        """Return the files of a base that were remote when it was made, of which some may be local now."""
        for name in (PAGES_LIST_NAME, LIST_NAME):
            try:
                return _listed(directory / name)
            except (OSError, ValueError):
                continue
        return []

    def is_whole(self, directory: Path) -> bool:
        """Return True if all files of a base that is hydrated are local."""
        with self._lock:
            hydration = self._running.get(directory)
        return hydration is not None and hydration.readiness is Readiness.WHOLE

    def forget_pages(self, directory: Path) -> None:
        """Give no cached file of a base to another base: a stored file of it is gone."""
        self._pages.keep_apart(directory)

    def drop(self, directory: Path) -> None:
        """End and forget the hydration of a base that is given up; an unknown one is fine."""
        with self._lock:
            dropped = self._running.pop(directory, None)
        if dropped is not None:
            dropped.stop()

    def readiness(self, directory: Path) -> Readiness:
        """Return the readiness of a base; one without sparse files is WHOLE, one cached by pages FAILED."""
        with self._lock:
            hydration = self._running.get(directory)
        if hydration is not None:
            return hydration.readiness
        is_cached = self._pages.has(self._context.storage.location, directory)
        return Readiness.FAILED if is_cached else Readiness.WHOLE

    @property
    def is_settled(self) -> bool:
        """True if no file is coming: a merge finds every file that will be local."""
        return all(hydration.readiness is not Readiness.COMING for hydration in self._alive())

    def progress(self) -> Progress:
        """Return the progress of all, and go on with those that no thread could be started for."""
        hydrations = self._alive()
        for hydration in hydrations:
            hydration.resume()
        parts = [hydration.progress() for hydration in hydrations]
        return Progress(
            self._page_bytes_read + sum(part.on_demand_bytes for part in parts),
            sum(part.hydrated_bytes for part in parts),
            sum(part.left_bytes for part in parts),
        )

    def stop(self) -> None:
        """End all of them."""
        with self._lock:
            hydrations = list(self._running.values())
        for hydration in hydrations:
            hydration.stop()

    def _start(
        self,
        directory: Path,
        files: Sequence[SparseFile],
        found_damage: FoundDamage,
        *,
        inherited: bool = False,
    ) -> Hydration:
        hydration = self._get_or_create(directory, found_damage)
        hydration.add(files, inherited=inherited)
        hydration.complete()
        return hydration

    def _get_or_create(self, directory: Path, found_damage: FoundDamage) -> Hydration:
        self._alive(finished=False)
        with self._lock:
            hydration = self._running.get(directory)
            if hydration is None:
                hydration = self._running[directory] = Hydration(
                    self._context,
                    directory,
                    budget=self._budget,
                    found_damage=found_damage,
                    settled=self._settled,
                    log=self._log,
                )
            return hydration

    def _alive(self, *, finished: bool = True) -> list[Hydration]:
        """Forget those of restores that failed, and return the others.

        Args:
            finished: Keep those whose base was released since; their progress still counts.
        """
        with self._lock:
            directories = [
                directory
                for directory, hydration in self._running.items()
                if not (finished and hydration.is_complete) and not directory.exists()
            ]
            dropped = [self._running.pop(directory) for directory in directories]
            alive = list(self._running.values())
        for hydration in dropped:
            hydration.stop()
        return alive


def _listed(path: Path) -> list[SparseFile]:
    return [SparseFile(**fields) for fields in json.loads(path.read_text("utf-8"))]


@dataclass
class _Reader:
    """A sparse base and its lease, which is used under the lock."""

    directory: Path
    files: frozenset[str]
    lease: ReaderLease
    lock: Lock
    is_lost: bool
    not_before_s: float = 0.0
    is_over: bool = False
    moved_to: Path | None = None

    @property
    def wants_to_move(self) -> bool:
        """True if its files are only there for this base, and no newer base of the store takes its place."""
        moved_to = self.moved_to
        return self.is_lost and not self.is_over and (moved_to is None or not moved_to.exists())


class LeaseRounds:
    """The thread of an executor that looks after the readers of all its stores. Safe for any thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._changed = runtime.condition()
        self._stores: list[Readers] = []
        self._is_asked = False
        self._next_s = 0.0
        self._workers = WorkerThreads(runtime, self._changed, "leases", self._take)

    def add(self, store: Readers) -> None:
        """Look after a store that has readers, from now on until it has none."""
        with self._changed:
            if store not in self._stores:
                self._stores.append(store)
        self.look()

    def look(self) -> None:
        """Look now, since a base may be given up, or local. Never fails."""
        with self._changed:
            if self._stores:
                self._is_asked = True
                self._changed.notify_all()
                self._workers.ensure(1)

    def _take(self) -> _Round | None:
        while True:
            self._stores = [store for store in self._stores if store.is_reading]
            if not self._stores:
                return None
            left_s = self._next_s - self._runtime.monotonic_s()
            if self._is_asked or left_s <= 0:
                self._is_asked = False
                self._next_s = self._runtime.monotonic_s() + LOOK_S
                return _Round(list(self._stores))
            self._changed.wait(left_s)


class _Round:
    """A look at the readers of some stores."""

    def __init__(self, stores: list[Readers]) -> None:
        self._stores = stores

    def run(self) -> None:
        with background():
            for store in self._stores:
                store.look()

    def end(self, failure: BaseException | None) -> float:
        return 0.0


class Readers:
    """The sparse bases of one store that read stored files. Safe for any thread.

    Args:
        context: The store.
        expiry_ms: The time after which a lease of this executor runs out if the executor dies.
        hydrations: The lazy restores of the store.
        rounds: Looks after all stores.
        move: Is called when a base should be replaced, because only its lease keeps its files.
        log: The log of the store.
    """

    def __init__(
        self,
        context: StoreContext,
        expiry_ms: int,
        hydrations: Hydrations,
        rounds: LeaseRounds,
        move: Callable[[], object],
        log: LoggerAdapter[Any],
    ) -> None:
        self._context = context
        self._expiry_ms = expiry_ms
        self._hydrations = hydrations
        self._rounds = rounds
        self._move = move
        self._log = log
        self._lock = context.runtime.lock()
        self._readers: dict[Path, _Reader] = {}
        self._ask_from_s = -math.inf

    def restored(self, restore: Callable[[], Restored]) -> Restored:
        """Return what `restore` makes, with a lease on the files that stay remote.

        The lease ends with the directory of the base. If a file was condemned or deleted before the lease was
        there, the version is restored again from the files that have taken its place.

        Raises:
            StateStoreError: As `restore`.
        """
        clock_s = self._context.runtime.monotonic_s
        restored_s = 0.0

        def find() -> Restored:
            nonlocal restored_s
            made = restore()
            restored_s = clock_s()
            return made

        def give_up(made: Restored) -> None:
            self._hydrations.drop(made.base.directory)
            discard(made.base.directory)

        made, lease, lost = find_under_lease(find, _remote_files, give_up, self._new_lease)
        if lease is None:
            return made
        if lost:
            self._log.warning(
                f"'{min(lost)}', which version {made.version} needs, is condemned, and nothing takes its "
                "place: it is read for as long as it is there"
            )
        self._add(made.base.directory, _remote_files(made), lease, is_lost=False)
        chosen_ms = made.phases["choose_ms"] + (clock_s() - restored_s) * 1000
        return replace(made, phases={**made.phases, "choose_ms": chosen_ms})

    def hold(self, directory: Path, files: Iterable[SparseFile]) -> None:
        """Hold the stored files that a base reads which a merge has made; a lease on it from before ends.

        If the storage refuses the lease, the next look tries again.
        """
        paths = frozenset(file.path for file in files)
        if not paths:
            return
        lease = self._new_lease()
        lost: frozenset[str] = frozenset()
        try:
            lost = lease.hold(paths)
        except StateStoreError as error:
            self._log.warning(f"the files of '{directory}' are read without a lease for now: {error.message}")
        self._add(directory, paths, lease, is_lost=bool(lost))

    def take_over(self, directories: Iterable[Path]) -> None:
        """Hold the files of bases that an earlier agent has made and the JVM has open, at the next look."""
        for directory in directories:
            paths = frozenset(file.path for file in self._hydrations.listed(directory))
            if paths:
                self._add(directory, paths, self._new_lease(), is_lost=False)

    def lost_file(self, directory: Path) -> None:
        """Note that a stored file of a base is gone: the base is replaced."""
        with self._lock:
            reader = self._readers.get(directory)
            if reader is not None:
                reader.is_lost = True
        self._hydrations.forget_pages(directory)
        if self.wants_to_move:
            self._move()

    def moved(self, to: Path) -> list[Path]:
        """Note the base that takes the place of those that want to move, and return their directories."""
        with self._lock:
            moving = [reader for reader in self._readers.values() if reader.wants_to_move]
            for reader in moving:
                reader.moved_to = to
            return [reader.directory for reader in moving]

    @property
    def is_reading(self) -> bool:
        """True if a base reads stored files."""
        return bool(self._readers)

    @property
    def wants_to_move(self) -> bool:
        """True if a base should be replaced, because only its lease keeps its files."""
        with self._lock:
            return any(reader.wants_to_move for reader in self._readers.values())

    def replaced(self) -> bool:
        """Note that a newer snapshot has taken the place of that of all bases.

        Returns:
            True if a base should be replaced.
        """
        with self._lock:
            for reader in self._readers.values():
                reader.is_lost = True
            return any(reader.wants_to_move for reader in self._readers.values())

    def ask_for_look(self) -> None:
        """Look soon, since a base may be given up, or local."""
        if self._readers:
            self._rounds.look()

    def give_back(self) -> None:
        """Give back the leases that are over, and renew none. Never fails: the next look tries again."""
        self._for_each(self._end_if_over)

    def look(self) -> None:
        """Give back the leases that are over, and renew others when it is time. Never fails."""
        self._for_each(self._look_at)
        now_s = self._context.runtime.monotonic_s()
        if now_s >= self._ask_from_s and self.wants_to_move:
            self._ask_from_s = now_s + self._expiry_ms / 2000
            self._move()

    def close(self) -> None:
        """Give all leases back, as far as the storage lets it; the others run out."""
        with self._lock:
            readers = list(self._readers.values())
            self._readers.clear()
        for reader in readers:
            self._give_up(reader)

    def _for_each(self, action: Callable[[_Reader], object]) -> None:
        with self._lock:
            readers = list(self._readers.values())
        for reader in readers:
            try:
                action(reader)
            except StateStoreError as error:
                reader.not_before_s = self._context.runtime.monotonic_s() + LOOK_S
                self._log.warning(
                    f"the lease on the files that '{reader.directory}' reads was not renewed or given back, "
                    f"and is tried again: {error.message}"
                )

    def _end_if_over(self, reader: _Reader) -> bool:
        with reader.lock:
            is_read = reader.directory.exists() and not self._hydrations.is_whole(reader.directory)
            if is_read and not reader.is_over:
                return False
            self._end(reader)
            return True

    def _look_at(self, reader: _Reader) -> None:
        with reader.lock:
            if self._end_if_over(reader):
                return
            if reader.lease.renew_in_ms > 0 or self._context.runtime.monotonic_s() < reader.not_before_s:
                return
            if not self._context.storage.exists(min(reader.files)):
                reader.is_lost = True  # a removed checkpoint is not brought back by a lease
                reader.not_before_s = self._context.runtime.monotonic_s() + self._expiry_ms / 2000
                return
            lost = reader.lease.hold(reader.files)
            if lost and not reader.is_lost:
                self._log.info(
                    f"'{min(lost)}', which '{reader.directory}' reads, is kept by a lease alone: a base of "
                    "newer files takes its place"
                )
            reader.is_lost = reader.is_lost or bool(lost)

    def _end(self, reader: _Reader) -> None:
        reader.is_over = True
        reader.lease.release()
        with self._lock:
            if self._readers.get(reader.directory) is reader:
                del self._readers[reader.directory]

    def _give_up(self, reader: _Reader) -> None:
        with reader.lock:
            try:
                self._end(reader)
            except StateStoreError as error:
                self._log.info(f"a lease of '{reader.directory}' runs out by itself: {error.message}")

    def _add(self, directory: Path, files: frozenset[str], lease: ReaderLease, *, is_lost: bool) -> None:
        reader = _Reader(directory, files, lease, self._context.runtime.lock(), is_lost)
        with self._lock:
            before = self._readers.get(directory)
            self._readers[directory] = reader
        if before is not None:
            self._give_up(before)
        self._rounds.add(self)

    def _new_lease(self) -> ReaderLease:
        return ReaderLease(self._context.storage, expiry_ms=self._expiry_ms, runtime=self._context.runtime)


def _remote_files(restored: Restored) -> frozenset[str]:
    return frozenset(file.path for file in restored.sparse)
