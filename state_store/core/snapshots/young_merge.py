"""Incremental merge of a store whose oldest run does not fit on the disk: younger runs are compacted.

The files of the oldest run, most of the state, stay in storage, and the snapshot shares them. RocksDB opens
their tails, and reads no row of them: its settings never let the oldest run take part in a compaction. Any
thread may call, one at a time for a store.
"""

from __future__ import annotations

import shutil
from dataclasses import replace

from state_store.core.engine.database import tidy
from state_store.core.files.spans import SPAN_BYTES, fetch_spans
from state_store.core.files.transfer import difference
from state_store.core.snapshots.assembly import LOOSE_DIRECTORY, Restored
from state_store.core.snapshots.context import StoreContext
from state_store.core.snapshots.ingestion import check_version, describe
from state_store.core.snapshots.local_database import LocalDatabase
from state_store.core.snapshots.merge import Merged
from state_store.core.snapshots.sparse_database import sparse_database
from state_store.core.storage.contract import Span
from state_store.core.storage.local_disk import local_disk_errors
from state_store.errors import DamagedError

_NEVER_PERCENT = 1_000_000
"""Size amplification at which RocksDB would rewrite everything."""

_LEAST_RATIO = 2
"""Ratio of the oldest run to all younger ones from which on RocksDB does not compact it with them."""


def young_bytes(restored: Restored) -> int | None:
    """Return the bytes of the files that a merge compacts; None if the oldest run has to take part."""
    files = restored.base.files.values()
    oldest = max((file.level for file in files), default=0)
    oldest_bytes = sum(file.size_bytes for file in files if file.level == oldest)
    young = restored.base.size_bytes - oldest_bytes + sum(delta.size_bytes for delta in restored.deltas)
    return young if oldest > 0 and young * _LEAST_RATIO <= oldest_bytes else None


@local_disk_errors()
def merge_young(context: StoreContext, restored: Restored, window_bytes: int) -> Merged:
    """Compact all but the oldest run of a restored version, in the directory of the restore.

    Args:
        context: The store.
        restored: The version, of which only tails may be local; its directory is private.
        window_bytes: Disk for parts of the oldest run that RocksDB looks at.

    Returns:
        The merged base, of whose oldest run only the tails are local.

    Raises:
        DamagedError: A file is damaged.
        StateStoreError: The storage or the disk failed, or the deadline passed.
    """
    clock_s = context.runtime.monotonic_s
    base = restored.base
    oldest = max(file.level for file in base.files.values())
    old = {name for name, file in base.files.items() if file.level == oldest}
    start = clock_s()
    _complete(context, restored, old)
    fetched = clock_s()
    kept = tuple(file for file in restored.sparse if file.name in old)
    settings = replace(context.settings.for_store(base.size_bytes), size_amplification_percent=_NEVER_PERCENT)
    bounded = replace(context, settings=settings)
    with sparse_database(bounded, replace(restored, sparse=kept), window_bytes) as (database, stream, known):
        ingested = clock_s()
        database.compact_runs(deadline=lambda: context.deadline.passed)
        files = describe(database, known, restored.version)
        newest = restored.chain.deltas[-1].name if restored.deltas else None
        keys, families = stream.read(
            lambda: check_version(database, restored.version, newest, context.storage)
        )
    shutil.rmtree(base.directory / LOOSE_DIRECTORY, ignore_errors=True)
    tidy(base.directory, set(files))
    phases = {
        "link_ms": 0.0,
        "fetch_ms": (fetched - start) * 1000,
        "ingest_ms": (ingested - fetched) * 1000,
        "compact_ms": (clock_s() - ingested) * 1000,
    }
    made = LocalDatabase(base.directory, restored.version, files, keys, families, base.snapshot)
    return Merged(made, phases)


def _complete(context: StoreContext, restored: Restored, old: set[str]) -> None:
    """Fetch the sparse files as a whole that are not of the oldest run, and verify them."""
    directory = restored.base.directory
    young = [file for file in restored.sparse if file.name not in old]
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
