"""`state-store full`: make a full checkpoint now and so cut the chain, of a running or a stopped query."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from state_store.cli import exit_codes
from state_store.cli.command import as_store_error, query_command
from state_store.cli.output import number_column, print_error, print_json, print_table, size, text_column
from state_store.cli.progress import Meter
from state_store.cli.stores.at_once import stores_option
from state_store.cli.stores.contexts import store_context
from state_store.cli.stores.descriptors import MOST_FILES, share
from state_store.core.checkpoint.lineage import describe_restorable
from state_store.core.checkpoint.names import VersionId
from state_store.core.deletion.lease import Lease
from state_store.core.engine.settings import DatabaseSettings
from state_store.core.settings.options import Options
from state_store.core.snapshots.merge import FULL, merge
from state_store.core.snapshots.publish import publish
from state_store.core.snapshots.restore import restore
from state_store.core.storage import Storage
from state_store.data.dataset.found import FoundStore
from state_store.data.query import Filter, Query, StoreKey
from state_store.errors import MissingError, StateStoreError

TRIES = 3
"""How often a store is begun with, where the query goes on and retires the version meanwhile."""

COMPRESSIONS = ("none", "lz4")

_COLUMNS = (
    text_column("store"),
    number_column("version"),
    number_column("keys"),
    number_column("files"),
    number_column("bytes"),
    number_column("chain before"),
    number_column("bytes before"),
    number_column("ms"),
)


@dataclass(frozen=True)
class FullCheckpoint:
    """The full checkpoint of one store and what it took."""

    key: StoreKey
    version: VersionId
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
            "version": self.version.number,
            "id": self.version.checkpoint_id,
            "keys": self.keys,
            "files": self.files,
            "bytes": self.bytes,
            "chain_files": self.chain_files,
            "chain_bytes": self.chain_bytes,
            "ms": round(self.ms),
        }


@dataclass(frozen=True)
class Failure:
    """A store of which no full checkpoint was made, and why."""

    key: StoreKey
    error: StateStoreError

    def to_json(self) -> dict[str, Any]:
        return {
            "operator": self.key.operator,
            "partition": self.key.partition,
            "name": self.key.name,
            "error": self.error.to_json(),
        }


@query_command(
    "full",
    examples=(
        "/data/checkpoint",
        "hdfs://namenode/checkpoint --operator 0 --partition 1",
        "s3://bucket/checkpoint --stores 8 --compression lz4 --json",
    ),
)
@stores_option("worked on")
@click.option(
    "--compression",
    type=click.Choice(COMPRESSIONS),
    help="The query's snapshotCompression. Default: that of the store's newest snapshot.",
)
def full(
    checkpoint: str,
    chosen: Filter,
    as_json: bool,
    stores: int,
    compression: str | None,
) -> int:
    """Make a full checkpoint now, which depends on no older file.

    Makes a full checkpoint of the version that Spark committed last: its files are all new, so later
    checkpoints depend on nothing older. Works beside the running query, which goes on from it, and on a
    stopped one. Needs disk for twice the state of a partition in the directory of temporary files (TMPDIR),
    for each store worked on at once. A store that fails does not stop the others; the exit code is then that
    of its error.
    """
    query = Query.open(checkpoint)
    keys = query.stores(chosen)
    if query.committed_batch() is None:
        raise MissingError(f"Spark has not committed a batch of {query.location} yet", file=query.location)
    resources = share(stores)
    with Meter("full checkpoints", len(keys)) as meter:

        def one(key: StoreKey, storage: Storage) -> FullCheckpoint | Failure:
            try:
                return _of_newest(
                    lambda: query.committed()[key],
                    lambda version: full_checkpoint(
                        key,
                        storage,
                        version,
                        compression=compression,
                        open_files=resources.open_files,
                        meter=meter,
                    ),
                )
            except (StateStoreError, OSError) as error:
                return Failure(key, as_store_error(error))

        outcomes = query.for_each(keys, one, at_once=resources.stores, meter=meter)
    failed = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    if as_json:
        print_json({"checkpoint": query.location, "stores": [outcome.to_json() for outcome in outcomes]})
    else:
        print_table(_COLUMNS, (_row(outcome) for outcome in outcomes if isinstance(outcome, FullCheckpoint)))
        for failure in failed:
            print_error(failure.error, as_json=False)
    return exit_codes.OF_KIND[failed[0].error.kind] if failed else exit_codes.OK


def _of_newest(
    committed: Callable[[], VersionId], make: Callable[[VersionId], FullCheckpoint]
) -> FullCheckpoint:
    """Makes one of the version that Spark committed last; of a later one where the query goes on and retires
    that meanwhile.
    """
    for _ in range(TRIES - 1):
        version = committed()
        try:
            return make(version)
        except MissingError:
            if committed() == version:
                raise
    return make(committed())


def full_checkpoint(
    key: StoreKey,
    storage: Storage,
    committed: VersionId,
    *,
    compression: str | None = None,
    open_files: int = MOST_FILES,
    meter: Meter | None = None,
) -> FullCheckpoint:
    """Makes a full checkpoint of exactly the version `committed` of a store; an id of None means the attempt
    that the number stands for.

    `compression` is none, lz4, or None: as the snapshot that a restore of the version starts from.
    Its database keeps at most `open_files` tables open. `meter` hears how many bytes are going to be moved.

    Raises MissingError when that version cannot be restored, never taking another; and what restore, merge
    and publish raise.
    """
    began = time.perf_counter()
    contents = FoundStore.read(key, storage)
    version = contents.restorable(committed)
    if version is None:
        raise MissingError(
            f"version {committed} of {storage.location}, which Spark committed last, cannot be restored; "
            f"{describe_restorable(contents.registry.checkpoints())}",
            file=storage.location,
        )
    settings = DatabaseSettings(compression=compression, max_open_files=open_files)
    if meter is not None:
        meter.expect(
            2 * sum(file.size_bytes for file in contents.registry.files(version) if not file.is_snapshot)
        )
    with (
        tempfile.TemporaryDirectory(prefix="state-store-full-") as directory,
        store_context(storage, Path(directory), settings) as context,
    ):
        restored = restore(context, version)
        merged = merge(context, restored.base, [], version, FULL)
        lease = Lease(storage, expiry_ms=Options().lease_expiry_ms)
        published = publish(context, merged.base, lease, full=True)
    return FullCheckpoint(
        key,
        version,
        published.manifest.keys,
        len(published.manifest.files),
        published.manifest.total_bytes,
        restored.chain.files,
        restored.chain.size_bytes,
        (time.perf_counter() - began) * 1000,
    )


def _row(checkpoint: FullCheckpoint) -> tuple[object, ...]:
    return (
        checkpoint.key,
        checkpoint.version.number,
        checkpoint.keys,
        checkpoint.files,
        size(checkpoint.bytes),
        f"{checkpoint.chain_files} files",
        size(checkpoint.chain_bytes),
        round(checkpoint.ms),
    )
