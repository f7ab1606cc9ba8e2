"""`state-store checkpoints`: which versions can be restored, from what, and what each added."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from state_store.checkpoint.manifest import FULL
from state_store.checkpoint.names import SnapshotName, VersionId
from state_store.cli.command import query_command
from state_store.cli.output import moment, number_column, output, print_json, print_table, size, text_column
from state_store.cli.stores.found import FoundStore
from state_store.query import Filter, Operator, Query, StoreKey

_COLUMNS = (
    number_column("version"),
    text_column("made"),
    number_column("stores"),
    text_column("wrote"),
    text_column("starts from"),
    number_column("deltas"),
    number_column("files"),
    number_column("bytes"),
    number_column("new bytes"),
)


@dataclass(frozen=True)
class Checkpoint:
    """One restorable version of one store. `wrote` is what was made at it: `delta`, `merge`, `full`."""

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
        }


@query_command(
    "checkpoints",
    examples=(
        "/data/checkpoint",
        "hdfs://namenode/checkpoint --each",
        "s3://bucket/checkpoint --partition 3 --json",
    ),
)
@click.option("--each", is_flag=True, help="A table for each store instead of a sum over partitions.")
def checkpoints(
    checkpoint: str,
    operator: int | None,
    partition: int | None,
    name: str | None,
    as_json: bool,
    each: bool,
) -> None:
    """List the checkpoints that can be restored.

    Lists the versions of the state that can be restored, oldest first: version v is the state after batch
    v - 1. Partitions of a store are summed up in one line; --each gives every store its own.
    """
    query = Query.open(checkpoint)
    committed = query.committed()
    taken = query.for_each(query.stores(Filter(operator, partition, name)), FoundStore.read)
    histories = {one.key: history(one, committed.get(one.key)) for one in taken}
    if as_json:
        print_json(_json(query, histories))
        return
    for heading, keys in _groups(query.operators, histories, each=each):
        output().print(f"{heading}\n")
        print_table(_COLUMNS, _rows([one for key in keys for one in histories[key] if one.committed]))
        output().print()


def history(store: FoundStore, committed: VersionId | None) -> list[Checkpoint]:
    """All restorable versions of a store, oldest first; `committed` are those on the lineage of the version
    that Spark committed last."""
    newest = store.restorable(committed)
    lineage = set(store.contents.lineages.history(newest)) if newest else set()
    return [_checkpoint(store, version, version in lineage) for version in store.registry.checkpoints()]


def _checkpoint(store: FoundStore, version: VersionId, committed: bool) -> Checkpoint:
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
        store.contents.entries[path].modified_ms,
        tuple(wrote),
        None if manifest is None else (_kind(manifest.kind), manifest.version),
        len(store.plan(version).deltas),
        len(files),
        sum(file.size_bytes for file in files),
        sum(new.values()) or (store.contents.listing.deltas[delta] if delta else 0),
    )


def _kind(kind: str) -> str:
    return "full" if kind == FULL else "merge"


def _groups(
    operators: Iterable[Operator], histories: dict[StoreKey, list[Checkpoint]], *, each: bool
) -> Iterator[tuple[str, list[StoreKey]]]:
    names = {operator.id: operator.name for operator in operators}
    if each:
        for key in sorted(histories):
            yield f"store {key} ({names[key.operator]})", [key]
        return
    by_store = sorted(histories, key=lambda key: (key.operator, key.name, key.partition))
    for (number, name), members in itertools.groupby(by_store, key=lambda key: (key.operator, key.name)):
        keys = list(members)
        yield f"operator {number} ({names[number]}), store {name}, {len(keys)} partitions", keys


def _rows(members: list[Checkpoint]) -> Iterator[tuple[object, ...]]:
    ordered = sorted(members, key=lambda one: one.version.number)
    for version, group in itertools.groupby(ordered, key=lambda one: one.version.number):
        same = list(group)
        yield (
            version,
            moment(max(one.made_ms for one in same)),
            len(same),
            _tally(what for one in same for what in one.wrote),
            _tally("nothing" if one.start is None else f"{one.start[0]} {one.start[1]}" for one in same),
            max(one.deltas for one in same),
            sum(one.files for one in same),
            size(sum(one.bytes for one in same)),
            size(sum(one.new_bytes for one in same)),
        )


def _tally(words: Iterable[str]) -> str:
    """The distinct words in order of appearance, separated by commas."""
    return ", ".join(dict.fromkeys(words))


def _json(query: Query, histories: dict[StoreKey, list[Checkpoint]]) -> dict[str, Any]:
    names = {operator.id: operator.name for operator in query.operators}
    return {
        "checkpoint": query.location,
        "batch": query.committed_batch(),
        "stores": [
            {
                "operator": key.operator,
                "operator_name": names[key.operator],
                "partition": key.partition,
                "name": key.name,
                "checkpoints": [one.to_json() for one in histories[key]],
            }
            for key in sorted(histories)
        ],
    }
