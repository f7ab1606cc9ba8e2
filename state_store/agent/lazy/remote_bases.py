"""The bases of one store that were made with sparse files: read, prefetched, and taken over.

The directory of such a base lists its files, for an agent that replaces another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from logging import LoggerAdapter
from pathlib import Path
from typing import Any

from state_store.agent.lazy.file_cache import FileCache, SparseBase
from state_store.agent.lazy.local_file import LocalFile
from state_store.agent.lazy.prefetch import Prefetch, Progress
from state_store.core.files.sparse import INCOMING_PREFIX, PAGE_BYTES, SparseFile, drop_data
from state_store.core.files.transfer import Wanted
from state_store.core.snapshots.context import LocalDatabase, StoreContext
from state_store.core.storage.local_disk import local_disk_errors
from state_store.errors import InternalError, StateStoreError

LIST_NAME = "sparse.json"
"""File in the directory of a base that lists its sparse files, and says if it has pages."""


@dataclass(frozen=True)
class Paging:
    """Rules by which the sparse files of a base are read.

    If `page_bytes` is not 0, pages of this length may be evicted at any moment, and a call asks for at most
    `pages_at_once` bytes of them. `stored` has the path in checkpoint storage of each file, by its name.
    """

    page_bytes: int
    pages_at_once: int
    stored: Mapping[str, str]


NO_PAGES = Paging(0, 0, {})


class RemoteBases:
    """Bases of one store with sparse files, and the room of all its bases. Safe for any thread.

    Args:
        context: The store.
        cache: The local disk of the executor.
        log: The log of the store.
        found_damage: Is called with a base and the error if a stored file is missing or damaged.
        hydration_ended: Is called when the files of a base may be there, or not come any more.
    """

    def __init__(
        self,
        context: StoreContext,
        cache: FileCache,
        log: LoggerAdapter[Any],
        found_damage: Callable[[Path, StateStoreError], object],
        hydration_ended: Callable[[], object] = lambda: None,
    ) -> None:
        self._context = context
        self._location = context.storage.location
        self._cache = cache
        self._log = log
        self._found_damage = found_damage
        self._hydration_ended = hydration_ended
        self._lock = context.runtime.lock()
        self._bases: dict[Path, SparseBase] = {}
        self._on_demand_bytes = 0
        self._fetched_bytes = 0

    # ---- room --------------------------------------------------------------------------------------------

    @property
    def has_limit(self) -> bool:
        """True if the local disk has a limit, so that bases may have pages."""
        return self._cache.has_limit and not self._context.storage.is_local

    @property
    def merge_bytes(self) -> int:
        """Bytes of disk that a merge may take in addition to the limit, if the state does not fit."""
        return self._cache.merge_bytes

    def take(self, directory: Path, size_bytes: int) -> bool:
        """Take room for all files of a base (`LimitedDisk`)."""
        return self._cache.take(self._location, directory, size_bytes)

    def merging(self, size_bytes: int) -> AbstractContextManager[None]:
        """Leave room to a merge of a base whose files are local, while the body of `with` runs."""
        return self._cache.reserved(size_bytes if self.has_limit else 0)

    def link_pages(self, file: Wanted, directory: Path) -> SparseFile | None:
        """Link the pages that another base has of a file (`LimitedDisk`)."""
        if not self._cache.link(self._location, file.path, file.target):
            return None
        return SparseFile.of(file, directory)

    def drop_stored_data(self, base: LocalDatabase) -> list[SparseFile]:
        """Remove the data of a base's stored files, which nobody has opened yet, from the local disk.

        Files that the local cache keeps stay there as they are.

        Returns:
            The files, of which only the tails are local, or what another base has of them.

        Raises:
            LocalDiskError: The disk fails.
        """
        sparse_files = []
        for name, file in base.files.items():
            if file.path is not None:
                local = base.directory / name
                target = local.with_name(f"{name}.cached")
                if self._cache.link(self._location, file.path, target):
                    self._cache.rename(target, local)
                else:
                    drop_data(local)
                sparse_files.append(SparseFile(name, file.path, file.size_bytes, file.sha256))
        return sparse_files

    # ---- bases -------------------------------------------------------------------------------------------

    def begin(self, directory: Path, file: SparseFile) -> None:
        """Start to fetch a file of a base that is being made, and has room as a whole."""
        with self._lock:
            base = self._being_made(directory)
        self._fetch(base, [file])

    def _being_made(self, directory: Path) -> SparseBase:
        """Return a base that gets all its files. The caller locks."""
        base = self._bases.get(directory)
        if base is None:
            base = self._bases[directory] = SparseBase(directory, {}, self._prefetch(directory))
        return base

    def add(self, directory: Path, files: Sequence[SparseFile], *, is_paged: bool) -> Paging:
        """Take a base that was made. Its files are fetched in the background, unless it has pages.

        Returns:
            The rules by which the JVM reads them.

        Raises:
            LocalDiskError: The disk fails.
        """
        if not files:
            return NO_PAGES
        self._forget_gone()
        listed = {"is_paged": is_paged, "files": [asdict(file) for file in files]}
        stored = {file.name: file.path for file in files}
        with self._lock, local_disk_errors(directory):  # nobody reads half a list, or takes the base over
            (directory / LIST_NAME).write_text(json.dumps(listed), "utf-8")
            if is_paged:
                self._bases[directory] = self._cache.paged(self._location, directory, files)
                return Paging(PAGE_BYTES, self._cache.at_once_bytes, stored)
            base = self._being_made(directory)
        with local_disk_errors(directory):
            self._fetch(base, files)
        _complete(base)
        return Paging(0, 0, stored)

    def _fetch(self, base: SparseBase, specs: Iterable[SparseFile], *, inherited: bool = False) -> None:
        added = []
        with self._lock:
            for spec in specs:
                if spec.name not in base.files:
                    stretches = None if inherited else [(start, end) for start, end in spec.stretches]
                    file = LocalFile(spec, base.directory / spec.name, self._context.runtime, stretches)
                    base.files[spec.name] = file
                    added.append(file)
        if added and base.prefetch is not None:
            base.prefetch.add(added)

    def _prefetch(self, directory: Path) -> Prefetch:
        return Prefetch(
            self._context,
            directory,
            threads=self._cache.threads,
            found_damage=lambda error: self._found_damage(directory, error),
            hydration_ended=self._hydration_ended,
            log=self._log,
        )

    def take_over(self, directories: Iterable[Path]) -> None:
        """Go on with bases that an earlier agent has made and the JVM has open."""
        for directory in directories:
            try:
                if self._base(directory) is None and self.has_limit:
                    self._cache.count(self._location, directory)
            except StateStoreError as error:
                self._log.warning(f"the disk of '{directory}' is not known: {error}")

    def _base(self, directory: Path) -> SparseBase | None:
        """Return a base, and take it over if an earlier agent has made it; None if its files are whole.

        Raises:
            LocalDiskError: The disk fails.
        """
        with self._lock, local_disk_errors(directory):
            base = self._bases.get(directory)
            if base is not None:
                return base
            try:
                listed = json.loads((directory / LIST_NAME).read_text("utf-8"))
            except FileNotFoundError:
                return None
            specs = [SparseFile(**fields) for fields in listed["files"]]
            if listed["is_paged"]:
                base = self._cache.paged(self._location, directory, specs)
            else:
                for unfinished in directory.rglob(f"{INCOMING_PREFIX}*"):
                    unfinished.unlink(missing_ok=True)
                base = SparseBase(directory, {}, self._prefetch(directory))
                self._fetch(base, specs, inherited=True)
                if self.has_limit:
                    self._cache.count(self._location, directory)
            self._bases[directory] = base
        _complete(base)
        return base

    def read(self, directory: Path, ranges: Sequence[tuple[str, int, int]]) -> int:
        """Fetch ranges of sparse files of a base, to the same offsets of the local files.

        Args:
            directory: The base.
            ranges: Name of a file, offset and length.

        Returns:
            The number of bytes of all ranges that the files have.

        Raises:
            InternalError: The base has no such file.
            StateStoreError: The storage or the disk failed.
        """
        base = self._base(directory)
        if base is None:
            raise InternalError(f"'{directory}' has no files of which parts are remote")
        count = self._cache.read(self._context.storage, base, ranges)
        with self._lock:
            self._on_demand_bytes += count
        return count

    def files(self, directory: Path) -> list[SparseFile]:
        """Return the files of a base that were remote when it was made, of which some may be local now."""
        base = self._base(directory)
        return [] if base is None else [file.spec for file in base.files.values()]

    def keep_apart(self, directory: Path) -> None:
        """Give no pages of a base to another base: a stored file of it is gone."""
        base = self._bases.get(directory)
        if base is not None:
            self._cache.keep_apart(base)

    def drop(self, directory: Path) -> None:
        """Forget a base that is given up, and end its prefetch; an unknown one is fine."""
        with self._lock:
            base = self._bases.pop(directory, None)
            if base is None or base.prefetch is None:
                return
            self._fetched_bytes += base.prefetch.fetched_bytes
        base.prefetch.stop()

    # ---- asked by merges and people ----------------------------------------------------------------------

    def is_whole(self, directory: Path) -> bool:
        """Return True if all files of a base that was made with sparse files are local now."""
        base = self._base(directory)
        return base is not None and base.prefetch is not None and base.prefetch.is_whole

    def is_local(self, directory: Path) -> bool:
        """Return True if all files of a base are local."""
        return self._base(directory) is None or self.is_whole(directory)

    def is_coming(self, directory: Path) -> bool:
        """Return True if all files of a base will be local, and some are not yet."""
        base = self._base(directory)
        return base is not None and base.prefetch is not None and base.prefetch.is_coming

    @property
    def has_hydrated(self) -> bool:
        """True if no file is coming: a merge finds every file that will be local."""
        return not any(prefetch.is_coming for prefetch in self._prefetches())

    def progress(self) -> Progress:
        """Return the progress of all, and go on with those that no thread could be started for."""
        prefetches = self._prefetches()
        for prefetch in prefetches:
            prefetch.resume()
        with self._lock:
            files = [file for base in self._bases.values() if base.prefetch for file in base.files.values()]
            return Progress(
                self._on_demand_bytes,
                self._fetched_bytes + sum(prefetch.fetched_bytes for prefetch in prefetches),
                sum(file.missing_bytes for file in files),
            )

    def stop(self) -> None:
        """End all prefetches."""
        for prefetch in self._prefetches():
            prefetch.stop()

    def _prefetches(self) -> list[Prefetch]:
        self._forget_gone()
        with self._lock:
            return [base.prefetch for base in self._bases.values() if base.prefetch is not None]

    def _forget_gone(self) -> None:
        with self._lock:
            directories = [directory for directory in self._bases if not directory.exists()]
        for directory in directories:
            self.drop(directory)


def _complete(base: SparseBase) -> None:
    if base.prefetch is not None:
        base.prefetch.complete()
