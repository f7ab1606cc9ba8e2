"""The end of an SST: its properties, the list of its metadata and the footer (docs/format.md).

The properties have the process that wrote the file, the number that it gave it, and counts of entries and
bytes: no two files have the same end. A checksum protects each block before it.
"""

from __future__ import annotations

from pathlib import Path

from state_store.core.engine.table import (
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
"""Entry among the properties of an uncompressed table, as RocksDB writes it: without the letters that it
shares with the entry before, `rocksdb.comparator`.
"""

_FILTER = b"fullfilter."
_USUAL_BYTES = 4 << 10
_MAX_BYTES = 1 << 20


def metadata_bytes(end: bytes) -> int | None:
    """Return the bytes from the begin of the filter, the index and the properties to the end of a file.

    Args:
        end: The last bytes of the file.

    Returns:
        The bytes; more than were given if more are needed; None if these do not tell.
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
    """Return the bytes of a file that are not its data, from its last bytes; None if these do not tell."""
    try:
        positions = _positions(end, every=True)
    except (IndexError, ValueError):
        return None
    return None if positions is None else max(positions.values())


def is_plain(path: Path) -> bool:
    """Return True if the properties of a file say that no block is compressed. Unreadable ones do not."""
    return is_plain_end(read_end(path, _USUAL_BYTES)[1])


def is_plain_end(end: bytes) -> bool:
    """Return `is_plain` for the last bytes of a file."""
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
    """Return `is_plain` for exactly the end of a file.

    It has no keys, so bytes that look like the property are the property, and nothing has to be parsed.
    """
    return _PLAIN in tail or is_plain_end(tail)


def end_bytes(path: Path) -> int | None:
    """Return the bytes that the end of a file has; None if that cannot be found out."""
    data = read_end(path, _MAX_BYTES)[1]
    try:
        return _end_bytes(data)
    except (IndexError, ValueError):
        return None


def _end_bytes(data: bytes) -> int | None:
    positions = _positions(data)
    size = None if positions is None else positions[PROPERTIES]
    return size if size is not None and size <= len(data) else None


def _positions(data: bytes, *, every: bool = False) -> dict[bytes, int] | None:
    """Return the distances from the end of a file to its index, filter and properties.

    Only distances to the end of the file are known; the list of metadata ends where the footer begins.

    Args:
        data: The last bytes of the file.
        every: Include the metadata that RocksDB does not use.

    Returns:
        The distances by name, with the length of the properties; None without properties.
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
    positions = {name: len(data) - start + metaindex_at - offset for name, offset in offsets.items()}
    return {**positions, _PROPERTIES_LENGTH: properties_length}
