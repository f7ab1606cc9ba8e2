"""`state-store full`: make a full checkpoint now and so cut the chain, of a running or a stopped query."""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from state_store.checkpoint.names import VersionId
from state_store.cli import inventory, tables
from state_store.cli.arguments import add_query_arguments, chosen
from state_store.cli.query import Query, StoreKey
from state_store.cli.sites import site
from state_store.deletion.lease import Lease
from state_store.errors import MissingError
from state_store.settings.options import Options
from state_store.snapshots.merge import FULL, merge
from state_store.snapshots.publish import publish
from state_store.snapshots.restore import restore
from state_store.storage import Storage

HELP = "make a full checkpoint now, which depends on no older file"
DESCRIPTION = """\
Makes a full checkpoint of the version that Spark committed last: its files are all new, so later checkpoints
depend on nothing older. Works beside the running query, which goes on from it, and on a stopped one. Needs
local disk for twice the state of a partition."""


@dataclass(frozen=True)
class FullCheckpoint:
    """The full checkpoint of one store and what it took."""

    key: StoreKey
    of: VersionId
    keys: int
    files: int
    bytes: int
    chain_files: int
    chain_bytes: int
    ms: float

    def to_json(self) -> dict[str, Any]:
        return {
            "operator": self.key.operator,
            "partition": self.key.partition,
            "name": self.key.name,
            "version": self.of.version,
            "id": self.of.id,
            "keys": self.keys,
            "files": self.files,
            "bytes": self.bytes,
            "chain_files": self.chain_files,
            "chain_bytes": self.chain_bytes,
            "ms": round(self.ms),
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_query_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    query = Query.open(arguments.checkpoint)
    ids = query.committed_ids()
    made = query.for_each(
        query.stores(chosen(arguments)), lambda key, storage: full_checkpoint(key, storage, ids.get(key))
    )
    if arguments.json:
        print(tables.as_json({"checkpoint": query.location, "stores": [one.to_json() for one in made]}))
        return 0
    head = ("store", "version", "keys", "files", "bytes", "chain before", "bytes before", "ms")
    rows = [
        (
            str(one.key),
            one.of.version,
            one.keys,
            one.files,
            tables.size(one.bytes),
            f"{one.chain_files} files",
            tables.size(one.chain_bytes),
            round(one.ms),
        )
        for one in made
    ]
    print(tables.table(head, rows))
    return 0


def full_checkpoint(key: StoreKey, storage: Storage, committed_id: str | None = None) -> FullCheckpoint:
    """Makes a full checkpoint of the newest version of a store; with `committed_id`, the newest with that id.

    Raises MissingError when no version can be restored, and what restore, merge and publish raise.
    """
    began = time.perf_counter()
    found = inventory.take(key, storage)
    of = found.newest(committed_id)
    if of is None:
        raise MissingError(f"no version of {storage.location} can be restored", file=storage.location)
    with (
        tempfile.TemporaryDirectory(prefix="state-store-full-") as directory,
        site(storage, Path(directory), found) as place,
    ):
        restored = restore(place, of)
        merged = merge(place, restored.base, [], of, FULL)
        lease = Lease(storage, expiry_ms=Options().lease_expiry)
        published = publish(place, merged.base, lease, full=True, now_ms=lambda: time.time_ns() // 1_000_000)
    return FullCheckpoint(
        key,
        of,
        published.manifest.keys,
        len(published.manifest.files),
        published.manifest.total_bytes,
        restored.chain.files,
        restored.chain.bytes,
        (time.perf_counter() - began) * 1000,
    )
