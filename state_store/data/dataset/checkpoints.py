"""The versions of a query's stores, as their files are read: the restorable ones, and the chain of one.

1. `FoundStore` is the contents of a store, read once, and the version that Spark committed.
2. `checkpoints` says of each restorable version where it starts, its files, and the bytes that it added.
3. `chain` says of one version which snapshot and deltas a restore reads, and which older files are before.
4. `files` says of each file which checkpoints need it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from state_store.core.checkpoint.lineage import Plan, new_bytes
from state_store.core.checkpoint.names import DeltaName, SnapshotName, VersionId, origin_of
from state_store.core.checkpoint.registry import REASONS, Registry, reason_of
from state_store.core.checkpoint.stored_documents import FULL, Manifest
from state_store.core.codec import INLINE, OMITTED, JsonObject, fields_to_json, json_names
from state_store.core.deletion.lease import StoreContents
from state_store.core.storage import Storage
from state_store.data.dataset.moments import latest, moment_or_unknown, table
from state_store.data.dataset.partitions import version_number
from state_store.data.jobs import on_stores, workers
from state_store.data.query import CommitTimes, Filter, Progress, ProgressOption, Query, StoreKey, reporting
from state_store.data.query.arguments import Location, check_flag, check_number, counted
from state_store.errors import ConflictError, MissingError

_NAMED_STARTS = 2
"""Snapshots of one kind that a line names one by one."""

HEADINGS = (
    "version",
    "made",
    "stores",
    "wrote",
    "starts from",
    "deltas",
    "files",
    "bytes",
    "new bytes",
    "why",
)
"""Headings of the fields of a `Line`."""


@dataclass(frozen=True)
class FoundStore:
    """The contents of a store at one moment.

    While the query runs, files appear and disappear between two readings.
    """

    key: StoreKey
    contents: StoreContents

    @classmethod
    def read(cls, key: StoreKey, storage: Storage) -> FoundStore:
        """Read the store's directory. Raises as `StoreContents.read`."""
        return cls(key, StoreContents.read(storage))

    @cached_property
    def registry(self) -> Registry:
        """The checkpoints that need each file, over all versions."""
        return self.contents.registry()

    def restorable(self, target: VersionId | None) -> VersionId | None:
        """Return `target` if it can be restored, else None.

        A version without an id stands for the attempt that its number resolves to.

        Raises:
            ConflictError: several attempts have that number, and nothing says which one Spark committed.
        """
        if target is None:
            return None
        same = [
            version
            for version in self.registry.checkpoints()
            if version.number == target.number and target.checkpoint_id in (None, version.checkpoint_id)
        ]
        if len(same) > 1:
            resolved = self.contents.listing.attempts.resolve(target.number)
            if resolved in same:
                return resolved
            raise ConflictError(
                f"{len(same)} attempts of version {target.number} are in store {self.key}, and Spark's "
                "commit log has no id that says which one it took"
            )
        return same[0] if same else None

    def plan(self, version: VersionId) -> Plan:
        """Return the files that a restore of `version` reads."""
        return self.contents.lineages.plan(version)

    def delta(self, version: VersionId) -> DeltaName | None:
        """Return the delta that made `version`; None if it is gone."""
        return next((delta for delta in self.contents.listing.deltas if delta.version_id == version), None)

    def made_ms(self, version: VersionId, times: CommitTimes, *, is_committed: bool = True) -> int | None:
        """Return when `version` was committed or, if Spark's log has forgotten it, made.

        Args:
            version: a version that can be restored.
            times: the times of the query's batches.
            is_committed: Spark has committed it.

        Returns:
            Milliseconds since 1970 UTC; None if nothing says it but the time of a copied file.
        """
        delta, name = self.delta(version), SnapshotName(*version)
        entry = self.contents.entries.get(delta.path if delta else name.path)
        made_ms = times.of(version.number, entry.modified_ms if entry else 0, is_committed=is_committed)
        own = self.contents.manifests.get(name)
        return own.created_ms if made_ms is None and delta is None and own is not None else made_ms

    def manifest(self, version: VersionId) -> Manifest | None:
        """Return the manifest of the snapshot that a restore of `version` starts from; None without one."""
        snapshot = self.plan(version).snapshot
        return None if snapshot is None else self.contents.manifests[snapshot]

    def new_bytes(self, version: VersionId) -> int:
        """Return `lineage.new_bytes` of a version."""
        own, delta = self.contents.restorable_snapshots.get(SnapshotName(*version)), self.delta(version)
        return new_bytes(own, self.contents.listing.deltas[delta] if delta else None) or 0


class Start(NamedTuple):
    """The snapshot that a restore starts from: `merge` or `full`, and its version."""

    kind: str
    version: int


@json_names(key=OMITTED, version=INLINE, start="snapshot")
@dataclass(frozen=True)
class Checkpoint(JsonObject):
    """A restorable version of a store.

    `made_ms` is the time of Spark's commit by the storage's clock, in ms since 1970 UTC, or the time of the
    version's file if Spark's log lacks the batch, or None if that file is a copy. `wrote` says which files
    were made at the version: `delta`, `merge`, `full`; `reason` is the cause of the snapshot among these, if
    a file has it.
    """

    key: StoreKey
    version: VersionId
    committed: bool
    made_ms: int | None
    wrote: tuple[str, ...]
    start: Start | None
    deltas: int
    files: int
    bytes: int
    new_bytes: int
    reason: str | None = None


@dataclass(frozen=True)
class Line:
    """A version summed over several stores.

    `made_ms` and `deltas` are the maximum over the stores; `wrote`, `starts_from` and `reasons` list the
    distinct values.
    """

    version: int
    made_ms: int | None
    stores: int
    wrote: str
    starts_from: str
    deltas: int
    files: int
    size_bytes: int
    new_bytes: int
    reasons: str


class Checkpoints(Mapping[StoreKey, Sequence[Checkpoint]]):
    """The restorable versions of each store, oldest first. Notebooks show a line for each version."""

    def __init__(self, query: Query, checkpoints: Mapping[StoreKey, Sequence[Checkpoint]]) -> None:
        self.query = query
        self._found = dict(sorted(checkpoints.items()))

    def __getitem__(self, key: StoreKey) -> Sequence[Checkpoint]:
        return self._found[key]

    def __iter__(self) -> Iterator[StoreKey]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def groups(self, *, each: bool = False) -> Iterator[tuple[str, list[Line]]]:
        """Yield headings, each with the versions that Spark has committed.

        Args:
            each: False sums over the partitions of a store; True has a group for each partition.
        """
        names = {operator.id: self.query.title(operator) for operator in self.query.operators}
        if each:
            for key in self:
                yield f"store {key} ({names[key.operator]})", list(self._lines([key]))
            return
        by_store = sorted(self, key=lambda key: (key.operator, key.name, key.partition))
        for (number, name), members in itertools.groupby(by_store, key=lambda key: (key.operator, key.name)):
            keys = list(members)
            heading = f"operator {number} ({names[number]}), store {name}, {_partitions(len(keys))}"
            yield heading, list(self._lines(keys))

    def _lines(self, keys: Iterable[StoreKey]) -> Iterator[Line]:
        members = [checkpoint for key in keys for checkpoint in self[key] if checkpoint.committed]
        members.sort(key=lambda checkpoint: checkpoint.version.number)
        for version, group in itertools.groupby(members, key=lambda checkpoint: checkpoint.version.number):
            same = list(group)
            yield Line(
                version,
                latest(checkpoint.made_ms for checkpoint in same),
                len(same),
                _tally(kind for checkpoint in same for kind in checkpoint.wrote),
                _tally(_starts([checkpoint.start for checkpoint in same])),
                max(checkpoint.deltas for checkpoint in same),
                sum(checkpoint.files for checkpoint in same),
                sum(checkpoint.bytes for checkpoint in same),
                sum(checkpoint.new_bytes for checkpoint in same),
                _tally(checkpoint.reason for checkpoint in same if checkpoint.reason is not None),
            )

    def __repr__(self) -> str:
        numbers = [checkpoint.version.number for versions in self.values() for checkpoint in versions]
        span = f", versions {min(numbers)} to {max(numbers)}" if numbers else ""
        return f"Checkpoints({counted(len(self), 'store')}, {len(numbers)} that can be restored{span})"

    def _repr_html_(self) -> str:
        tables = []
        for heading, lines in self.groups():
            rows = [
                (
                    line.version,
                    moment_or_unknown(line.made_ms),
                    line.stores,
                    line.wrote,
                    line.starts_from,
                    line.deltas,
                    line.files,
                    line.size_bytes,
                    line.new_bytes,
                    line.reasons,
                )
                for line in lines
            ]
            tables.append(table(heading, HEADINGS, rows))
        return "".join(tables)


def checkpoints(
    checkpoint: Location,
    operator: int | None = None,
    partition: int | None = None,
    store: str | None = None,
    *,
    progress: ProgressOption = None,
) -> Checkpoints:
    """Return the versions of a query's stores that can be restored.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        operator: only the stores of this stateful operator.
        partition: only the stores of this partition.
        store: only this store: a side of a join, a state variable, or Spark's name of a store.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.

    Raises:
        MissingError: there is no such query or store.
        OptionError: an argument is of a wrong type, or another provider keeps the query's state.
        StateStoreError: as the files and the storage are.
    """
    query = Query.open(checkpoint)
    committed = query.committed()
    keys = query.stores(Filter(operator, partition, store))
    with reporting(progress, "listed", len(keys)) as meter:
        stores = on_stores(query, keys, lambda key, storage, _: FoundStore.read(key, storage), meter=meter)
    times = query.logs.end_times()
    return Checkpoints(
        query, {store.key: _history(store, committed.get(store.key), times) for store in stores}
    )


def _history(store: FoundStore, committed: VersionId | None, times: CommitTimes) -> list[Checkpoint]:
    """Return all restorable versions of a store, oldest first.

    `committed` is the version that Spark committed last; the versions on its lineage are marked as committed.
    """
    newest = store.restorable(committed)
    lineage = set(store.contents.lineages.history(newest)) if newest else set()
    return [
        _checkpoint(store, version, version in lineage, times) for version in store.registry.checkpoints()
    ]


def _checkpoint(store: FoundStore, version: VersionId, committed: bool, times: CommitTimes) -> Checkpoint:
    files = [file for file in store.registry.files(version) if not file.is_snapshot]
    manifest = store.manifest(version)
    delta, own = store.delta(version), store.contents.manifests.get(SnapshotName(*version))
    wrote = (["delta"] if delta else []) + ([_kind(own.kind)] if own else [])
    return Checkpoint(
        store.key,
        version,
        committed,
        store.made_ms(version, times, is_committed=committed),
        tuple(wrote),
        None if manifest is None else Start(_kind(manifest.kind), manifest.version),
        len(store.plan(version).deltas),
        len(files),
        sum(file.size_bytes for file in files),
        store.new_bytes(version),
        None if own is None else own.reason,
    )


def _kind(kind: str) -> str:
    return "full" if kind == FULL else "merge"


def _partitions(count: int) -> str:
    return counted(count, "partition")


def _starts(starts: Sequence[Start | None]) -> Iterator[str]:
    """Yield the snapshots that restores start from; those of one kind as a span if there are many."""
    versions: dict[str, list[int]] = {}
    for start in starts:
        if start is not None:
            versions.setdefault(start.kind, []).append(start.version)
    for start in starts:
        if start is None:
            yield "nothing"
        elif len(set(versions[start.kind])) <= _NAMED_STARTS:
            yield f"{start.kind} {start.version}"
        else:
            yield f"{start.kind} {min(versions[start.kind])}-{max(versions[start.kind])}"


def _tally(words: Iterable[str]) -> str:
    """Return the distinct words in order of appearance, separated by commas."""
    return ", ".join(dict.fromkeys(words))


@json_names(version=INLINE)
@dataclass(frozen=True)
class Link(JsonObject):
    """A version in the history of the requested one, with its files.

    `is_read` says that a restore of the requested version reads a file of this one. `made_ms` is its time by
    the storage's clock, in ms since 1970 UTC, None if only a copied file says it; `reason` is the cause of
    the snapshot, if the snapshot has it.
    """

    version: VersionId
    made_ms: int | None
    delta_bytes: int | None
    snapshot: str | None
    snapshot_files: int
    snapshot_bytes: int
    is_read: bool
    reason: str | None = None


@dataclass(frozen=True, repr=False)
class StoreChain:
    """The chain of one store, newest version first. Notebooks show it as a table."""

    key: StoreKey
    links: tuple[Link, ...]

    @property
    def version(self) -> int:
        """The number of the version."""
        return self.links[0].version.number

    @property
    def base(self) -> Link | None:
        """The snapshot that a restore starts from; None if it starts from an empty store."""
        return next((link for link in self.links if link.is_read and link.snapshot is not None), None)

    @property
    def deltas(self) -> tuple[Link, ...]:
        """The deltas that a restore applies to the base."""
        return tuple(link for link in self.links if link.is_read and link.snapshot is None)

    @property
    def delta_bytes(self) -> int:
        """Bytes of the deltas that a restore reads."""
        return sum(link.delta_bytes or 0 for link in self.deltas)

    @property
    def size_bytes(self) -> int:
        """Bytes that a restore reads."""
        return self.delta_bytes + (self.base.snapshot_bytes if self.base else 0)

    def __repr__(self) -> str:
        return f"StoreChain({self})"

    def __str__(self) -> str:
        start = f"snapshot {self.base.version.number}" if self.base else "nothing"
        return (
            f"store {self.key}, version {self.version}: from {start} and {counted(len(self.deltas), 'delta')}"
        )

    def _repr_html_(self) -> str:
        rows = [
            (
                link.version.number,
                moment_or_unknown(link.made_ms),
                "yes" if link.is_read else "",
                link.delta_bytes,
                link.snapshot and f"{link.snapshot}, {counted(link.snapshot_files, 'file')}",
                link.snapshot_bytes if link.snapshot else None,
            )
            for link in self.links
        ]
        headings = ("version", "made", "read by a restore", "bytes of the delta", "snapshot", "its bytes")
        return table(str(self), headings, rows)


class Chains(Mapping[StoreKey, StoreChain]):
    """The chains of some stores, by store. Notebooks show a line for each."""

    def __init__(self, chains: Mapping[StoreKey, StoreChain]) -> None:
        self._found = dict(sorted(chains.items()))

    def __getitem__(self, key: StoreKey) -> StoreChain:
        return self._found[key]

    def __iter__(self) -> Iterator[StoreKey]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @cached_property
    def largest(self) -> StoreChain:
        """The chain with the largest restore, which the tasks of a batch wait for."""
        return max(self._found.values(), key=lambda chain: chain.size_bytes)

    def __repr__(self) -> str:
        largest = f", the largest is {self.largest}" if self else ""
        return f"Chains({counted(len(self), 'store')}{largest})"

    def _repr_html_(self) -> str:
        rows = [
            (
                key,
                chain.version,
                chain.base and chain.base.version.number,
                len(chain.deltas),
                chain.size_bytes,
            )
            for key, chain in self._found.items()
        ]
        headings = ("store", "version", "from snapshot", "deltas", "bytes that a restore reads")
        return table(counted(len(rows), "store"), headings, rows)


def chain(
    checkpoint: Location,
    operator: int | None = None,
    partition: int | None = None,
    store: str | None = None,
    *,
    version: int | None = None,
    progress: ProgressOption = None,
) -> Chains:
    """Return the files that make a version of a query's stores.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        operator: only the stores of this stateful operator.
        partition: only the stores of this partition.
        store: only this store: a side of a join, a state variable, or Spark's name of a store.
        version: the number of the version. Default: the version that Spark committed last.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.

    Raises:
        MissingError: there is no such query, version or store.
        OptionError: an argument is of a wrong type, or another provider keeps the query's state.
        StateStoreError: as the files and the storage are.
    """
    query = Query.open(checkpoint)
    committed = query.committed(None if version is None else version_number(query, version) - 1)
    keys = query.stores(Filter(operator, partition, store))
    with reporting(progress, "listed", len(keys)) as meter:
        stores = on_stores(query, keys, lambda key, storage, _: FoundStore.read(key, storage), meter=meter)
    times = query.logs.end_times()
    return Chains(
        {store.key: StoreChain(store.key, tuple(_links(store, committed, times))) for store in stores}
    )


def _links(store: FoundStore, committed: Mapping[StoreKey, VersionId], times: CommitTimes) -> Iterator[Link]:
    """Yield the versions in the history of the committed one, newest first."""
    version = store.restorable(committed.get(store.key))
    if version is None:
        raise MissingError(f"store {store.key} has no version that Spark has committed")
    plan = store.plan(version)
    read = {delta.version_id for delta in plan.deltas}
    for at in store.contents.lineages.history(version):
        delta, name = store.delta(at), SnapshotName(*at)
        manifest = store.contents.restorable_snapshots.get(name)
        yield Link(
            at,
            store.made_ms(at, times),
            None if delta is None else store.contents.listing.deltas[delta],
            None if manifest is None else "full" if manifest.kind == FULL else "merge",
            0 if manifest is None else len(manifest.files),
            0 if manifest is None else sum(file.size_bytes for file in manifest.files),
            at in read or name == plan.snapshot,
            None if manifest is None else manifest.reason,
        )


@dataclass(frozen=True)
class HeldFile:
    """A file of a store and the checkpoints that keep it alive.

    Attributes:
        key: the store.
        path: its path below the store's directory.
        bytes: its size.
        origin: the version that it was written at.
        holders: the versions that can be restored and need it; none: no checkpoint needs it.
        reason: why it is there, one of `REASONS`.
    """

    key: StoreKey
    path: str
    bytes: int
    origin: int
    holders: tuple[VersionId, ...]
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return the file as values for JSON."""
        return {
            "path": self.path,
            "bytes": self.bytes,
            "origin": self.origin,
            "count": len(self.holders),
            "reason": self.reason,
            "holders": [fields_to_json(holder) for holder in self.holders],
        }


class Files(Mapping[StoreKey, "tuple[HeldFile, ...]"]):
    """The files of each store, by path. Notebooks show a line for each file."""

    def __init__(self, checkpoint: str, files: Mapping[StoreKey, tuple[HeldFile, ...]]) -> None:
        self.checkpoint = checkpoint
        self._found = dict(sorted(files.items()))

    def __getitem__(self, key: StoreKey) -> tuple[HeldFile, ...]:
        return self._found[key]

    def __iter__(self) -> Iterator[StoreKey]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def all(self) -> tuple[HeldFile, ...]:
        """The files of all stores, one after the other."""
        return tuple(file for files in self._found.values() for file in files)

    def by_reason(self) -> dict[str, tuple[int, int]]:
        """Return the bytes and the number of the files of all stores, by the reason why they are there."""
        sizes_by_reason = {
            reason: [file.bytes for file in self.all if file.reason == reason] for reason in REASONS
        }
        return {reason: (sum(sizes), len(sizes)) for reason, sizes in sizes_by_reason.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the files as values for JSON."""
        return {
            "checkpoint": self.checkpoint,
            "stores": [
                {**fields_to_json(key), "files": [file.to_json() for file in files]}
                for key, files in self.items()
            ],
        }

    def __repr__(self) -> str:
        size_bytes = sum(file.bytes for file in self.all)
        files = counted(len(self.all), "file")
        return f"Files({counted(len(self), 'store')}: {files}, {size_bytes} bytes)"

    def _repr_html_(self) -> str:
        rows = [
            (
                file.key,
                file.path,
                file.bytes,
                file.origin,
                ", ".join(str(holder.number) for holder in file.holders),
            )
            for file in self.all
        ]
        return table(repr(self), ("store", "file", "bytes", "written at", "needed by versions"), rows)


def files(
    checkpoint: Location,
    operator: int | None = None,
    partition: int | None = None,
    store: str | None = None,
    *,
    unneeded: bool = False,
    needed_by: int | None = None,
    spark: Any = None,
    progress: ProgressOption = None,
) -> Files:
    """Return the files of a query's state with the restorable checkpoints that need each.

    A file that no checkpoint needs was written by an attempt that Spark never committed, or waits for the
    next clean-up.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        operator: only the stores of this stateful operator.
        partition: only the stores of this partition.
        store: only this store: a side of a join, a state variable, or Spark's name of a store.
        unneeded: only files that no checkpoint needs.
        needed_by: only files that this version needs.
        spark: a SparkSession, whose executors then do the work, a task a store; None: this process.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.

    Raises:
        MissingError: there is no such query or store, or the version cannot be restored.
        OptionError: another provider keeps the query's state, or `needed_by` is not a number.
    """
    check_number("needed_by", needed_by, optional=True)
    check_flag("unneeded", unneeded)
    query = Query.open(checkpoint)
    keys = query.stores(Filter(operator, partition, store))
    tasks = workers(spark)
    with reporting(progress, "listed", len(keys)) as meter:
        files_by_store = on_stores(query, keys, _held_in, meter=meter, workers=tasks)
    restorable = sorted(set().union(*(numbers for numbers, _ in files_by_store)))
    if needed_by is not None and needed_by not in restorable:
        numbers_text = runs(restorable) or "none"
        raise MissingError(f"version {needed_by} cannot be restored; versions that can be: {numbers_text}")

    def is_chosen(file: HeldFile) -> bool:
        if unneeded and file.holders:
            return False
        return needed_by is None or any(version.number == needed_by for version in file.holders)

    return Files(
        query.location,
        {
            key: tuple(file for file in held if is_chosen(file))
            for key, (_, held) in zip(keys, files_by_store, strict=True)
        },
    )


def _held_in(
    key: StoreKey, storage: Storage, _meter: Progress | None
) -> tuple[set[int], tuple[HeldFile, ...]]:
    """Return the numbers of the versions of a store that can be restored, and its files."""
    store = FoundStore.read(key, storage)
    return {version.number for version in store.registry.checkpoints()}, tuple(held_files(store))


def held_files(store: FoundStore) -> Iterator[HeldFile]:
    """Yield every SST file and snapshot archive of a store, by path."""
    sizes = store.contents.listing.sst_bytes()
    sizes.update({snapshot.path: size for snapshot, size in store.contents.listing.snapshots.items()})
    origins = {snapshot.path: snapshot.version for snapshot in store.contents.listing.snapshots}
    newest = max((version.number for version in store.registry.checkpoints()), default=0)
    for path in sorted(sizes):
        origin = origins[path] if path in origins else origin_of(path)
        holders = tuple(store.registry.holders(path))
        by_newest = any(holder.number == newest for holder in holders)
        reason = reason_of(path, by_newest=by_newest, by_older=bool(holders))
        yield HeldFile(store.key, path, sizes[path], origin, holders, reason)


def runs(versions: Sequence[int]) -> str:
    """Return ascending numbers with runs folded: `3-7 9`."""
    parts: list[list[int]] = []
    for version in versions:
        if parts and version == parts[-1][-1] + 1:
            parts[-1].append(version)
        else:
            parts.append([version])
    return " ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
