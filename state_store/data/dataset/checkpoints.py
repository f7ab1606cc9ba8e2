"""Which versions of a query's stores can be restored, from what, and what each added."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from state_store.core.checkpoint.manifest import FULL
from state_store.core.checkpoint.names import SnapshotName, VersionId
from state_store.data.dataset.found import FoundStore
from state_store.data.dataset.html import moment, table
from state_store.data.query import Filter, Query, StoreKey


@dataclass(frozen=True)
class Checkpoint:
    """One restorable version of one store. `made_ms` is when Spark committed it, by the storage's
    clock, or when its file was written if Spark's log has not the batch; `wrote` is what was made at it:
    `delta`, `merge`, `full`; `reason` is why the snapshot among these was made, if a file says so.
    """

    key: StoreKey
    version: VersionId
    committed: bool
    made_ms: int
    wrote: tuple[str, ...]
    start: tuple[str, int] | None
    deltas: int
    files: int
    bytes: int
    new_bytes: int
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        start = None if self.start is None else {"kind": self.start[0], "version": self.start[1]}
        return {
            "version": self.version.number,
            "id": self.version.checkpoint_id,
            "committed": self.committed,
            "made_ms": self.made_ms,
            "wrote": list(self.wrote),
            "snapshot": start,
            "deltas": self.deltas,
            "files": self.files,
            "bytes": self.bytes,
            "new_bytes": self.new_bytes,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Line:
    """A version of several stores, summed up: `made_ms` and `deltas` are the most of one of them, `wrote`,
    `starts_from` and `reasons` what there is among them.
    """

    version: int
    made_ms: int
    stores: int
    wrote: str
    starts_from: str
    deltas: int
    files: int
    size_bytes: int
    new_bytes: int
    reasons: str


class Checkpoints(Mapping[StoreKey, Sequence[Checkpoint]]):
    """The versions of each store that can be restored, oldest first. Notebooks show a line a version."""

    def __init__(self, query: Query, found: Mapping[StoreKey, Sequence[Checkpoint]]) -> None:
        self.query = query
        self._found = dict(sorted(found.items()))

    def __getitem__(self, key: StoreKey) -> Sequence[Checkpoint]:
        return self._found[key]

    def __iter__(self) -> Iterator[StoreKey]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def groups(self, *, each: bool = False) -> Iterator[tuple[str, list[Line]]]:
        """A heading and the versions that Spark has committed, for the partitions of a store together, or for
        `each`.
        """
        names = {operator.id: operator.name for operator in self.query.operators}
        if each:
            for key in self:
                yield f"store {key} ({names[key.operator]})", list(self._lines([key]))
            return
        by_store = sorted(self, key=lambda key: (key.operator, key.name, key.partition))
        for (number, name), members in itertools.groupby(by_store, key=lambda key: (key.operator, key.name)):
            keys = list(members)
            heading = f"operator {number} ({names[number]}), store {name}, {len(keys)} partitions"
            yield heading, list(self._lines(keys))

    def _lines(self, keys: Iterable[StoreKey]) -> Iterator[Line]:
        members = [one for key in keys for one in self[key] if one.committed]
        members.sort(key=lambda one: one.version.number)
        for version, group in itertools.groupby(members, key=lambda one: one.version.number):
            same = list(group)
            yield Line(
                version,
                max(one.made_ms for one in same),
                len(same),
                _tally(what for one in same for what in one.wrote),
                _tally("nothing" if one.start is None else f"{one.start[0]} {one.start[1]}" for one in same),
                max(one.deltas for one in same),
                sum(one.files for one in same),
                sum(one.bytes for one in same),
                sum(one.new_bytes for one in same),
                _tally(one.reason for one in same if one.reason is not None),
            )

    def _repr_html_(self) -> str:
        shown = []
        for heading, lines in self.groups():
            rows = [
                (
                    one.version,
                    moment(one.made_ms),
                    one.stores,
                    one.wrote,
                    one.starts_from,
                    one.deltas,
                    one.files,
                    one.size_bytes,
                    one.new_bytes,
                    one.reasons,
                )
                for one in lines
            ]
            shown.append(table(heading, HEADINGS, rows))
        return "".join(shown)


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
"""Of the fields of a `Line`."""


def checkpoints(checkpoint: str, stores: Filter | None = None) -> Checkpoints:
    """The versions of a query's stores that can be restored; `stores` are those that are meant (None: all).

    Raises MissingError for stores that are not there, and what reading the files does.
    """
    query = Query.open(checkpoint)
    committed = query.committed()
    found = query.for_each(query.stores(stores), FoundStore.read)
    times_ms = query.logs.commit_times_ms()
    return Checkpoints(query, {one.key: _history(one, committed.get(one.key), times_ms) for one in found})


def _history(store: FoundStore, committed: VersionId | None, times_ms: Mapping[int, int]) -> list[Checkpoint]:
    """All restorable versions of a store, oldest first; `committed` are those on the lineage of the version
    that Spark committed last.
    """
    newest = store.restorable(committed)
    lineage = set(store.contents.lineages.history(newest)) if newest else set()
    return [
        _checkpoint(store, version, version in lineage, times_ms) for version in store.registry.checkpoints()
    ]


def _checkpoint(
    store: FoundStore, version: VersionId, committed: bool, times_ms: Mapping[int, int]
) -> Checkpoint:
    files = [file for file in store.registry.files(version) if not file.is_snapshot]
    manifest = store.manifest(version)
    delta, own = store.delta(version), store.contents.manifests.get(SnapshotName(*version))
    wrote = (["delta"] if delta else []) + ([_kind(own.kind)] if own else [])
    new = {file.path: file.size_bytes for file in files if file.origin == version.number}
    path = delta.path if delta else SnapshotName(*version).path
    return Checkpoint(
        store.key,
        version,
        committed,
        times_ms.get(version.number - 1 if committed else -1, store.contents.entries[path].modified_ms),
        tuple(wrote),
        None if manifest is None else (_kind(manifest.kind), manifest.version),
        len(store.plan(version).deltas),
        len(files),
        sum(file.size_bytes for file in files),
        sum(new.values()) or (store.contents.listing.deltas[delta] if delta else 0),
        None if own is None else own.reason,
    )


def _kind(kind: str) -> str:
    return "full" if kind == FULL else "merge"


def _tally(words: Iterable[str]) -> str:
    """The distinct words in order of appearance, separated by commas."""
    return ", ".join(dict.fromkeys(words))
