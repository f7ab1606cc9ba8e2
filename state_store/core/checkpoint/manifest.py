"""`manifest.json` of a snapshot: its SST files and its place in the chain (docs/format.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from state_store.core.checkpoint.document import damaged, decode, encode
from state_store.core.checkpoint.metadata import ColumnFamily, check_column_families
from state_store.core.checkpoint.names import (
    SnapshotName,
    VersionId,
    is_checkpoint_id,
    is_sst_path,
    origin_of,
)
from state_store.core.codec import Positive, json_names

MANIFEST_NAME = "manifest.json"
INCREMENTAL = "incremental"
FULL = "full"
INGEST = "ingest"
"""The kind of a merge that publishes nothing, so that no manifest has it."""

_DATABASE_NAME = re.compile(r"[0-9]{6,20}\.sst")
_DEEPEST_LEVEL = 6
_SHA256 = re.compile(r"[0-9a-f]{64}")


@json_names(size_bytes="bytes")
@dataclass(frozen=True)
class Tail:
    """The last `size_bytes` bytes of an SST, from its properties on, and their SHA-256.

    The properties name the process that wrote the file and the time: no two files have the same tail.
    """

    size_bytes: Positive
    sha256: str


@json_names(size_bytes="bytes")
@dataclass(frozen=True)
class FileEntry:
    """An SST of a snapshot.

    `name` is that in the database, `path` is below the store's directory, and `origin` is the version that
    wrote the file. `sha256` has 64 hexadecimal digits. `tail` is None if the writer could not find it.
    """

    name: str
    path: str
    size_bytes: int
    sha256: str
    level: int
    origin: Positive
    tail: Tail | None = None


@dataclass(frozen=True)
class Cause:
    """The reason for which a snapshot was made, kept for people: no decision depends on it.

    `reason` is a sentence. `predicted_restore_ms` is how long a restore of the version was expected to take
    before, without local files; None if nobody knew. `options` are those of the query that differed from the
    defaults of the release that wrote the snapshot, as texts by name; None if the writer did not know them.
    """

    reason: str
    predicted_restore_ms: int | None = None
    options: Mapping[str, str] | None = None


@json_names(checkpoint_id="id")
@dataclass(frozen=True)
class Manifest:
    """A snapshot.

    `previous` is the snapshot that it was merged from, `full` the newest full one at or before it.
    `created_ms` is the writer's wall clock, milliseconds since 1970 UTC: never used for order. `cause` is
    None in snapshots of releases before 0.3.
    """

    version: Positive
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
    cause: Cause | None = None

    @property
    def version_id(self) -> VersionId:
        """The version that the snapshot is of."""
        return VersionId(self.version, self.checkpoint_id)

    @property
    def snapshot(self) -> SnapshotName:
        """The name of the snapshot's archive."""
        return SnapshotName(self.version, self.checkpoint_id)

    @property
    def reason(self) -> str | None:
        """The reason for which it was made, or None if it does not say."""
        return None if self.cause is None else self.cause.reason

    @cached_property
    def total_bytes(self) -> int:
        """Bytes of all its SST files, the archive not counted."""
        return sum(entry.size_bytes for entry in self.files)

    @cached_property
    def older(self) -> tuple[int, int]:
        """Number and bytes of the files among them that older versions wrote."""
        sizes = [entry.size_bytes for entry in self.files if entry.origin < self.version]
        return len(sizes), sum(sizes)

    def contradiction(self) -> str | None:
        """Return why the manifest cannot be right, as a predicate, or None.

        It is asked before a write and after a read.
        """
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
        """Return the bytes of `manifest.json`; `from_json` returns an equal manifest."""
        return encode(self)

    @classmethod
    def from_json(cls, data: bytes, *, file: str) -> Manifest:
        """Return the manifest of the snapshot `file`.

        Raises:
            DamagedError: If it is not what a writer writes.
            FormatError: If it is of a format that this program does not know.
        """
        manifest = decode(cls, data, file)
        check_column_families(manifest.column_families, file)
        wrong = _malformed(manifest) or manifest.contradiction()
        if wrong is not None:
            raise damaged(file, wrong)
        return manifest


def _malformed(manifest: Manifest) -> str | None:
    """Return the first value that is not in the form that it should have, as a predicate."""
    if manifest.kind not in (INCREMENTAL, FULL):
        return f"has '{manifest.kind}' as 'kind', where '{INCREMENTAL}' or '{FULL}' belongs"
    named = {"previous": manifest.previous, "full": manifest.full, "version": manifest.version_id}
    for name, version in named.items():
        if version is not None and not (version.number and is_checkpoint_id(version.checkpoint_id or "")):
            return f"has {version.number} ({version.checkpoint_id!r}) as a version in '{name}'"
    for attribute in ("name", "path"):
        values = [getattr(entry, attribute) for entry in manifest.files]
        if len(set(values)) < len(values):
            return f"lists a {attribute} twice in 'files'"
    return next((wrong for entry in manifest.files if (wrong := _malformed_entry(entry))), None)


def _malformed_entry(entry: FileEntry) -> str | None:
    if _DATABASE_NAME.fullmatch(entry.name) is None:
        return f"has '{entry.name}' as the name of an SST in the database"
    if not is_sst_path(entry.path):
        return f"refers to '{entry.path}', which is not an SST of this store"
    if _SHA256.fullmatch(entry.sha256) is None:
        return f"has '{entry.sha256}' as the sha256 of '{entry.path}'"
    tail = entry.tail
    if tail is not None and (tail.size_bytes > entry.size_bytes or _SHA256.fullmatch(tail.sha256) is None):
        return f"has {tail} as the tail of '{entry.path}'"
    return None
