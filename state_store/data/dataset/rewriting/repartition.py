"""The checkpoint of a stopped query, written anew with another number of partitions.

The target gets Spark's logs as they are, but for the number of partitions, and the state of the version that
Spark committed last, each row in the partition in which Spark looks for its key. Older versions stay behind.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from state_store.core.compat import zip
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage import Storage, open_storage
from state_store.data.dataset.rewriting import logs
from state_store.data.dataset.rewriting.replacing import Replaced, Replacement
from state_store.data.dataset.rewriting.store_writer import StoreWriter
from state_store.data.query import Progress, Query
from state_store.errors import ConflictError, MissingError, OptionError, StateStoreError


@dataclass(frozen=True)
class Repartitioned:
    """What was written: the version, and rows and bytes of all its deltas."""

    version: int
    rows: int
    size_bytes: int


def repartition(
    checkpoint: str,
    target: str,
    partitions: int,
    *,
    progress: Progress | None = None,
    runtime: Runtime = SYSTEM,
) -> Repartitioned:
    """Writes the checkpoint of a stopped query to `target`, which must be empty, with this many partitions.

    Start the query with the new checkpoint directory, and never again with the old one. A batch that had
    begun is run again. Needs disk for the state of a store in the directory of temporary files, and memory
    for the rows of a new partition.

    Raises MissingError where there is no state, ConflictError where the target has something, OptionError for
    a number below 1, FormatError for keys whose partition cannot be told.
    """
    if partitions < 1:
        raise OptionError(f"a query has at least 1 partition, not {partitions}")
    return rewrite(Query.open(checkpoint), target, partitions, progress=progress, runtime=runtime)


def rewrite(
    query: Query,
    target: str,
    partitions: int | None,
    replacements: Sequence[Replacement] = (),
    *,
    progress: Progress | None = None,
    runtime: Runtime = SYSTEM,
) -> Repartitioned:
    """See `repartition` and the module `importing`. With None, the number of partitions stays.

    `progress` hears of the files that are brought and written, and of each store that is written.
    """
    batch = query.committed_batch()
    if batch is None:
        raise MissingError(f"{query.location} has no state yet: Spark has committed no batch of the query")
    source, location = open_storage(query.location), target.rstrip("/")
    storage = open_storage(location)
    refuse_used(storage, location)
    has_ids = any(version.checkpoint_id for version in query.committed().values())
    uploaded: list[str] = []
    try:
        ids, done = _write_stores(
            query, location, partitions, replacements, has_ids, uploaded, progress, runtime
        )
    except BaseException:
        for path in uploaded:  # a second attempt must not find them
            with suppress(StateStoreError):
                storage.delete(path)
        raise
    for operator in query.operators:
        count = None if operator.is_in_one_partition else partitions
        logs.copy_operator(source, storage, operator, count)
    conf = None if partitions is None else {logs.SHUFFLE_PARTITIONS: str(partitions)}
    logs.copy_logs(source, storage, batch, conf=conf, ids=ids if has_ids else None)
    return done


def refuse_used(storage: Storage, location: str) -> None:
    """Raises ConflictError where a query has begun to write to a checkpoint directory."""
    if storage.list_files("offsets") or storage.list_files("commits") or storage.exists("metadata"):
        raise ConflictError(f"'{location}' is not empty: it is not written over", file=location)


def _write_stores(
    query: Query,
    location: str,
    partitions: int | None,
    replacements: Sequence[Replacement],
    has_ids: bool,
    uploaded: list[str],
    progress: Progress | None,
    runtime: Runtime,
) -> tuple[dict[str, list[list[str]]], Repartitioned]:
    """Writes all stores; gives the ids of their versions by operator and partition, and what was written. The
    files are in `uploaded` as soon as they may be there.
    """
    version = (query.committed_batch() or 0) + 1
    ids: dict[str, list[list[str]]] = {}
    done = Repartitioned(version, 0, 0)
    for operator in query.operators:
        count = operator.partitions if partitions is None or operator.is_in_one_partition else partitions
        by_store: list[list[str]] = []
        with tempfile.TemporaryDirectory(prefix="state-store-") as root, ExitStack() as opened:
            replaced = []
            for number, one in enumerate(replacements):
                if one.view.operator.id == operator.id:
                    directory = Path(root) / str(number)
                    directory.mkdir()
                    replaced.append(Replaced(one, count, directory))
                    opened.callback(replaced[-1].close)
            for store in operator.stores:
                writer = StoreWriter(query, operator, store, location, version, has_ids, progress, runtime)
                written = writer.write(count, replaced, uploaded)
                by_store.append(written.ids)
                done = replace(
                    done, rows=done.rows + written.rows, size_bytes=done.size_bytes + written.size_bytes
                )
        ids[str(operator.id)] = [list(one) for one in zip(*by_store, strict=True)]
    return ids, done
