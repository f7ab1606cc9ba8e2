"""`state-store chain`: the snapshot and the deltas of a version, drawn."""

from __future__ import annotations

import click
from rich.text import Text
from rich.tree import Tree

from state_store.cli.command import NUMBER, query_command
from state_store.cli.output import moment, print_json, print_tree, size
from state_store.cli.progress_display import Meter
from state_store.cli.streams import visible
from state_store.core.codec import fields_to_json
from state_store.data.dataset import checkpoints
from state_store.data.query import Filter, Query
from state_store.data.query.arguments import counted


@query_command(
    "chain",
    examples=("/data/checkpoint --partition 0", "/data/checkpoint --version 41 --json"),
)
@click.option("--version", type=NUMBER, metavar="N", help="The version; default: the one committed last.")
def chain(checkpoint: str, chosen: Filter, as_json: bool, version: int | None) -> None:
    """Draw the files of a version.

    Draws, for each store, the versions that a version came from, newest first: those that a restore reads
    (the newest snapshot and the deltas after it), and, dim, those that are there for older versions.
    """
    with Meter("listed", len(Query.open(checkpoint).stores(chosen))) as meter:
        by_store = checkpoints.chain(
            checkpoint, chosen.operator, chosen.partition, chosen.name, version=version, progress=meter
        )
    if as_json:
        print_json(
            [
                {**fields_to_json(key), "chain": [link.to_json() for link in found.links]}
                for key, found in by_store.items()
            ]
        )
        return
    for found in by_store.values():
        print_tree(_tree(found))


def _tree(chain: checkpoints.StoreChain) -> Tree:
    start = f"snapshot {chain.base.version.number}" if chain.base else "nothing"
    tree = Tree(
        _text(
            f"store {chain.key}, version {chain.version}: a restore reads {size(chain.size_bytes)}, "
            f"from {start} and {counted(len(chain.deltas), 'delta')}"
        )
    )
    for link in chain.links:
        parts = [f"version {link.version.number}", moment(link.made_ms)]
        if link.delta_bytes is not None:
            parts.append(f"delta {size(link.delta_bytes)}")
        if link.snapshot is not None:
            files = counted(link.snapshot_files, "file")
            parts.append(f"{link.snapshot} snapshot of {files}, {size(link.snapshot_bytes)}")
        if link.reason is not None:
            parts.append(f"because: {link.reason}")
        tree.add(_text("  ".join(parts)), style="" if link.is_read else "dim")
    return tree


def _text(text: str) -> Text:
    return Text(visible(text))
