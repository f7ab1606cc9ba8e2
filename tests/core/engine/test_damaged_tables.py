"""Tables of which one number is wrong are refused by each reader, and none returns other rows.

The tables are made here, part by part. Files whose checksums are wrong do not come to these readers, but a
table that was damaged before its checksum was made, or written by another program, does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from state_store.core.checkpoint.stored_documents import META_KEY
from state_store.core.engine import rows
from state_store.core.engine.rows import pages
from state_store.core.engine.table import (
    FOOTER_BYTES,
    MAGIC,
    PROPERTIES,
    PUT,
    blocks,
    content_of,
    handle_at,
    key_bounds,
    mapped,
    number_of_records,
    read_metadata,
    read_records,
    varint_at,
)
from state_store.errors import DamagedError, FormatError

START, END = b"\0\0", b"\0\1"
NAMES = b"abcdef"


def varint(number: int, size: int = 0) -> bytes:
    """Return a number, 7 bits a byte, in `size` bytes at least."""
    parts = [number & 0x7F]
    while number := number >> 7:
        parts.append(number & 0x7F)
    parts += [0] * (size - len(parts))
    return bytes(part | 0x80 for part in parts[:-1]) + bytes(parts[-1:])


def fixed(number: int) -> bytes:
    return number.to_bytes(4, "little")


def key(name: int, kind: int = PUT) -> bytes:
    """Return a key as blocks have it, with its footer."""
    return START + bytes([name, kind]) + bytes(7)


def entry(rest: bytes, value: bytes, shared: int = 0, lengths: bytes | None = None) -> bytes:
    lengths = varint(shared) + varint(len(rest)) + varint(len(value)) if lengths is None else lengths
    return lengths + rest + value


def block(entries: Sequence[bytes], restarts: Iterable[int] | None = None, count: int | None = None) -> bytes:
    """Return a block in which each entry is a restart, or those that are given."""
    if restarts is None:
        restarts = [sum(map(len, entries[:number])) for number in range(len(entries))]
    places = list(restarts)
    number = len(places) if count is None else count
    return b"".join([*entries, *map(fixed, places), fixed(number)])


def handle(offset: int, size: int) -> bytes:
    return varint(offset) + varint(size)


META = entry(META_KEY + bytes([PUT]) + bytes(7), b"record")


def good_data() -> list[bytes]:
    """Return the blocks of a delta: without its last record a reader would refuse it anyway."""
    rows = [entry(key(name), b"12"[at % 2 : at % 2 + 1]) for at, name in enumerate(NAMES)]
    return [block(rows[:2]), block(rows[2:4]), block([*rows[4:], META])]


@dataclass
class Table:
    """A table of parts that may be wrong. `index` makes the index of the entries that lead to the blocks."""

    data: Sequence[bytes] = field(default_factory=good_data)
    kind: int = 0
    index: Callable[[list[bytes]], bytes] = block
    properties: bytes | None = None
    meta: bytes | None = None
    handles: bytes | None = None
    magic: int = MAGIC

    def content(self) -> bytes:
        out = b""

        def put(content: bytes, kind: int = 0) -> tuple[int, int]:
            nonlocal out
            place = len(out), len(content)
            out += content + bytes([kind]) + bytes(4)
            return place

        separators = [START + NAMES[at + 1 : at + 2] for at in range(0, 6, 2)]
        entries = [
            entry(b"", b"", lengths=varint(0) + varint(len(last)) + last + handle(*put(content, self.kind)))
            for last, content in zip(separators, self.data, strict=False)
        ]
        index = put(self.index(entries))
        properties = put(
            self.properties
            if self.properties is not None
            else block(
                [
                    entry(b"rocksdb.index.value.is.delta.encoded", varint(1)),
                    entry(b"rocksdb.num.entries", varint(6)),
                ]
            )
        )
        meta = put(block([entry(PROPERTIES, handle(*properties))]) if self.meta is None else self.meta)
        handles = handle(*meta) + handle(*index) if self.handles is None else self.handles
        footer = b"\1" + handles
        return out + footer + bytes(FOOTER_BYTES - 8 - len(footer)) + self.magic.to_bytes(8, "little")


def with_data(content: bytes, kind: int = 0) -> Table:
    return Table(data=[content, *good_data()[1:]], kind=kind)


def with_second(lengths: bytes, rest: bytes = key(NAMES[1]), value: bytes = b"2") -> Table:
    """Return a table whose second entry, no restart, has these lengths: shared, not shared, of the value."""
    return with_data(block([entry(key(NAMES[0]), b"1"), entry(rest, value, lengths=lengths)], [0]))


def read_pages(path: Path) -> Any:
    return [(page.keys.to_list(), page.values.to_list()) for page in pages(path, START, END)]


def read_all(path: Path) -> Any:
    return list(read_records(path))


READERS = {"pages": read_pages, "records": read_all}
LZ4 = pyarrow.Codec("lz4_raw")


def compressed(length: int, content: bytes) -> Table:
    packed = [varint(len(part)) + LZ4.compress(part, asbytes=True) for part in good_data()]
    return Table(data=[varint(length) + content, *packed[1:]], kind=4)


PACKED = LZ4.compress(good_data()[0], asbytes=True)

ENTRIES = {
    "shared-too-much": with_second(varint(12) + varint(11) + varint(1)),
    "shared-by-the-first": with_data(block([entry(key(NAMES[0]), b"1", shared=1)])),
    "rest-beyond": with_second(varint(0) + varint(1 << 20) + varint(1)),
    "value-beyond": with_second(varint(0) + varint(11) + varint(1 << 20)),
    "value-in-the-restarts": with_second(varint(0) + varint(11) + varint(3)),
    "shorter-than-its-footer": with_second(varint(0) + varint(7) + varint(5)),
    "number-without-end": with_second(b"\x80" * 12),
}
RESTARTS = {
    "none": with_data(good_data()[0][:-4] + fixed(0)),
    "too-many": with_data(good_data()[0][:-4] + fixed(1 << 20)),
    "as-many-as-a-number-has": with_data(good_data()[0][:-4] + b"\xff" * 4),
    "no-room": with_data(b"\0\0"),
}
THIRD_AT = sum(len(content) + 5 for content in good_data()[:2])
LONG_HANDLE = varint(THIRD_AT, 7) + varint(len(good_data()[2]))
ONLY_PAGES = {
    "shared-at-a-restart": with_data(
        block([entry(key(NAMES[0]), b"1"), entry(key(NAMES[1])[2:], b"2", shared=2)])
    ),
    "number-of-49-bits": Table(
        index=lambda entries: block([*entries[:2], varint(0) + varint(3) + START + b"f" + LONG_HANDLE])
    ),
    "begins-late": with_data(block([entry(key(NAMES[0]), b"1"), entry(key(NAMES[1]), b"2")], [15])),
    "before-the-one-before": with_data(block([entry(key(name), b"1") for name in NAMES[:3]], [0, 30, 15])),
    "beyond": with_data(block([entry(key(name), b"1") for name in NAMES[:3]], [0, 1 << 20, 30])),
    "within-an-entry": with_data(block([entry(key(name), b"1") for name in NAMES[:3]], [0, 17, 30])),
}
COMPRESSED = {
    "too-long": compressed(1 << 40, PACKED),
    "longer-than-a-number": compressed((1 << 63) + 5, PACKED),
    "shorter": compressed(len(good_data()[0]) - 1, PACKED),
    "garbage": compressed(50, b"\xff" * 20),
}
INDEXES = {
    "count-beyond": Table(index=lambda entries: block(entries, count=1 << 20)),
    "count-beyond-its-bytes": Table(
        data=[block([entry(key(NAMES[0]), bytes(150)), META])], index=lambda entries: block(entries, count=4)
    ),
    "restart-beyond": Table(index=lambda entries: block(entries, [0, 7, 1 << 20])),
    "block-beyond": Table(
        index=lambda entries: block(
            [*entries[:2], varint(0) + varint(3) + START + b"f" + handle(1 << 20, 30)]
        )
    ),
    "no-entry": Table(index=lambda entries: block([])),
    "magic": Table(magic=MAGIC + 1),
    "index-beyond": Table(handles=handle(0, 10) + handle(1 << 20, 30)),
    "number-of-80-bits": Table(handles=varint(0, 12) + varint(10) + handle(0, 10)),
}
KINDS = {"entries": ENTRIES, "restarts": RESTARTS, "compressed": COMPRESSED, "index": INDEXES}
ALL = {f"{kind}-{name}": table for kind, tables in KINDS.items() for name, table in tables.items()}


def written(path: Path, table: Table) -> Path:
    path.write_bytes(table.content())
    return path


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("table", ALL.values(), ids=ALL)
def test_a_table_with_a_wrong_number_is_refused(tmp_path, reader, table):
    path = written(tmp_path / "a.sst", table)
    with pytest.raises(DamagedError, match=r"a\.sst' is damaged"):
        reader(path)


@pytest.mark.parametrize("table", ONLY_PAGES.values(), ids=ONLY_PAGES)
def test_restarts_that_lead_elsewhere_are_refused(tmp_path, table):
    """Readers of records do not follow them."""
    path = written(tmp_path / "a.sst", table)
    with pytest.raises(DamagedError):
        read_pages(path)


def test_tables_without_a_wrong_number_are_read(tmp_path):
    """The makers make good tables: else each refusal would prove nothing."""
    for number, table in enumerate([Table(), compressed(len(good_data()[0]), PACKED)]):
        path = written(tmp_path / f"{number}.sst", table)
        expected = {START + bytes([name]): b"12"[at % 2 : at % 2 + 1] for at, name in enumerate(NAMES)}
        (found,) = read_pages(path)
        assert dict(zip(*found, strict=True)) == expected
        assert dict(read_all(path)) == expected
        assert number_of_records(path) == 6
        assert key_bounds(path) == (START + b"a", START + b"f")
        assert [entry.separator for entry in blocks(mapped(path), path)] == [
            START + b"b",
            START + b"d",
            START + b"f",
        ]


def test_records_of_an_unknown_kind_are_refused(tmp_path):
    path = written(tmp_path / "a.sst", with_data(block([entry(key(NAMES[0], kind=2), b"1")])))
    with pytest.raises(FormatError, match="records of a kind"):
        read_pages(path)
    with pytest.raises(DamagedError, match="record of type 2"):
        read_all(path)


def test_blocks_of_an_unknown_compression_are_refused(tmp_path):
    path = written(tmp_path / "a.sst", Table(kind=7))
    for reader in READERS.values():
        with pytest.raises(FormatError, match="compression"):
            reader(path)


def test_a_block_with_more_records_than_memory_holds_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "_MATRIX_BYTES", 3)
    with pytest.raises(DamagedError):
        read_pages(written(tmp_path / "a.sst", Table()))


@pytest.mark.parametrize("content", [b"", b"short"], ids=["empty", "short"])
def test_files_that_are_no_tables_are_refused(tmp_path, content):
    path = tmp_path / "a.sst"
    path.write_bytes(content)
    for reader in (*READERS.values(), number_of_records, read_metadata, key_bounds):
        with pytest.raises(DamagedError):
            reader(path)


def test_the_reserved_record_is_the_last(tmp_path):
    """A record after it would be lost: readers end there."""
    last = written(tmp_path / "last.sst", Table())
    assert read_metadata(last) == b"record"
    for number, rest in enumerate([[META, entry(key(NAMES[4]), b"1")], [entry(key(NAMES[4]), b"1")], []]):
        other = written(tmp_path / f"{number}.sst", Table(data=[*good_data()[:2], block(rest)]))
        with pytest.raises(DamagedError, match="lacks the reserved record"):
            read_metadata(other)
    without = written(tmp_path / "without.sst", Table(data=good_data()[:2]))
    with pytest.raises(DamagedError, match="lacks the reserved record"):
        read_all(without)


@pytest.mark.parametrize(
    "data",
    [
        [good_data()[1], good_data()[0], good_data()[2]],
        [block([entry(key(NAMES[1]), b"1"), entry(key(NAMES[0]), b"2")]), *good_data()[1:]],
        [*good_data()[:2], block([entry(key(NAMES[5]), b"1"), entry(key(NAMES[4]), b"2")])],
        [block([entry(META_KEY + key(0)[-8:], b"record")])],
    ],
    ids=["blocks", "first", "last", "no-key"],
)
def test_bounds_of_keys_out_of_order_are_no_bounds(tmp_path, data):
    with pytest.raises(DamagedError, match="no order"):
        key_bounds(
            written(tmp_path / "a.sst", Table(data=data, index=lambda entries: block(sorted(entries))))
        )


@pytest.mark.parametrize(
    "table",
    [
        Table(properties=block([entry(b"rocksdb.other", varint(6))])),
        Table(properties=block([entry(b"rocksdb.num.entries", b"\x80")])),
        Table(meta=block([entry(b"other", handle(0, 10))])),
        Table(meta=block([entry(PROPERTIES, handle(1 << 20, 10))])),
    ],
    ids=["no-number", "a-half-number", "none", "beyond"],
)
def test_a_table_without_a_number_of_records_has_none(tmp_path, table):
    with pytest.raises(DamagedError, match="properties cannot be read"):
        number_of_records(written(tmp_path / "a.sst", table))


@pytest.mark.parametrize("content", [bytes(20), b"\1" + bytes([0x80] * 44)], ids=["short", "numbers"])
def test_a_footer_that_cannot_be_read_is_damage(tmp_path, content):
    path = tmp_path / "a.sst"
    path.write_bytes(content + MAGIC.to_bytes(8, "little"))
    for reader in (*READERS.values(), number_of_records, read_metadata, key_bounds):
        with pytest.raises(DamagedError):
            reader(path)


def test_numbers_have_64_bits():
    assert varint_at(varint((1 << 64) - 1), 0) == ((1 << 64) - 1, 10)
    assert handle_at(handle(300, 7) + b"\0", 0) == ((300, 7), 3)
    with pytest.raises(ValueError, match="more than 64 bits"):
        varint_at(varint(5, 11), 0)
    with pytest.raises(IndexError):
        varint_at(b"\x80\x80", 0)


def test_lz4_makes_no_more_than_256_bytes_of_one():
    """A block of zeros comes near to that, and is read."""
    zeros = bytes(1 << 20)
    packed = LZ4.compress(zeros, asbytes=True)
    content = varint(len(zeros)) + packed
    assert content_of(content + b"\4", 0, len(content)) == zeros
    assert len(zeros) > 200 * len(content)
