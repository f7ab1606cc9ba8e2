"""What a version is made of: the snapshot and the deltas that a restore reads, and what there was before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from state_store.core.checkpoint.manifest import FULL
from state_store.core.checkpoint.names import SnapshotName, VersionId
from state_store.data.dataset.found import FoundStore
from state_store.data.dataset.html import moment, table
from state_store.data.dataset.versions import version_number
from state_store.data.query import Filter, Query, StoreKey
from state_store.errors import MissingError


@dataclass(frozen=True)
class Link:
    """A version on the way to the one that is asked for: what a restore reads of it (nothing: only older
    versions need it), and what else there is. `made_ms` is by the storage's clock, since 1970 UTC; `reason`
    is why the snapshot was made, if it says so.
    """

    version: VersionId
    made_ms: int
    delta_bytes: int | None
    snapshot: str | None
    snapshot_files: int
    snapshot_bytes: int
    is_read: bool
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version.number,
            "id": self.version.checkpoint_id,
            "made_ms": self.made_ms,
            "delta_bytes": self.delta_bytes,
            "snapshot": self.snapshot,
            "snapshot_files": self.snapshot_files,
            "snapshot_bytes": self.snapshot_bytes,
            "is_read": self.is_read,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class StoreChain:
    """The chain of one store, newest version first. Notebooks show it as a table."""

    key: StoreKey
    links: tuple[Link, ...]

    @property
    def version(self) -> int:
        return self.links[0].version.number

    @property
    def base(self) -> Link | None:
        """The snapshot that a restore starts from; None: it starts from nothing."""
        return next((one for one in self.links if one.is_read and one.snapshot is not None), None)

    @property
    def deltas(self) -> tuple[Link, ...]:
        """The deltas that a restore reads after that."""
        return tuple(one for one in self.links if one.is_read and one.snapshot is None)

    @property
    def delta_bytes(self) -> int:
        return sum(one.delta_bytes or 0 for one in self.deltas)

    @property
    def size_bytes(self) -> int:
        """What a restore reads."""
        return self.delta_bytes + (self.base.snapshot_bytes if self.base else 0)

    def __str__(self) -> str:
        start = f"snapshot {self.base.version.number}" if self.base else "nothing"
        return f"store {self.key}, version {self.version}: from {start} and {len(self.deltas)} deltas"

    def _repr_html_(self) -> str:
        rows = [
            (
                one.version.number,
                moment(one.made_ms),
                "yes" if one.is_read else "",
                one.delta_bytes,
                one.snapshot and f"{one.snapshot}, {one.snapshot_files} files",
                one.snapshot_bytes if one.snapshot else None,
            )
            for one in self.links
        ]
        headings = ("version", "made", "read by a restore", "bytes of the delta", "snapshot", "its bytes")
        return table(str(self), headings, rows)


class Chains(Mapping[StoreKey, StoreChain]):
    """Chains by store. Notebooks show a line for each."""

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
        """The one of which a restore reads most: the tasks of a batch wait for it."""
        return max(self._found.values(), key=lambda one: one.size_bytes)

    def _repr_html_(self) -> str:
        rows = [
            (key, one.version, one.base and one.base.version.number, len(one.deltas), one.size_bytes)
            for key, one in self._found.items()
        ]
        headings = ("store", "version", "from snapshot", "deltas", "bytes that a restore reads")
        return table(f"{len(rows)} stores", headings, rows)


def chain(checkpoint: str, version: int | None = None, stores: Filter | None = None) -> Chains:
    """What a version of a query's stores is made of (None: the one committed last); `stores` are those that
    are meant (None: all).

    Raises MissingError for a version or a store that is not there, and what reading the files does.
    """
    query = Query.open(checkpoint)
    committed = query.committed(None if version is None else version_number(query, version) - 1)
    found = query.for_each(query.stores(stores), FoundStore.read)
    times_ms = query.logs.commit_times_ms()
    return Chains({one.key: StoreChain(one.key, tuple(_links(one, committed, times_ms))) for one in found})


def _links(
    store: FoundStore, committed: Mapping[StoreKey, VersionId], times_ms: Mapping[int, int]
) -> Iterator[Link]:
    """The versions that the committed one came from, newest first."""
    version = store.restorable(committed.get(store.key))
    if version is None:
        raise MissingError(f"store {store.key} has no version that Spark has committed")
    plan = store.plan(version)
    read = {delta.version_id for delta in plan.deltas}
    for at in store.contents.lineages.history(version):
        delta, name = store.delta(at), SnapshotName(*at)
        manifest = store.contents.restorable_snapshots.get(name)
        paths = [one.path for one in (delta, name if manifest else None) if one is not None]
        yield Link(
            at,
            times_ms.get(
                at.number - 1,
                max((store.contents.entries[path].modified_ms for path in paths), default=0),
            ),
            None if delta is None else store.contents.listing.deltas[delta],
            None if manifest is None else "full" if manifest.kind == FULL else "merge",
            0 if manifest is None else len(manifest.files),
            0 if manifest is None else sum(file.size_bytes for file in manifest.files),
            at in read or name == plan.snapshot,
            None if manifest is None else manifest.reason,
        )
