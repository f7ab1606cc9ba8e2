"""Ingestion of deltas into a local database, and checks of the database before and after.

Functions keep no state; a database is used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from state_store.core.checkpoint.names import DeltaName, VersionId
from state_store.core.checkpoint.stored_documents import ColumnFamily, DeltaMetadata
from state_store.core.compat import zip
from state_store.core.engine.database import Database
from state_store.core.planning.chain import ChainDelta
from state_store.core.snapshots.local_database import DatabaseFile
from state_store.core.storage.contract import Storage
from state_store.errors import DamagedError


def ingest_deltas(database: Database, deltas: list[ChainDelta], directory: Path) -> dict[str, DatabaseFile]:
    """Ingest the deltas in `directory`, named as in storage; return their files in the database by name."""
    paths = [directory / delta.name.name for delta in deltas]
    sizes = [path.stat().st_size for path in paths]
    try:
        names = database.ingest(paths)
    except DamagedError as error:
        named = [delta.name for delta in deltas if delta.name.name in error.message]
        if not named and len(deltas) == 1:
            named = [deltas[0].name]
        file = named[0].path if named else error.file
        message = error.message if not named else f"'{file}' is damaged: {error.message}"
        raise DamagedError(message, file=file) from error
    return {
        name: DatabaseFile(delta.name.path, size_bytes, None, delta.name.version, 0)
        for name, delta, size_bytes in zip(names, deltas, sizes, strict=True)
    }


def describe(
    database: Database, known: Mapping[str, DatabaseFile], version: VersionId
) -> dict[str, DatabaseFile]:
    """Return the live files of an open database by name; those not in `known` were written by `version`."""
    return {
        file.name: replace(known[file.name], level=file.level)
        if file.name in known
        else DatabaseFile(None, file.size_bytes, None, version.number, file.level)
        for file in database.files()
    }


def check_files(database: Database, known: Mapping[str, DatabaseFile]) -> None:
    """Check that a database has the files that it should have, and no others.

    RocksDB's MANIFEST may have lost its end, which RocksDB takes for a crash.

    Raises:
        DamagedError: The files differ.
    """
    found = {file.name: file.size_bytes for file in database.files()}
    expected = {name: file.size_bytes for name, file in known.items()}
    differing = {name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)}
    if differing:
        file = f"{database.directory}/{min(differing)}"
        raise DamagedError(
            f"the database '{database.directory}' is damaged: its list of files differs from what was put "
            f"there, in {', '.join(sorted(differing))}",
            file=file,
        )


def check_version(
    database: Database, version: VersionId, delta: DeltaName | None, storage: Storage
) -> tuple[int, Mapping[str, ColumnFamily]]:
    """Return the number of keys and the column families that an open database has by its reserved record.

    Args:
        database: The database.
        version: The version that it should have.
        delta: The newest delta that was ingested; None if the database is empty.
        storage: Checkpoint storage, for messages.

    Raises:
        DamagedError: The record is missing, or has another version.
    """
    file = f"{storage.location}/{delta.path}" if delta else str(database.directory)
    data = database.metadata()
    if data is None:
        if version.number == 0:
            return 0, {}
        raise DamagedError(f"'{file}' is damaged: it lacks the reserved record", file=file)
    metadata = DeltaMetadata.from_json(data, file=file)
    if metadata.version_id != version:
        raise DamagedError(
            f"'{file}' is damaged: it says that it is version {metadata.version_id}, not {version}", file=file
        )
    return metadata.keys, metadata.column_families


def check_rows(database: Database, version: VersionId, keys: int, storage: Storage) -> None:
    """Check that a database has a row for each key, before it replaces all older files.

    Args:
        database: The database, all of whose files were just written by a full merge: each row is there once.
        version: The version that it has.
        keys: The number of keys, by its reserved record.
        storage: Checkpoint storage, for messages.

    Raises:
        DamagedError: There are fewer rows, or more.
    """
    rows = sum(file.entries for file in database.files()) - 1
    if rows != keys:
        raise DamagedError(
            f"a full merge of version {version.number} of '{storage.location}' has made {rows} rows, and the "
            f"record of that version says that it has {keys}: nothing is published. Run `state-store verify`",
            file=storage.location,
        )
