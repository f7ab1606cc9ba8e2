"""`state-store checkpoints`: which versions can be restored, from what, and what each added."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from state_store.checkpoint.manifest import FULL
from state_store.checkpoint.names import SnapshotName, VersionId
from state_store.cli import inventory, tables
from state_store.cli.arguments import add_query_arguments, chosen
from state_store.cli.inventory import Inventory
from state_store.cli.query import Operator, Query, StoreKey

HELP = "list the checkpoints that can be restored"
DESCRIPTION = """\
Lists the versions of the state that can be restored, oldest first: version v is the state after batch v -
1. Partitions of a store are summed up in one line; --each gives every store its own."""

_HEAD = ("version", "made", "stores", "wrote", "starts from", "deltas", "files", "bytes", "new bytes")


@dataclass(frozen=True)
class Checkpoint:
    """One restorable version of one store. `wrote` is what was made at it: `delta`, `merge`, `full`."""

    key: StoreKey
    of: VersionId
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
            "version": self.of.version,
            "id": self.of.id,
            "committed": self.committed,
            "made_ms": self.made_ms,
            "wrote": list(self.wrote),
            "snapshot": start,
            "deltas": self.deltas,
            "files": self.files,
            "bytes": self.bytes,
            "new_bytes": self.new_bytes,
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_query_arguments(parser)
    parser.add_argument(
        "--each", action="store_true", help="a table for each store instead of a sum over partitions"
    )


def run(arguments: argparse.Namespace) -> int:
    query = Query.open(arguments.checkpoint)
    ids = query.committed_ids()
    taken = query.for_each(query.stores(chosen(arguments)), inventory.take)
    histories = {one.key: history(one, ids.get(one.key)) for one in taken}
    if arguments.json:
        print(tables.as_json(_json(query, histories)))
        return 0
    for heading, keys in _groups(query.operators, histories, each=arguments.each):
        members = [one for key in keys for one in histories[key] if one.committed]
        print(f"{heading}\n\n{tables.table(_HEAD, list(_rows(members)))}\n")
    return 0


def history(store: Inventory, committed_id: str | None) -> list[Checkpoint]:
    """All restorable versions of a store, oldest first; `committed` are those on the lineage of the newest
    that Spark committed (of the newest at all where Spark's log has no ids)."""
    newest = store.newest(committed_id)
    lineage = set(store.lineages.history(newest)) if newest else set()
    return [_checkpoint(store, of, of in lineage) for of in store.registry.checkpoints()]


def _checkpoint(store: Inventory, of: VersionId, committed: bool) -> Checkpoint:
    files = [file for file in store.registry.files(of) if not file.is_snapshot]
    manifest = store.manifest(of)
    delta, own = store.delta(of), store.manifests.get(SnapshotName(*of))
    wrote = (["delta"] if delta else []) + ([_kind(own.kind)] if own else [])
    new = {file.path: file.bytes for file in files if file.origin == of.version}
    path = delta.path if delta else SnapshotName(*of).path
    return Checkpoint(
        store.key,
        of,
        committed,
        store.modified_ms[path],
        tuple(wrote),
        None if manifest is None else (_kind(manifest.kind), manifest.version),
        len(store.plan(of).deltas),
        len(files),
        sum(file.bytes for file in files),
        sum(new.values()) or (store.listing.deltas[delta] if delta else 0),
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
    ordered = sorted(members, key=lambda one: one.of.version)
    for version, group in itertools.groupby(ordered, key=lambda one: one.of.version):
        same = list(group)
        yield (
            version,
            tables.moment(max(one.made_ms for one in same)),
            len(same),
            _tally(what for one in same for what in one.wrote),
            _tally("nothing" if one.start is None else f"{one.start[0]} {one.start[1]}" for one in same),
            max(one.deltas for one in same),
            sum(one.files for one in same),
            tables.size(sum(one.bytes for one in same)),
            tables.size(sum(one.new_bytes for one in same)),
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
