"""The reserved record that ends every delta: the store's contents after that batch (docs/format.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from state_store.core.checkpoint.document import damaged, decode, encode
from state_store.core.checkpoint.names import VersionId
from state_store.core.codec import Positive, json_names

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
    """

    version: Positive
    checkpoint_id: str | None
    parent: str | None
    keys: int
    puts: int
    removes: int
    column_families: Mapping[str, ColumnFamily] = field(default_factory=dict)
    writer: str = ""

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
    used: set[int] = set()
    for name, family in families.items():
        if family.id >= RESERVED_FAMILY or family.id in used:
            raise damaged(file, f"gives column family '{name}' the id {family.id}, reserved or in use")
        used.add(family.id)
