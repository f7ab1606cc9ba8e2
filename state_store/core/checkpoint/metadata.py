"""The reserved record that ends every delta: what the store looks like after that batch (docs/format.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from state_store.core.checkpoint.document import Document, encode
from state_store.core.checkpoint.names import VersionId

RESERVED_FAMILY = 0xFFFF
"""What reserved keys have in place of the id of a column family, in 2 bytes, big-endian."""
META_KEY = RESERVED_FAMILY.to_bytes(2, "big") + b"meta"
"""Key of the reserved record; it sorts after every key of a column family."""


@dataclass(frozen=True)
class ColumnFamily:
    """A virtual column family: `id` is the 2-byte prefix of its keys, `keys` how many it has."""

    id: int
    internal: bool = False
    keys: int = 0


@dataclass(frozen=True)
class DeltaMetadata:
    """Value of the reserved record. `keys` counts the whole store after the
    batch, `puts` and `removes` the delta.
    """

    version: int
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
        """The value of the reserved record; `from_json` gives equal metadata back."""
        return encode(
            {
                "version": self.version,
                "id": self.checkpoint_id,
                "parent": self.parent,
                "keys": self.keys,
                "puts": self.puts,
                "removes": self.removes,
                "column_families": encode_column_families(self.column_families),
                "writer": self.writer,
            }
        )

    @classmethod
    def from_json(cls, data: bytes, *, file: str) -> DeltaMetadata:
        """Reads the record of the delta `file`. Raises FormatError (newer format) or DamagedError."""
        document = Document.parse(data, file)
        return cls(
            version=document.integer("version", least=1),
            checkpoint_id=document.optional_text("id"),
            parent=document.optional_text("parent"),
            keys=document.integer("keys"),
            puts=document.integer("puts"),
            removes=document.integer("removes"),
            column_families=decode_column_families(document),
            writer=document.text("writer"),
        )


def encode_column_families(families: Mapping[str, ColumnFamily]) -> dict[str, dict[str, int | bool]]:
    """The families by name, as members of a JSON object."""
    return {
        name: {"id": family.id, "internal": family.internal, "keys": family.keys}
        for name, family in families.items()
    }


def decode_column_families(document: Document) -> dict[str, ColumnFamily]:
    """The families in field `column_families`. Raises DamagedError for an id that is reserved or in use."""
    families: dict[str, ColumnFamily] = {}
    for name, member in document.nested("column_families").items():
        family = ColumnFamily(member.integer("id"), member.boolean("internal"), member.integer("keys"))
        if family.id >= RESERVED_FAMILY or any(family.id == other.id for other in families.values()):
            raise document.damaged(f"gives column family '{name}' the id {family.id}, reserved or in use")
        families[name] = family
    return families
