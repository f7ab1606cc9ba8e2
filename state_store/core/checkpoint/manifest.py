"""`manifest.json` of a snapshot: which SST files make the database, and where it
stands in the chain (docs/format.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from state_store.core.checkpoint.document import Document, encode
from state_store.core.checkpoint.metadata import ColumnFamily, decode_column_families, encode_column_families
from state_store.core.checkpoint.names import (
    DELTA_DIRECTORY,
    SnapshotName,
    VersionId,
    is_checkpoint_id,
    is_sst_path,
    origin_of,
)

MANIFEST_NAME = "manifest.json"
INCREMENTAL = "incremental"
FULL = "full"
INGEST = "ingest"
"""The kind of a merge that publishes nothing, so that no manifest has it."""

_DATABASE_NAME = re.compile(r"[0-9]{6,20}\.sst")
_DEEPEST_LEVEL = 6
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Tail:
    """The last `size_bytes` bytes of an SST, from its properties on, and their SHA-256: they name who wrote
    the file and when, so that no two files have the same.
    """

    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class FileEntry:
    """One SST of a snapshot: `name` in the database, `path` below the store's directory, `origin` the version
    that wrote it; `sha256` as 64 hexadecimal digits. `tail` is None in snapshots of release 0.1.0.
    """

    name: str
    path: str
    size_bytes: int
    sha256: str
    level: int
    origin: int
    tail: Tail | None = None


@dataclass(frozen=True)
class Manifest:
    """A snapshot. `previous` is the one it was merged from, `full` the newest full one at or before it.

    `created_ms` is the writer's wall clock, milliseconds since 1970 UTC: never used for order.
    """

    version: int
    checkpoint_id: str | None
    kind: str
    previous: VersionId | None
    full: VersionId | None
    merges_since_full: int
    deltas_since_full: int
    keys: int
    files: tuple[FileEntry, ...]
    column_families: Mapping[str, ColumnFamily] = field(default_factory=dict)
    rocksdb_version: str = ""
    writer: str = ""
    created_ms: int = 0

    @property
    def version_id(self) -> VersionId:
        """The version that the snapshot is of."""
        return VersionId(self.version, self.checkpoint_id)

    @property
    def snapshot(self) -> SnapshotName:
        """The name of the snapshot's archive."""
        return SnapshotName(self.version, self.checkpoint_id)

    @cached_property
    def total_bytes(self) -> int:
        """Bytes of all its SST files, the archive not counted."""
        return sum(entry.size_bytes for entry in self.files)

    def contradiction(self) -> str | None:
        """What in it cannot be so, in words; None: nothing. Asked before a write and after a read."""
        for name, other in (("previous", self.previous), ("full", self.full)):
            if other is not None and other.number > self.version:
                return f"names version {other} as '{name}', which is newer than its own, {self.version}"
        if self.kind == FULL and self.full not in (None, self.version_id):
            return f"is full, and names version {self.full} as 'full'"
        for entry in self.files:
            if max(entry.origin, origin_of(entry.path)) > self.version:
                return f"needs '{entry.path}', which is newer than its own version, {self.version}"
            if entry.level > _DEEPEST_LEVEL or entry.size_bytes == 0:
                return f"has '{entry.path}' in level {entry.level} with {entry.size_bytes} bytes"
        return None

    def to_json(self) -> bytes:
        """The bytes of `manifest.json`; `from_json` gives an equal manifest back."""
        return encode(
            {
                "version": self.version,
                "id": self.checkpoint_id,
                "kind": self.kind,
                "previous": _encode_version(self.previous),
                "full": _encode_version(self.full),
                "merges_since_full": self.merges_since_full,
                "deltas_since_full": self.deltas_since_full,
                "keys": self.keys,
                "column_families": encode_column_families(self.column_families),
                "files": [_encode_file(entry) for entry in self.files],
                "rocksdb_version": self.rocksdb_version,
                "writer": self.writer,
                "created_ms": self.created_ms,
            }
        )

    @classmethod
    def from_json(cls, data: bytes, *, file: str) -> Manifest:
        """Reads the manifest of the snapshot `file`. Raises FormatError
        (newer format) or DamagedError, naming it.
        """
        document = Document.parse(data, file)
        kind = document.text("kind")
        if kind not in (INCREMENTAL, FULL):
            raise document.damaged(f"has '{kind}' as 'kind', where '{INCREMENTAL}' or '{FULL}' belongs")
        manifest = cls(
            version=document.integer("version", least=1),
            checkpoint_id=document.optional_text("id"),
            kind=kind,
            previous=_decode_version(document, "previous"),
            full=_decode_version(document, "full"),
            merges_since_full=document.integer("merges_since_full"),
            deltas_since_full=document.integer("deltas_since_full"),
            keys=document.integer("keys"),
            column_families=decode_column_families(document),
            files=_decode_files(document),
            rocksdb_version=document.text("rocksdb_version"),
            writer=document.text("writer"),
            created_ms=document.integer("created_ms"),
        )
        if manifest.checkpoint_id is None and any(
            entry.path.startswith(DELTA_DIRECTORY) for entry in manifest.files
        ):
            raise document.damaged("refers to a delta, which a retry may replace where versions have no ids")
        contradiction = manifest.contradiction()
        if contradiction is not None:
            raise document.damaged(contradiction)
        return manifest


def _encode_file(entry: FileEntry) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": entry.name,
        "path": entry.path,
        "bytes": entry.size_bytes,
        "sha256": entry.sha256,
        "level": entry.level,
        "origin": entry.origin,
    }
    if entry.tail is not None:
        fields["tail"] = {"bytes": entry.tail.size_bytes, "sha256": entry.tail.sha256}
    return fields


def _decode_files(document: Document) -> tuple[FileEntry, ...]:
    entries = tuple(_decode_file(member) for member in document.documents("files"))
    for attribute in ("name", "path"):
        values = [getattr(entry, attribute) for entry in entries]
        if len(set(values)) < len(values):
            raise document.damaged(f"lists a {attribute} twice in 'files'")
    return entries


def _decode_file(member: Document) -> FileEntry:
    entry = FileEntry(
        name=member.text("name"),
        path=member.text("path"),
        size_bytes=member.integer("bytes"),
        sha256=member.text("sha256"),
        level=member.integer("level"),
        origin=member.integer("origin", least=1),
        tail=_decode_tail(member),
    )
    if _DATABASE_NAME.fullmatch(entry.name) is None:
        raise member.damaged(f"has '{entry.name}' as the name of an SST in the database")
    if not is_sst_path(entry.path):
        raise member.damaged(f"refers to '{entry.path}', which is not an SST of this store")
    if _SHA256.fullmatch(entry.sha256) is None:
        raise member.damaged(f"has '{entry.sha256}' as the sha256 of '{entry.path}'")
    if entry.tail is not None and (
        entry.tail.size_bytes > entry.size_bytes or _SHA256.fullmatch(entry.tail.sha256) is None
    ):
        raise member.damaged(f"has {entry.tail} as the tail of '{entry.path}'")
    return entry


def _decode_tail(member: Document) -> Tail | None:
    if member.is_null("tail"):
        return None
    tail = member.nested("tail")
    return Tail(tail.integer("bytes", least=1), tail.text("sha256"))


def _encode_version(version: VersionId | None) -> dict[str, Any] | None:
    return None if version is None else {"version": version.number, "id": version.checkpoint_id}


def _decode_version(document: Document, name: str) -> VersionId | None:
    if document.is_null(name):
        return None
    member = document.nested(name)
    version = VersionId(member.integer("version", least=1), member.optional_text("id"))
    if version.checkpoint_id is not None and not is_checkpoint_id(version.checkpoint_id):
        raise document.damaged(f"has {version.checkpoint_id!r} as the id of a version in '{name}'")
    return version
