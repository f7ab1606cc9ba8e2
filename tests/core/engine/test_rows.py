"""Rows read with numpy are those that RocksDB's iterator shows, and records of a table those that it has."""

from __future__ import annotations

import random
import shutil
import tempfile
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from state_store.core.checkpoint.stored_documents import META_KEY, ColumnFamily, DeltaMetadata
from state_store.core.engine.database import Database, DatabaseSettings, write_delta
from state_store.core.engine.rows import (
    _LONG_SLICE,
    ByteSlices,
    Page,
    _first_occurrences,
    copy_slices,
    merged,
    pages,
    rows,
)
from state_store.core.engine.table import read_metadata, read_records
from state_store.errors import DamagedError

FAMILIES = (b"\0\0", b"\0\1", b"\1\0")
KEYS = st.builds(
    lambda family, key: family + key,
    st.sampled_from(FAMILIES),
    st.binary(max_size=3) | st.integers(0, 400).map(lambda number: number.to_bytes(19, "big")),
)
VALUES = st.none() | st.binary(max_size=3) | st.sampled_from([b"v" * 200])
DELTAS = st.lists(st.dictionaries(KEYS, VALUES, max_size=30), min_size=1, max_size=4)
Delta = dict[bytes, "bytes | None"]


def written(path: Path, delta: Delta, version: int, settings: DatabaseSettings) -> Path:
    metadata = DeltaMetadata(version, None, None, 0, 0, 0, {"default": ColumnFamily(0)}, "tests")
    write_delta(path, sorted(delta.items()), metadata, settings)
    return path


def of_page(page: Page) -> list[tuple[bytes, bytes]]:
    assert not page.removed.any()
    keys, values = (
        [parts.data.tobytes()[at : at + size] for at, size in zip(parts.starts, parts.lengths, strict=True)]
        for parts in (page.keys, page.values)
    )
    return list(zip(keys, values, strict=True))


def check(directory: Path, deltas: list[Delta], settings: DatabaseSettings, merge_after: int) -> None:
    expected: dict[bytes, bytes] = {}
    with Database(directory, settings, create=True) as database:
        for version, delta in enumerate(deltas, 1):
            database.ingest([written(directory.parent / f"{version}.sst", delta, version, settings)])
            if version == merge_after:
                database.compact_all()
            expected.update(delta)
    expected = {key: value for key, value in expected.items() if value is not None}
    for family in FAMILIES:
        end = (int.from_bytes(family, "big") + 1).to_bytes(2, "big")
        found = [row for page in rows(directory, settings, family, end) for row in of_page(page)]
        assert len({key for key, _ in found}) == len(found)
        assert dict(found) == {key: value for key, value in expected.items() if key.startswith(family)}


@settings(max_examples=15)
@given(DELTAS, st.integers(0, 6), st.sampled_from(["none", "lz4"]))
@example([{b"\0\0a": b"1", b"\0\0b": b"2"}, {b"\0\0a": None, b"\0\0c": b"3"}, {b"\0\0a": b"4"}], 1, "none")
def test_rows_are_those_of_the_database(deltas: list[Delta], merge_after: int, compression: str) -> None:
    with tempfile.TemporaryDirectory() as root:
        check(Path(root) / "database", deltas, DatabaseSettings(compression=compression), merge_after)


@pytest.mark.parametrize("spare_bytes", [-(1 << 40), 30_000, 1 << 40])
def test_rows_are_merged_from_many_blocks_in_many_groups(tmp_path, monkeypatch, spare_bytes):
    """The keys are read into matrices always, never, or where these are small."""
    monkeypatch.setattr("state_store.core.engine.rows.PAGE_BYTES", 10_000)
    monkeypatch.setattr("state_store.core.engine.rows._YOUNG_BYTES", 0)
    monkeypatch.setattr("state_store.core.engine.rows._MIN_PAGE_BYTES", 5_000)
    monkeypatch.setattr("state_store.core.engine.rows._SPARE_BYTES", spare_bytes)
    deltas: list[Delta] = [
        {
            b"\0\0" + b"k" * (number % 90) + number.to_bytes(4, "big"): b"v" * (number % 300)
            for number in range(start, 4000, 3)
        }
        for start in range(3)
    ]
    check(tmp_path / "database", deltas, DatabaseSettings(), 2)


@pytest.mark.parametrize("merge_after", [0, 1, 3])
def test_runs_that_overlap_are_merged_page_by_page(tmp_path, monkeypatch, merge_after):
    """Keys of several lengths in many pages of each run, some of which removes what older ones have."""
    monkeypatch.setattr("state_store.core.engine.rows.PAGE_BYTES", 9_000)
    monkeypatch.setattr("state_store.core.engine.rows._YOUNG_BYTES", 0)
    monkeypatch.setattr("state_store.core.engine.rows._MIN_PAGE_BYTES", 3_000)
    chance = random.Random(merge_after)
    deltas: list[Delta] = [
        {
            b"\0\0" + number.to_bytes(4, "big") + b"k" * (number % 37): None
            if chance.random() < 0.2
            else chance.randbytes(chance.randrange(90))
            for number in chance.sample(range(first, 3000), count)
        }
        for first, count in [(0, 2900), (0, 60), (1500, 900), (2990, 5), (0, 1200)]
    ]
    directory = tmp_path / "database"
    check(directory, deltas, DatabaseSettings(), merge_after)
    with Database(directory, DatabaseSettings()) as database:
        assert len(database.runs()) == 5 - max(0, merge_after - 1), "a reading compacted"


def test_no_more_than_a_page_of_each_run_is_read_ahead():
    asked: list[str] = []

    def run(name: str, parts: list[range]) -> Iterator[Page]:
        for part in parts:
            asked.append(name)
            yield page([number.to_bytes(4, "big") for number in part], name.encode())

    young = run("young", [range(10, 20, 2), range(35, 38)])
    old = run("old", [range(first, first + 10) for first in range(0, 50, 10)])
    found: dict[int, bytes] = {}
    for stretch in merged([young, old]):
        rows = {int.from_bytes(key, "big"): value for key, value in of_page(stretch)}
        assert asked.count("old") <= max(rows) // 10 + 2
        assert asked.count("young") == 1 or max(rows) > 10
        found |= rows
    assert found == {
        number: b"young" if number in (*range(10, 20, 2), 35, 36, 37) else b"old" for number in range(50)
    }


def test_the_newest_of_several_runs_counts():
    """Also where a key is the first or the last of a run, and where a removal is the newest."""
    newest = replace(page([b"b", b"d"], b"3"), removed=numpy.array([False, True]))
    runs = [[newest], [page([b"a", b"b", b"d"], b"2")], [page([b"b", b"c", b"d"], b"1")]]
    found = [row for stretch in merged([iter(run) for run in runs]) for row in of_page(stretch)]
    assert sorted(found) == [(b"a", b"2"), (b"b", b"3"), (b"c", b"1")]


@pytest.mark.parametrize("few", [0, 4096])
def test_keys_of_few_records_and_of_many_are_told_apart(monkeypatch, few):
    """Arrow numbers those of many; a set has those of few."""
    monkeypatch.setattr("state_store.core.engine.rows._FEW_KEYS", few)
    keys = [b"", b"a", b"", b"b", b"a", b"a\0", b"c", b"b"]
    data = numpy.frombuffer(b"".join(keys), numpy.uint8)
    lengths = numpy.array([len(key) for key in keys])
    slices = ByteSlices(data, numpy.cumsum(lengths) - lengths, lengths)
    assert _first_occurrences(slices).tolist() == [key not in keys[:at] for at, key in enumerate(keys)]


def test_a_few_records_are_looked_for_in_many():
    """Bounds that are keys, neighbours of keys, absent keys, and beyond both ends."""
    many = [number.to_bytes(2, "big") for number in range(10, 5000, 3)]
    few = [number.to_bytes(2, "big") for number in (9, 10, 11, 13, 14, 4999, 5000)]
    taken = replace(page(few, b"new"), removed=numpy.array([False, True, False, False, True, False, True]))
    found = dict(
        row for stretch in merged([iter([taken]), iter([page(many, b"old")])]) for row in of_page(stretch)
    )
    expected = dict.fromkeys(many, b"old") | dict.fromkeys(few, b"new")
    for gone in (10, 14, 5000):
        del expected[gone.to_bytes(2, "big")]
    assert found == expected


def page(keys: list[bytes], value: bytes) -> Page:
    """Return a page of these keys, all with that value."""
    parts = [stretches(keys), stretches([value] * len(keys))]
    return Page(*parts, numpy.zeros(len(keys), bool))


def stretches(parts: list[bytes]) -> ByteSlices:
    lengths = numpy.array([len(part) for part in parts], numpy.int64)
    return ByteSlices(
        numpy.frombuffer(b"".join(parts) + bytes(32), numpy.uint8), numpy.cumsum(lengths) - lengths, lengths
    )


@settings(max_examples=30)
@given(st.lists(st.binary(max_size=20), min_size=1, max_size=30, unique=True), st.data())
def test_the_newest_record_of_a_key_in_several_runs_counts(keys: list[bytes], data: st.DataObject) -> None:
    parts = data.draw(st.lists(st.lists(st.sampled_from(keys), unique=True), max_size=4))
    runs = [[page(sorted(part), str(number).encode())] if part else [] for number, part in enumerate(parts)]
    found = [row for stretch in merged([iter(run) for run in runs]) for row in of_page(stretch)]
    expected = {
        key: str(number).encode() for number, part in reversed(list(enumerate(parts))) for key in part
    }
    assert sorted(found) == sorted(expected.items())


def test_records_of_a_delta_have_its_removals(tmp_path):
    delta: Delta = {
        b"\0\0" + number.to_bytes(4, "big"): None if number % 3 else b"v" * number for number in range(900)
    }
    path = written(tmp_path / "delta.sst", delta, 1, DatabaseSettings())
    assert dict(read_records(path)) == delta
    assert META_KEY not in dict(read_records(path))


def test_damaged_tables_are_an_error(tmp_path):
    delta: Delta = {b"\0\0" + number.to_bytes(4, "big"): b"v" * 9 for number in range(300)}
    data = written(tmp_path / "delta.sst", delta, 1, DatabaseSettings()).read_bytes()
    for length in (0, 10, 60, len(data) // 2, len(data) - 1):
        (tmp_path / "short.sst").write_bytes(data[:length])
        with pytest.raises(DamagedError, match=r"short\.sst' is damaged"):
            list(read_records(tmp_path / "short.sst"))
    shutil.rmtree(tmp_path)


def resident_bytes(path: Path) -> int:
    """Return the bytes of a mapped file that are in the memory of this process."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    places = [number for number, line in enumerate(lines) if line.endswith(str(path))]
    return sum(
        int(line.split()[1]) << 10
        for place in places
        for line in lines[place + 1 : place + 8]
        if line.startswith("Rss:")
    )


def test_a_large_table_is_not_in_memory_after_it_was_read(tmp_path):
    """Containers of YARN are limited by resident memory, in which files that are mapped count."""
    path = tmp_path / "large.sst"
    value = bytes(2_000)
    delta = {b"\0\0" + number.to_bytes(4, "big"): value for number in range(8_000)}
    written(path, delta, 1, DatabaseSettings())
    size_bytes, page_bytes, peak, found = path.stat().st_size, 256 << 10, 0, 0
    for page in pages(path, b"\0\0", b"\0\1", page_bytes):
        found += len(page)
        peak = max(peak, resident_bytes(path))
    assert found == len(delta) and size_bytes > 15_000_000
    assert 0 < peak < size_bytes // 4


def test_a_page_can_be_read_after_the_next_ones(tmp_path):
    path = tmp_path / "table.sst"
    delta = {b"\0\0" + number.to_bytes(4, "big"): bytes([number % 256]) * 900 for number in range(2_000)}
    written(path, delta, 1, DatabaseSettings())
    found = list(pages(path, b"\0\0", b"\0\1", 64 << 10))
    assert len(found) > 10
    assert [row for page in found for row in of_page(page)] == sorted(delta.items())


@pytest.mark.parametrize("kind", [numpy.uint8, numpy.int64])
def test_slices_of_any_length_are_copied(kind):
    lengths = numpy.array([0, 1, _LONG_SLICE - 1, _LONG_SLICE, 3, 20 * _LONG_SLICE, 0, 2])
    source = numpy.arange(int(lengths.sum()) + 10).astype(kind)
    starts = numpy.cumsum(lengths) - lengths + 10
    target = numpy.zeros(len(source), kind)
    places = numpy.cumsum(lengths[::-1])[::-1] - lengths
    copy_slices(target, places, source, starts, lengths)
    for place, start, length in zip(places, starts, lengths, strict=True):
        assert (target[place : place + length] == source[start : start + length]).all()


def test_memory_does_not_grow_with_a_table(tmp_path, monkeypatch):
    """A part of the index is decoded at a time, and the record of a delta is looked for at its end."""
    monkeypatch.setattr("state_store.core.engine.rows._ENTRIES", 256)
    settings = DatabaseSettings(block_bytes=64)
    peaks: dict[str, list[int]] = {"pages": [], "metadata": []}
    for count in (4_000, 40_000):
        delta: Delta = {b"\0\0%08d" % number: bytes(60) for number in range(count)}
        path = written(tmp_path / f"{count}.sst", delta, 1, settings)
        tracemalloc.start()
        assert sum(len(page) for page in pages(path, b"\0\0", b"\0\1", 8_000)) == count
        peaks["pages"].append(tracemalloc.get_traced_memory()[1])
        tracemalloc.reset_peak()
        assert b'"version":1' in read_metadata(path)
        peaks["metadata"].append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    for of_few, of_many in peaks.values():
        assert of_many < of_few + (256 << 10) < path.stat().st_size / 8
