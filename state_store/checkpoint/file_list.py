"""Leases and tombstones as values: both are a JSON object that names
files (docs/format.md, docs/deletion.md).
"""

from __future__ import annotations

from collections.abc import Iterable

from state_store.checkpoint.document import Document, encode


def pack_file_list(files: Iterable[str]) -> bytes:
    """The bytes of a lease or tombstone on `files` (paths below the store's directory)."""
    return encode({"files": sorted(set(files))})


def unpack_file_list(data: bytes, *, file: str) -> frozenset[str]:
    """The paths that the lease or tombstone `file` names. Raises DamagedError or FormatError."""
    return frozenset(Document.parse(data, file).texts("files"))
