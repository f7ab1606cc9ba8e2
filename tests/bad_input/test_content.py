"""Directories, files, clocks and queries that are not what they should be."""

from __future__ import annotations

import json
import os
import random
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from agent.harness import InProcess, Job, rows_of

from state_store.core.checkpoint.names import lease_path, tombstone_path
from state_store.core.engine.database import write_delta
from state_store.core.storage.local import LocalStorage
from state_store.errors import DamagedError, FormatError, MissingError, StateStoreError


def new_job(root: Path, name: str = "writer", **options: object) -> Job:
    return Job(InProcess(root / name), root / "state", **options)


def reader(job: Job, root: Path) -> Job:
    """Another executor, without local files."""
    other = Job(InProcess(root / f"reader-{uuid.uuid4().hex[:6]}"), job.location, ids=job.ids)
    other.versions = job.versions
    return other


def restored(job: Job, root: Path, version: int | None = None) -> dict[bytes, bytes]:
    """Return the rows of a version (the newest) as another executor reads them."""
    return rows_of(reader(job, root).restore(job.version if version is None else version))


def fill(job: Job, versions: int, rows: int = 50) -> None:
    for _ in range(versions):
        job.commit({b"\0\0%03d-%03d" % (job.version, row): os.urandom(30) for row in range(rows)})


def stored(location: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(location.rglob("*")) if path.is_file()}


class TestForeignFiles:
    @pytest.fixture
    def foreign(self, tmp_path: Path) -> dict[Path, bytes]:
        """Write files that Spark's own stores and people leave in the same place."""
        location = tmp_path / "state"
        for name in (
            "1.delta",
            "2.zip",
            "3.changelog",
            "_metadata/schema",
            "delta/notes.txt",
            "shared/1.sst",
        ):
            path = location / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(name.encode())
        return stored(location)

    def test_are_left_alone(self, tmp_path: Path, foreign: dict[Path, bytes]) -> None:
        job = new_job(tmp_path, retain=2)
        fill(job, 4)
        job.merge("full")
        fill(job, 3)
        job.merge("incremental")
        job.cleanup()
        assert restored(job, tmp_path) == job.state
        assert foreign.items() <= stored(job.location).items()

    def test_are_not_taken_for_a_version(self, tmp_path: Path, foreign: dict[Path, bytes]) -> None:
        job = new_job(tmp_path, ids=False)
        with pytest.raises(MissingError, match=r"delta/0*3\*\.sst.*no version of this store can be restored"):
            job.call("restore", version=3, id=None)


class TestNewerFormats:
    def test_a_delta_of_a_newer_format_is_refused_and_older_versions_are_read(self, tmp_path: Path) -> None:
        job = new_job(tmp_path)
        fill(job, 2)
        arguments = job.write({b"\0\0key": b"value"})
        path = _with_newer_record(Path(arguments["path"]))
        job.call("commit", **{**arguments, **path})
        job.version, job.id, job.state = job.next
        job.versions[3] = (job.id, job.state)
        with pytest.raises(FormatError, match=r"deltas/0*3_.*format 2.*knows format 1"):
            rows_of(reader(job, tmp_path).restore(3))
        assert restored(job, tmp_path, 2) == job.versions[2][1]

    @pytest.mark.parametrize("path", [lease_path("newer"), tombstone_path("newer")])
    def test_a_lease_or_tombstone_stops_deletion(self, tmp_path: Path, path: str) -> None:
        job = new_job(tmp_path, retain=2)
        fill(job, 4)
        job.merge("full")
        fill(job, 3)
        LocalStorage(job.location).write(path, b'{"format":2}')
        before = stored(job.location)
        with pytest.raises(FormatError, match=path):
            job.cleanup()
        assert before.items() <= stored(job.location).items()
        assert restored(job, tmp_path) == job.state


class _Record:
    """Delta metadata as a newer program would write it."""

    def to_json(self) -> bytes:
        return json.dumps({"format": 2, "rows": "?"}).encode()


def _with_newer_record(path: Path) -> dict[str, object]:
    fresh = path.with_name(f"newer-{path.name}")
    size, crc = write_delta(fresh, [(b"\0\0key", b"value")], _Record())
    return {"path": str(fresh), "bytes": size, "crc": crc}


@pytest.mark.parametrize("seed", range(12))
def test_a_restore_is_exact_or_refused_after_any_break(tmp_path: Path, seed: int) -> None:
    """Files harmed at random places: never a wrong row or another version, never an error without a name."""
    job = new_job(tmp_path, retain=100)
    for kind in ("full", "incremental", None):
        fill(job, 3)
        if kind:
            job.merge(kind)
    chance = random.Random(seed)
    pristine = tmp_path / "pristine"
    shutil.copytree(job.location, pristine)
    outcomes = set()
    for _ in range(6):
        shutil.rmtree(job.location)
        shutil.copytree(pristine, job.location)
        for path in chance.sample(sorted(job.location.rglob("*.*")), chance.choice([1, 1, 2])):
            _harm(path, chance)
        version = chance.choice([3, 5, 6, 9])
        try:
            rows = rows_of(reader(job, tmp_path).restore(version))
        except StateStoreError as error:
            assert error.kind in ("damaged", "missing", "format"), error
            assert error.file
            assert Path(error.file).name.partition("*")[0] in error.message
            outcomes.add("refused")
        else:
            assert rows == job.versions[version][1]
            outcomes.add("exact")
    assert outcomes


def _harm(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    kind = chance.randrange(4)
    if kind == 0:
        path.unlink()
        return
    if kind == 1:
        del data[chance.randrange(len(data)) :]
    elif kind == 2:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    else:
        start = chance.randrange(len(data))
        data[start : start + 64] = bytes(len(data[start : start + 64]))
    path.write_bytes(data)


class TestClocks:
    def test_clocks_that_jump_about_lose_nothing(self, tmp_path: Path) -> None:
        """Every call sees another time, years apart, back and forth."""
        times = iter([1_700_000_000_000, 1_300_000_000_000, 4_000_000_000_000, 0] * 1000)
        client = InProcess(tmp_path / "writer", now_ms=lambda: next(times))
        options = {"retainedAge": "1d", "fullInterval": "1h", "fullSchedule": "0 3 * * *"}
        job = Job(client, tmp_path / "state", retain=3, **options)
        for version in range(1, 13):
            job.commit({b"\0\0%03d" % version: b"x"})
            if version % 3 == 0:
                job.merge("full" if version == 9 else "incremental")
            job.cleanup()
        assert restored(job, tmp_path) == job.state
        assert restored(job, tmp_path, 11) == job.versions[11][1]

    def test_clocks_that_went_back_do_not_stop_merges(self, tmp_path: Path) -> None:
        now = [1_700_000_000_000]
        client = InProcess(tmp_path / "writer", now_ms=lambda: now[0])
        job = Job(client, tmp_path / "state", maxDeltas="3", minPauseBetweenMerges="100ms")
        fill(job, 4)
        job.merge("incremental")
        now[0] -= 10 * 365 * 86_400_000
        for number in range(8):
            job.commit({b"\0\0%d" % number: b""})
        (event, *_) = job.events()
        assert event["event"] == "merged", (
            "a clock that went back ten years must not mean ten years without a merge"
        )


class TestTwoQueriesOnOneCheckpoint:
    def test_with_ids_each_keeps_its_own(self, tmp_path: Path) -> None:
        """Spark notices at its own log of commits; until then neither may harm the other."""
        first, second = new_job(tmp_path, "one", retain=2), new_job(tmp_path, "two", retain=2)
        for round_ in range(8):
            for job, mark in ((first, b"one"), (second, b"two")):
                job.commit({b"\0\0%d" % round_: mark})
                if round_ % 3 == 2:
                    job.merge("incremental")
                job.cleanup()
        for job in (first, second):
            assert restored(job, tmp_path) == job.state
            assert restored(job, tmp_path, 7) == job.versions[7][1]

    def test_another_operators_rows_do_not_show(self, tmp_path: Path) -> None:
        first, second = new_job(tmp_path, "one"), new_job(tmp_path, "two")
        first.commit({b"\0\0a": b"1"})
        second.commit({b"\0\0b": b"2"})
        with pytest.raises(MissingError, match=first.id):
            reader(first, tmp_path).call("restore", version=2, id=first.id)


class TestSizes:
    @pytest.mark.parametrize(
        "rows",
        [
            {b"\0\0": b""},
            {b"\0\0": b"", b"\0\0\0": b"\0", b"\0\0\xff": b"\xff"},
        ],
    )
    def test_keys_and_values_of_no_bytes_are_restored(self, tmp_path: Path, rows: dict[bytes, bytes]) -> None:
        job = new_job(tmp_path)
        job.commit(rows)
        job.merge("full")
        job.commit({b"\0\0later": b""})
        assert restored(job, tmp_path) == {**rows, b"\0\0later": b""}

    @pytest.mark.tier("long")
    def test_keys_and_values_of_64_mb_are_restored(self, tmp_path: Path) -> None:
        big = os.urandom(1 << 20) * 64
        job = new_job(tmp_path)
        job.commit({b"\0\0value": big})
        job.commit({b"\0\0" + big: b"key"})
        for kind in ("incremental", "full"):
            job.merge(kind)
            assert restored(job, tmp_path) == job.state
            job.commit({b"\0\0" + kind.encode(): b""})

    def test_empty_batches_change_no_row(self, tmp_path: Path) -> None:
        job = new_job(tmp_path)
        job.commit({})
        job.commit({b"\0\0a": b"1"})
        job.commit({})
        job.merge("incremental")
        job.commit({})
        assert restored(job, tmp_path) == {b"\0\0a": b"1"}


@pytest.mark.parametrize("harm", [lambda data: data[:-1], lambda data: data[:40] + b"X" + data[41:]])
def test_a_delta_that_differs_from_its_announcement_is_refused(
    tmp_path: Path, harm: Callable[[bytes], bytes]
) -> None:
    """Other bytes on disk than the data plane said: refused before it is visible."""
    job = new_job(tmp_path)
    fill(job, 1)
    arguments = job.write({b"\0\0a": b"1"})
    path = Path(arguments["path"])
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(DamagedError, match=r"delta/0*2_"):
        job.call("commit", **arguments)
    assert [file.name for file in job.location.glob("delta/*")] == [
        file.name for file in job.location.glob(f"delta/{1:020d}_*")
    ]


def test_under_format_1_a_retried_batch_replaces_a_snapshot_of_what_it_was(tmp_path: Path) -> None:
    """A snapshot of the version that is made anew holds the old rows: it must not be what a restore takes."""
    job = new_job(tmp_path, ids=False)
    fill(job, 3)
    before = (job.version, job.id, job.state)
    job.commit({b"\0\0late": b"first try"})
    job.merge("incremental")
    job.restore(3)
    job.version, job.id, job.state = before
    job.commit({b"\0\0late": b"second try"})
    assert restored(job, tmp_path)[b"\0\0late"] == b"second try"
