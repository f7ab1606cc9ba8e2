"""Merges of stores that are larger than the disk: from storage to storage, with a window of each file."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from faults import Call

from agent.harness import InProcess, Job
from agent.lazy.remote_storage import FailingStorage, damage, reader
from agent.lazy.test_failures import wait_for
from agent.lazy.test_page_cache import disk_bytes
from state_store.agent.lazy import file_cache
from state_store.agent.lazy.remote_bases import RemoteBases
from state_store.core.checkpoint.names import SNAPSHOT_DIRECTORY, tombstone_path
from state_store.core.checkpoint.stored_documents import pack_tombstone, unpack
from state_store.core.deletion.lease import Lease
from state_store.core.engine.database import Database
from state_store.core.files import sparse
from state_store.core.snapshots import restore, streamed_merge
from state_store.core.storage.local_disk import local_disk_error
from state_store.errors import BusyError, DamagedError, LocalDiskError, StateStoreError, StorageError

pytestmark = pytest.mark.tier("more")

LIMIT = 1 << 20
WINDOW = 32 << 10
TABLE = 512 << 10
ROWS = 20_000
PAGES = 64 << 10


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of 1 MB is meant as it is: windows, tables and tails are as small beside it as usual."""
    monkeypatch.setattr(file_cache, "MIN_BYTES", PAGES)
    monkeypatch.setattr(streamed_merge, "MIN_WINDOW_BYTES", WINDOW)
    monkeypatch.setattr(streamed_merge, "MIN_TABLE_BYTES", TABLE)
    monkeypatch.setattr(sparse, "_MIN_END_BYTES", 16 << 10)


def key(row: int) -> bytes:
    return b"\0\0%09d" % row


@pytest.fixture
def large(tmp_path: Path) -> Job:
    """A state of ten megabytes, in a snapshot of nine tables; then a large delta, and a small one."""
    job = Job(InProcess(tmp_path / "writer", file_bytes=1 << 20), tmp_path / "state")
    job.commit({key(row): os.urandom(400) for row in range(ROWS)})
    job.merge("full")
    changes: dict[bytes, bytes | None] = {key(row): os.urandom(300) for row in range(0, ROWS, 5)}
    job.commit({**changes, **{key(row): None for row in range(1, ROWS, 50)}})
    job.commit({key(ROWS + 1): b"new"})
    return job


class Watched(FailingStorage):
    """An agent whose disk is measured at each request to storage; a chosen upload can fail."""

    def __init__(self, directory: Path) -> None:
        self.max_bytes = 0
        self.is_measured = True
        self.uploads = 0
        self.before_upload: Callable[[int], object] = lambda number: None
        self.directory = directory
        super().__init__(directory)

    def _schedule(self, operation: str, path: str) -> Any:
        if self.is_measured:
            self.max_bytes = max(self.max_bytes, disk_bytes(self.directory))
        if operation == "upload" and path.startswith("shared/"):
            self.uploads += 1
            self.before_upload(self.uploads)
        return super()._schedule(operation, path)


def limited(large: Job, directory: Path) -> Job:
    job = Job(
        Watched(directory),
        large.location,
        restoreMode="lazy",
        localDiskLimit=str(LIMIT),
        localRecovery="false",
    )
    for name in ("versions", "state", "version", "id", "attempts"):
        setattr(job, name, getattr(large, name))
    job.restore_by_blocks(job.version)
    return job


def state_bytes(job: Job) -> int:
    return sum(path.stat().st_size for path in Path(job.location).glob("shared/*"))


def stored(job: Job) -> set[str]:
    """Return the tables, leases and snapshots in storage."""
    root = Path(job.location)
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def read_elsewhere(job: Job, directory: Path) -> dict[bytes, bytes]:
    """Return the rows of the newest version as an agent with a large disk restores them."""
    other = reader(job, directory)
    other.restore(job.version)
    return other.rows(job.version)


@pytest.mark.dear("stands for merges of stores that are larger than the disk")
def test_the_disk_is_bounded_and_the_rows_are_right(large: Job, tmp_path: Path) -> None:
    job = limited(large, tmp_path / "reader")
    before = state_bytes(job)
    assert before > 8 * LIMIT
    made = job.merge("full")
    assert made["new_files"] > 10
    watched = job.client
    # The cache's limit; tails and windows of the inputs, the table that is written, and the tails of tables.
    inputs = before // 32 + LIMIT // 8 + 2 * WINDOW
    outputs = 2 * TABLE + made["new_files"] * (16 << 10) + before // 32
    assert watched.max_bytes < LIMIT + inputs + outputs < before / 2
    assert read_elsewhere(job, tmp_path / "elsewhere") == large.state
    job.commit({key(ROWS + 2): b"newer"})
    job.merge("full")
    assert read_elsewhere(job, tmp_path / "again") == job.state


def test_a_damaged_block_fails_the_merge(large: Job, tmp_path: Path) -> None:
    job = limited(large, tmp_path / "reader")
    path = max(Path(job.location).glob("shared/*"), key=lambda path: path.stat().st_size)
    damage(path, path.stat().st_size // 2)
    before = stored(job)
    with pytest.raises(DamagedError):
        job.merge("full")
    assert stored(job) == before
    assert nothing_is_left(job)


def test_a_full_merge_that_loses_a_row_is_not_published(
    large: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = limited(large, tmp_path / "reader")
    before = stored(job)
    rows = streamed_merge.RowStream.rows
    monkeypatch.setattr(
        streamed_merge.RowStream,
        "rows",
        lambda stream: (row for n, row in enumerate(rows(stream)) if n != 777),
    )
    keys = len(large.state)
    with pytest.raises(
        DamagedError, match=rf"has made {keys - 1} rows, .* says that it has {keys}: nothing is"
    ):
        job.merge("full")
    assert stored(job) == before
    assert nothing_is_left(job)


def test_a_full_merge_that_takes_too_long_at_its_end_is_not_published(
    large: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = limited(large, tmp_path / "reader")
    before = stored(job)
    taken_in = streamed_merge.StoredTables.taken_in

    def late(tables: Any, *arguments: Any) -> Any:
        tables._context.deadline.cancel("it is late")
        return taken_in(tables, *arguments)

    monkeypatch.setattr(streamed_merge.StoredTables, "taken_in", late)
    with pytest.raises(BusyError, match="it is late"):
        job.merge("full")
    assert stored(job) == before
    assert nothing_is_left(job)


def test_tables_of_a_snapshot_that_may_be_there_are_not_deleted(
    large: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process fails when the archive has been written, and the lease is to be given back."""
    job = limited(large, tmp_path / "reader")
    before = stored(job)

    def broken(lease: Lease) -> None:
        raise RuntimeError("a storage of others")

    monkeypatch.setattr(Lease, "release", broken)
    with pytest.raises(StateStoreError, match="a storage of others"):
        job.merge("full")
    monkeypatch.undo()
    made = stored(job) - before
    assert sum(path.startswith(f"{SNAPSHOT_DIRECTORY}/") for path in made) == 1
    assert sum(path.startswith("shared/") for path in made) > 10
    assert nothing_is_left(job)


def nothing_is_left(job: Job) -> bool:
    """Return True when there are no bases but those that are held.

    A look at the readers' leases may have begun a merge, whose base is not held yet.
    """
    root = Path(job.opened["incoming"]).parent
    head = job.open_store.head

    def is_held() -> bool:
        bases = set(root.glob("base-*"))
        newest = head._newest
        return bases <= {*head._held, newest.directory if newest else None}

    wait_for(is_held)
    return True


@pytest.mark.parametrize("at", [1, 3])
def test_a_disk_that_is_full_in_the_middle_fails_the_merge_alone(
    large: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    job = limited(large, tmp_path / "reader")
    before = stored(job)
    fetch, calls = streamed_merge.fetch_spans, 0

    def refused(storage: Any, spans: Any, runtime: Any) -> None:
        nonlocal calls
        calls += 1
        if job.client.uploads >= at:
            raise local_disk_error(OSError(errno.ENOSPC, "No space left on device", str(spans[0].local)))
        fetch(storage, spans, runtime)

    monkeypatch.setattr(streamed_merge, "fetch_spans", refused)
    with pytest.raises(LocalDiskError, match="is full"):
        job.merge("full")
    assert stored(job) == before
    assert nothing_is_left(job)
    monkeypatch.setattr(streamed_merge, "fetch_spans", fetch)
    job.merge("full")
    assert read_elsewhere(job, tmp_path / "elsewhere") == large.state


def test_an_upload_that_fails_takes_the_others_back(large: Job, tmp_path: Path) -> None:
    job = limited(large, tmp_path / "reader")
    before = stored(job)

    def fails(number: int) -> None:
        if number == 4:
            raise StorageError("it is down")

    job.client.before_upload = fails
    with pytest.raises(StorageError, match="it is down"):
        job.merge("full")
    assert stored(job) == before
    assert nothing_is_left(job)
    job.merge("full")
    assert read_elsewhere(job, tmp_path / "elsewhere") == large.state


def test_tables_are_in_the_lease_before_their_upload(large: Job, tmp_path: Path) -> None:
    job = limited(large, tmp_path / "reader")
    leases: list[set[str]] = []

    def look(number: int) -> None:
        leases.append({path for path in stored(job) if path.startswith("lease")})

    job.client.before_upload = look
    job.merge("full")
    assert all(leases)
    assert len(leases[-1]) >= len(leases)


def test_a_state_that_fits_is_merged_as_a_whole(large: Job, tmp_path: Path) -> None:
    job = Job(
        FailingStorage(tmp_path / "reader"),
        large.location,
        restoreMode="lazy",
        localDiskLimit="1g",
        localRecovery="false",
    )
    for name in ("versions", "state", "version", "id", "attempts"):
        setattr(job, name, getattr(large, name))
    job.restore_by_blocks(job.version)
    assert job.merge("incremental")["kind"] == "incremental"


@pytest.fixture
def settled(tmp_path: Path) -> Job:
    """A state of eight megabytes in a full snapshot."""
    job = Job(InProcess(tmp_path / "writer", file_bytes=1 << 20), tmp_path / "state")
    job.commit({key(row): os.urandom(400) for row in range(ROWS)})
    job.merge("full")
    return job


@pytest.mark.dear("stands for incremental merges of stores that are larger than the disk")
def test_incremental_merges_share_the_oldest_run_and_read_no_row_of_it(settled: Job, tmp_path: Path) -> None:
    job = limited(settled, tmp_path / "reader")
    chance = random.Random(3)
    oldest = {path.name for path in Path(job.location).glob("shared/*")}
    for number in range(12):
        for _ in range(3):
            changed = chance.sample(range(ROWS), 12)
            job.commit({key(row): None if row % 5 == 0 else os.urandom(90) for row in changed})
        job.client.reads.clear()
        made = job.merge("incremental")
        assert made["kind"] == "incremental"
        assert made["shared_files"] >= len(oldest)
        assert made["new_files"] + made["shared_files"] - len(oldest) <= 8
        job.call("release", directory=made["directory"])
        read = sum(length or 0 for _, length in job.client.reads)
        assert read < state_bytes(job) / 4, f"merge {number} read {read} bytes"
    assert job.client.max_bytes < LIMIT
    assert read_elsewhere(job, tmp_path / "elsewhere") == job.state


def test_deltas_that_have_grown_are_merged_with_all(settled: Job, tmp_path: Path) -> None:
    job = limited(settled, tmp_path / "reader")
    job.commit({key(row): os.urandom(400) for row in range(ROWS * 2 // 3)})
    assert job.merge("incremental")["kind"] == "full"
    assert read_elsewhere(job, tmp_path / "elsewhere") == job.state


@pytest.mark.tier("more")
def test_young_runs_that_do_not_fit_are_merged_in_parts(settled: Job, tmp_path: Path) -> None:
    """The young runs grow to more than the limit, and a merge reads an eighth of it at a time."""
    job = limited(settled, tmp_path / "reader")
    room = job.open_store.bases.merge_bytes // 2
    chance = random.Random(5)
    oldest = set(Path(job.location).glob("delta/*"))
    written = 0
    for number in range(36):
        changed = chance.sample(range(ROWS), 300 if number == 20 else 80)
        job.commit({key(row): None if row % 9 == 0 else os.urandom(400) for row in changed})
        before = set(Path(job.location).glob("shared/*"))
        made = job.merge("incremental")
        new = set(Path(job.location).glob("shared/*")) - before
        new_bytes = sum(path.stat().st_size for path in new)
        assert (made["kind"], new_bytes <= room + (64 << 10)) == ("incremental", True)
        written += new_bytes
        job.call("release", directory=made["directory"])
    young = sum(path.stat().st_size for path in set(Path(job.location).glob("delta/*")) - oldest)
    assert young > LIMIT
    assert written < 4 * young, "younger runs are written again and again"
    assert made["chain"]["files"] <= 8 + 4 + 2 * young / room
    assert job.client.max_bytes < 3 * LIMIT  # ends of some thirty small files lie in two directories
    assert read_elsewhere(job, tmp_path / "elsewhere") == job.state


def test_a_merge_of_young_runs_that_loses_rows_is_not_published(
    settled: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full merge, which reads all rows anew, takes its place."""
    job = limited(settled, tmp_path / "reader")
    job.commit({key(2): b"two"})
    keys = len(job.state)
    real, counts = Database.entries, iter([keys])
    monkeypatch.setattr(Database, "entries", lambda database: next(counts, None) or real(database))
    assert job.merge("incremental")["kind"] == "full"
    assert f"has made {keys - 1} rows, older ones included, and the record" in caplog.text
    job.commit({key(3): b"three"})
    assert job.merge("incremental")["kind"] == "incremental"
    assert read_elsewhere(job, tmp_path / "elsewhere") == job.state


def test_a_damaged_young_file_fails_the_merge(settled: Job, tmp_path: Path) -> None:
    first = limited(settled, tmp_path / "reader")
    first.commit({key(row): os.urandom(200) for row in range(100)})
    first.merge("incremental")
    first.commit({key(2): b"two"})
    job = limited(first, tmp_path / "other")
    young = next(Path(job.location).glob("delta/*0002_*"))
    damage(young, 10)
    before = stored(job)
    with pytest.raises(DamagedError):
        job.merge("incremental")
    assert stored(job) == before
    assert nothing_is_left(job)


def test_a_young_file_that_differs_outside_its_blocks_is_not_compacted(
    settled: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of a file comes damaged when the file is fetched as a whole: RocksDB has read it before."""
    monkeypatch.setattr(restore, "MIN_SPARSE_DELTA_BYTES", 1)
    for row in range(3):
        settled.commit({key(row): os.urandom(200), key(row + 5): os.urandom(200)})
    job = limited(settled, tmp_path / "reader")
    path = max(Path(job.location).glob("delta/*"))
    complete, is_spoiled = streamed_merge._complete, False

    def spoiled(call: Call) -> Any:
        nonlocal is_spoiled
        data = call()
        if call.range != (0, path.stat().st_size) or is_spoiled:
            return data
        is_spoiled = True
        return data[:-10] + bytes(10)

    def completed(*given: Any) -> Any:
        read = job.client._read
        job.client._read = lambda call: spoiled(call) if call.path.endswith(path.name) else read(call)
        try:
            return complete(*given)
        finally:
            job.client._read = read

    monkeypatch.setattr(streamed_merge, "_complete", completed)
    assert job.merge("incremental")["kind"] == "full"
    assert is_spoiled
    assert f"{path.name}' is damaged: its CRC-32" in caplog.text
    assert read_elsewhere(job, tmp_path / "elsewhere") == settled.state


def test_a_young_file_is_compared_with_its_checksum(
    settled: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It comes with other bytes than were published: the merge reads all rows before RocksDB sees them."""
    first = limited(settled, tmp_path / "reader")
    first.commit({key(row): os.urandom(200) for row in range(200)})
    first.merge("incremental")
    first.commit({key(2): b"two"})
    job = limited(first, tmp_path / "other")
    fetch, complete = streamed_merge.fetch_spans, streamed_merge._complete

    def changed(storage: Any, spans: Any, runtime: Any) -> None:
        fetch(storage, spans, runtime)
        for span in spans:
            damage(span.local, 10)

    def completed(*given: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(streamed_merge, "fetch_spans", changed)
            return complete(*given)

    monkeypatch.setattr(streamed_merge, "_complete", completed)
    assert job.merge("incremental")["kind"] == "full"
    assert "is damaged: its SHA-256 is" in caplog.text
    assert read_elsewhere(job, tmp_path / "elsewhere") == job.state


def test_a_long_stretch_of_removed_rows_is_passed_with_two_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row is given for most of the state, whose blocks do not fit together."""
    job = Job(InProcess(tmp_path / "writer", file_bytes=1 << 20), tmp_path / "state")
    job.commit({key(row): os.urandom(400) for row in range(ROWS)})
    job.merge("full")
    job.commit({key(row): None for row in range(100, ROWS - 100)})
    reading = limited(job, tmp_path / "reader")
    monkeypatch.setattr(RemoteBases, "merge_bytes", 256 << 10)
    made = reading.merge("full")
    assert made["kind"] == "full"
    assert reading.client.max_bytes < 3 * LIMIT < state_bytes(job) / 2
    assert read_elsewhere(reading, tmp_path / "elsewhere") == job.state


def test_rows_that_are_longer_than_a_window_are_merged(tmp_path: Path) -> None:
    job = Job(InProcess(tmp_path / "writer", file_bytes=1 << 20), tmp_path / "state")
    job.commit({key(row): os.urandom(100_000) for row in range(80)})
    job.merge("full")
    job.commit({key(row): os.urandom(90_000) for row in range(0, 80, 3)})
    job.commit({key(row): None for row in range(0, 80, 4)})
    reading = limited(job, tmp_path / "reader")
    assert reading.merge("full")["kind"] == "full"
    assert read_elsewhere(reading, tmp_path / "elsewhere") == job.state


@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.tier("more"))])
def test_rows_are_right_after_random_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(streamed_merge, "MIN_WINDOW_BYTES", 12 << 10)
    monkeypatch.setattr(restore, "MIN_SPARSE_DELTA_BYTES", 1)
    monkeypatch.setattr(streamed_merge, "MIN_TABLE_BYTES", 64 << 10)
    monkeypatch.setattr(RemoteBases, "merge_bytes", 64 << 10)
    job = Job(InProcess(tmp_path / "writer", file_bytes=100 << 10), tmp_path / "state")
    job.commit({key(row): chance.randbytes(chance.choice((20, 300, 9000))) for row in range(2000)})
    job.merge("full")
    reading = limited(job, tmp_path / "reader")
    reading.client.is_measured = False
    for _ in range(3):
        for _ in range(chance.randrange(1, 5)):
            first = chance.randrange(2000)
            rows = range(first, min(2100, first + chance.choice((1, 30, 600))), chance.choice((1, 2, 7)))
            values = (None if chance.random() < 0.5 else chance.randbytes(200) for _ in rows)
            reading.commit(dict(zip(map(key, rows), values, strict=True)))
        made = reading.merge(chance.choice(("full", "incremental")))
        reading.call("release", directory=made["directory"])
        assert read_elsewhere(reading, tmp_path / f"elsewhere-{reading.version}") == reading.state


def test_a_compaction_that_wants_the_oldest_run_becomes_a_full_merge(
    settled: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed_merge, "_NEVER_PERCENT", 0)
    job = limited(settled, tmp_path / "reader")
    kinds = []
    for row in range(4):
        job.commit({key(row): b"new"})
        kinds.append(job.merge("incremental")["kind"])
    assert "full" in kinds
    assert read_elsewhere(job, tmp_path / "elsewhere") == job.state


@pytest.mark.parametrize("condemned", ["one", "all"])
def test_merges_go_on_while_files_of_the_oldest_run_may_not_be_shared(
    settled: Job, tmp_path: Path, condemned: str
) -> None:
    """A tombstone condemns a file, or all, since it is damaged."""
    job = limited(settled, tmp_path / "reader")
    file = min(Path(job.location).glob("shared/*"))
    tombstone = Path(job.location) / tombstone_path("0123456789abcdef0123456789abcdef")
    tombstone.parent.mkdir(exist_ok=True)
    tombstone.write_bytes(b"" if condemned == "all" else pack_tombstone({f"shared/{file.name}"}))
    job.client.max_bytes = 0
    kinds = []
    for row in range(2):
        job.commit({key(row): b"new"})
        made = job.merge("incremental")
        kinds.append(made["kind"])
        job.call("release", directory=made["directory"])
    assert kinds == ["full", "full" if condemned == "all" else "incremental"]
    assert job.client.max_bytes < 3 * LIMIT
    assert nothing_is_left(job)
    file.unlink()
    assert read_elsewhere(job, tmp_path / "elsewhere") == job.state


def test_a_large_delta_that_stays_in_storage_has_its_checksum_in_the_snapshot(
    settled: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "MIN_SPARSE_DELTA_BYTES", 64 << 10)
    settled.commit({key(row): os.urandom(400) for row in range(0, ROWS, 20)})
    settled.commit({key(row): os.urandom(400) for row in range(0, ROWS, 25)})
    job = limited(settled, tmp_path / "reader")
    room = job.open_store.bases.merge_bytes // 2
    large = [path for path in Path(job.location).glob("delta/*") if room < path.stat().st_size < LIMIT]
    job.commit({key(3): b"new"})
    assert job.merge("incremental")["kind"] == "incremental"
    newest = max(Path(job.location).glob(f"{SNAPSHOT_DIRECTORY}/*"))
    files = unpack(newest.read_bytes(), file=newest.name).manifest.files
    found = {path.name: sha256(path.read_bytes()).hexdigest() for path in large}
    assert len(found) == 2
    assert {Path(file.path).name: file.sha256 for file in files if Path(file.path).name in found} == found


def test_a_large_delta_that_stays_in_storage_damaged_is_taken_into_no_snapshot(
    settled: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "MIN_SPARSE_DELTA_BYTES", 64 << 10)
    settled.commit({key(row): os.urandom(400) for row in range(0, ROWS, 20)})
    path = max(Path(settled.location).glob("delta/*"))
    damage(path, path.stat().st_size // 2)
    job = limited(settled, tmp_path / "reader")
    before = stored(job)
    job.commit({key(3): b"new"})
    with pytest.raises(DamagedError):
        job.merge("incremental")
    assert {name for name in stored(job) - before if not name.startswith("delta/")} == set()


@pytest.mark.parametrize("kind", ["incremental", "full"])
def test_compressed_tables_are_merged_from_storage_to_storage(tmp_path: Path, kind: str) -> None:
    written = Job(InProcess(tmp_path / "writer", file_bytes=1 << 20, compression="lz4"), tmp_path / "state")
    written.commit({key(row): os.urandom(100) * 4 for row in range(ROWS)})
    written.merge("full")
    before = state_bytes(written)
    assert 2 * LIMIT < before < ROWS * 300, "the values are not compressed"
    written.commit({key(row): os.urandom(100) * 4 for row in range(0, ROWS, 200)})
    written.commit({key(ROWS + 1): b"new", key(7): None})
    job = limited(written, tmp_path / "reader")
    made = job.merge(kind)
    assert bool(made["shared_files"]) == (kind == "incremental")
    assert read_elsewhere(job, tmp_path / "elsewhere") == written.state
