"""Full merge of a store that is larger than the local disk: from storage to storage, with a window of each.

It starts from a restore of which only the tails of large files are local. All rows are read in order and
written to new tables. Each table is uploaded when it is complete, and only what RocksDB looks at when it
takes a table in stays of it on the disk. The writer's lease has the name of a table before its upload, as
that of any merge (docs/deletion.md). Any thread may call, one at a time for a store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from state_store.core.checkpoint.names import SharedName, VersionId
from state_store.core.checkpoint.stored_documents import Cause
from state_store.core.compat import zip
from state_store.core.deletion.lease import Lease
from state_store.core.engine.database import Database, tidy
from state_store.core.engine.settings import DatabaseSettings
from state_store.core.engine.table_writer import TableWriter
from state_store.core.files.checksums import sha256_of
from state_store.core.files.sparse import drop_data
from state_store.core.files.workspace import discard
from state_store.core.snapshots.assembly import Restored
from state_store.core.snapshots.context import StoreContext
from state_store.core.snapshots.ingestion import check_rows, check_version
from state_store.core.snapshots.local_database import DatabaseFile, LocalDatabase
from state_store.core.snapshots.publish import Published, publish_written, tail_of
from state_store.core.snapshots.row_stream import first_and_last_block
from state_store.core.snapshots.sparse_database import sparse_database
from state_store.core.storage.local_disk import local_disk_errors
from state_store.errors import StateStoreError

LEAST_TABLE_BYTES = 8 << 20
"""Bytes of a written table at least, but the last: more tables would be slow to restore."""

_ROWS_A_CHECK = 4096
"""Rows between two looks at the deadline."""


@dataclass(frozen=True)
class StreamSizes:
    """Bytes of disk that a merge takes: of a window of each input, and of a table that is being written."""

    window_bytes: int
    table_bytes: int


@local_disk_errors()
def publish_streamed(
    context: StoreContext,
    restored: Restored,
    lease: Lease,
    sizes: StreamSizes,
    *,
    overwrite: bool,
    cause: Cause | None = None,
) -> Published:
    """Make a full snapshot of a restored version.

    If a step fails before the archive is written, the uploaded tables are deleted again.

    Args:
        context: The store.
        restored: The version, of which only tails may be local; its directory is private, and is used up.
        lease: A new lease, which is given back.
        sizes: Disk that may be taken.
        overwrite: Replace a snapshot of the version.
        cause: The cause of the merge, which the manifest keeps.

    Returns:
        The snapshot, whose base has the ends of its tables.

    Raises:
        BusyError: The deadline passed, or a file was deleted meanwhile.
        DamagedError: A file is damaged, or there are more or fewer rows than the record says.
        StorageError: The storage or the disk failed.
        UnknownOutcomeError: The storage failed, and the snapshot may be there.
    """
    clock_s = context.runtime.monotonic_s
    start = clock_s()
    directory = context.workspace.new_base(restored.version.number)
    tables = _Tables(context, directory, lease, restored.version.number, sizes.table_bytes)
    try:
        with lease:
            try:
                with sparse_database(context, restored, sizes.window_bytes) as (database, stream, _):
                    newest = restored.chain.deltas[-1].name if restored.deltas else None
                    keys, families = stream.read(
                        lambda: check_version(database, restored.version, newest, context.storage)
                    )
                    tables.write(stream.rows())
                files = tables.taken_in(restored.version, keys)
                context.deadline.check()
            except BaseException:
                tables.take_back()
                raise
            # From here on the archive may be in storage, whatever fails: the tables stay.
            merged_ms = (clock_s() - start) * 1000
            base = LocalDatabase(directory, restored.version, files, keys, families, restored.base.snapshot)
            published = publish_written(context, base, lease, overwrite=overwrite, cause=cause)
    except BaseException:
        discard(directory)
        raise
    phases = {"fetch_ms": 0.0, "ingest_ms": 0.0, "compact_ms": merged_ms - tables.upload_ms}
    return replace(published, phases={**phases, "checksum_ms": 0.0, "upload_ms": tables.upload_ms})


class _Tables:
    """Tables of a snapshot that is being written. One thread."""

    def __init__(
        self, context: StoreContext, directory: Path, lease: Lease, version: int, table_bytes: int
    ) -> None:
        self._context = context
        self._directory = directory
        self._lease = lease
        self._version = version
        self._table_bytes = max(LEAST_TABLE_BYTES, table_bytes)
        self._settings: DatabaseSettings = context.settings
        self._unique = context.runtime.random_32()
        self._files: list[tuple[Path, DatabaseFile]] = []
        self._announced: list[str] = []
        self.upload_ms = 0.0

    def write(self, rows: Iterator[tuple[bytes, bytes]]) -> None:
        """Write rows, which come in order, to tables, and upload each table."""
        writer: TableWriter | None = None
        for count, (key, value) in enumerate(rows, start=1):
            if writer is None:
                path = self._directory / f"written-{len(self._files) + 1}.sst"
                writer = TableWriter(path, self._settings)
            writer.put(key, value)
            if count % _ROWS_A_CHECK == 0:
                self._context.deadline.check()
            if writer.size_bytes >= self._table_bytes:
                writer.finish()
                self._store(writer.path)
                writer = None
        if writer is not None:
            writer.finish()
            self._store(writer.path)

    def _store(self, path: Path) -> None:
        """Upload a table, and give up its data on the disk but the first and the last block."""
        context = self._context
        stored = SharedName(self._version, self._unique, len(self._files) + 1).path
        file = DatabaseFile(
            stored, path.stat().st_size, sha256_of(path), self._version, level=0, tail=tail_of(path)
        )
        start = context.runtime.monotonic_s()
        self._announced.append(stored)
        self._lease.announce([stored])
        context.storage.upload(path, stored)
        self.upload_ms += (context.runtime.monotonic_s() - start) * 1000
        drop_data(path, kept=first_and_last_block(path))
        self._files.append((path, file))

    def taken_in(self, version: VersionId, keys: int) -> dict[str, DatabaseFile]:
        """Make a database of the tables, which have that many keys, and return its files by name."""
        with Database(self._directory, self._settings, create=True) as database:
            names = database.ingest([path for path, _ in self._files])
            check_rows(database, version, keys, self._context.storage)
            levels = {file.name: file.level for file in database.files()}
        files = {
            name: replace(file, level=levels[name])
            for name, (_, file) in zip(names, self._files, strict=True)
        }
        tidy(self._directory, set(files))
        return files

    def take_back(self) -> None:
        """Delete the uploaded tables; those that cannot be deleted are left to clean-ups."""
        for path in self._announced:
            with contextlib.suppress(StateStoreError):
                self._context.storage.delete(path)
