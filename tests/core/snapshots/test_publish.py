"""Publishing a snapshot: its announcement before, obstacles, and concurrent writers and cleaners."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from agent.harness import InProcess, Job, contents
from faults import FAULTS, FaultyStorage, fail_at, once

from state_store.core.checkpoint.names import VersionId
from state_store.core.checkpoint.stored_documents import LeaseTerms
from state_store.core.deletion.lease import Lease
from state_store.core.deletion.retention import Retention, RetentionPolicy
from state_store.core.engine.database import DatabaseSettings
from state_store.core.files.transfer import sha256_of
from state_store.core.files.workspace import StoreCache, Workspace
from state_store.core.snapshots.context import StoreContext
from state_store.core.snapshots.merge import FULL, INCREMENTAL, Published, merge, publish
from state_store.core.snapshots.restore import restore
from state_store.core.storage.local import LocalStorage
from state_store.errors import ConflictError, UnknownOutcomeError


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Versions 1 to 6, without a snapshot."""
    made = Job(InProcess(tmp_path / "writer"), tmp_path / "state")
    for version in range(1, 7):
        made.commit({b"\0\0%02d-%03d" % (version, row): os.urandom(60) for row in range(50)})
    return made


@pytest.fixture
def context(tmp_path: Path) -> StoreContext:
    """Another executor on that store, through a storage that fails where it is told to."""
    storage = FaultyStorage(LocalStorage(tmp_path / "state"))
    local = tmp_path / "local"
    return StoreContext(
        storage, StoreCache(local / "kept"), Workspace(local / "work"), DatabaseSettings(threads=1)
    )


def test_a_merge_is_made_although_its_lease_cannot_be_given_back(tmp_path: Path) -> None:
    storage = FaultyStorage(LocalStorage(tmp_path / "state"), fail_at("delete", "lease/"))
    job = Job(InProcess(tmp_path / "local", storages=lambda uri: storage), tmp_path / "state")
    job.commit({b"\0\0a": b"1"})
    assert job.merge("full")["kind"] == "full"
    assert [event["event"] for event in job.events()] == ["merged"]


def version(job: Job, number: int) -> VersionId:
    return VersionId(number, job.versions[number][0])


def published(context: StoreContext, of: VersionId, *, full: bool = False) -> Published:
    merged = merge(context, restore(context, of).base, [], of, FULL if full else INCREMENTAL)
    lease = Lease(context.storage, expiry_ms=3_600_000)
    return publish(context, merged.base, lease, full=full)


def test_an_incremental_snapshot_replaces_none_a_full_one_does(job: Job, context: StoreContext) -> None:
    first = published(context, version(job, 4))
    before = context.storage.read(first.manifest.snapshot.path)
    with pytest.raises(ConflictError, match="snapshot/"):
        published(context, version(job, 4))
    assert context.storage.read(first.manifest.snapshot.path) == before
    assert context.storage.list_files("lease") == []
    full = published(context, version(job, 4), full=True)
    assert context.storage.read(full.manifest.snapshot.path) != before
    assert full.shared_files == 0


def test_a_new_file_is_in_a_lease_before_it_is_in_storage(job: Job, context: StoreContext) -> None:
    inner = context.storage.inner
    uploaded = []

    def check(operation: str, path: str) -> None:
        if operation == "upload" and path.startswith("shared/"):
            leases = [inner.read(f"lease/{entry.name}") for entry in inner.list_files("lease")]
            assert any(path in LeaseTerms.unpack(lease, file=path).files for lease in leases)
            uploaded.append(path)

    context.storage.fault = check
    assert published(context, version(job, 4), full=True).new_files == len(uploaded) > 0


def test_files_of_a_failed_upload_are_taken_back(job: Job, context: StoreContext) -> None:
    context.storage.fault = once("upload", "shared/", FAULTS["error-after"].fault)
    with pytest.raises(UnknownOutcomeError, match="shared/"):
        published(context, version(job, 4), full=True)
    assert context.storage.inner.list_files("shared") == []


def test_a_file_with_a_checksum_and_no_tail_gets_its_tail(job: Job, context: StoreContext) -> None:
    merged = merge(context, restore(context, version(job, 4)).base, [], version(job, 4), FULL).base
    files = {
        name: replace(file, sha256=sha256_of(merged.directory / name), tail=None)
        for name, file in merged.files.items()
    }
    lease = Lease(context.storage, expiry_ms=3_600_000)
    manifest = publish(context, replace(merged, files=files), lease, full=True).manifest
    assert manifest.files and all(entry.tail is not None for entry in manifest.files)


class TestAStoreThatIsCleanedMeanwhile:
    def merge_and_clean(self, job: Job) -> None:
        """Version 6 is made from a snapshot now; what it was made from before is gone."""
        job.merge("full")
        for _ in range(2):
            job.commit({})
        storage = LocalStorage(job.location)
        cleanup = Retention(storage, RetentionPolicy(batches=2)).cleanup(version(job, 8))
        assert len(cleanup.deleted) == 6

    def test_a_restore_looks_again(self, job: Job, context: StoreContext) -> None:
        once = []

        def clean(operation: str, path: str) -> None:
            if operation == "download" and not once:
                once.append(path)
                self.merge_and_clean(job)

        context.storage.fault = clean
        restored = restore(context, version(job, 6))
        assert once
        assert contents(restored.base.directory) == job.versions[6][1]

    def test_a_listing_that_is_taken_meanwhile_has_what_the_version_needs(
        self, job: Job, context: StoreContext
    ) -> None:
        """The deltas are listed before the snapshots: a snapshot that takes their place is seen."""
        once = []

        def clean(operation: str, path: str) -> None:
            if operation == "list" and once == ["list"]:
                self.merge_and_clean(job)
            if operation == "list":
                once.append(operation)

        context.storage.fault = clean
        restored = restore(context, version(job, 6))
        assert contents(restored.base.directory) == job.versions[6][1]
        assert once == ["list", "list"]
