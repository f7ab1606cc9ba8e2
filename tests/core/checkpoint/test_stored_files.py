"""Files of a store as names, manifests and listings describe them."""

from __future__ import annotations

from state_store.core.checkpoint.lineage import Listing
from state_store.core.checkpoint.names import DeltaName, RefusedName, SharedName, SnapshotName, VersionId
from state_store.core.checkpoint.registry import StoredFile, delta_of
from state_store.core.checkpoint.stored_documents import FileEntry

DELTA = DeltaName(7, "a", "b", 0xC0FFEE)
OTHER = DeltaName(7, "c", "b", 5)
SNAPSHOT = SnapshotName(6, "b")
TABLE = SharedName(5, 1, 2)
MARK = RefusedName(7, "c")


def entry(path: str) -> FileEntry:
    return FileEntry("000002.sst", path, 90, "0a" * 32, 6, 5)


def test_a_delta_of_a_listing_has_its_checksum_and_no_hash() -> None:
    assert StoredFile.of_delta(DELTA, 90) == StoredFile(DELTA.path, 90, 7, None, 0xC0FFEE)


def test_a_snapshot_of_a_listing_has_its_size_and_version() -> None:
    file = StoredFile.of_snapshot(SNAPSHOT, 90)
    assert file == StoredFile(SNAPSHOT.path, 90, 6)
    assert file.is_snapshot
    assert not StoredFile.of_delta(DELTA, 90).is_snapshot


def test_a_table_of_a_manifest_has_its_hash_and_no_checksum() -> None:
    assert StoredFile.of_entry(entry(TABLE.path)) == StoredFile(TABLE.path, 90, 5, "0a" * 32)


def test_a_delta_of_a_manifest_has_its_hash_and_its_checksum() -> None:
    assert StoredFile.of_entry(entry(DELTA.path)) == StoredFile(DELTA.path, 90, 5, "0a" * 32, 0xC0FFEE)


def test_a_path_is_a_delta_in_the_directory_of_deltas_only() -> None:
    assert delta_of(DELTA.path) == VersionId(7, "a")
    assert delta_of(TABLE.path) is None
    assert delta_of(f"shared/{DELTA.name}") is None
    assert delta_of(f"delta/sub/{DELTA.name}") is None
    assert delta_of("delta/other") is None


def test_a_listing_has_every_kind_of_file_in_its_place() -> None:
    files = [(DELTA.path, 1), (SNAPSHOT.path, 2), (TABLE.path, 3), (MARK.path, 4), (OTHER.path, 5)]
    foreign = [(f"shared/{DELTA.name}", 6), (f"delta/{SNAPSHOT.name}", 7), ("shared/x.sst.tmp", 8)]
    listing = Listing.from_files([*files, *foreign], {DELTA.path: 11, TABLE.path: 12})
    assert listing == Listing({DELTA: 1, OTHER: 5}, {SNAPSHOT: 2}, {TABLE: 3}, {DELTA: 11}, frozenset({MARK}))
    assert listing.sst_bytes() == {DELTA.path: 1, OTHER.path: 5, TABLE.path: 3}


def test_the_attempts_of_a_listing_know_its_marks_and_its_times() -> None:
    first, second, third = (DeltaName(7, f"a0-00000000-0-{unique:08x}", "b", 1) for unique in range(3))
    times = {first.path: 1, second.path: 3, third.path: 2}
    paths = [first.path, second.path, third.path]
    listed = Listing.from_files([(path, 9) for path in paths], times)
    assert listed.attempts.resolve(7) == first.version_id
    marked = Listing.from_files([(path, 9) for path in [*paths, RefusedName(*first.version_id).path]], times)
    assert marked.attempts.resolve(7) == third.version_id
