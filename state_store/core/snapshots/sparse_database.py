"""A restored database of which only the tails of large files are local, opened by RocksDB."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from state_store.core.engine.database import Database
from state_store.core.files.spans import fetch_spans
from state_store.core.snapshots.assembly import LOOSE_DIRECTORY, Restored
from state_store.core.snapshots.context import StoreContext
from state_store.core.snapshots.ingestion import check_files, ingest_deltas
from state_store.core.snapshots.local_database import DatabaseFile
from state_store.core.snapshots.row_stream import RowStream, SparseTable, first_and_last_block
from state_store.core.storage.contract import Span


@contextlib.contextmanager
def sparse_database(
    context: StoreContext, restored: Restored, window_bytes: int
) -> Iterator[tuple[Database, RowStream, dict[str, DatabaseFile]]]:
    """Open a restored database, and take the loose deltas into it.

    Args:
        context: The store.
        restored: The restore, whose directory is private.
        window_bytes: Disk for windows of its sparse files.

    Yields:
        The database, the reader of its rows, and its files by name.

    Raises:
        DamagedError: A file is damaged.
        StateStoreError: The storage or the disk failed.
    """
    base = restored.base
    sparse = {file.name: file for file in restored.sparse}
    loose = base.directory / LOOSE_DIRECTORY
    deltas = list(restored.chain.deltas)
    ends = {
        delta.name.path: first_and_last_block(loose / delta.name.name)
        for delta in deltas
        if f"{LOOSE_DIRECTORY}/{delta.name.name}" in sparse
    }
    fetch_spans(
        context.storage,
        [
            Span(path, loose / Path(path).name, ((start, end - start),))
            for path, blocks in ends.items()
            for start, end in blocks
        ],
        context.runtime,
    )
    with Database(base.directory, context.settings, create=base.snapshot is None) as database:
        check_files(database, base.files)
        stored = {name: str(file.path) for name, file in base.files.items() if name in sparse}
        stream = RowStream(
            database, _tables(database, stored), context.storage, context.runtime, window_bytes
        )
        ingested: dict[str, DatabaseFile] = {}
        if deltas:
            # RocksDB looks for keys of the deltas in the tables, to choose their level.
            ingested = stream.read(lambda: ingest_deltas(database, deltas, loose))
            stored |= {name: str(file.path) for name, file in ingested.items() if file.path in ends}
            stream.take_in(_tables(database, stored))
        yield database, stream, {**base.files, **ingested}


def _tables(database: Database, stored: Mapping[str, str]) -> dict[str, SparseTable]:
    """Return the sparse tables of a database, by name, whose places in storage are given by name."""
    return {
        file.name: SparseTable(
            stored[file.name], first_and_last_block(database.directory / file.name)[1][1], number, order
        )
        for number, run in enumerate(database.runs())
        for order, file in enumerate(run)
        if file.name in stored
    }
