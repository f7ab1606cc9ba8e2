"""The store and the base that restores and merges work on.

A `StoreContext` has the storage, the directories and the settings of a store; a `MeasuredStorage` times its
answers for the cost model of restores. A base (`LocalDatabase`) is a closed RocksDB database of one version
in a local directory, of which each file is known by its place in storage. The other functions say which files
a base wants, ingest deltas into an open database, and check that database before and after. They keep no
state; a database is used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from state_store.core.checkpoint.lineage import ChainDelta
from state_store.core.checkpoint.names import DeltaName, VersionId
from state_store.core.checkpoint.stored_documents import (
    ColumnFamily,
    DeltaMetadata,
    FileEntry,
    Manifest,
    Tail,
)
from state_store.core.engine.database import Database, DatabaseSettings
from state_store.core.files.transfer import Fetched, Wanted, fetch, parallel, verify
from state_store.core.files.workspace import StoreCache, Workspace
from state_store.core.planning.cost import DOWNLOAD, LIST, PART, READ, SMALL_AT_ONCE, RequestTimes
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage.contract import (
    NEVER,
    BoundedStorage,
    Deadline,
    Entry,
    ForwardingStorage,
    Span,
    Storage,
)
from state_store.errors import DamagedError

T = TypeVar("T")
R = TypeVar("R")

THREADS = 16
"""Number of transfers at a time, if no option sets it."""


@dataclass(frozen=True)
class StoreContext:
    """Storage, local files and directories of a store, and the settings of work on it.

    `deadline` is the end of the operation that uses the context. Immutable; safe for any thread.
    """

    storage: Storage
    cache: StoreCache
    workspace: Workspace
    settings: DatabaseSettings
    transfer_threads: int = THREADS
    deadline: Deadline = NEVER
    runtime: Runtime = SYSTEM

    def bounded(self, deadline: Deadline) -> StoreContext:
        """Return the context of an operation that has to end in time.

        Its steps, and each call of the storage but deletions, raise BusyError past the deadline.
        """
        return replace(self, storage=BoundedStorage(self.storage, deadline), deadline=deadline)

    def fetch(self, wanted_files: Sequence[Wanted]) -> Fetched:
        """Bring files to their targets, as `files.transfer.fetch` does."""
        return fetch(self.storage, self.cache, wanted_files, self.transfer_threads, runtime=self.runtime)

    def verify(
        self,
        wanted_files: Sequence[Wanted],
        *,
        thorough: bool = True,
        local: Collection[str] = (),
    ) -> list[str]:
        """Verify files at their targets, as `files.transfer.verify` does."""
        return verify(
            self.storage,
            self.cache,
            wanted_files,
            self.transfer_threads,
            thorough=thorough,
            local=local,
            runtime=self.runtime,
        )

    def parallel(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Do `work` on each item, on as many at a time as there are threads for transfers."""
        return parallel(self.transfer_threads, work, items, runtime=self.runtime)

    def parallel_small(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Do `work` on each item, on more at a time than `parallel`: for requests of few bytes."""
        return parallel(SMALL_AT_ONCE * self.transfer_threads, work, items, runtime=self.runtime)


def workspace_of(context: StoreContext, *_others: object, **_options: object) -> Path:
    """Return a path in the local directory of a store, for errors that name no file."""
    return context.workspace.incoming


class MeasuredStorage(ForwardingStorage):
    """Storage for one operation that reports the time of each successful request to `times`."""

    def __init__(self, storage: Storage, times: RequestTimes, runtime: Runtime) -> None:
        super().__init__(storage)
        self._times = times
        self._clock_s = runtime.monotonic_s

    def list_files(self, directory: str) -> list[Entry]:
        return self._timed(LIST, lambda: self.inner.list_files(directory), lambda _: 0)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._timed(READ, lambda: self.inner.read(path, offset, length), len)

    def download(self, path: str, local: Path) -> None:
        self._timed(DOWNLOAD, lambda: self.inner.download(path, local), lambda _: local.stat().st_size)

    def download_spans(self, spans: Sequence[Span]) -> list[int]:
        if len(spans) > 1:  # nobody knows how long each of them takes
            return self.inner.download_spans(spans)
        return self._timed(PART, lambda: self.inner.download_spans(spans), sum)

    def _timed(self, kind: str, request: Callable[[], T], size_bytes: Callable[[T], int]) -> T:
        started_s = self._clock_s()
        answer = request()
        ms = (self._clock_s() - started_s) * 1000
        self._times.observe(kind, size_bytes(answer), ms)
        return answer


@dataclass(frozen=True)
class DatabaseFile:
    """An SST of a base.

    `path` is its place in checkpoint storage, None if it has none; `sha256` is None until it is computed.
    `origin` is the version that wrote it, `level` its place in the LSM tree (0 to 6); `tail` is as in a
    manifest.
    """

    path: str | None
    size_bytes: int
    sha256: str | None
    origin: int
    level: int
    tail: Tail | None = None

    @classmethod
    def of(cls, entry: FileEntry) -> DatabaseFile:
        """Return a file of a snapshot."""
        return cls(entry.path, entry.size_bytes, entry.sha256, entry.origin, entry.level, entry.tail)

    def entry(self, name: str) -> FileEntry:
        """Return a stored file, which has that name in the database, as its manifest lists it."""
        assert self.path is not None and self.sha256 is not None
        return FileEntry(name, self.path, self.size_bytes, self.sha256, self.level, self.origin, self.tail)


class StoredTable(Protocol):
    """An SST in checkpoint storage, whose checksums are known."""

    @property
    def path(self) -> str:
        """Its place below the store's directory."""
        ...

    @property
    def size_bytes(self) -> int:
        """Its size."""
        ...

    @property
    def sha256(self) -> str:
        """The checksum of all of it."""
        ...

    @property
    def tail(self) -> Tail | None:
        """Its metadata; None if the writer could not find them."""
        ...


@dataclass(frozen=True)
class LocalDatabase:
    """A database at `version` with this many `keys`. Nothing in `directory` is changed: merges work on links.

    `files` are its SSTs by name in the directory, `snapshot` the manifest of the newest snapshot that it was
    made from (None: made from deltas alone).
    """

    directory: Path
    version: VersionId
    files: Mapping[str, DatabaseFile]
    keys: int
    column_families: Mapping[str, ColumnFamily]
    snapshot: Manifest | None

    @property
    def size_bytes(self) -> int:
        """Bytes of all its SSTs."""
        return sum(file.size_bytes for file in self.files.values())


def wanted_tables(manifest: Manifest | None, directory: Path) -> list[Wanted]:
    """Return the SSTs of a snapshot, under their names in the database below `directory`."""
    return [wanted_table(entry, directory / entry.name) for entry in (manifest.files if manifest else ())]


def wanted_table(table: StoredTable, target: Path) -> Wanted:
    """Return a stored SST as a file to bring to `target`."""
    tail = table.tail
    return Wanted(
        table.path,
        table.size_bytes,
        target,
        sha256=table.sha256,
        tail_bytes=tail.size_bytes if tail else 0,
        tail_sha256=tail.sha256 if tail else None,
    )


def wanted_deltas(deltas: Sequence[ChainDelta], directory: Path) -> list[Wanted]:
    """Return the deltas, under their names in checkpoint storage below `directory`."""
    return [
        Wanted(
            delta.name.path,
            delta.size_bytes,
            directory / delta.name.name,
            crc32=delta.crc32,
            names_itself=True,
        )
        for delta in deltas
    ]


def database_files(manifest: Manifest) -> dict[str, DatabaseFile]:
    """Return the files of a snapshot's database by name."""
    return {entry.name: DatabaseFile.of(entry) for entry in manifest.files}


def ingest_deltas(
    database: Database, deltas: Sequence[ChainDelta], directory: Path
) -> dict[str, DatabaseFile]:
    """Ingest the deltas in `directory`, named as in storage; return their files in the database by name."""
    paths = [directory / delta.name.name for delta in deltas]
    sizes = [path.stat().st_size for path in paths]
    try:
        names = database.ingest(paths)
    except DamagedError as error:
        named = [delta.name for delta in deltas if delta.name.name in error.message]
        if not named and len(deltas) == 1:
            named = [deltas[0].name]
        file = named[0].path if named else error.file
        message = error.message if not named else f"'{file}' is damaged: {error.message}"
        raise DamagedError(message, file=file) from error
    return {
        name: DatabaseFile(delta.name.path, size_bytes, None, delta.name.version, 0)
        for name, delta, size_bytes in zip(names, deltas, sizes, strict=True)
    }


def describe(
    database: Database, known_files: Mapping[str, DatabaseFile], version: VersionId
) -> dict[str, DatabaseFile]:
    """Return the live files of an open database by name; `version` wrote those not in `known_files`."""
    return {
        file.name: replace(known_files[file.name], level=file.level)
        if file.name in known_files
        else DatabaseFile(None, file.size_bytes, None, version.number, file.level)
        for file in database.files()
    }


def check_files(database: Database, known_files: Mapping[str, DatabaseFile]) -> None:
    """Check that a database has the files that it should have, and no others.

    RocksDB's MANIFEST may have lost its end, which RocksDB takes for a crash.

    Raises:
        DamagedError: The files differ.
    """
    database_sizes = {file.name: file.size_bytes for file in database.files()}
    expected = {name: file.size_bytes for name, file in known_files.items()}
    differing = {
        name
        for name in database_sizes.keys() | expected.keys()
        if database_sizes.get(name) != expected.get(name)
    }
    if differing:
        file = f"{database.directory}/{min(differing)}"
        raise DamagedError(
            f"the database '{database.directory}' is damaged: its list of files differs from what was put "
            f"there, in {', '.join(sorted(differing))}",
            file=file,
        )


def check_version(
    database: Database, version: VersionId, delta: DeltaName | None, storage: Storage
) -> tuple[int, Mapping[str, ColumnFamily]]:
    """Return the number of keys and the column families that an open database has by its reserved record.

    Args:
        database: The database.
        version: The version that it should have.
        delta: The newest delta that was ingested; None if the database is empty.
        storage: Checkpoint storage, for messages.

    Raises:
        DamagedError: The record is missing, or has another version.
    """
    file = f"{storage.location}/{delta.path}" if delta else str(database.directory)
    data = database.metadata()
    if data is None:
        if version.number == 0:
            return 0, {}
        raise DamagedError.of(file, "it lacks the reserved record")
    metadata = DeltaMetadata.from_json(data, file=file)
    if metadata.version_id != version:
        raise DamagedError.of(file, f"it says that it is version {metadata.version_id}, not {version}")
    return metadata.keys, metadata.column_families


def check_rows(
    database: Database, version: VersionId, keys: int, storage: Storage, *, are_current: bool
) -> None:
    """Check that a database has a row for each key, before it replaces older files.

    The records are counted by what the end of each table says.

    Args:
        database: The database.
        version: The version that it has.
        keys: The number of keys, by its reserved record.
        storage: Checkpoint storage, for messages.
        are_current: Each row is there once, as after a full merge. Otherwise older rows and removals count,
            too: how many there are is not known without reading all.

    Raises:
        DamagedError: There are fewer rows; or more, if they are current.
    """
    rows = max(0, database.entries() - 1)
    if rows < keys or (rows > keys and are_current):
        kind, all_rows = ("a full", "rows") if are_current else ("a", "rows, older ones included")
        raise DamagedError(
            f"{kind} merge of version {version.number} of '{storage.location}' has made {rows} {all_rows}, "
            f"and the record of that version says that it has {keys}: nothing is published. Run "
            "`state-store verify`",
            file=storage.location,
        )
