"""The chain of a version: the snapshot and deltas that a restore reads, and older files before them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from state_store.core.checkpoint.names import SnapshotName, VersionId
from state_store.core.checkpoint.stored_documents import FULL
from state_store.core.codec import INLINE, JsonObject, json_names
from state_store.data.dataset.found import FoundStore
from state_store.data.dataset.html import table
from state_store.data.dataset.moments import moment_or_unknown
from state_store.data.dataset.reading.versions import version_number
from state_store.data.jobs.workers import on_stores
from state_store.data.query import CommitTimes, Filter, ProgressOption, Query, StoreKey, reporting
from state_store.data.query.arguments import Location, counted
from state_store.errors import MissingError


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

    def __init__(self, found: Mapping[StoreKey, StoreChain]) -> None:
        self._found = dict(sorted(found.items()))

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
        found = on_stores(query, keys, lambda key, storage, _: FoundStore.read(key, storage), meter=meter)
    times = query.logs.end_times()
    return Chains(
        {store.key: StoreChain(store.key, tuple(_links(store, committed, times))) for store in found}
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
