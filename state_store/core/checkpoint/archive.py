"""A snapshot as bytes: the zip archive of `manifest.json` and RocksDB's own small files (docs/format.md)."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass

from state_store.core.checkpoint.manifest import MANIFEST_NAME, Manifest
from state_store.errors import DamagedError, StateStoreError

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
        raise _damaged(file, f"it is not a whole zip archive ({error})") from error
    text = members.pop(MANIFEST_NAME, None)
    if text is None:
        raise _damaged(file, f"it lacks '{MANIFEST_NAME}'")
    manifest = Manifest.from_json(text, file=file)
    missing = _missing_file(members)
    if missing is not None:
        raise _damaged(file, f"it lacks RocksDB's '{missing}'")
    return Archive(manifest, members)


def _read_members(data: bytes, file: str) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    bytes_left = min(_MAX_BYTES, _FREE_BYTES + len(data) * _MAX_EXPANSION)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if len(archive.infolist()) > _MAX_MEMBERS:
            raise _damaged(file, f"it has {len(archive.infolist())} members, {_MAX_MEMBERS} at most belong")
        for member in archive.infolist():
            name = member.filename
            if name != MANIFEST_NAME and _DATABASE_FILE.fullmatch(name) is None:
                raise _damaged(file, f"'{name}' does not belong into a snapshot")
            bytes_left -= member.file_size  # no more than that is unpacked
            if name in members or bytes_left < 0:
                raise _damaged(file, f"'{name}' is there twice, or larger than any that was ever written")
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


def _damaged(file: str, why: str) -> DamagedError:
    return DamagedError(f"'{file}' is damaged: {why}", file=file)
