"""Regions of a file by its format alone, so that damage can hit each kind of byte."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

Regions = dict[str, range]

_FOOTER_BYTES = 53
_TRAILER_BYTES = 5


def regions_of(path: Path) -> Regions:
    """Return the parts of a file by name, each with at least one byte; any file has some."""
    data = path.read_bytes()
    if path.suffix == ".sst":
        found = _sst(data)
    elif path.suffix == ".zip":
        found = _zip(data)
    elif path.suffix == ".json":
        found = _json(data)
    elif path.name.startswith("MANIFEST-"):
        found = _rocksdb_log(data)
    else:
        found = {"text": range(len(data))}
    return {name: part for name, part in found.items() if len(part)}


def _sst(data: bytes) -> Regions:
    """Return the regions of a table of RocksDB, `format_version` 5."""
    footer = len(data) - _FOOTER_BYTES
    meta_at, meta_size, rest = _handle(data, footer + 1)
    index_at, index_size, end = _handle(data, rest)
    blocks = {"index": (index_at, index_size)}
    for name, value in _entries(data[meta_at : meta_at + meta_size]):
        at, size, _ = _handle(value, 0)
        blocks[_block_name(name.decode("utf-8"))] = (at, size)
    blocks["metaindex"] = (meta_at, meta_size)
    first = min(at for at, _ in blocks.values())
    found = {
        "data: first record": range(min(16, first)),
        "data": range(16, first - _TRAILER_BYTES),
        "data: checksum": range(first - _TRAILER_BYTES, first),
    }
    for name, (at, size) in blocks.items():
        found[name] = range(at, at + size)
        found[f"{name}: checksum"] = range(at + size, at + size + _TRAILER_BYTES)
    found["footer: checksum type"] = range(footer, footer + 1)
    found["footer: lengths"] = range(footer + 1, end)
    found["footer: padding"] = range(end, footer + 41)
    found["footer: version"] = range(footer + 41, footer + 45)
    found["footer: magic"] = range(footer + 45, len(data))
    return found


def _block_name(name: str) -> str:
    """Return a short name for a block of the metaindex."""
    return next((kind for kind in ("filter", "superseded", "appended", "properties") if kind in name), name)


def _entries(block: bytes) -> list[tuple[bytes, bytes]]:
    """Keys and values of a block that is not compressed."""
    (restarts,) = struct.unpack_from("<I", block, len(block) - 4)
    end, at, key, found = len(block) - 4 - 4 * restarts, 0, b"", []
    while at < end:
        shared, at = _varint(block, at)
        fresh, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + fresh]
        found.append((key, block[at + fresh : at + fresh + length]))
        at += fresh + length
    return found


def _handle(data: bytes, at: int) -> tuple[int, int, int]:
    """Offset and size of a block, and where the next thing begins."""
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return offset, size, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


_LOCAL_HEADER = {
    "signature": 4,
    "version": 2,
    "flags": 2,
    "method": 2,
    "time": 4,
    "crc": 4,
    "lengths": 8,
    "name length": 4,
}
_CENTRAL_HEADER = {
    "signature": 4,
    "versions": 4,
    "flags": 2,
    "method": 2,
    "time": 4,
    "crc": 4,
    "lengths": 8,
    "name length": 6,
    "attributes": 8,
    "offset": 4,
}
_END = {"signature": 4, "disks": 4, "counts": 4, "length": 4, "offset": 4, "comment": 2}


def _zip(data: bytes) -> Regions:
    """Return the regions of an archive without comment: first and last member, directory, end."""
    found: Regions = {}
    end = len(data) - 22
    count, _, directory = struct.unpack_from("<HII", data, end + 10)
    at = directory
    for number in range(count):
        length, name_length, extra, comment = struct.unpack_from("<I4xHHH", data, at + 20)
        (offset,) = struct.unpack_from("<I", data, at + 42)
        name = data[at + 46 : at + 46 + name_length].decode("utf-8")
        for label, start, fields in (("member", offset, _LOCAL_HEADER), ("directory", at, _CENTRAL_HEADER)):
            after = _fields(found, f"{label} {name}" if number == 0 else label, start, fields)
            found[f"{label}: name"] = range(after, after + name_length)
        after = offset + 30 + name_length
        found[f"content: {re.sub('-[0-9]+', '', name)}"] = range(after, after + length)
        at += 46 + name_length + extra + comment
    _fields(found, "end", end, _END)
    return found


def _fields(found: Regions, label: str, at: int, sizes: dict[str, int]) -> int:
    for name, size in sizes.items():
        found[f"{label}: {name}"] = range(at, at + size)
        at += size
    return at


def _json(data: bytes) -> Regions:
    """Return the regions of a JSON object: its punctuation, the name of its first field, the values."""
    text = data.decode("utf-8")
    found = {"punctuation": range(1), "end": range(len(data) - 1, len(data))}
    for name in json.loads(text):
        at = text.index(f'"{name}":')
        value = json.dumps(json.loads(text)[name], separators=(",", ":"), ensure_ascii=False)
        found[f"name of {name}"] = range(at + 1, at + 1 + len(name))
        start = at + len(name) + 3
        found[f"value of {name}"] = range(start, start + len(value))
    return found


def _rocksdb_log(data: bytes) -> Regions:
    """Return the regions of a log of RocksDB (its MANIFEST): headers and contents of some records."""
    found: Regions = {}
    at, number = 0, 0
    while at + 7 <= len(data):
        (length,) = struct.unpack_from("<H", data, at + 4)
        name = "first" if number == 0 else "last"
        found[f"{name} record: checksum"] = range(at, at + 4)
        found[f"{name} record: length"] = range(at + 4, at + 6)
        found[f"{name} record: type"] = range(at + 6, at + 7)
        found[f"{name} record"] = range(at + 7, at + 7 + length)
        at, number = at + 7 + length, number + 1
    return found
