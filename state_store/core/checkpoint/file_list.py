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

    Release 0.1.0 wrote neither of the two: they are None then.
    """

    files: frozenset[str]
    expiry_ms: int | None = None
    written_ms: int | None = None

    def pack(self) -> bytes:
        """The bytes of the lease's file."""
        terms = {"expiry_ms": self.expiry_ms, "written_ms": self.written_ms}
        known = {name: value for name, value in terms.items() if value is not None}
        return _sealed(encode({"files": sorted(self.files), **known}))

    @classmethod
    def unpack(cls, data: bytes, *, file: str) -> LeaseTerms:
        """What the lease `file` says. Raises DamagedError or FormatError."""
        document = _parsed(data, file)
        return cls(
            frozenset(document.texts("files")),
            document.optional_integer("expiry_ms"),
            document.optional_integer("written_ms"),
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
    """The object in the bytes of `file`, which is as it was sealed; release 0.1.0 did not seal.

    The seal comes first: a damaged byte in the number of the format is damage, and no newer format.
    """
    seal = _SEAL.search(data)
    if seal is not None and zlib.crc32(data[: seal.start()] + b"}") != int(seal[1], 16):
        raise DamagedError(
            f"'{file}' is damaged: it has another CRC-32 than {seal[1].decode('ascii')}", file=file
        )
    return Document.parse(data, file)
