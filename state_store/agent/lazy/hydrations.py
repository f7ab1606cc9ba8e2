"""The lazy restores of one store, by the directories of their bases: hydrated, or cached by pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from logging import LoggerAdapter
from pathlib import Path
from typing import Any

from state_store.agent.lazy.budget import HydrationBudget
from state_store.agent.lazy.hydration import Hydration, Progress, Readiness
from state_store.agent.lazy.page_cache import LIST_NAME as PAGES_LIST_NAME
from state_store.agent.lazy.page_cache import PAGE_BYTES, PageCache
from state_store.agent.wire.answers import NO_PAGES, Paging
from state_store.core.files.sparse import INCOMING_PREFIX, SparseFile, drop_data
from state_store.core.files.transfer import Wanted
from state_store.core.snapshots.context import LocalDatabase, StoreContext
from state_store.errors import InternalError, StateStoreError

LIST_NAME = "sparse.json"
"""File in the directory of a base that lists its sparse files, for an agent that replaces another."""

FoundDamage = Callable[[StateStoreError], object]


class Hydrations:
    """The hydrations of one store. Safe for any thread.

    Args:
        context: The store.
        budget: Disk and network that the executor allows.
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
    def caches_pages(self) -> bool:
        """True if bases that are made from now on are cached by pages, and not hydrated."""
        return self._pages.is_on and not self._context.storage.is_local

    @property
    def merge_bytes(self) -> int:
        """Bytes of disk that a merge may take besides the cache, if the state does not fit."""
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
        """Count the pages of bases that an earlier agent has made and the JVM has open."""
        for directory in directories:
            try:
                self._pages.has(self._context.storage.location, directory)
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
                known = self._running.get(directory)
            if known is not None:
                return known
            try:
                files = _listed(directory / LIST_NAME)
            except (OSError, ValueError) as error:
                raise InternalError(f"'{directory}' has no lazily restored files ({error})") from error
            for unfinished in directory.glob(f"{INCOMING_PREFIX}*"):
                unfinished.unlink(missing_ok=True)
            return self._start(directory, files, found_damage, inherited=True)

    def read(self, directory: Path, name: str, offset: int, length: int, found_damage: FoundDamage) -> int:
        """Fetch bytes of a sparse file of a base, to the same offset of the local file. Return their number.

        Raises:
            InternalError: The base has no such file.
            StateStoreError: The storage or the disk failed.
        """
        return self.read_all(directory, [(name, offset, length)], found_damage)

    def read_all(
        self, directory: Path, ranges: Sequence[tuple[str, int, int]], found_damage: FoundDamage
    ) -> int:
        """Do `read` for many ranges, each a name, an offset and a length. Return the number of bytes."""
        with self._lock:
            is_hydrated = directory in self._running
        if is_hydrated or not self._pages.has(self._context.storage.location, directory):
            hydration = self.get(directory, found_damage)
            return sum(hydration.read(*part) for part in ranges)
        count = self._pages.read_all(self._context.storage, directory, ranges)
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
            known = self._running.get(directory)
        return known is not None and known.readiness is Readiness.WHOLE

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
            known = self._running.get(directory)
        if known is not None:
            return known.readiness
        is_cached = self._pages.has(self._context.storage.location, directory)
        return Readiness.FAILED if is_cached else Readiness.WHOLE

    @property
    def is_settled(self) -> bool:
        """True if no file is coming: a merge finds every file that will be local."""
        return all(hydration.readiness is not Readiness.COMING for hydration in self._alive())

    def need(self) -> None:
        """Fetch what a merge waits for, whatever the disk budget says."""
        for hydration in self._alive():
            hydration.resume(needed=True)

    def progress(self) -> Progress:
        """Return the progress of all, and go on with files that have room now."""
        hydrations = self._alive()
        for hydration in hydrations:
            hydration.resume()
        parts = [hydration.progress() for hydration in hydrations]
        return Progress(
            self._page_bytes_read + sum(part.on_demand_bytes for part in parts),
            sum(part.hydrated_bytes for part in parts),
            sum(part.left_bytes for part in parts),
            sum(part.without_room_bytes for part in parts),
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
            known = self._running.get(directory)
            if known is None:
                known = self._running[directory] = Hydration(
                    self._context,
                    directory,
                    budget=self._budget,
                    found_damage=found_damage,
                    settled=self._settled,
                    log=self._log,
                )
            return known

    def _alive(self, *, finished: bool = True) -> list[Hydration]:
        """Forget those of restores that failed, and return the others.

        Args:
            finished: Keep those whose base was released since; their progress still counts.
        """
        with self._lock:
            gone = [
                directory
                for directory, hydration in self._running.items()
                if not (finished and hydration.is_complete) and not directory.exists()
            ]
            dropped = [self._running.pop(directory) for directory in gone]
            alive = list(self._running.values())
        for hydration in dropped:
            hydration.stop()
        return alive


def _listed(path: Path) -> list[SparseFile]:
    return [SparseFile(**fields) for fields in json.loads(path.read_text("utf-8"))]
