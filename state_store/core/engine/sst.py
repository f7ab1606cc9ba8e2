"""RocksDB's block-based tables as values: the footer, the entries of a block, and numbers of 7 bits a byte.

Reads bytes alone, without RocksDB, for any thread. Bytes that are no table raise IndexError or ValueError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

FOOTER_BYTES = 53
MAGIC = 0x88E241B785F4CFF7
"""The last 8 bytes of the footer, little-endian."""

TRAILER_BYTES = 5
"""Bytes after each block: how it is compressed (1 byte), and its checksum."""

PROPERTIES = b"rocksdb.properties"
"""Name of the block of properties in the metaindex."""


class Handle(NamedTuple):
    """Position of a block in its file; `size` is in bytes, the trailer not counted."""

    offset: int
    size: int


class Footer(NamedTuple):
    """Positions of the two blocks from which all others are found."""

    metaindex: Handle
    index_block: Handle


def footer_of(end: bytes) -> Footer | None:
    """Return the footer of a file, of its last bytes; None if they are not those of a table."""
    footer = end[-FOOTER_BYTES:]
    if len(footer) < FOOTER_BYTES or int.from_bytes(footer[-8:], "little") != MAGIC:
        return None
    metaindex, at = handle_at(footer, 1)
    index, _ = handle_at(footer, at)
    return Footer(metaindex, index)


def entries_of(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block that is not compressed.

    Raises:
        IndexError: If the block ends too early.
        ValueError: If a number has more than 64 bits.
    """
    if len(block) < 4:
        raise IndexError("a block has less than 4 bytes")
    restarts = int.from_bytes(block[-4:], "little")
    end, at, key = len(block) - 4 - 4 * restarts, 0, b""
    while at < end:
        shared, at = varint_at(block, at)
        fresh, at = varint_at(block, at)
        length, at = varint_at(block, at)
        key = key[:shared] + block[at : at + fresh]
        at += fresh
        yield key, block[at : at + length]
        at += length


def handle_at(data: bytes, at: int) -> tuple[Handle, int]:
    """Return the handle that begins at index `at`, and the index after it. Raises as `varint_at` does."""
    offset, at = varint_at(data, at)
    size, at = varint_at(data, at)
    return Handle(offset, size), at


def varint_at(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at index `at`, 7 bits a byte, and the index after it.

    Raises:
        IndexError: If the data end before the number does.
        ValueError: If the number has more than 64 bits.
    """
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    number, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at + 1
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
