"""Leases and tombstones as values: both are a JSON object that names
files (docs/format.md, docs/deletion.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from state_store.checkpoint.document import Document, encode


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
        return encode({"files": sorted(self.files), **known})

    @classmethod
    def unpack(cls, data: bytes, *, file: str) -> LeaseTerms:
        """What the lease `file` says. Raises DamagedError or FormatError."""
        document = Document.parse(data, file)
        return cls(
            frozenset(document.texts("files")),
            document.optional_integer("expiry_ms"),
            document.optional_integer("written_ms"),
        )


def pack_tombstone(files: Iterable[str]) -> bytes:
    """The bytes of a tombstone on `files` (paths below the store's directory)."""
    return encode({"files": sorted(set(files))})


def unpack_tombstone(data: bytes, *, file: str) -> frozenset[str]:
    """The paths that the tombstone `file` names. Raises DamagedError or FormatError."""
    return frozenset(Document.parse(data, file).texts("files"))
