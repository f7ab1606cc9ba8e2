"""RocksDB's block-based tables read without RocksDB: their parts as values, and a delta record by record.

An open database does not show removals; `read_records` does. Deltas are tables of `format_version` 5,
uncompressed, with an index of one level whose entries share nothing with each other (docs/format.md). The
caller has compared the checksum of the file.

The first half reads bytes alone, for any thread: the footer, the entries of a block, and numbers of 7 bits a
byte. Bytes that are not a table raise IndexError or ValueError there. The second half reads files, whose
damage is DamagedError. Files are mapped: of a large one only what is asked for is in memory.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from state_store.core.checkpoint.stored_documents import META_KEY
from state_store.errors import DamagedError, FormatError

FOOTER_BYTES = 53
MAGIC = 0x88E241B785F4CFF7
"""The last 8 bytes of the footer, little-endian."""

TRAILER_BYTES = 5
"""Bytes after each block: how it is compressed (1 byte), and its checksum."""

PROPERTIES = b"rocksdb.properties"
"""Name of the block of properties in the metaindex."""

KEY_FOOTER_BYTES = 8
"""Bytes after each key: the type of the record and its sequence number (7 bytes)."""

UNCOMPRESSED, _LZ4 = 0, 4
"""Compressions of a block, in the byte after it."""

_MAX_LZ4_RATIO = 256
"""Bytes that LZ4 makes of one at most."""

REMOVED = (0, 7)
"""RocksDB's types of records that remove a key."""

PUT = 1
_DELTA_ENCODED = b"rocksdb.index.value.is.delta.encoded"
_RECORDS = b"rocksdb.num.entries"


class Handle(NamedTuple):
    """Position of a block in its file; `size` is in bytes, the trailer not counted."""

    offset: int
    size: int


class Footer(NamedTuple):
    """Positions of the two blocks from which all others are found."""

    metaindex: Handle
    index_block: Handle


def footer_of(end: bytes) -> Footer | None:
    """Return the footer of a file, of its last bytes; None if they are not those of a table.

    Raises as `varint_at` does.
    """
    footer = end[-FOOTER_BYTES:]
    if int.from_bytes(footer[-8:], "little") != MAGIC:
        return None
    metaindex, at = handle_at(footer, 1)
    index, _ = handle_at(footer, at)
    return Footer(metaindex, index)


def entries_of(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block that is not compressed.

    Raises:
        IndexError: If the block ends too early, or has no restarts there.
        ValueError: If a number has more than 64 bits.
    """
    restarts = int.from_bytes(block[-4:], "little")
    end, at, key = len(block) - 4 - 4 * restarts, 0, b""
    if end < 0:
        raise IndexError("a block has more restarts than bytes")
    while at < end:
        shared, at = varint_at(block, at)
        fresh, at = varint_at(block, at)
        length, at = varint_at(block, at)
        if shared > len(key) or at + fresh + length > end:
            raise IndexError("an entry goes beyond its block")
        key = key[:shared] + block[at : at + fresh]
        at += fresh
        yield key, block[at : at + length]
        at += length


def handle_at(data: bytes | memoryview, at: int) -> tuple[Handle, int]:
    """Return the handle that begins at index `at`, and the index after it. Raises as `varint_at` does."""
    offset, at = varint_at(data, at)
    size, at = varint_at(data, at)
    return Handle(offset, size), at


def varint_at(data: bytes | memoryview, at: int) -> tuple[int, int]:
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


def read_records(path: Path) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield keys in order and their values (None: removed), without the reserved record.

    Raises:
        DamagedError: If the file is not such a table, or lacks the reserved record.
    """
    for key, value in _records(mapped(path), path):
        if key == META_KEY:
            return
        yield key, value
    raise DamagedError.of(path, "it lacks the reserved record")


def _records(data: bytes | mmap.mmap, path: Path) -> Iterator[tuple[bytes, bytes | None]]:
    try:
        for _, offset, size in blocks(data, path):
            for internal, value in entries_of(content_of(data, offset, size)):
                kind = internal[-KEY_FOOTER_BYTES]
                if kind in REMOVED:
                    yield internal[:-KEY_FOOTER_BYTES], None
                elif kind == PUT:
                    yield internal[:-KEY_FOOTER_BYTES], value
                else:
                    raise DamagedError.of(path, f"it has a record of type {kind}")
    except (IndexError, ValueError) as error:
        raise DamagedError.of(path, "its blocks do not fit") from error


def read_metadata(path: Path) -> bytes:
    """Return the value of the reserved record. Raises DamagedError if it is not the last record."""
    data = mapped(path)
    try:
        index = TableIndex(data, path)
        last = index[len(index) - 1]
        records = list(entries_of(content_of(data, last.offset, last.size)))
    except (IndexError, ValueError) as error:
        raise DamagedError.of(path, "its blocks do not fit") from error
    if not records or records[-1][0][:-KEY_FOOTER_BYTES] != META_KEY:
        raise DamagedError.of(path, "it lacks the reserved record")
    return records[-1][1]


def key_bounds(path: Path) -> tuple[bytes, bytes]:
    """Return the first and the last key of a table that is damaged somewhere.

    They are read from its index and its first and last block.

    Raises:
        DamagedError: If these are damaged.
    """
    data = mapped(path)
    data_blocks = list(blocks(data, path))
    try:
        first, last = (
            [
                key[:-KEY_FOOTER_BYTES]
                for key, _ in entries_of(content_of(data, block.offset, block.size))
                if key[:-KEY_FOOTER_BYTES] != META_KEY
            ]
            for block in (data_blocks[0], data_blocks[-1])
        )
    except (IndexError, ValueError) as error:
        raise DamagedError.of(path, "its blocks do not fit") from error
    separators = [block.separator for block in data_blocks[:-1]]
    keys = [*first[:1], *separators, *last[-1:]]
    if not keys or keys != sorted(keys) or first != sorted(first) or last != sorted(last):
        raise DamagedError.of(path, "its keys are in no order")
    return keys[0], keys[-1]


def number_of_records(path: Path) -> int:
    """Return the number of records in a table, removals included, by its properties.

    Raises:
        DamagedError: If the file has none.
    """
    if not path.stat().st_size:
        raise DamagedError.of(path, "it is empty")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            footer = footer_of(data[-FOOTER_BYTES:])
            if footer is not None:
                return varint_at(_properties(data, *footer.metaindex)[_RECORDS], 0)[0]
        except (IndexError, KeyError, ValueError) as error:
            raise DamagedError.of(path, "its properties cannot be read") from error
    raise DamagedError.of(path, "it does not end as a table of RocksDB does")


class Block(NamedTuple):
    """A data block; its keys are at most `separator`, and those of the next block are above it."""

    separator: bytes
    offset: int
    size: int


def blocks(data: bytes | mmap.mmap, path: Path) -> Iterator[Block]:
    """Yield the data blocks of a table in order. Raises DamagedError if its index cannot be read."""
    try:
        index = TableIndex(data, path)
        for number in range(len(index)):
            yield index[number]
    except (IndexError, ValueError) as error:
        raise DamagedError.of(path, "its blocks do not fit") from error


class TableIndex:
    """The entries of a table's index by number: its data blocks.

    Attributes:
        content: the index without its trailer; a view of the file if it is not compressed.
        restarts_at: index of the positions of the entries in it, of 4 bytes each.
        has_lengths: entries have the length of their value.

    Raises:
        DamagedError: If the file is not a table.
        IndexError, ValueError: If the index, or an entry that is read, does not fit.
    """

    def __init__(self, data: bytes | mmap.mmap, path: Path) -> None:
        footer = footer_of(data[-FOOTER_BYTES:])
        if footer is None:
            raise DamagedError.of(path, "it does not end as a table of RocksDB does")
        offset, size = footer.index_block
        self.content: bytes | memoryview = (
            memoryview(data)[offset : offset + size]
            if data[offset + size] == UNCOMPRESSED
            else content_of(data, offset, size)
        )
        self.has_lengths = _properties(data, *footer.metaindex).get(_DELTA_ENCODED, b"\0") == b"\0"
        self._count = int.from_bytes(self.content[-4:], "little")
        self.restarts_at = len(self.content) - 4 - 4 * self._count
        if self._count < 1 or self.restarts_at < 0:
            raise IndexError("an index has no entries, or more than bytes")

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Block:
        at = self.restarts_at + 4 * number
        restart = int.from_bytes(self.content[at : at + 4], "little")
        key_bytes, key_at = varint_at(self.content, restart + 1)
        if self.has_lengths:
            _, key_at = varint_at(self.content, key_at)
        handle, _ = handle_at(self.content, key_at + key_bytes)
        return Block(bytes(self.content[key_at : key_at + key_bytes]), *handle)


def mapped(path: Path) -> bytes | mmap.mmap:
    """Return the content of a file, mapped until the last view of it is gone."""
    if not path.stat().st_size:
        return b""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _properties(data: bytes | mmap.mmap, offset: int, size: int) -> dict[bytes, bytes]:
    """Return the properties that a metaindex leads to; none if it names none."""
    for name, handle in entries_of(content_of(data, offset, size)):
        if name == PROPERTIES:
            return dict(entries_of(content_of(data, *handle_at(handle, 0)[0])))
    return {}


def content_of(data: bytes | mmap.mmap, offset: int, size: int) -> bytes:
    """Return the content of a block.

    Raises:
        FormatError: If its compression is not known.
        ValueError: If it cannot be decompressed.
    """
    import pyarrow

    kind, content = data[offset + size], data[offset : offset + size]
    if kind == UNCOMPRESSED:
        return content
    if kind != _LZ4:
        raise FormatError(f"a block has a compression ({kind}) that is not known")
    length, at = varint_at(content, 0)
    if length > _MAX_LZ4_RATIO * size:
        raise ValueError(f"a block of {size} bytes cannot have {length}")
    try:
        return bytes(pyarrow.Codec("lz4_raw").decompress(content[at:], length).to_pybytes())
    except OSError as error:
        raise ValueError("a block cannot be decompressed") from error
