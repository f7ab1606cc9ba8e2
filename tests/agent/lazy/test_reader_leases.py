"""Leases on the stored files that a sparse base reads: none is deleted, and none is held for too long."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from faults import Call

from agent.harness import InProcess, Job
from agent.lazy.remote_storage import FailingStorage, five_versions, wait_until_whole
from agent.lazy.test_failures import wait_for
from state_store.agent.lazy import file_cache, reader_leases
from state_store.agent.lazy.reader_leases import Readers
from state_store.agent.lazy.remote_bases import LIST_NAME
from state_store.agent.merges.merging import MergeRequest
from state_store.core.checkpoint.names import VersionId
from state_store.core.checkpoint.stored_documents import LeaseTerms, pack_tombstone
from state_store.core.files import sparse
from state_store.core.storage.local import LocalStorage
from state_store.data.maintenance.full_checkpoints import store_full_checkpoint
from state_store.data.query import StoreKey
from state_store.errors import MissingError

PAGES = {"localDiskLimit": "1m"}
FILES = {"hydrationRateLimit": "100"}
HOUR_MS = 3_600_000

paged_or_hydrated = pytest.mark.parametrize("options", [PAGES, FILES], ids=["pages", "files"])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tails and the least cache are as small beside a state of some hundred KB as usual."""
    monkeypatch.setattr(file_cache, "MIN_BYTES", 64 << 10)
    monkeypatch.setattr(sparse, "_MIN_END_BYTES", 8 << 10)


class Executor(FailingStorage):
    """An agent whose clock a test moves, and whose leases the storage may refuse."""

    def __init__(self, directory: Path) -> None:
        self.passed_ms = 0.0
        self.refuses_leases = False
        super().__init__(directory, uptime_ms=lambda: self.passed_ms)

    def _schedule(self, operation: str, path: str) -> Callable[[Call], object] | None:
        if operation in ("write", "delete") and path.startswith("lease/") and self.refuses_leases:
            return lambda call: (_ for _ in ()).throw(call.failed("it is read-only"))
        return super()._schedule(operation, path)


def settled(tmp_path: Path) -> Job:
    job = five_versions(tmp_path, 200_000)
    job.merge("full")
    return job


def follower(other: Job, directory: Path, *, retain: int = 100, **options: str) -> Job:
    """Return the job of an executor that restores lazily, at the version of another."""
    options = {
        "restoreMode": "lazy",
        "localRecovery": "false",
        "fullAfterDeltas": "1000",
        **options,
    }
    job = Job(Executor(directory), other.location, retain=retain, **options)
    for name in ("versions", "state", "version", "id", "attempts"):
        setattr(job, name, getattr(other, name))
    return job


def commit(job: Job, count: int) -> None:
    for _ in range(count):
        job.commit({b"\0\0more": b"%d" % job.version})


def read(job: Job, base: dict) -> None:
    job.call("ranges", directory=base["directory"], ranges=[[base["sparse"][0], 50_000, 4096]])


def leased(job: Job) -> set[str]:
    """Return the files that leases in storage name; a lease may be given back meanwhile."""
    files: set[str] = set()
    for path in Path(job.location).glob("lease/*.json"):
        with suppress(FileNotFoundError):
            files |= LeaseTerms.unpack(path.read_bytes(), file=str(path)).files
    return files


def gone(job: Job, base: dict) -> set[str]:
    return {path for path in base["stored"].values() if not (Path(job.location) / path).exists()}


class TestFilesStay:
    @paged_or_hydrated
    def test_a_batch_reads_on_after_a_merge_of_its_own_agent(self, tmp_path: Path, options: dict) -> None:
        other = settled(tmp_path)
        job = follower(other, tmp_path / "reader", retain=2, **options)
        base = job.restore_by_blocks(job.version)
        commit(job, 2)
        version = VersionId(job.version - 1, job.versions[job.version - 1][0])
        merging = job
        if options == FILES:  # a merge waits for files of its own agent
            merging = follower(other, tmp_path / "merging")
            merging.versions = job.versions
            merging.restore(version.number)
            merging.merge("full")
        else:
            request = MergeRequest(version, "full", "test")
            job.client.calls.scheduler.merge_now(job.open_store, request)
        job.cleanup()
        assert not gone(job, base)
        read(job, base)

    @paged_or_hydrated
    def test_a_full_checkpoint_from_outside(self, tmp_path: Path, options: dict) -> None:
        job = follower(settled(tmp_path), tmp_path / "reader", retain=2, **options)
        base = job.restore_by_blocks(job.version)
        commit(job, 2)
        before = VersionId(job.version - 1, job.versions[job.version - 1][0])
        store_full_checkpoint(StoreKey(0, 0), LocalStorage(job.location), before)
        for _ in range(3):
            commit(job, 1)
            job.cleanup()
        read(job, base)
        assert set(base["stored"].values()) <= leased(job)

    def test_the_base_of_a_streamed_merge_has_a_lease(self, tmp_path: Path) -> None:
        job = follower(settled(tmp_path), tmp_path / "reader", **PAGES)
        job.restore_by_blocks(job.version)
        commit(job, 1)
        made = job.merge("full")
        assert made["sparse"]
        assert set(made["stored"].values()) <= leased(job)

    def test_another_agent_goes_on_holding_the_files(self, tmp_path: Path) -> None:
        job = follower(settled(tmp_path), tmp_path / "reader", **PAGES)
        base = job.restore_by_blocks(job.version)
        for path in Path(job.location).glob("lease/*"):
            path.unlink()  # as they run out after its death
        successor = Executor(tmp_path / "reader")
        successor.call("open", store={**job.store, "held": [base["directory"]]})
        wait_for(lambda: set(base["stored"].values()) <= leased(job))

    def test_a_lease_is_renewed_after_half_of_its_time(self, tmp_path: Path) -> None:
        job = follower(settled(tmp_path), tmp_path / "reader", **PAGES)
        base = job.restore_by_blocks(job.version)
        (first,) = Path(job.location).glob("lease/*.json")
        job.open_store.readers.look()
        assert first.exists()
        job.client.passed_ms = HOUR_MS / 2
        job.open_store.readers.look()
        (second,) = Path(job.location).glob("lease/*.json")
        assert second != first
        assert leased(job) == set(base["stored"].values())

    @paged_or_hydrated
    def test_a_look_reads_no_half_list_of_a_base_that_is_being_made(
        self, tmp_path: Path, options: dict, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = follower(settled(tmp_path), tmp_path / "reader", **options)
        job.restore_by_blocks(job.version)
        write, looks, errors = Path.write_text, list[Thread](), list[Exception]()

        def look(directory: Path) -> None:
            try:
                job.open_store.bases.is_whole(directory)
            except Exception as error:
                errors.append(error)

        def write_slowly(path: Path, text: str, *words: str) -> int:
            if path.name == LIST_NAME:
                write(path, text[:10])
                looks.append(Thread(target=look, args=(path.parent,)))
                looks[-1].start()
                looks[-1].join(0.1)  # the look may wait until the list is written
            return write(path, text, *words)

        monkeypatch.setattr(Path, "write_text", write_slowly)
        read(job, job.restore_by_blocks(job.version))
        assert len(looks) == 1
        looks[0].join()
        assert errors == []

    def test_an_error_that_nobody_expects_keeps_no_other_lease_from_being_renewed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = follower(settled(tmp_path), tmp_path / "reader", **PAGES)
        bases = [job.restore_by_blocks(job.version) for _ in range(2)]
        before = set(Path(job.location).glob("lease/*.json"))
        failed: list[Path] = []
        is_over = Readers._end_if_over

        def fail_once(readers: Readers, reader: Any) -> bool:
            if not failed:
                failed.append(reader.directory)
                raise RuntimeError("a storage of others")
            return is_over(readers, reader)

        monkeypatch.setattr(Readers, "_end_if_over", fail_once)
        job.client.passed_ms = HOUR_MS / 2
        job.open_store.readers.look()
        assert failed == [Path(bases[0]["directory"])]
        assert len(before - set(Path(job.location).glob("lease/*.json"))) == 1


class TestFilesAreLetGo:
    @paged_or_hydrated
    def test_a_base_of_a_newer_snapshot_takes_the_place_of_one_whose_files_nobody_needs(
        self, tmp_path: Path, options: dict
    ) -> None:
        other = settled(tmp_path)
        job = follower(other, tmp_path / "reader", retain=2, **options)
        base = job.restore_by_blocks(job.version)
        commit(job, 2)
        before = VersionId(job.version - 1, job.versions[job.version - 1][0])
        store_full_checkpoint(StoreKey(0, 0), LocalStorage(job.location), before)
        commit(job, 3)
        job.cleanup()
        assert not gone(job, base)
        job.client.passed_ms = HOUR_MS / 2
        job.open_store.readers.look()
        (event,) = job.events()
        made = {**event["merged"], **event["merged"]["base"]}
        assert made["kind"] == "ingest"
        assert made["sparse"]
        assert not set(made["stored"].values()) & set(base["stored"].values())
        job.open_store.readers.look()
        job.call("release", directory=base["directory"])
        wait_for(lambda: leased(job) == set(made["stored"].values()))
        commit(job, 1)
        job.cleanup()
        assert gone(job, base) == set(base["stored"].values())
        assert not gone(job, made)
        assert len(job.events()) == 1

    def test_a_merge_that_is_not_due_any_more_offers_a_base(self, tmp_path: Path) -> None:
        job = follower(settled(tmp_path), tmp_path / "reader", **PAGES)
        base = job.restore_by_blocks(job.version)
        commit(job, 2)
        before = VersionId(job.version - 1, job.versions[job.version - 1][0])
        store_full_checkpoint(StoreKey(0, 0), LocalStorage(job.location), before)
        request = MergeRequest(before, "incremental", "it was due")
        made = job.client.calls.scheduler.merge_now(job.open_store, request).to_json()
        assert made["kind"] == "ingest"
        assert not set(made["base"]["stored"].values()) & set(base["stored"].values())

    @paged_or_hydrated
    def test_a_lease_ends_with_its_base(self, tmp_path: Path, options: dict) -> None:
        job = follower(settled(tmp_path), tmp_path / "reader", **options)
        bases = [job.restore_by_blocks(job.version) for _ in range(2)]
        job.call("release", directory=bases[0]["directory"])
        wait_for(lambda: len(list(Path(job.location).glob("lease/*.json"))) == 1)
        job.close()
        assert not list(Path(job.location).glob("lease/*"))

    def test_a_lease_that_storage_does_not_delete_is_given_back_later(self, tmp_path: Path) -> None:
        job = follower(settled(tmp_path), tmp_path / "reader", **PAGES)
        base = job.restore_by_blocks(job.version)
        job.client.refuses_leases = True
        job.open_store.head.release(Path(base["directory"]))
        job.open_store.head.forget_directory(Path(base["directory"]))
        for _ in range(2):
            job.open_store.readers.give_back()
            assert leased(job) == set(base["stored"].values())
        job.client.refuses_leases = False
        job.open_store.readers.give_back()
        assert not leased(job)
        assert not job.open_store.readers.is_reading

    @pytest.mark.parametrize("kind", ["full", "incremental"])
    def test_the_lease_of_a_base_that_a_merge_reads_ends_with_the_merge(
        self, tmp_path: Path, kind: str
    ) -> None:
        job = follower(settled(tmp_path), tmp_path / "reader", **PAGES)
        base = job.restore_by_blocks(job.version)
        commit(job, 1)
        made = job.merge(kind)
        read = [set(base["stored"].values()), set(made["stored"].values())]
        assert len(list(Path(job.location).glob("lease/*.json"))) == len(read)
        assert leased(job) == set().union(*read)

    def test_a_lease_ends_when_all_files_are_local(self, tmp_path: Path) -> None:
        job = follower(settled(tmp_path), tmp_path / "reader")
        base = job.restore_by_blocks(job.version)
        assert base["sparse"]
        wait_until_whole(job, Path(base["directory"]))
        wait_for(lambda: not list(Path(job.location).glob("lease/*")))

    def test_a_restore_of_whole_files_writes_nothing(self, tmp_path: Path) -> None:
        job = follower(settled(tmp_path), tmp_path / "reader", restoreMode="eager")
        job.client.refuses_leases = True
        base = job.restore_by_blocks(job.version)
        assert not base["sparse"]
        assert not job.open_store.readers.is_reading

    def test_a_removed_checkpoint_is_not_brought_back(self, tmp_path: Path) -> None:
        job = follower(settled(tmp_path), tmp_path / "reader", **PAGES)
        job.restore_by_blocks(job.version)
        Path(job.location).rename(tmp_path / "removed")
        job.client.passed_ms = HOUR_MS / 2
        job.open_store.readers.look()
        wait_for(lambda: job.client.calls.scheduler.status(job.open_store).running is None)
        assert not Path(job.location).exists()


class TestFailures:
    @paged_or_hydrated
    def test_a_file_that_is_gone_is_no_damage(self, tmp_path: Path, options: dict) -> None:
        other = settled(tmp_path)
        job = follower(other, tmp_path / "reader", **options)
        base = job.restore_by_blocks(job.version)
        store_full_checkpoint(
            StoreKey(0, 0), LocalStorage(job.location), VersionId(job.version, job.versions[job.version][0])
        )
        for path in base["stored"].values():
            (Path(job.location) / path).unlink()
        with pytest.raises(MissingError):
            read(job, base)
        assert not job.open_store.damage_reports.of(str(job.location))
        again = job.restore_by_blocks(job.version)
        assert again["sparse"]
        assert not set(again["stored"].values()) & set(base["stored"].values())

    def test_storage_that_refuses_a_lease(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reader_leases, "LOOK_S", 0.01)
        job = follower(settled(tmp_path), tmp_path / "reader", **PAGES)
        job.client.refuses_leases = True
        base = job.restore_by_blocks(job.version)
        read(job, base)
        job.client.refuses_leases = False
        wait_for(lambda: leased(job) == set(base["stored"].values()))

    def test_files_that_are_condemned_and_needed_are_read(self, tmp_path: Path) -> None:
        job = follower(settled(tmp_path), tmp_path / "reader", **PAGES)
        names = [f"shared/{path.name}" for path in Path(job.location).glob("shared/*")]
        LocalStorage(job.location).write("tombstone/00.json", pack_tombstone(names))
        base = job.restore_by_blocks(job.version)
        read(job, base)
        assert leased(job) == set(base["stored"].values())

    def test_a_version_is_restored_again_if_a_cleaner_was_sooner(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A full snapshot appears, and the files before it are condemned, while their tails are fetched."""
        job = follower(settled(tmp_path), tmp_path / "reader", **PAGES)
        storage = LocalStorage(job.location)
        before = {f"shared/{path.name}" for path in Path(job.location).glob("shared/*")}

        def clean_once() -> None:
            job.client.before_reads = lambda: None
            version = VersionId(job.version, job.versions[job.version][0])
            store_full_checkpoint(StoreKey(0, 0), LocalStorage(job.location), version)
            storage.write("tombstone/00.json", pack_tombstone(before))

        job.client.before_reads = clean_once
        base = job.restore_by_blocks(job.version)
        assert base["sparse"]
        assert not set(base["stored"].values()) & before
        assert leased(job) == set(base["stored"].values())


def test_a_local_storage_needs_no_lease(tmp_path: Path) -> None:
    other = settled(tmp_path)
    job = Job(InProcess(tmp_path / "reader"), other.location, restoreMode="lazy")
    job.versions = other.versions
    job.restore_by_blocks(5)
    assert not job.open_store.readers.is_reading
