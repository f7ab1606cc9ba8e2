"""Where the end of an SST begins: its properties, the list of its metadata and the footer (docs/format.md).

The properties name the process that wrote the file and the number that it gave it, and count entries and
bytes: no two files have the same end. What lies before is protected by a checksum for each block.
"""

from __future__ import annotations

from pathlib import Path

from state_store.core.engine.sst import (
    FOOTER_BYTES,
    PROPERTIES,
    TRAILER_BYTES,
    entries_of,
    footer_of,
    handle_at,
)
from state_store.core.files.checksums import read_end

_PROPERTIES_LENGTH = b"length of the properties"
_COMPRESSION, _NONE = b"rocksdb.compression", b"NoCompression"
_PLAIN = bytes((12, len(_COMPRESSION) - 12, len(_NONE))) + _COMPRESSION[12:] + _NONE
"""The entry of a table that is not compressed among its properties, as RocksDB writes it: what it shares with
the one before, `rocksdb.comparator`, is left out."""

_FILTER = b"fullfilter."
_USUAL_BYTES = 4 << 10
_MOST_BYTES = 1 << 20


def metadata_bytes(end: bytes) -> int | None:
    """How many bytes of a file its filter, index, properties and what follows are, of the last bytes of it;
    None where these do not tell. More than are given, where more are needed.
    """
    try:
        positions = _positions(end)
    except (IndexError, ValueError):
        return None
    return (
        None
        if positions is None
        else max(positions[name] for name in positions if name != _PROPERTIES_LENGTH)
    )


def other_bytes(end: bytes) -> int | None:
    """How many bytes of a file everything but its data is, of the last bytes of it; None where these do not
    tell.
    """
    try:
        positions = _positions(end, every=True)
    except (IndexError, ValueError):
        return None
    return None if positions is None else max(positions.values())


def is_plain(path: Path) -> bool:
    """Whether the blocks of the file at `path` are not compressed, as its properties say; False where these
    cannot be read.
    """
    return is_plain_end(read_end(path, _USUAL_BYTES)[1])


def is_plain_end(end: bytes) -> bool:
    """As `is_plain`, of the last bytes of a file."""
    try:
        positions = _positions(end)
        if positions is None or positions[PROPERTIES] > len(end):
            return False
        offset, length = positions[PROPERTIES], positions[_PROPERTIES_LENGTH]
        block = end[len(end) - offset :][:length]
        return _PLAIN in block or dict(entries_of(block)).get(_COMPRESSION) == _NONE
    except (IndexError, ValueError):
        return False


def is_plain_tail(tail: bytes) -> bool:
    """As `is_plain`, of exactly the end of a file. No key is in it: what looks like that property is it, and
    nothing need be parsed.
    """
    return _PLAIN in tail or is_plain_end(tail)


def end_bytes(path: Path) -> int | None:
    """How many bytes of the file at `path` are its end; None where that cannot be found out."""
    data = read_end(path, _MOST_BYTES)[1]
    try:
        return _end_bytes(data)
    except (IndexError, ValueError):
        return None


def _end_bytes(data: bytes) -> int | None:
    found = _positions(data)
    size = None if found is None else found[PROPERTIES]
    return size if size is not None and size <= len(data) else None


def _positions(data: bytes, *, every: bool = False) -> dict[bytes, int] | None:
    """How far from the end of the file its index, its filter and its properties begin, of its last bytes, and
    how long the properties are; None without properties. With `every`, what RocksDB leaves alone, too.

    Only the distance to the end of the file is known; the list of metadata ends where the footer begins.
    """
    footer = footer_of(data)
    if footer is None:
        return None
    start = len(data) - FOOTER_BYTES - TRAILER_BYTES - footer.metaindex.size
    if start < 0:
        return None
    offsets, properties_length = {b"index": footer.index_block.offset}, 0
    for name, value in entries_of(data[start : start + footer.metaindex.size]):
        if every or name == PROPERTIES or name.startswith(_FILTER):
            handle, _ = handle_at(value, 0)
            offsets[name] = handle.offset
            if name == PROPERTIES:
                properties_length = handle.size
    metaindex_at = footer.metaindex.offset
    if PROPERTIES not in offsets or any(offset >= metaindex_at for offset in offsets.values()):
        return None
    found = {name: len(data) - start + metaindex_at - offset for name, offset in offsets.items()}
    return {**found, _PROPERTIES_LENGTH: properties_length}
