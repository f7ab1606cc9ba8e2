"""Leases and tombstones as values: JSON objects that name files (docs/format.md, docs/deletion.md)."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from state_store.core.checkpoint.document import damaged, decode, encode

T = TypeVar("T")

_SEAL = re.compile(rb',"crc":"([0-9a-f]{8})"}\Z')


@dataclass(frozen=True)
class LeaseTerms:
    """The files that a lease holds (paths below the store's directory), and for how long.

    It holds for `expiry_ms` from `written_ms`, milliseconds since 1970 UTC by its writer's clock.
    """

    files: frozenset[str]
    expiry_ms: int
    written_ms: int

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

    The seal comes first: a damaged byte in the number of the format is damage, and no newer format. A newer
    format may have another seal.
    """
    seal = _SEAL.search(data)
    if seal is None:
        decode(_AnyDocument, data, file)
        raise damaged(file, "does not end with its CRC-32")
    if zlib.crc32(data[: seal.start()] + b"}") != int(seal[1], 16):
        raise damaged(file, f"has another CRC-32 than {seal[1].decode('ascii')}")
    return decode(cls, data, file)
