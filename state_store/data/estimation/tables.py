"""Bytes of an SST file by its records, as both planes write them (docs/format.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from state_store.core.engine.settings import BLOOM_BITS_PER_KEY, DatabaseSettings

FAMILY_BYTES = 2
"""Of the column family, before each key."""

NULLS_BYTES = 8
"""The first word of a row in Spark's format, which is alike in the keys of most queries."""

_RESTART = 16
_TRAILER_BYTES = 5
_KEY_FOOTER_BYTES = 8
_HANDLE_BYTES = 6
_INDEX_ENTRY_BYTES = 3 + 4
_FILE_BYTES = 1_450
"""Properties, footer, the record of the batch, the rest of a last block."""


@dataclass(frozen=True)
class TableSize:
    """Bytes of a file, of each put and of each removal in it."""

    file_bytes: float
    put_bytes: float
    removal_bytes: float

    def of(self, puts: float, removals: float = 0.0) -> int:
        """Bytes of a file with this many records."""
        return max(1, round(self.file_bytes + puts * self.put_bytes + removals * self.removal_bytes))


def table_size(key_bytes: float, value_bytes: float, records: float, ratio: float = 1.0) -> TableSize:
    """The sizes of files of about this many records, whose blocks are compressed to `ratio` of their bytes.

    Keys begin alike, as rows of Spark's do, and go on at random, so that neighbours in order share the more
    bytes the more there are.
    """
    key = FAMILY_BYTES + key_bytes
    alike = min(key - 1, FAMILY_BYTES + NULLS_BYTES + math.log(max(records, 1), 256))
    shared = alike * (_RESTART - 1) / _RESTART
    bare = _record_bytes(key, shared, 0)
    put = _record_bytes(key, shared, value_bytes)
    block = DatabaseSettings().block_bytes
    index = _TRAILER_BYTES + _INDEX_ENTRY_BYTES + _HANDLE_BYTES + min(key, alike + 1)
    of_filter = BLOOM_BITS_PER_KEY / 8

    def with_blocks(size: float) -> float:
        return size * ratio + index * size / max(block, size) + of_filter

    return TableSize(_FILE_BYTES, with_blocks(put), with_blocks(bare))


def _record_bytes(key: float, shared: float, value: float) -> float:
    own = key - shared + _KEY_FOOTER_BYTES
    lengths = 1 + _varint_bytes(own) + _varint_bytes(value)
    return lengths + own + value + 4 / _RESTART


def _varint_bytes(number: float) -> int:
    return 1 + int(math.log(max(number, 1), 128))
