"""The restorable versions of a query's stores: where each starts, its files, and the bytes it added."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from state_store.core.checkpoint.names import SnapshotName, VersionId
from state_store.core.checkpoint.stored_documents import FULL
from state_store.core.codec import INLINE, OMITTED, JsonObject, json_names
from state_store.data.dataset.found import FoundStore
from state_store.data.dataset.html import table
from state_store.data.dataset.moments import latest, moment_or_unknown
from state_store.data.jobs.workers import on_stores
from state_store.data.query import CommitTimes, Filter, ProgressOption, Query, StoreKey, reporting
from state_store.data.query.arguments import Location, counted

_NAMED_STARTS = 2
"""Snapshots of one kind that a line names one by one."""


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
        """Yield headings, each with the versions that Spark has committed.

        Args:
            each: False sums over the partitions of a store; True has a group for each partition.
        """
        names = {operator.id: operator.name for operator in self.query.operators}
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
        shown = []
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
"""Headings of the fields of a `Line`."""


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
        found = on_stores(query, keys, lambda key, storage, _: FoundStore.read(key, storage), meter=meter)
    times = query.logs.end_times()
    return Checkpoints(
        query, {store.key: _history(store, committed.get(store.key), times) for store in found}
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
    new = {file.path: file.size_bytes for file in files if file.origin == version.number}
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
        sum(new.values()) or (store.contents.listing.deltas[delta] if delta else 0),
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
