"""Incremental merge of a store whose oldest run does not fit on the disk: younger runs are compacted.

The files of the oldest run, most of the state, stay in storage, and the snapshot shares them. RocksDB opens
their tails, and reads no row of them: its settings never let the oldest run take part in a compaction. If the
younger runs do not fit either, the newest of them that fit are compacted to one, and the others stay as the
oldest does. Two neighbours of these do not fit together, so their number is bounded. Any thread may call, one
at a time for a store.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from state_store.core.compat import zip
from state_store.core.engine.database import TableFile, tidy
from state_store.core.files.spans import SPAN_BYTES, fetch_spans
from state_store.core.files.sparse import SparseFile
from state_store.core.files.streamed_verification import MOST_AT_ONCE, sha256_of_stored
from state_store.core.files.transfer import difference, parallel
from state_store.core.snapshots.assembly import LOOSE_DIRECTORY, Restored
from state_store.core.snapshots.context import StoreContext
from state_store.core.snapshots.ingestion import check_version, describe
from state_store.core.snapshots.local_database import DatabaseFile, LocalDatabase
from state_store.core.snapshots.merge import Merged
from state_store.core.snapshots.sparse_database import sparse_database
from state_store.core.storage.contract import Span
from state_store.core.storage.local_disk import local_disk_errors
from state_store.errors import DamagedError

_NEVER_PERCENT = 1_000_000
"""Size amplification at which RocksDB would rewrite everything."""

_LEAST_RATIO = 2
"""Ratio of the oldest run to all younger ones from which on RocksDB does not compact it with them."""


def is_young(restored: Restored) -> bool:
    """Return True if a merge need not read the oldest run."""
    files = restored.base.files.values()
    oldest = max((file.level for file in files), default=0)
    oldest_bytes = sum(file.size_bytes for file in files if file.level == oldest)
    young = restored.base.size_bytes - oldest_bytes + sum(delta.size_bytes for delta in restored.deltas)
    return oldest > 0 and young * _LEAST_RATIO <= oldest_bytes


@local_disk_errors()
def merge_young(context: StoreContext, restored: Restored, room_bytes: int) -> Merged:
    """Compact the newest runs of a restored version that fit on the disk, in the directory of the restore.

    The oldest run never takes part.

    Args:
        context: The store.
        restored: The version, of which only tails may be local; its directory is private.
        room_bytes: Disk for the runs that are compacted, and once more for their result.

    Returns:
        The merged base; only the tails of the other runs are local.

    Raises:
        DamagedError: A file is damaged.
        StateStoreError: The storage or the disk failed, or the deadline passed.
    """
    clock_s = context.runtime.monotonic_s
    base = restored.base
    start = clock_s()
    settings = replace(context.settings.for_store(base.size_bytes), size_amplification_percent=_NEVER_PERCENT)
    bounded = replace(context, settings=settings)
    with sparse_database(bounded, restored, room_bytes) as (database, stream, known):
        ingested = clock_s()
        runs = database.runs()
        young = runs[: _fitting(runs[:-1], room_bytes)]
        sparse = {file.path: file for file in restored.sparse}
        all_fit = len(young) == len(runs) - 1
        some_fit = len(young) > 1 and len(runs) > settings.max_runs
        if all_fit or some_fit:
            for file in _complete(context, restored, known, young):
                del sparse[file.path]
        fetched = clock_s()
        if all_fit:
            database.compact_runs(deadline=lambda: context.deadline.passed)
        elif some_fit:
            database.compact_newest(len(young), deadline=lambda: context.deadline.passed)
        files = describe(database, known, restored.version)
        newest = restored.chain.deltas[-1].name if restored.deltas else None
        keys, families = stream.read(
            lambda: check_version(database, restored.version, newest, context.storage)
        )
    shutil.rmtree(base.directory / LOOSE_DIRECTORY, ignore_errors=True)
    tidy(base.directory, set(files))
    phases = {
        "link_ms": 0.0,
        "fetch_ms": (fetched - ingested) * 1000,
        "ingest_ms": (ingested - start) * 1000,
        "compact_ms": (clock_s() - fetched) * 1000,
    }
    files, names = _with_stored_checksums(context, base.directory, files, sparse)
    made = LocalDatabase(base.directory, restored.version, files, keys, families, base.snapshot)
    return Merged(made, phases, names)


def _fitting(runs: Sequence[Sequence[TableFile]], room_bytes: int) -> int:
    """Return the number of runs, from the first on, that take no more than that together."""
    sizes = accumulate(sum(file.size_bytes for file in run) for run in runs)
    return sum(1 for size_bytes in sizes if size_bytes <= room_bytes)


def _complete(
    context: StoreContext,
    restored: Restored,
    known: Mapping[str, DatabaseFile],
    runs: Sequence[Sequence[TableFile]],
) -> list[SparseFile]:
    """Fetch the sparse files of some runs as a whole, verify them, and return them."""
    directory = restored.base.directory
    sparse = {file.path: file for file in restored.sparse}
    young = [
        replace(sparse[path], name=file.name)
        for run in runs
        for file in run
        if (path := known[file.name].path) in sparse
    ]
    fetch_spans(
        context.storage,
        [
            Span(file.path, directory / file.name, ((at, min(SPAN_BYTES, file.size_bytes - at)),))
            for file in young
            for at in range(0, file.size_bytes, SPAN_BYTES)
        ],
        context.runtime,
    )
    for file in young:
        context.deadline.check()
        wrong = difference(file.wanted(directory))
        if wrong is not None:
            where = f"{context.storage.location}/{file.path}"
            raise DamagedError(f"'{where}' is damaged: {wrong}", file=where)
    return young


def _with_stored_checksums(
    context: StoreContext,
    directory: Path,
    files: Mapping[str, DatabaseFile],
    sparse: Mapping[str, SparseFile],
) -> tuple[dict[str, DatabaseFile], frozenset[str]]:
    """Return files with the SHA-256 of those that are sparse, and the names of these.

    A delta has no SHA-256 until it belongs to a snapshot. It is read from storage: here it has holes.
    """
    found = {name: sparse.get(file.path or "") for name, file in files.items()}
    stored = {name: file for name, file in found.items() if file is not None}
    lacking = [name for name in stored if files[name].sha256 is None]

    def checksum(name: str) -> DatabaseFile:
        context.deadline.check()
        wanted = stored[name].wanted(directory)
        return replace(files[name], sha256=sha256_of_stored(context.storage, wanted))

    threads = min(MOST_AT_ONCE, context.transfer_threads)
    complete = parallel(threads, checksum, lacking, runtime=context.runtime)
    return {**files, **dict(zip(lacking, complete, strict=True))}, frozenset(stored)
