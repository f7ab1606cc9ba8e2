"""The files of a checkpoint as a transfer wants them, and as a local database has them."""

from __future__ import annotations

from pathlib import Path

from state_store.core.checkpoint.stored_documents import Manifest
from state_store.core.files.transfer import Wanted
from state_store.core.planning.chain import ChainDelta
from state_store.core.snapshots.local_database import DatabaseFile


def wanted_tables(manifest: Manifest | None, directory: Path) -> list[Wanted]:
    """Return the SSTs of a snapshot, under their names in the database below `directory`."""
    return [
        Wanted(
            entry.path,
            entry.size_bytes,
            directory / entry.name,
            sha256=entry.sha256,
            tail_bytes=entry.tail.size_bytes if entry.tail else 0,
            tail_sha256=entry.tail.sha256 if entry.tail else None,
        )
        for entry in (manifest.files if manifest else ())
    ]


def wanted_deltas(deltas: list[ChainDelta], directory: Path) -> list[Wanted]:
    """Return the deltas, under their names in checkpoint storage below `directory`."""
    return [
        Wanted(
            delta.name.path,
            delta.size_bytes,
            directory / delta.name.name,
            crc32=delta.crc32,
            names_itself=True,
        )
        for delta in deltas
    ]


def database_files(manifest: Manifest) -> dict[str, DatabaseFile]:
    """Return the files of a snapshot's database by name."""
    return {
        entry.name: DatabaseFile(
            entry.path, entry.size_bytes, entry.sha256, entry.origin, entry.level, entry.tail
        )
        for entry in manifest.files
    }
