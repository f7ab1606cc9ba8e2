"""A sweep takes what nothing needs, however long nothing has been written, and never what a version needs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtimes import AdjustedRuntime
from simulation.simulated_storage import Bucket

from deletion import made_up
from state_store.core.checkpoint.lineage import Lineages
from state_store.core.checkpoint.names import VersionId, lease_path, tombstone_path
from state_store.core.checkpoint.stored_documents import LeaseTerms, pack_tombstone
from state_store.core.deletion.lease import StoreContents
from state_store.core.deletion.retention import Cleanup, Retention, RetentionPolicy, preview

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOW_MS = 1_700_000_000_000
NEWEST = 7
CLOCK = AdjustedRuntime(wall_ms=lambda: NOW_MS)


def bucket(files: dict[str, tuple[bytes, int]]) -> Bucket:
    """Storage with files, given with their ages in milliseconds."""
    made = Bucket("memory:///store", lambda: NOW_MS)
    made.files = {path: (data, NOW_MS - age_ms) for path, (data, age_ms) in files.items()}
    return made


def sweep(storage: Bucket, newest: int = NEWEST, older_than_ms: int = DAY_MS) -> Cleanup:
    policy = RetentionPolicy(batches=newest, lease_expiry_ms=DAY_MS)
    return Retention(storage, policy, runtime=CLOCK).sweep(made_up.version(newest), older_than_ms)


def history(*snapshots: int, age_ms: int = 2 * DAY_MS) -> dict[str, tuple[bytes, int]]:
    """All deltas, and snapshots of a file each."""
    paths = [made_up.delta(number).path for number in range(1, NEWEST + 1)]
    files = {path: made_up.content(path) for path in paths}
    for number in snapshots:
        table = made_up.shared(number, 1)
        files[table] = made_up.content(table)
        files[made_up.snapshot(number).path] = made_up.archive(made_up.version(number), [table])
    return {path: (data, age_ms) for path, data in files.items()}


def test_files_of_the_dead_go_if_nothing_was_written_for_long():
    left = {
        made_up.delta(3).path + ".00c0ffee.tmp": b"",
        made_up.shared(2, 9): b"an orphan",
        lease_path("dead"): LeaseTerms(frozenset([made_up.delta(1).path]), HOUR_MS, NOW_MS - DAY_MS).pack(),
        lease_path("torn"): b"",
        tombstone_path("done"): pack_tombstone([made_up.shared(1, 5)]),
        tombstone_path("torn"): b"",
    }
    needed = {path: file for path, file in history(5).items() if "delta" not in path or int(path[6:26]) > 5}
    storage = bucket(needed | {path: (data, 2 * DAY_MS) for path, data in left.items()})
    shown = preview(storage, made_up.version(NEWEST), DAY_MS, DAY_MS, runtime=CLOCK)
    done = sweep(storage)
    assert set(storage.files) == set(needed)
    assert {*done.deleted, *done.swept} == set(left) == {*shown.deleted, *shown.swept}
    assert all(done.swept[path].size_bytes == len(left[path]) for path in done.swept)
    assert done.deleted_bytes == shown.deleted_bytes == sum(len(left[path]) for path in done.deleted)


def test_versions_stay_that_a_clean_up_would_retire():
    storage = bucket(history(3, 6))
    assert sweep(storage).deleted == ()
    assert set(storage.files) == set(history(3, 6))


def test_files_that_a_dead_clean_up_condemned_go():
    condemned = [made_up.delta(number).path for number in (1, 2, 3)]
    storage = bucket(history(4) | {tombstone_path("dead"): (pack_tombstone(condemned), 2 * DAY_MS)})
    assert set(sweep(storage).deleted) == set(condemned)
    assert not any(path.startswith("tombstone") for path in storage.files)


def test_a_young_snapshot_that_is_condemned_stays_whole():
    snapshot, table = made_up.snapshot(2).path, made_up.shared(2, 1)
    condemned = [snapshot, *(made_up.delta(number).path for number in (1, 2, 3))]
    files = history(2, 5) | {tombstone_path("dead"): (pack_tombstone(condemned), 2 * DAY_MS)}
    storage = bucket(files | {snapshot: (files[snapshot][0], 0)})
    shown = preview(storage, made_up.version(NEWEST), DAY_MS, DAY_MS, runtime=CLOCK)
    gone = {made_up.delta(number).path for number in (1, 2, 3, 4)}
    assert set(sweep(storage).deleted) == set(shown.deleted) == gone
    assert {snapshot, table} <= storage.files.keys()
    assert table not in StoreContents.read(storage).tombstones.condemned()


def test_files_of_a_damaged_archive_stay_until_it_is_put_back():
    files = history(3, 6)
    for number in (1, 2, 3):
        del files[made_up.delta(number).path]
    archive = made_up.snapshot(3).path
    storage = bucket(files | {archive: (b"PK", 2 * DAY_MS)})
    assert preview(storage, made_up.version(NEWEST), DAY_MS, DAY_MS, runtime=CLOCK).deleted == ()
    assert sweep(storage).deleted == ()
    assert set(storage.files) == set(files)


def test_nothing_goes_while_the_newest_version_is_in_need():
    files = history(4)
    del files[made_up.delta(6).path]
    storage = bucket(files | {made_up.delta(3).path + ".1.tmp": (b"", 2 * DAY_MS)})
    assert "cannot be restored" in (sweep(storage).skipped or "")
    assert len(storage.files) == len(files) + 1


PATHS = sorted(history(2, 4, 6))
EXTRA = sorted(
    [
        *(f"{made_up.delta(number).path}.1.tmp" for number in (2, 7)),
        *(made_up.shared(number, 8) for number in (1, 3, 5, 7)),
    ]
)
AGES = st.sampled_from([0, HOUR_MS // 2, 2 * HOUR_MS, DAY_MS - 1, DAY_MS + 1, 30 * DAY_MS])


@st.composite
def bad_days(draw) -> dict[str, tuple[bytes, int]]:
    """Files that any past may have left: missing, superfluous, condemned or held, young and old."""
    complete = history(2, 4, 6)
    kept = draw(st.sets(st.sampled_from(PATHS), min_size=len(PATHS) - 4))
    extra = draw(st.sets(st.sampled_from(EXTRA)))
    files = {path: (complete[path][0], draw(AGES)) for path in sorted(kept)}
    files |= {path: (made_up.content(path), draw(AGES)) for path in sorted(extra)}
    named = st.sets(
        st.sampled_from([path for path in PATHS + EXTRA if not path.endswith(".tmp")]), max_size=4
    )
    for number in range(draw(st.integers(0, 2))):
        data = pack_tombstone(draw(named)) if draw(st.integers(0, 5)) else b""
        files[tombstone_path(f"{number}")] = data, draw(AGES)
    for number in range(draw(st.integers(0, 2))):
        age_ms = draw(AGES)
        terms = LeaseTerms(frozenset(draw(named)), HOUR_MS, NOW_MS - age_ms)
        files[lease_path(f"{number}")] = terms.pack() if draw(st.integers(0, 5)) else b"", age_ms
    return files


@pytest.mark.tier("more")
@settings(max_examples=150, deadline=None)
@given(bad_days())
def test_nothing_goes_that_a_version_needs_or_that_is_young(files):
    storage = bucket(files)
    before = StoreContents.read(storage)
    shown = preview(storage, made_up.version(NEWEST), DAY_MS, DAY_MS, runtime=CLOCK)
    assert storage.files == bucket(files).files
    done = sweep(storage)
    after = StoreContents.read(storage)
    sure = _surely_restorable(before)
    assert sure <= set(after.lineages.restorable())
    assert all(path.startswith("tombstone/") for path in storage.files.keys() - files.keys())
    gone = set(files) - set(storage.files)
    young = {path for path, (_, age_ms) in files.items() if age_ms < DAY_MS and "tombstone" not in path}
    assert not gone & young
    held = [
        LeaseTerms.unpack(data, file=path) for path, (data, age) in files.items() if _is_live(path, data, age)
    ]
    assert not gone & frozenset().union(*(plan.files for plan in held))
    assert (done.skipped is None) == (shown.skipped is None)
    assert ({*done.deleted, *done.swept} == gone) or done.skipped
    assert ({*shown.deleted, *shown.swept} == gone) or done.skipped
    if made_up.version(NEWEST) in before.lineages.restorable() and done.skipped is None:
        assert made_up.version(NEWEST) in after.lineages.restorable()
    if done.skipped is None:
        assert not [
            name
            for name in before.restorable_snapshots
            if name in after.snapshots and name not in after.restorable_snapshots
        ]


def _surely_restorable(contents: StoreContents) -> set[VersionId]:
    """Return the versions that need no condemned file."""
    condemned = contents.tombstones.condemned()
    deltas = [delta for delta in contents.listing.deltas if delta.path not in condemned]
    complete = [
        name
        for name, manifest in contents.restorable_snapshots.items()
        if condemned.isdisjoint([name.path, *(entry.path for entry in manifest.files)])
    ]
    return set(Lineages(deltas, complete).restorable())


def _is_live(path: str, data: bytes, age_ms: int) -> bool:
    return path.startswith("lease/") and bool(data) and age_ms <= HOUR_MS
