"""A base: a closed RocksDB database of one version in a local directory, and where its files are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from state_store.core.checkpoint.names import VersionId
from state_store.core.checkpoint.stored_documents import ColumnFamily, Manifest, Tail


@dataclass(frozen=True)
class DatabaseFile:
    """An SST of a base.

    `path` is its place in checkpoint storage, None if it has none; `sha256` is None until it is computed.
    `origin` is the version that wrote it, `level` its place in the LSM tree (0 to 6); `tail` is as in a
    manifest.
    """

    path: str | None
    size_bytes: int
    sha256: str | None
    origin: int
    level: int
    tail: Tail | None = None


@dataclass(frozen=True)
class LocalDatabase:
    """A database at `version` with this many `keys`. Nothing in `directory` is changed: merges work on links.

    `files` are its SSTs by name in the directory, `snapshot` the manifest of the newest snapshot that it was
    made from (None: made from deltas alone).
    """

    directory: Path
    version: VersionId
    files: Mapping[str, DatabaseFile]
    keys: int
    column_families: Mapping[str, ColumnFamily]
    snapshot: Manifest | None

    @property
    def size_bytes(self) -> int:
        """Bytes of all its SSTs."""
        return sum(file.size_bytes for file in self.files.values())
