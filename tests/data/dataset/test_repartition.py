"""A checkpoint with another number of partitions: the same rows, each where Spark looks for its key."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import tracemalloc
from pathlib import Path

import numpy
import pyarrow as pa
import pytest

import state_store
from dataset.golden_states import VERSIONS, checkpoint, expected, in_order, shown, stored
from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.core.checkpoint.stored_documents import MARKER
from state_store.core.runtime import SYSTEM
from state_store.core.storage import open_storage
from state_store.data.dataset.rewriting import store_writer
from state_store.data.dataset.rewriting.copying import SHUFFLE_PARTITIONS, repartition
from state_store.data.dataset.rewriting.store_writer import (
    NoReceipts,
    Receipts,
    StoreWriter,
    WrittenStore,
    pieces,
)
from state_store.data.query import Query, StoreKey
from state_store.data.query.targets import RECEIPTS, new_checkpoint
from state_store.data.rows import batches as spools
from state_store.data.rows.batches import KEY, SortedSpool, binaries, pairs, records_of
from state_store.errors import (
    BusyError,
    ConflictError,
    DamagedError,
    FormatError,
    LocalDiskError,
    OptionError,
)

JOIN = Path(__file__).resolve().parents[2] / "golden" / "release-0.2.0"
NEWEST = VERSIONS[-1]


def without_partition(rows: list[dict]) -> list[dict]:
    return in_order({name: value for name, value in row.items() if name != "partition_id"} for row in rows)


@pytest.mark.tier("more")
@pytest.mark.parametrize("name", ["types", "flights"])
@pytest.mark.parametrize("partitions", [1, 5])
def test_rows_are_the_same_and_each_is_found(name, partitions, tmp_path):
    source, target = str(checkpoint(name, tmp_path)), str(tmp_path / "target")
    done = repartition(source, target, partitions)
    rows = expected(name, NEWEST)
    assert (done.version, done.rows) == (NEWEST, len(rows))
    with state_store.open(target) as state:
        assert state.partitions == tuple(range(partitions))
        found = [shown(row) for row in state.to_arrow().to_pylist()]
        assert without_partition(found) == without_partition(rows)
        for row in found:
            again = state.get({key: row[key] for key in state.columns.key_names})
            assert again is not None and shown(again) == row
    assert main(["verify", target]) == 0
    with state_store.open(source) as before:
        assert in_order(shown(row) for row in before.to_arrow().to_pylist()) == rows


def test_a_lost_row_is_an_error(tmp_path, monkeypatch):
    source, target = str(checkpoint("flights", tmp_path)), tmp_path / "target"
    all_rows = store_writer.rows
    monkeypatch.setattr(
        store_writer, "rows", lambda *place: (page.take(slice(1, None)) for page in all_rows(*place))
    )
    with pytest.raises(DamagedError, match="says that it has"):
        repartition(source, str(target), 5)
    assert not target.exists()


@pytest.mark.parametrize("form", ["ids", "no-ids"])
def test_all_stores_of_a_join_are_repartitioned_together(form, tmp_path):
    source, target = str(shutil.copytree(JOIN / form, tmp_path / form)), str(tmp_path / "target")
    repartition(source, target, 3)
    places: dict[str, dict] = {}
    for store in (
        f"{side}-{kind}" for side in ("left", "right") for kind in ("keyToNumValues", "keyWithIndexToValue")
    ):
        with state_store.open(source, store=store) as before, state_store.open(target, store=store) as after:
            rows = after.to_arrow().to_pylist()
            assert without_partition(rows) == without_partition(before.to_arrow().to_pylist())
            for row in rows:
                assert places.setdefault(row["field0"], row["partition_id"]) == row["partition_id"]
    assert set(places.values()) == {0, 1, 2}
    logs = [Query.open(location).committed() for location in (source, target)]
    assert {key.name for key in logs[0]} == {key.name for key in logs[1]}
    assert all((version.checkpoint_id is None) == (form == "no-ids") for version in logs[1].values())


def test_spark_s_logs_have_the_number(tmp_path):
    source, target = checkpoint("flights", tmp_path), tmp_path / "target"
    repartition(str(source), str(target), 7)
    for path in sorted((source / "offsets").glob("[0-9]*")):
        before, after = path.read_text().split("\n"), (target / "offsets" / path.name).read_text().split("\n")
        assert json.loads(before[1])["conf"].pop(SHUFFLE_PARTITIONS) == "2"
        assert json.loads(after[1])["conf"][SHUFFLE_PARTITIONS] == "7"
        assert (before[0], before[2:]) == (after[0], after[2:])
    assert (target / "metadata").read_bytes() == (source / "metadata").read_bytes()
    assert Query.open(str(target)).operators[0].stores == {"default": 7}


def test_impossible_arguments_are_refused(tmp_path):
    source = checkpoint("flights", tmp_path)
    target = str(tmp_path / "target")
    assert main(["repartition", str(source), target, "--partitions", "3", "--json"]) == 0
    with pytest.raises(ConflictError, match="is not empty"):
        repartition(str(source), target, 3)
    with pytest.raises(OptionError, match="partitions is 1 or more"):
        repartition(str(source), str(tmp_path / "other"), 0)
    assert main(["repartition", str(tmp_path / "none"), target, "--partitions", "3"]) == ExitCode.NOT_FOUND
    shutil.rmtree(source / "commits")
    with pytest.raises(DamagedError, match="commit log is lost"):
        repartition(str(source), str(tmp_path / "other"), 3)


@pytest.mark.parametrize("before", [1, 2, 4, 6, 7])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 12])
@pytest.mark.parametrize("at_least", [1, 5])
def test_pieces_write_each_partition_once_and_read_those_whose_rows_go_there(before, count, at_least):
    found = pieces(0, "default", before, count, at_least)
    targets = [target for piece in found for target in piece.targets]
    assert sorted(targets) == list(range(count))
    assert len(found) >= min(at_least, count)
    for hashed in range(before * count):
        (piece,) = (piece for piece in found if hashed % count in piece.targets)
        assert hashed % before in piece.sources
        assert len(piece.sources) == before // math.gcd(before, count)


def test_rows_beyond_the_memory_come_back_sorted_and_those_in_order_as_one_run(tmp_path):
    rows = [(b"%06d" % (number * 7919 % 10_007), b"%d" % number) for number in range(10_000)]
    rows += [(key, b"again") for key, _ in rows[:50]]
    in_order = [(b"%06d" % number, b"") for number in range(10_000)]
    spool = SortedSpool(tmp_path / "rows", memory_bytes=100_000)
    for first in range(0, len(rows), 100):
        spool.add(batch_of(rows[first : first + 100]), 3)
        spool.add(batch_of(in_order[first : first + 100]), 5)
    assert list(records_of(spool.merged(3))) == sorted(rows, key=lambda row: row[0])
    assert spool.runs(3) > 5
    assert list(records_of(spool.merged(5))) == in_order
    assert spool.runs(5) == 1
    assert (spool.rows[3], spool.rows[5]) == (len(rows), len(in_order))
    assert spool.sizes[5] == 60_000
    assert not list(spool.merged(4))
    spool.close()


def test_rows_of_a_batch_go_each_to_its_partition_in_the_order_of_their_coming(tmp_path):
    rows = [(b"%03d" % (number * 7 % 500), b"%d" % number) for number in range(2000)]
    spool = SortedSpool(tmp_path / "rows", memory_bytes=10_000)
    for first in range(0, len(rows), 90):
        some = rows[first : first + 90]
        spool.add(batch_of(some), numpy.array([int(key) % 3 for key, _ in some]))
    for partition in range(3):
        expected = [row for row in rows if int(row[0]) % 3 == partition]
        assert list(records_of(spool.merged(partition))) == sorted(expected, key=lambda row: row[0])
        assert spool.rows[partition] == len(expected)
    spool.close()


@pytest.mark.parametrize("step_bytes", [1, 2000, 1 << 20])
def test_all_rows_of_a_key_come_in_one_batch(step_bytes, tmp_path, monkeypatch):
    """The rows of a key of a list, or of a side of a join, are looked at together."""
    monkeypatch.setattr(spools, "_STEP_BYTES", step_bytes)
    monkeypatch.setattr(spools, "_CHUNK_BYTES", 300)
    rows = [(b"%03d" % (number * number % 97), b"%d" % number) for number in range(3000)]
    spool = SortedSpool(tmp_path / "rows", memory_bytes=20_000)
    for first in range(0, len(rows), 100):
        spool.add(batch_of(rows[first : first + 100]), 0)
    batches = list(spool.merged(0))
    assert spool.runs(0) > 3 and (len(batches) > 10 or step_bytes > 2000)
    assert list(records_of(batches)) == sorted(rows, key=lambda row: row[0])
    keys = [set(batch[KEY].to_pylist()) for batch in batches]
    assert sum(map(len, keys)) == len(set.union(*keys))
    spool.close()


def batch_of(rows: list[tuple[bytes, bytes]]) -> pa.RecordBatch:
    return pairs(binaries(key for key, _ in rows), binaries(value for _, value in rows))


class Peak:
    """The bytes that Arrow and Python have taken at most in a block of `with`."""

    size_bytes = 0

    def __enter__(self) -> Peak:
        self._usual = pa.default_memory_pool()
        self._pool = pa.proxy_memory_pool(self._usual)
        pa.set_memory_pool(self._pool)
        tracemalloc.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.size_bytes = self._pool.max_memory() + tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        pa.set_memory_pool(self._usual)


@pytest.mark.tier("more")
def test_memory_does_not_grow_with_a_partition(tmp_path, monkeypatch):
    """A chunk is read at a time, and sorted rows are one run."""
    monkeypatch.setattr(spools, "_STEP_BYTES", 256 << 10)
    peaks = []
    for count in (1000, 20_000, 80_000):  # the first imports what is missing
        with Peak() as peak:
            spool = SortedSpool(tmp_path / str(count), memory_bytes=1 << 20)
            for first in range(0, count, 500):
                spool.add(batch_of([(b"%08d" % key, bytes(100)) for key in range(first, first + 500)]), 0)
            assert sum(map(len, spool.merged(0))) == count
            spool.close()
        peaks.append(peak.size_bytes)
    assert peaks[2] < 1.2 * peaks[1] < 6 << 20


@pytest.mark.parametrize("value_bytes", [100, 20_000])
def test_memory_of_many_runs_is_some_kilobytes_of_each(value_bytes, tmp_path, monkeypatch):
    """Rows come in no order, and become a run each time that the memory is full."""
    monkeypatch.setattr(spools, "_STEP_BYTES", 256 << 10)
    count, at_once = 16_000_000 // (8 + value_bytes), max(1, 50_000 // value_bytes)
    spool = SortedSpool(tmp_path / "rows", memory_bytes=1 << 20)
    for first in range(0, count, at_once):
        numbers = range(first, min(first + at_once, count))
        spool.add(
            batch_of([(b"%08d" % (number * 7919 % count), bytes(value_bytes)) for number in numbers]), 0
        )
    with Peak() as peak:
        assert sum(map(len, spool.merged(0))) == count
    assert spool.runs(0) >= 10
    assert peak.size_bytes < spool.runs(0) * (256 << 10) + (2 << 20) < 8 << 20
    spool.close()


def test_a_disk_without_room_is_said_before_anything_is_written(tmp_path, monkeypatch):
    source, target = str(checkpoint("flights", tmp_path)), tmp_path / "target"
    written: list = []
    monkeypatch.setattr(store_writer, "free_bytes", lambda directory: 100)
    monkeypatch.setattr(store_writer, "write_delta", lambda *given: written.append(given))
    with pytest.raises(LocalDiskError, match=r"the disk of '.*' has 0 MiB free, and about .* are needed"):
        repartition(source, str(target), 5)
    assert not target.exists() and not written


def test_rows_that_the_disk_loses_on_the_way_are_missed(tmp_path, monkeypatch):
    source, target = str(checkpoint("flights", tmp_path)), tmp_path / "target"
    merged = SortedSpool.merged
    monkeypatch.setattr(SortedSpool, "merged", lambda *of: (batch.slice(1) for batch in merged(*of)))
    with pytest.raises(DamagedError, match=r"4 rows of store 0/0/default came back"):
        repartition(source, str(target), 1)
    assert not target.exists()


@pytest.mark.parametrize("form", ["ids", "no-ids"])
def test_a_second_writer_of_a_store_takes_what_the_first_has_written(form, tmp_path):
    """A task runs twice, at the same time or after a failure that left a delta: one delta counts."""
    query = Query.open(str(shutil.copytree(JOIN / form, tmp_path / form)))
    target = str(tmp_path / "target")
    (operator,), store = query.operators, "left-keyToNumValues"
    (piece, *_) = pieces(0, store, operator.stores[store], 2 * operator.stores[store])
    version, has_ids = query.committed_batch() + 1, form == "ids"
    with new_checkpoint("a job", query.location, target, goes_on=True) as (_, location):
        receipts = Receipts(location)

        def writer(counts: Receipts) -> StoreWriter:
            return StoreWriter(query, operator, piece, location, version, has_ids, counts, None, SYSTEM)

        writer(NoReceipts(location)).write()  # killed before it made its receipts
        first = writer(receipts).write()

        class Unaware(Receipts):
            """Receipts of which a task has seen none when it began."""

            looks = itertools.count()

            def of(self, key):
                return None if next(self.looks) < len(piece.targets) else super().of(key)

        assert writer(Unaware(location)).write() == first
        assert writer(receipts).write() == first
        keys = [StoreKey(0, number, store) for number in piece.targets]
        assert [len(list((tmp_path / "target" / key.path / "delta").iterdir())) for key in keys] == [2, 2]
        receipts.remove_orphans(zip(keys, first.values(), strict=True))
    for key, written in zip(keys, first.values(), strict=True):
        (delta,) = (tmp_path / "target" / key.path / "delta").iterdir()
        assert written.path == f"delta/{delta.name}"
    with pytest.raises(BusyError, match="has ended without this task"):
        writer(receipts).write()
    assert [len(list((tmp_path / "target" / key.path / "delta").iterdir())) for key in keys] == [1, 1]


def test_a_delta_that_may_count_stays_when_the_job_ends_before_its_writer_knows(tmp_path):
    """The answer to the receipt was lost, another task took the receipt's word, and the job ended."""
    key, storage = StoreKey(0, 3, "default"), open_storage(str(tmp_path))
    receipts, written = Receipts(str(tmp_path)), WrittenStore("id", "delta/1_id.sst", 1, 2)
    storage.write(MARKER, b'{"operation": "a job", "source": null}')
    storage.write(f"{key.path}/{written.path}", b"rows")
    assert receipts.claim(key, written) == written

    class Late(Receipts):
        def of(self, key):
            storage.delete_directory(RECEIPTS)
            return super().of(key)

    with pytest.raises(BusyError, match="has ended without this task"):
        Late(str(tmp_path)).claim(key, written)
    assert storage.read(f"{key.path}/{written.path}") == b"rows"


def test_keys_in_another_partition_than_spark_s_hash_are_not_moved(tmp_path):
    source = checkpoint("flights", tmp_path)
    first, second = source / "state/0/0", source / "state/0/1"
    first.rename(tmp_path / "kept")
    second.rename(first)
    (tmp_path / "kept").rename(second)
    commit = max((source / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    lines = commit.read_text().split("\n")
    entry = json.loads(lines[1])
    entry["stateUniqueIds"]["0"].reverse()
    commit.write_text("\n".join([lines[0], json.dumps(entry)]))
    shutil.copytree(second / "_metadata", first / "_metadata")
    with pytest.raises(FormatError, match="not in the partition in which Spark's hash"):
        repartition(str(source), str(tmp_path / "target"), 3)


def test_strings_that_are_not_utf_8_go_to_their_partitions(tmp_path):
    """Spark makes them of binaries, such as keys of Kafka, and hashes their bytes."""
    source, target = checkpoint("types", tmp_path), str(tmp_path / "target")
    with state_store.open(source) as state:
        rows = state.to_arrow().drop_columns(["partition_id"]).combine_chunks()
    texts = [b"\xff\xfe%d" % number for number in range(len(rows))]
    broken = pa.array(texts, pa.binary()).view(pa.string())
    rows = rows.set_column(0, rows.schema.field(0), broken)
    state_store.import_state(source, rows, tmp_path / "odd")
    with pytest.raises(DamagedError, match=r"not UTF-8 .* made it, by a cast of a binary"):
        state_store.show(str(tmp_path / "odd"))
    repartition(tmp_path / "odd", target, 3)
    repartition(target, tmp_path / "back", 2)
    assert stored(str(tmp_path / "back")) == stored(str(tmp_path / "odd"))
    assert all(len(partition) < len(rows) for partition in stored(target))
    with state_store.open(target) as state:
        assert state.to_pandas(["count"])["count"].sum() == sum(rows["count"].to_pylist())
