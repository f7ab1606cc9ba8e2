"""Leases and tombstones as values: both are a JSON object that names
files (docs/format.md, docs/deletion.md).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from state_store.core.checkpoint.document import Document, encode
from state_store.errors import DamagedError

_SEAL = re.compile(rb',"crc":"([0-9a-f]{8})"}\Z')


@dataclass(frozen=True)
class LeaseTerms:
    """What a lease says: the files (paths below the store's directory) that it holds for `expiry_ms`, counted
    from `written_ms`, milliseconds since 1970 UTC by its writer's clock.
    """

    files: frozenset[str]
    expiry_ms: int
    written_ms: int

    def pack(self) -> bytes:
        """The bytes of the lease's file."""
        terms = {"expiry_ms": self.expiry_ms, "written_ms": self.written_ms}
        return _sealed(encode({"files": sorted(self.files), **terms}))

    @classmethod
    def unpack(cls, data: bytes, *, file: str) -> LeaseTerms:
        """What the lease `file` says. Raises DamagedError or FormatError."""
        document = _parsed(data, file)
        return cls(
            frozenset(document.texts("files")),
            document.integer("expiry_ms"),
            document.integer("written_ms"),
        )


def pack_tombstone(files: Iterable[str]) -> bytes:
    """The bytes of a tombstone on `files` (paths below the store's directory)."""
    return _sealed(encode({"files": sorted(set(files))}))


def unpack_tombstone(data: bytes, *, file: str) -> frozenset[str]:
    """The paths that the tombstone `file` names. Raises DamagedError or FormatError."""
    return frozenset(_parsed(data, file).texts("files"))


def _sealed(text: bytes) -> bytes:
    """The JSON object with a last field `crc`, the CRC-32 of it without that field."""
    return b'%s,"crc":"%08x"}' % (text[:-1], zlib.crc32(text))


def _parsed(data: bytes, file: str) -> Document:
    """Return the object in the bytes of `file`, whose seal fits.

    The seal comes first: a damaged byte in the number of the format is damage, and no newer format.
    """
    seal = _SEAL.search(data)
    if seal is None:
        raise Document.parse(data, file).damaged("does not end with its CRC-32")
    if zlib.crc32(data[: seal.start()] + b"}") != int(seal[1], 16):
        raise DamagedError(
            f"'{file}' is damaged: it has another CRC-32 than {seal[1].decode('ascii')}", file=file
        )
    return Document.parse(data, file)
