"""`state-store chain`: what a version is made of, drawn."""

from __future__ import annotations

import click
from rich.tree import Tree

from state_store.cli.command import query_command
from state_store.cli.output import moment, output, print_json, size
from state_store.data.dataset import chains
from state_store.data.query import Filter


@query_command(
    "chain",
    examples=("/data/checkpoint --partition 0", "/data/checkpoint --version 41 --json"),
)
@click.option(
    "--version", "number", type=int, metavar="N", help="The version; default: the one committed last."
)
def chain(
    checkpoint: str,
    chosen: Filter,
    as_json: bool,
    number: int | None,
) -> None:
    """Draw what a version is made of.

    Draws, for each store, the versions that a version came from, newest first: what a restore reads (the
    newest snapshot and the deltas after it), and, dim, what older versions still have.
    """
    by_store = chains.chain(checkpoint, number, chosen)
    if as_json:
        print_json(
            [
                {
                    "operator": key.operator,
                    "partition": key.partition,
                    "name": key.name,
                    "chain": [link.to_json() for link in one.links],
                }
                for key, one in by_store.items()
            ]
        )
        return
    for one in by_store.values():
        output().print(_tree(one))


def _tree(chain: chains.StoreChain) -> Tree:
    tree = Tree(f"{chain}, {size(chain.delta_bytes)}")
    for link in chain.links:
        parts = [f"version {link.version.number}", moment(link.made_ms)]
        if link.delta_bytes is not None:
            parts.append(f"delta {size(link.delta_bytes)}")
        if link.snapshot is not None:
            parts.append(
                f"{link.snapshot} checkpoint of {link.snapshot_files} files, {size(link.snapshot_bytes)}"
            )
        tree.add("  ".join(parts), style="" if link.is_read else "dim")
    return tree
