"""`state-store files`: every file of a query's state, how many checkpoints need it, and which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from state_store.cli.command import query_command
from state_store.cli.output import (
    number_column,
    output,
    print_json,
    print_table,
    runs,
    size,
    text_column,
    version_json,
)
from state_store.core.checkpoint.names import VersionId, origin_of
from state_store.data.dataset.found import FoundStore
from state_store.data.query import Filter, Query, StoreKey
from state_store.errors import MissingError

_COLUMNS = (
    text_column("store"),
    text_column("file"),
    number_column("bytes"),
    number_column("written at"),
    number_column("count"),
    text_column("needed by versions"),
)


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
            "holders": [version_json(version) for version in self.holders],
        }


@query_command(
    "files",
    examples=(
        "/data/checkpoint",
        "/data/checkpoint --unneeded",
        "s3://bucket/checkpoint --needed-by 41 --json",
    ),
)
@click.option("--unneeded", is_flag=True, help="Only files with count 0.")
@click.option("--needed-by", type=int, metavar="VERSION", help="Only files that this version needs.")
def files(
    checkpoint: str,
    chosen: Filter,
    as_json: bool,
    unneeded: bool,
    needed_by: int | None,
) -> None:
    """List the files, how many checkpoints need each, and which.

    Lists the files of the state with the number of restorable checkpoints that need each (its count) and
    their versions. A file with count 0 is not needed: it was written by an attempt that Spark never
    committed, or waits for the next clean-up.
    """

    def wanted(file: HeldFile) -> bool:
        if unneeded and file.holders:
            return False
        return needed_by is None or any(version.number == needed_by for version in file.holders)

    query = Query.open(checkpoint)
    taken = query.for_each(query.stores(chosen), FoundStore.read)
    restorable = sorted({version.number for one in taken for version in one.registry.checkpoints()})
    if needed_by is not None and needed_by not in restorable:
        there = runs(restorable) or "none"
        raise MissingError(f"version {needed_by} cannot be restored; versions that can be: {there}")
    by_store = {one.key: [file for file in held_files(one) if wanted(file)] for one in taken}
    if as_json:
        print_json(_json(query, by_store))
        return
    listed = [file for key in sorted(by_store) for file in by_store[key]]
    print_table(_COLUMNS, (_row(file) for file in listed))
    output().print(f"\n{len(listed)} files, {size(sum(file.bytes for file in listed))}")


def held_files(store: FoundStore) -> Iterator[HeldFile]:
    """Every SST and snapshot archive of a store, by path."""
    sizes = store.contents.listing.sst_bytes()
    sizes.update({snapshot.path: size for snapshot, size in store.contents.listing.snapshots.items()})
    origins = {snapshot.path: snapshot.version for snapshot in store.contents.listing.snapshots}
    for path in sorted(sizes):
        origin = origins[path] if path in origins else origin_of(path)
        yield HeldFile(store.key, path, sizes[path], origin, tuple(store.registry.holders(path)))


def _row(file: HeldFile) -> tuple[object, ...]:
    versions = runs(sorted({version.number for version in file.holders}))
    return str(file.key), file.path, file.bytes, file.origin, len(file.holders), versions or "-"


def _json(query: Query, by_store: dict[StoreKey, list[HeldFile]]) -> dict[str, Any]:
    return {
        "checkpoint": query.location,
        "stores": [
            {
                "operator": key.operator,
                "partition": key.partition,
                "name": key.name,
                "files": [file.to_json() for file in by_store[key]],
            }
            for key in sorted(by_store)
        ],
    }
