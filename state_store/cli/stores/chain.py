"""`state-store chain`: what a version is made of, drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
from rich.tree import Tree

from state_store.checkpoint.manifest import FULL
from state_store.checkpoint.names import SnapshotName, VersionId
from state_store.cli.command import query_command
from state_store.cli.output import moment, output, print_json, size
from state_store.cli.stores.found import FoundStore
from state_store.errors import MissingError
from state_store.query import Filter, Query, StoreKey


@dataclass(frozen=True)
class Link:
    """A version on the way to the one that is drawn: what a restore reads of it (nothing: only older versions
    need it), and what else there is."""

    version: VersionId
    made_ms: int
    delta_bytes: int | None
    snapshot: str | None
    snapshot_files: int
    snapshot_bytes: int
    is_read: bool

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
        }


@query_command(
    "chain",
    examples=("/data/checkpoint --partition 0", "/data/checkpoint --version 41 --json"),
)
@click.option(
    "--version", "number", type=int, metavar="N", help="The version; default: the one committed last."
)
def chain(
    checkpoint: str,
    operator: int | None,
    partition: int | None,
    name: str | None,
    as_json: bool,
    number: int | None,
) -> None:
    """Draw what a version is made of.

    Draws, for each store, the versions that a version came from, newest first: what a restore reads (the
    newest snapshot and the deltas after it), and, dim, what older versions still have.
    """
    query = Query.open(checkpoint)
    committed = query.committed(None if number is None else number - 1)
    taken = query.for_each(query.stores(Filter(operator, partition, name)), FoundStore.read)
    chains = {one.key: list(links(one, _wanted(one, committed))) for one in taken}
    if as_json:
        print_json([_json(key, found) for key, found in sorted(chains.items())])
        return
    for key in sorted(chains):
        output().print(_tree(key, chains[key]))


def links(store: FoundStore, version: VersionId) -> Iterator[Link]:
    """The versions that one came from, newest first. Raises MissingError where it cannot be restored."""
    plan = store.plan(version)
    read = {delta.version_id for delta in plan.deltas}
    for at in store.contents.lineages.history(version):
        delta, name = store.delta(at), SnapshotName(*at)
        manifest = store.contents.whole.get(name)
        paths = [one.path for one in (delta, name if manifest else None) if one is not None]
        yield Link(
            at,
            max((store.contents.entries[path].modified_ms for path in paths), default=0),
            None if delta is None else store.contents.listing.deltas[delta],
            None if manifest is None else "full" if manifest.kind == FULL else "merge",
            0 if manifest is None else len(manifest.files),
            0 if manifest is None else sum(file.size_bytes for file in manifest.files),
            at in read or name == plan.snapshot,
        )


def _wanted(store: FoundStore, committed: dict[StoreKey, VersionId]) -> VersionId:
    wanted = store.restorable(committed.get(store.key))
    if wanted is None:
        raise MissingError(f"store {store.key} has no version that Spark has committed")
    return wanted


def _tree(key: StoreKey, found: list[Link]) -> Tree:
    deltas = sum(one.delta_bytes or 0 for one in found if one.is_read and one.snapshot is None)
    base = next((one for one in found if one.is_read and one.snapshot is not None), None)
    start = f"snapshot {base.version.number}" if base else "nothing"
    count = sum(one.is_read and one.snapshot is None for one in found)
    version = found[0].version.number
    tree = Tree(f"store {key}, version {version}: from {start} and {count} deltas, {size(deltas)}")
    for one in found:
        parts = [f"version {one.version.number}", moment(one.made_ms)]
        if one.delta_bytes is not None:
            parts.append(f"delta {size(one.delta_bytes)}")
        if one.snapshot is not None:
            parts.append(
                f"{one.snapshot} checkpoint of {one.snapshot_files} files, {size(one.snapshot_bytes)}"
            )
        tree.add("  ".join(parts), style="" if one.is_read else "dim")
    return tree


def _json(key: StoreKey, found: list[Link]) -> dict[str, Any]:
    return {
        "operator": key.operator,
        "partition": key.partition,
        "name": key.name,
        "chain": [one.to_json() for one in found],
    }
