"""The store without a JVM: the same files, read and written from Python.

    with EmbeddedStore.open("/checkpoints/q/state/0/0") as store:
        store.put(b"key", b"value")
        store.commit()

A store opens at the newest version that can be restored. It reads its own writes at once; other programs read
them after `commit`, and `abort` drops them. Keys and values are bytes; those of Spark are encoded as Spark's
rows. Every version has an id: as in Spark's checkpoint format 2, or made by the store for checkpoint format 1
(`has_checkpoint_ids=False`), where a number alone names a version.

If two programs commit the same version, at most one succeeds; the other gets a ConflictError, and its delta a
mark: a third program may have gone on from it meanwhile. A store belongs
to one thread at a time. Do not write while a query is running: the query's next commit would be of the same
version with another id.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from state_store.core.checkpoint.lineage import (
    NO_APPLICATION,
    AttemptId,
    Lineages,
    Listing,
    ObservedAttempts,
    next_ordinal,
    refuse,
    store_attempt,
    touch,
)
from state_store.core.checkpoint.names import DeltaName, VersionId, parent_of, version_order
from state_store.core.checkpoint.stored_documents import META_KEY, Cause, ColumnFamily, DeltaMetadata
from state_store.core.deletion.lease import DEFAULT_EXPIRY_MS, Lease, read_listing
from state_store.core.engine.database import Database, DatabaseSettings, write_delta
from state_store.core.files.workspace import StoreCache, Workspace
from state_store.core.runtime import SYSTEM, Closing, Runtime
from state_store.core.snapshots import merge
from state_store.core.snapshots.context import StoreContext, workspace_of
from state_store.core.snapshots.restore import restore
from state_store.core.storage.contract import Storage
from state_store.core.storage.local_disk import local_disk_errors, of_local_disk
from state_store.core.storage.open import open_storage
from state_store.data.query.arguments import Location, checked_location
from state_store.data.rows.decoder import decode
from state_store.errors import ConflictError, InternalError, MissingError, OptionError, StateStoreError

if TYPE_CHECKING:
    import pyarrow

DEFAULT_FAMILY = "default"
EMPTY = VersionId(0, None)


class WriteBuffer:
    """Uncommitted writes to a version, which has these column families. One thread at a time.

    A full key has the two bytes of its column family in front. `last_family` is the highest id that a removed
    family had.
    """

    def __init__(
        self, version: VersionId, families: Mapping[str, ColumnFamily], last_family: int | None = None
    ) -> None:
        self._version = version
        self._last_family = -1 if last_family is None else last_family
        self._families = dict(families)
        self._values: dict[bytes, bytes | None] = {}
        self._growth: dict[int, int] = {}

    @property
    def families(self) -> dict[str, ColumnFamily]:
        """The column families, with their numbers of keys after the writes."""
        return {
            name: replace(column_family, keys=column_family.keys + self._growth.get(column_family.id, 0))
            for name, column_family in self._families.items()
        }

    @property
    def removes(self) -> int:
        """The number of removed keys, including those that did not exist."""
        return sum(value is None for value in self._values.values())

    @property
    def puts(self) -> int:
        """The number of keys that are new or have another value."""
        return len(self._values) - self.removes

    def __contains__(self, full_key: bytes) -> bool:
        return full_key in self._values

    def __getitem__(self, full_key: bytes) -> bytes | None:
        """Return the value of a written key; None if it was removed."""
        return self._values[full_key]

    def full_key(self, key: bytes, family: str) -> bytes:
        """Return the key with its column family in front. Raises MissingError for an unknown family."""
        column_family = self._families.get(family)
        if column_family is None:
            names = ", ".join(sorted(self._families))
            raise MissingError(
                f"there is no column family '{family}' in version {self._version}; there are: {names}"
            )
        return column_family.id.to_bytes(2, "big") + key

    def put(self, key: bytes, family: str, value: bytes | None, *, was_there: bool) -> None:
        """Write a key.

        Args:
            key: the key, without its column family.
            family: the name of the column family.
            value: the value; None removes the key.
            was_there: True if the key existed.

        Raises:
            MissingError: the column family is unknown.
        """
        self._values[self.full_key(key, family)] = value
        id_ = self._families[family].id
        self._growth[id_] = self._growth.get(id_, 0) + (value is not None) - was_there

    def create_family(self, name: str) -> None:
        """Make a column family, unless it exists."""
        if name not in self._families:
            self._families[name] = ColumnFamily(max(self._highest_id, self._last_family) + 1)

    @property
    def _highest_id(self) -> int:
        return max((column_family.id for column_family in self._families.values()), default=-1)

    @property
    def last_family(self) -> int | None:
        """The highest id that a column family had, if that family was removed."""
        return self._last_family if self._last_family > self._highest_id else None

    def in_order(self) -> list[tuple[bytes, bytes | None]]:
        """Return the writes in the order of their full keys; None removes."""
        return sorted(self._values.items())

    def over(
        self, stored: Iterator[tuple[bytes, bytes]], start: bytes, until: bytes
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield stored rows from `start` up to `until`, in order, with the writes so far applied."""
        return _overlaid(stored, sorted(item for item in self._values.items() if start <= item[0] < until))


def _overlaid(
    stored: Iterator[tuple[bytes, bytes]], changes: list[tuple[bytes, bytes | None]]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield two ordered sequences as one, `changes` over `stored`; None removes."""
    pending = iter(changes)
    change = next(pending, None)
    for key, value in stored:
        while change is not None and change[0] < key:
            if change[1] is not None:
                yield change[0], change[1]
            change = next(pending, None)
        if change is not None and change[0] == key:
            if change[1] is not None:
                yield key, change[1]
            change = next(pending, None)
        elif key != META_KEY:
            yield key, value
    while change is not None:
        if change[1] is not None:
            yield change[0], change[1]
        change = next(pending, None)


def after(prefix: bytes) -> bytes:
    """Return the least key after all keys with this prefix, which has a byte below 255."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1])


def _workspace_of(store: EmbeddedStore, *_others: object, **_options: object) -> Path:
    return workspace_of(store._context)


class EmbeddedStore(Closing):
    """A store at one version. Use it as a context manager, whose end removes the local files.

    Raises:
        MissingError: a version cannot be restored.
        DamagedError: a file of a version is damaged.
        OptionError: an argument has a wrong type.
        StorageError: as the storage raises it.
    """

    def __init__(
        self,
        storage: Storage,
        directory: Path,
        *,
        has_checkpoint_ids: bool = True,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self._context = StoreContext(
            storage,
            StoreCache(directory / "kept"),
            Workspace(directory / "work", runtime=runtime),
            DatabaseSettings(),
            runtime=runtime,
        )
        self._has_checkpoint_ids = has_checkpoint_ids
        self._seen: ObservedAttempts = frozenset()
        self._at_parent: ObservedAttempts | None = None
        self._attempts: set[VersionId] = set()
        self._directory = directory
        self._version = EMPTY
        self._changes = WriteBuffer(EMPTY, {})
        self._database: Database | None = None
        self._open_at(EMPTY, Listing())

    @classmethod
    @local_disk_errors()
    def open(
        cls, location: Location, *, version: VersionId | None = None, has_checkpoint_ids: bool = True
    ) -> EmbeddedStore:
        """Open a store.

        Args:
            location: its directory, a path or a URI. The first commit makes it.
            version: the version; None is the newest that can be restored.
            has_checkpoint_ids: False for a store of a query with checkpoint format 1.

        Raises:
            OptionError: the directory is the checkpoint of a query, not of one of its stores.
            MissingError: the version cannot be restored.
        """
        _check_version(version)
        text = checked_location(location, "location")
        store = cls(
            open_storage(text),
            Path(tempfile.mkdtemp(prefix="state-store-")),
            has_checkpoint_ids=has_checkpoint_ids,
        )
        try:
            store.load(version)
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Drop the changes since the last commit, and the local files."""
        if self._database is not None:
            self._database.close()
            self._database = None
        self._context.storage.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def version(self) -> VersionId:
        """The version that the uncommitted writes build on; version 0 is empty."""
        return self._version

    @property
    def families(self) -> dict[str, ColumnFamily]:
        """The column families with their numbers of keys, uncommitted writes included."""
        return self._changes.families

    def versions(self) -> list[VersionId]:
        """Return the versions that can be restored and whose commit succeeded, oldest first."""
        return _counted(read_listing(self._context.storage))

    @of_local_disk(_workspace_of)
    def load(self, version: VersionId | None = None) -> VersionId:
        """Go to another version, by default to the newest; changes since the last commit are dropped.

        Raises:
            MissingError: the version cannot be restored.
            OptionError: the directory is the checkpoint of a query.
        """
        _check_version(version)
        listing = read_listing(self._context.storage)
        if version is None:
            if not listing.deltas and not listing.snapshots:
                self._refuse_checkpoint()
            version = newest_of(listing)
        self._open_at(version, listing)
        return self._version

    # ---- rows --------------------------------------------------------------------------------------------

    def get(self, key: bytes, family: str = DEFAULT_FAMILY) -> bytes | None:
        """Return the value of a key; None without one. Raises MissingError for an unknown column family."""
        key = _checked_bytes(key, "key")
        full = self._changes.full_key(key, family)
        return self._changes[full] if full in self._changes else self._open.get(full)

    def put(self, key: bytes, value: bytes, family: str = DEFAULT_FAMILY) -> None:
        """Set the value of a key. Raises MissingError for an unknown column family."""
        key, value = _checked_bytes(key, "key"), _checked_bytes(value, "value")
        self._changes.put(key, family, value, was_there=self.get(key, family) is not None)

    def remove(self, key: bytes, family: str = DEFAULT_FAMILY) -> None:
        """Remove a key, which need not exist. Raises MissingError for an unknown column family."""
        key = _checked_bytes(key, "key")
        self._changes.put(key, family, None, was_there=self.get(key, family) is not None)

    def scan(
        self, start: bytes = b"", end: bytes | None = None, family: str = DEFAULT_FAMILY
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return the keys from `start` up to `end` (excluded; None: all) in order, with their values.

        The iterator does not see later writes.
        """
        start = _checked_bytes(start, "start")
        end = None if end is None else _checked_bytes(end, "end")
        prefix = self._changes.full_key(b"", family)
        until = prefix + end if end is not None else after(prefix)
        stored = self._open.scan(prefix + start, until)
        return ((key[2:], value) for key, value in self._changes.over(stored, prefix + start, until))

    def prefix(self, prefix: bytes, family: str = DEFAULT_FAMILY) -> Iterator[tuple[bytes, bytes]]:
        """Return the keys that start with `prefix`, in order, with their values."""
        prefix = _checked_bytes(prefix, "prefix")
        return self.scan(prefix, after(prefix) if prefix.strip(b"\xff") else None, family)

    def to_arrow(
        self,
        family: str = DEFAULT_FAMILY,
        *,
        key: pyarrow.Schema | None = None,
        value: pyarrow.Schema | None = None,
    ) -> pyarrow.Table:
        """Return all rows in the order of their keys.

        Args:
            family: the column family.
            key: the schema of Spark's rows in keys; None: one column `key` of bytes.
            value: the schema of Spark's rows in values; None: one column `value` of bytes.
        """
        import pyarrow

        table = to_table(self.scan(family=family))
        columns: dict[str, pyarrow.Array] = {}
        for name, schema in (("key", key), ("value", value)):
            if schema is None:
                columns[name] = table[name]
            else:
                batch = decode(table[name].to_pylist(), schema)
                columns |= dict(zip(schema.names, batch.columns, strict=True))
        return pyarrow.table(columns)

    def create_family(self, name: str) -> None:
        """Make a column family, unless it exists."""
        self._changes.create_family(name)

    # ---- versions ----------------------------------------------------------------------------------------

    @of_local_disk(_workspace_of)
    def commit(self) -> VersionId:
        """Commit the writes durably as the next version, and return it.

        Raises:
            ConflictError: another program has committed that version, or a later one, since this store was
                loaded. The writes are kept; `load` opens the other version and drops them.
        """
        version = VersionId(self._version.number + 1, self._new_id())
        parent = parent_of(self._version)
        families, puts, removes = self.families, self._changes.puts, self._changes.removes
        keys = sum(column_family.keys for column_family in families.values())
        metadata = DeltaMetadata(
            version.number,
            version.checkpoint_id,
            parent,
            keys,
            puts,
            removes,
            families,
            merge.WRITER,
            self._changes.last_family,
        )
        with self._context.workspace.scratch() as scratch:
            path = scratch / "delta.sst"
            _, crc = write_delta(path, self._changes.in_order(), metadata)
            name = DeltaName(version.number, version.checkpoint_id, parent, crc)
            seen = self._stored(path, name)
            self._open.ingest([path])
        self._version, self._committed, self._last_family = version, families, metadata.last_family
        self._seen, self._at_parent = seen, None
        self._attempts.clear()
        self.abort()
        if merge.sorted_runs(self._open.files()) > merge.MAX_RUNS:
            with suppress(StateStoreError):  # the commit has been made, and the next one tries again
                self._open.compact_runs()  # each delta is an open file that every look-up reads
        return version

    def abort(self) -> None:
        """Drop the changes since the last commit."""
        self._changes = WriteBuffer(self._version, self._committed, self._last_family)

    @of_local_disk(_workspace_of)
    def checkpoint(self, *, full: bool = False) -> merge.Published:
        """Publish a snapshot of the committed version.

        Args:
            full: True makes a snapshot that shares no file with another.
        """
        base = restore(self._context, self._version).base
        try:
            merged = merge.merge(
                self._context, base, [], self._version, merge.FULL if full else merge.INCREMENTAL
            ).base
        finally:
            shutil.rmtree(base.directory, ignore_errors=True)
        try:
            lease = Lease(self._context.storage, expiry_ms=DEFAULT_EXPIRY_MS, runtime=self._context.runtime)
            return merge.publish(
                self._context, merged, lease, full=full, cause=Cause("asked for by the program")
            )
        finally:
            shutil.rmtree(merged.directory, ignore_errors=True)

    def _refuse_checkpoint(self) -> None:
        """Raise OptionError if the directory is the checkpoint of a query."""
        storage = self._context.storage
        if storage.list_files("offsets") or storage.list_files("commits") or storage.exists("metadata"):
            raise OptionError(
                f"'{storage.location}' is the checkpoint of a query: its stores are below it, such as "
                f"'{storage.location}/state/0/0'",
                file=storage.location,
                option="location",
            )

    def _stored(self, local: Path, name: DeltaName) -> ObservedAttempts:
        """Store the delta of a commit; return the attempts above its version.

        A delta that does not count stays, with a mark: another program may have gone on from it already.

        Raises:
            ConflictError: another program has committed since the load.
        """
        storage = self._context.storage
        for before in self._attempts:  # a commit that failed may have been stored nevertheless
            refuse(storage, before, "its program has made the commit again")
        for rival in sorted((self._at_parent or frozenset()) - {self._version}, key=version_order):
            refuse(storage, rival, f"a program goes on from '{self._version}'")

        def upload() -> None:
            self._attempts.add(name.version_id)
            touch(local)
            storage.upload(local, name.path)

        try:
            return store_attempt(storage, name, self._seen | self._attempts, upload, self._at_parent)
        except ConflictError as error:
            raise ConflictError(
                f"version {name.version} of '{storage.location}' was committed by another program meanwhile: "
                f"{error.message}",
                file=error.file,
            ) from error

    def _open_at(self, version: VersionId, listing: Listing) -> None:
        """Open a version; what came after the listing is not known to a commit, which will find it."""
        base = restore(self._context, version).base
        if self._database is not None:
            self._database.close()
            shutil.rmtree(self._database.directory, ignore_errors=True)
        self._database = Database(base.directory, self._context.settings)
        self._committed = dict(base.column_families) or {DEFAULT_FAMILY: ColumnFamily(0)}
        record = self._database.metadata()
        newest = None if record is None else DeltaMetadata.from_json(record, file=str(base.directory))
        self._last_family = None if newest is None else newest.last_family
        self._version, self._seen = base.version, listing.attempts.after(base.version.number)
        self._attempts.clear()
        self._at_parent = listing.attempts.at(base.version.number) if self._has_checkpoint_ids else None
        self.abort()

    def _new_id(self) -> str:
        if self._has_checkpoint_ids:
            return self._context.runtime.uuid()
        ordinal = next_ordinal(self._seen | self._attempts, self._version.number + 1)
        return str(AttemptId(ordinal, NO_APPLICATION, 0, self._context.runtime.unique(4)))

    @property
    def _open(self) -> Database:
        if self._database is None:
            raise InternalError("the store is closed")
        return self._database


def newest_of(listing: Listing) -> VersionId:
    """Return the newest version that can be restored and whose commit was not refused; 0 without one."""
    versions = _counted(listing)
    newest = max((version.number for version in versions), default=0)
    resolved = listing.attempts.resolve(newest)
    candidates = [version for version in versions if version.number == newest] or [EMPTY]
    return resolved if resolved in candidates else listing.attempts.likeliest(candidates)


def _counted(listing: Listing) -> list[VersionId]:
    """Return the versions that can be restored, oldest first, without those whose commit was refused.

    Nor does a version count that builds on a refused one in whose place another counts: its program has not
    looked yet, or has died before.
    """
    refused = {mark.version_id for mark in listing.refused}
    lineages = Lineages(listing.deltas, listing.snapshots)
    counted: list[VersionId] = []
    replaced: set[VersionId] = set()
    for version in lineages.restorable():
        delta = lineages.delta(version)
        parent = None if delta is None else delta.builds_on
        is_replaced = parent in refused and any(other.number == parent.number for other in counted)
        if parent in replaced or is_replaced:
            replaced.add(version)
        elif version not in refused:
            counted.append(version)
    return counted


def _checked_bytes(value: bytes, name: str) -> bytes:
    """Return an argument that is bytes. Raises OptionError for other types, such as a text."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise OptionError(f"{name} is bytes, not {value!r}", option=name)
    return bytes(value)


def _check_version(version: VersionId | None) -> None:
    if version is not None and not isinstance(version, VersionId):
        raise OptionError(f"version is a VersionId, not {version!r}", option="version")


def to_table(pairs: Iterable[tuple[bytes, bytes]]) -> pyarrow.Table:
    """Return keys and values in their bytes: columns `key` and `value` of type large_binary."""
    import pyarrow

    rows = list(pairs)
    return pyarrow.table(
        {
            "key": pyarrow.array([key for key, _ in rows], pyarrow.large_binary()),
            "value": pyarrow.array([value for _, value in rows], pyarrow.large_binary()),
        }
    )
