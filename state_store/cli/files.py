"""`state-store files`: every file of a query's state, how many checkpoints need it, and which."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from state_store.checkpoint.names import VersionId, origin_of
from state_store.cli import inventory, tables
from state_store.cli.arguments import add_query_arguments, chosen
from state_store.cli.inventory import Inventory
from state_store.cli.query import Query, StoreKey

HELP = "list the files, how many checkpoints need each, and which"
DESCRIPTION = """\
Lists the files of the state with the number of restorable checkpoints that need each (its count) and
their versions. A file with count 0 is not needed: it was written by an attempt that Spark never
committed, or waits for the next clean-up."""

_HEAD = ("store", "file", "bytes", "written at", "count", "needed by versions")


@dataclass(frozen=True)
class HeldFile:
    """A file of a store and the checkpoints that keep it alive."""

    key: StoreKey
    path: str
    bytes: int
    origin: int
    holders: tuple[VersionId, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "bytes": self.bytes,
            "origin": self.origin,
            "count": len(self.holders),
            "holders": [tables.version_json(of) for of in self.holders],
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_query_arguments(parser)
    parser.add_argument("--unneeded", action="store_true", help="only files with count 0")
    parser.add_argument("--needed-by", type=int, metavar="VERSION", help="only files that this version needs")


def run(arguments: argparse.Namespace) -> int:
    query = Query.open(arguments.checkpoint)
    taken = query.for_each(query.stores(chosen(arguments)), inventory.take)
    found = {one.key: [file for file in held_files(one) if _wanted(file, arguments)] for one in taken}
    if arguments.json:
        print(tables.as_json(_json(query, found)))
        return 0
    files = [file for key in sorted(found) for file in found[key]]
    print(tables.table(_HEAD, [_row(file) for file in files]))
    print(f"\n{len(files)} files, {tables.size(sum(file.bytes for file in files))}")
    return 0


def held_files(store: Inventory) -> Iterator[HeldFile]:
    """Every SST and snapshot archive of a store, by path."""
    sizes = store.listing.sst_bytes()
    sizes.update({snapshot.path: size for snapshot, size in store.listing.snapshots.items()})
    origins = {snapshot.path: snapshot.version for snapshot in store.listing.snapshots}
    for path in sorted(sizes):
        origin = origins[path] if path in origins else origin_of(path)
        yield HeldFile(store.key, path, sizes[path], origin, tuple(store.registry.holders(path)))


def _wanted(file: HeldFile, arguments: argparse.Namespace) -> bool:
    if arguments.unneeded and file.holders:
        return False
    return arguments.needed_by is None or any(of.version == arguments.needed_by for of in file.holders)


def _row(file: HeldFile) -> tuple[object, ...]:
    versions = tables.runs(sorted({of.version for of in file.holders}))
    return str(file.key), file.path, file.bytes, file.origin, len(file.holders), versions or "-"


def _json(query: Query, found: dict[StoreKey, list[HeldFile]]) -> dict[str, Any]:
    return {
        "checkpoint": query.location,
        "stores": [
            {
                "operator": key.operator,
                "partition": key.partition,
                "name": key.name,
                "files": [file.to_json() for file in found[key]],
            }
            for key in sorted(found)
        ],
    }
