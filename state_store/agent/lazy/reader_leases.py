"""Leases on the stored files that bases with sparse files read.

A base is *read* from before it is offered to the JVM, or to a merge, until its directory is removed or all
its files are local. That is looked at, so no way in which a base is given up can forget its lease. One thread
for all stores renews the leases, and gives back those that are over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from logging import LoggerAdapter
from pathlib import Path
from typing import Any

from state_store.agent.lazy.remote_bases import RemoteBases
from state_store.agent.supervision import FAILURES, BackgroundJob, WorkerThreads, as_state_store_error
from state_store.core.deletion.lease import ReaderLease, find_under_lease
from state_store.core.files.sparse import SparseFile
from state_store.core.files.workspace import discard
from state_store.core.runtime import Lock, Runtime
from state_store.core.snapshots.context import StoreContext
from state_store.core.snapshots.restore import Restored
from state_store.errors import StateStoreError

LOOK_S = 60.0
"""Seconds between two looks at the bases, if nobody asks for one; also the pause after a failed renewal."""


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

    def _take(self) -> BackgroundJob | None:
        while True:
            self._stores = [store for store in self._stores if store.is_reading]
            if not self._stores:
                return None
            left_s = self._next_s - self._runtime.monotonic_s()
            if self._is_asked or left_s <= 0:
                self._is_asked = False
                self._next_s = self._runtime.monotonic_s() + LOOK_S
                return BackgroundJob(partial(self._look, list(self._stores)))
            self._changed.wait(left_s)

    @staticmethod
    def _look(stores: Iterable[Readers]) -> None:
        for store in stores:
            store.look()


class Readers:
    """The sparse bases of one store that read stored files. Safe for any thread.

    Args:
        context: The store.
        expiry_ms: The time after which a lease of this executor runs out if the executor dies.
        bases: The bases of the store that have sparse files.
        rounds: Looks after all stores.
        move: Is called when a base should be replaced, because only its lease keeps its files.
        log: The log of the store.
    """

    def __init__(
        self,
        context: StoreContext,
        expiry_ms: int,
        bases: RemoteBases,
        rounds: LeaseRounds,
        move: Callable[[], object],
        log: LoggerAdapter[Any],
    ) -> None:
        self._context = context
        self._expiry_ms = expiry_ms
        self._bases = bases
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
            result = restore()
            restored_s = clock_s()
            return result

        def give_up(result: Restored) -> None:
            self._bases.drop(result.base.directory)
            discard(result.base.directory)

        result, lease, lost = find_under_lease(find, _remote_files, give_up, self._new_lease)
        if lease is None:
            return result
        if lost:
            self._log.warning(
                f"'{min(lost)}', which version {result.version} needs, is condemned, and nothing takes its "
                "place: it is read for as long as it is there"
            )
        self._add(result.base.directory, _remote_files(result), lease, is_lost=False)
        chosen_ms = result.phases["choose_ms"] + (clock_s() - restored_s) * 1000
        return replace(result, phases={**result.phases, "choose_ms": chosen_ms})

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
            paths = frozenset(file.path for file in self._bases.files(directory))
            if paths:
                self._add(directory, paths, self._new_lease(), is_lost=False)

    def lost_file(self, directory: Path) -> None:
        """Note that a stored file of a base is gone: the base is replaced."""
        with self._lock:
            reader = self._readers.get(directory)
            if reader is not None:
                reader.is_lost = True
        self._bases.keep_apart(directory)
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
            except FAILURES as error:  # nothing may keep the leases of others from being renewed
                reader.not_before_s = self._context.runtime.monotonic_s() + LOOK_S
                self._log.warning(
                    f"the lease on the files that '{reader.directory}' reads was not renewed or given back, "
                    f"and is tried again: {as_state_store_error(error).message}"
                )

    def _end_if_over(self, reader: _Reader) -> bool:
        with reader.lock:
            is_read = reader.directory.exists() and not self._bases.is_whole(reader.directory)
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


def _remote_files(result: Restored) -> frozenset[str]:
    return frozenset(file.path for file in result.sparse)
