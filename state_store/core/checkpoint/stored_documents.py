"""Documents that a checkpoint carries, as values, and their bytes (docs/format.md).

In the order of this module:

- any document is one JSON object with its format number, read and written by fields (`decode`, `encode`). A
  type is a dataclass or a named tuple, as `state_store.core.codec` has them;
- the reserved record that ends every delta: the store's contents after that batch (`DeltaMetadata`);
- `manifest.json` of a snapshot: its SST files and its place in the chain (`Manifest`);
- a snapshot's archive: the zip of the manifest and RocksDB's own small files (`Archive`);
- leases and tombstones, which name files and end with their own CRC-32 (docs/deletion.md);
- `commits/_incomplete.json`, the mark of a checkpoint directory that is not whole. It is the first file of a
  directory that is to become a checkpoint, and goes last. Every reader refuses a directory that has it. Spark
  ignores names in `commits` that are not numbers.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from state_store.core.checkpoint.names import (
    SnapshotName,
    VersionId,
    is_checkpoint_id,
    is_sst_path,
    origin_of,
)
from state_store.core.codec import Mismatch, Positive, fields_to_json, from_json, json_names
from state_store.core.storage.contract import Storage
from state_store.errors import DamagedError, FormatError, MissingError, StateStoreError

FORMAT = 1
"""The only checkpoint format so far; a reader refuses any other."""

T = TypeVar("T")


def decode(cls: type[T], data: bytes, file: str) -> T:
    """Return the object in the bytes of `file`.

    Raises:
        DamagedError: If the bytes are not a JSON object, or a field is missing or of another type.
        FormatError: If the object is of a format that this program does not know.
    """
    try:
        fields = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DamagedError.of(file, f"it is not JSON ({error})") from error
    try:
        if not isinstance(fields, dict):
            raise Mismatch("is not a JSON object")
        _check_format(fields, file)
        return from_json(cls, fields)
    except Mismatch as error:
        raise DamagedError.of(file, f"it {error}") from error


def encode(document: Any) -> bytes:
    """Return a dataclass, or a dict of fields, as one JSON object in UTF-8, `format` first."""
    fields = document if isinstance(document, dict) else fields_to_json(document)
    text = json.dumps({"format": FORMAT, **fields}, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8")


def _check_format(fields: dict[str, Any], file: str) -> None:
    number = fields.get("format")
    if number is None:
        raise Mismatch("lacks the field 'format'")
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise Mismatch(f"has {number!r} as 'format', where a number from 0 up belongs")
    if number != FORMAT:
        raise FormatError(
            f"'{file}' has checkpoint format {number}, this program knows format {FORMAT}: "
            "read it with the version of the program that wrote it, or a newer one",
            file=file,
        )


RESERVED_FAMILY = 0xFFFF
"""The number that reserved keys have in place of the id of a column family, in 2 bytes, big-endian."""

META_KEY = RESERVED_FAMILY.to_bytes(2, "big") + b"meta"
"""Key of the reserved record; it sorts after every key of a column family."""


@dataclass(frozen=True)
class ColumnFamily:
    """A virtual column family: `id` is the 2-byte prefix of its keys, `keys` their number."""

    id: int
    internal: bool = False
    keys: int = 0


@json_names(checkpoint_id="id")
@dataclass(frozen=True)
class DeltaMetadata:
    """Value of the reserved record.

    `keys` counts the rows of the whole store after the batch, `puts` and `removes` the records of the delta.
    `last_family` is the highest id that a column family had, None if that family is there.
    """

    version: Positive
    checkpoint_id: str | None
    parent: str | None
    keys: int
    puts: int
    removes: int
    column_families: Mapping[str, ColumnFamily] = field(default_factory=dict)
    writer: str = ""
    last_family: int | None = None

    @property
    def version_id(self) -> VersionId:
        """The version that the delta made."""
        return VersionId(self.version, self.checkpoint_id)

    def to_json(self) -> bytes:
        """Return the value of the reserved record; `from_json` returns equal metadata."""
        return encode(self)

    @classmethod
    def from_json(cls, data: bytes, *, file: str) -> DeltaMetadata:
        """Return the record of the delta `file`.

        Raises:
            DamagedError: If the record is not what a writer writes.
            FormatError: If it is of a format that this program does not know.
        """
        metadata = decode(cls, data, file)
        check_column_families(metadata.column_families, file)
        return metadata


def check_column_families(families: Mapping[str, ColumnFamily], file: str) -> None:
    """Raise DamagedError if a family in `file` has an id that is reserved or in use."""
    used_ids: set[int] = set()
    for name, family in families.items():
        if family.id >= RESERVED_FAMILY or family.id in used_ids:
            raise DamagedError.of(
                file, f"it gives column family '{name}' the id {family.id}, reserved or in use"
            )
        used_ids.add(family.id)


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

    @cached_property
    def new_bytes(self) -> int:
        """Bytes of the files among them that its own version wrote."""
        return sum(entry.size_bytes for entry in self.files if entry.origin == self.version)

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
            raise DamagedError.of(file, f"it {wrong}")
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


_DATABASE_FILE = re.compile(r"MANIFEST-[0-9]{1,20}|CURRENT|OPTIONS-[0-9]{1,20}")
_MAX_MEMBERS = 16
"""Members of an archive at most; four are written."""

_MAX_BYTES = 1 << 30
_MAX_EXPANSION = 200
"""Bytes of all members for each byte of the archive, beyond `_FREE_BYTES`; JSON shrinks to a tenth."""

_FREE_BYTES = 1 << 20
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Archive:
    """A snapshot as it was read: its manifest, and the bytes of RocksDB's own files by name.

    Those are `MANIFEST-*`, `CURRENT` and `OPTIONS-*`.
    """

    manifest: Manifest
    database: Mapping[str, bytes]


def pack(manifest: Manifest, database: Mapping[str, bytes]) -> bytes:
    """Return the bytes of an archive; equal arguments give equal bytes.

    Args:
        manifest: the manifest of the snapshot.
        database: the bytes of RocksDB's own files by name.
    """
    if _missing_file(database) or any(_DATABASE_FILE.fullmatch(name) is None for name in database):
        raise ValueError(f"not the files of a database: {sorted(database)}")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in [(MANIFEST_NAME, manifest.to_json()), *sorted(database.items())]:
            member = zipfile.ZipInfo(name, _TIMESTAMP)
            archive.writestr(member, data, zipfile.ZIP_DEFLATED, 1)
    return buffer.getvalue()


def unpack(data: bytes, *, file: str) -> Archive:
    """Return the archive in the bytes of `file`.

    Raises:
        DamagedError: If it is not a whole archive of a snapshot; the error names `file`.
        FormatError: If its manifest is of a format that this program does not know.
    """
    try:
        members = _read_members(data, file)
    except StateStoreError:
        raise
    except Exception as error:  # zipfile has no error of its own for many kinds of damage
        raise DamagedError.of(file, f"it is not a whole zip archive ({error})") from error
    text = members.pop(MANIFEST_NAME, None)
    if text is None:
        raise DamagedError.of(file, f"it lacks '{MANIFEST_NAME}'")
    manifest = Manifest.from_json(text, file=file)
    missing = _missing_file(members)
    if missing is not None:
        raise DamagedError.of(file, f"it lacks RocksDB's '{missing}'")
    return Archive(manifest, members)


def _read_members(data: bytes, file: str) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    bytes_left = min(_MAX_BYTES, _FREE_BYTES + len(data) * _MAX_EXPANSION)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if len(archive.infolist()) > _MAX_MEMBERS:
            raise DamagedError.of(
                file, f"it has {len(archive.infolist())} members, {_MAX_MEMBERS} at most belong"
            )
        for member in archive.infolist():
            name = member.filename
            if name != MANIFEST_NAME and _DATABASE_FILE.fullmatch(name) is None:
                raise DamagedError.of(file, f"'{name}' does not belong into a snapshot")
            bytes_left -= member.file_size  # no more than that is unpacked
            if name in members or bytes_left < 0:
                raise DamagedError.of(
                    file, f"'{name}' is there twice, or larger than any that was ever written"
                )
            members[name] = archive.read(member)
    return members


def _missing_file(database: Mapping[str, bytes]) -> str | None:
    """Return the first file that a database needs and that is missing."""
    current = database.get("CURRENT")
    if current is None:
        return "CURRENT"
    manifest = current.decode("ascii", "replace").rstrip("\n")
    if manifest not in database:
        return manifest
    return None if any(name.startswith("OPTIONS-") for name in database) else "OPTIONS-*"


_SEAL = re.compile(rb',"crc":"([0-9a-f]{8})"}\Z')


@dataclass(frozen=True)
class LeaseTerms:
    """The files that a lease holds (paths below the store's directory), and for how long.

    It holds for `expiry_ms` from `written_ms`, milliseconds since 1970 UTC by its writer's clock. That is
    also `uptime_ms` on the clock that never jumps of the machine start `boot`, if both are known.
    """

    files: frozenset[str]
    expiry_ms: int
    written_ms: int
    boot: str | None = None
    uptime_ms: int | None = None

    def pack(self) -> bytes:
        """Return the bytes of the lease's file."""
        return _sealed(encode(self))

    @classmethod
    def unpack(cls, data: bytes, *, file: str) -> LeaseTerms:
        """Return the terms in the bytes of the lease `file`.

        Raises:
            DamagedError: If they are not what was written.
            FormatError: If they are of a format that this program does not know.
        """
        return _unsealed(cls, data, file)


@dataclass(frozen=True)
class _Tombstone:
    files: frozenset[str]


@dataclass(frozen=True)
class _AnyDocument:
    """A document of which only the format matters."""


def pack_tombstone(files: Iterable[str]) -> bytes:
    """Return the bytes of a tombstone on `files` (paths below the store's directory)."""
    return _sealed(encode(_Tombstone(frozenset(files))))


def unpack_tombstone(data: bytes, *, file: str) -> frozenset[str]:
    """Return the paths that the tombstone `file` names. Raises as `LeaseTerms.unpack` does."""
    return _unsealed(_Tombstone, data, file).files


def _sealed(text: bytes) -> bytes:
    """Return the JSON object with a last field `crc`, the CRC-32 of it without that field."""
    return b'%s,"crc":"%08x"}' % (text[:-1], zlib.crc32(text))


def _unsealed(cls: type[T], data: bytes, file: str) -> T:
    """Return the object in the bytes of `file`, whose seal fits.

    The seal comes first: a damaged byte in the number of the format is damage, not a newer format. A newer
    format may have another seal.
    """
    seal = _SEAL.search(data)
    if seal is None:
        decode(_AnyDocument, data, file)
        raise DamagedError.of(file, "it does not end with its CRC-32")
    if zlib.crc32(data[: seal.start()] + b"}") != int(seal[1], 16):
        raise DamagedError.of(file, f"it has another CRC-32 than {seal[1].decode('ascii')}")
    return decode(cls, data, file)


MARKER = "commits/_incomplete.json"
"""The file that says that a checkpoint is not whole; JSON with the fields of `Marker`."""

COPY = "copy"
"""The operation that copies a checkpoint as it is."""


class Marker(NamedTuple):
    """The contents of the file.

    Attributes:
        operation: what writes the directory, in words.
        source: the checkpoint that it is made of; None: there is none.
        goes_on: True if the same call goes on after an interruption; every other begins anew.
        query: Spark's id of the query whose checkpoint it is; None: it is not known.
    """

    operation: str
    source: str | None
    goes_on: bool
    query: str | None = None

    @property
    def call(self) -> tuple[str, str | None, bool]:
        """The fields that the call that goes on has in common with this one, besides the query."""
        return self.operation, self.source, self.goes_on


def marker_of(storage: Storage) -> Marker | None:
    """Return the marker of a checkpoint directory; None without it."""
    try:
        fields = json.loads(storage.read(MARKER))
        operation = str(fields["operation"])
        goes_on = bool(fields.get("goes_on", operation == COPY))
        return Marker(operation, fields["source"], goes_on, fields.get("query"))
    except MissingError:
        return None
    except (AttributeError, KeyError, TypeError, ValueError):
        return Marker("a program", "another directory", False)


def in_words(marker: Marker) -> str:
    """Return an operation and its source, if there is one, as part of a message."""
    return marker.operation if marker.source is None else f"{marker.operation} of '{marker.source}'"


def refuse_incomplete(storage: Storage, location: str) -> None:
    """Raise MissingError if a checkpoint directory has the marker.

    Args:
        storage: the directory.
        location: its path or URI, for the message.
    """
    marker = marker_of(storage)
    if marker is not None:
        advice = "the same command continues it" if marker.goes_on else "remove the directory and start again"
        raise MissingError(
            f"'{location}' is incomplete: {in_words(marker)} is still writing it, or was "
            f"interrupted. If it was interrupted, {advice}.",
            file=f"{location}/{MARKER}",
        )
