"""Names are read as they were written, sort by version, and are told from foreign names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_store.core.checkpoint import names
from state_store.core.checkpoint.names import (
    EMPTY_PARENT,
    DeltaName,
    RefusedName,
    SharedName,
    SnapshotName,
    VersionId,
)
from state_store.errors import FormatError

versions = st.integers(1, 10**20 - 1)
ids = st.from_regex(r"[0-9A-Za-z-]{1,100}", fullmatch=True).filter(lambda text: text != EMPTY_PARENT)
deltas = st.builds(DeltaName, versions, ids, ids | st.just(EMPTY_PARENT), st.integers(0, 2**32 - 1))
snapshots = st.builds(SnapshotName, versions, ids)
shared = st.builds(SharedName, versions, st.integers(0, 2**32 - 1), st.integers(0, 10**9))


@given(deltas)
def test_the_name_of_a_delta_survives_a_round_trip(delta: DeltaName) -> None:
    assert DeltaName.parse(delta.name) == delta
    assert names.origin_of(delta.path) == delta.version


@given(snapshots)
def test_the_name_of_a_snapshot_survives_a_round_trip(snapshot: SnapshotName) -> None:
    assert SnapshotName.parse(snapshot.name) == snapshot


@given(st.builds(RefusedName, versions, ids))
def test_the_name_of_a_refusal_survives_a_round_trip(mark: RefusedName) -> None:
    assert RefusedName.parse(mark.name) == mark
    assert not names.is_sst_path(mark.path)


@given(shared)
def test_the_name_of_a_shared_file_survives_a_round_trip(name: SharedName) -> None:
    assert SharedName.parse(name.name) == name
    assert names.origin_of(name.path) == name.version


@given(st.lists(deltas, min_size=2))
def test_names_sort_by_version(several: list[DeltaName]) -> None:
    by_name = sorted(several, key=lambda delta: delta.name)
    assert [delta.version for delta in by_name] == sorted(delta.version for delta in several)


def test_names_follow_the_written_grammar() -> None:
    delta = DeltaName(7, "a-1", "b-2", 0xC0FFEE)
    assert delta.path == "delta/00000000000000000007_a-1_b-2_00c0ffee.sst"
    assert SnapshotName(7, "a-1").path == "snapshot/00000000000000000007_a-1.zip"
    assert RefusedName(7, "a-1").path == "delta/00000000000000000007_a-1.refused"
    assert SharedName(7, 0xABC, 12).path == "shared/00000000000000000007-00000abc-12.sst"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "7.sst",
        "00000000000000000000.sst",
        "00000000000000000007.sst.1a2b3c4d.tmp",
        "00000000000000000007.SST",
        "00000000000000000007_a_b.sst",
        "00000000000000000007_a_b_XYZ.sst",
        "00000000000000000007_a_b_ABCDEF01.sst",
        "00000000000000000007_a_b_c_00000000.sst",
        "00000000000000000007_empty_b_00000000.sst",
        "00000000000000000007.sst",
        "00000000000000000007_a.refused",
        "00000000000000000007_a.b_c_00000000.sst",
        "00000000000000000007.sst\n",
        "٧" * 20 + ".sst",
        f"00000000000000000007_{'a' * 101}_b_00000000.sst",
    ],
)
def test_foreign_names_are_not_deltas(name: str) -> None:
    assert DeltaName.parse(name) is None


@pytest.mark.parametrize("name", ["", "00000000000000000000_a.refused", "00000000000000000007_.refused"])
def test_foreign_names_are_not_marks(name: str) -> None:
    assert RefusedName.parse(name) is None


@pytest.mark.parametrize("name", ["", "00000000000000000000-00000001-1.sst", "00000000000000000007-1-1.sst"])
def test_foreign_names_are_not_shared_files(name: str) -> None:
    assert SharedName.parse(name) is None


@pytest.mark.parametrize(("unique", "number"), [(-1, 1), (1 << 32, 1), (1, -1), (1, 10**20)])
def test_shared_files_whose_names_could_not_be_read_back_cannot_be_made(unique: int, number: int) -> None:
    with pytest.raises(FormatError, match=f"unique {unique}, number {number}"):
        SharedName(7, unique, number)


def test_the_largest_numbers_of_a_shared_file_are_read_back() -> None:
    largest = SharedName(10**20 - 1, (1 << 32) - 1, 10**20 - 1)
    assert SharedName.parse(largest.name) == largest


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000007.zip",
        "00000000000000000007_.zip",
        "0000000000000000007.zip",
        "a.zip",
        "x",
        "٧" * 20 + ".zip",
    ],
)
def test_foreign_names_are_not_snapshots(name: str) -> None:
    assert SnapshotName.parse(name) is None


@pytest.mark.parametrize(
    "path",
    [
        "delta/../x.sst",
        "delta/../delta/00000000000000000007.sst",
        "/delta/00000000000000000007.sst",
        "delta//00000000000000000007.sst",
        "delta/00000000000000000007.sst\0",
        "delta/00000000000000000000.sst",
        "delta/00000000000000000007_empty_a_00000000.sst",
        "delta/00000000000000000007.sst",
        "shared/00000000000000000000-00000000-1.sst",
        "other/00000000000000000007.sst",
        "shared/00000000000000000007.sst",
        "shared/00000000000000000007-00000000-٧.sst",
        f"shared/00000000000000000007-00000000-{'1' * 5000}.sst",
        "delta/",
    ],
)
def test_paths_of_other_files_are_not_taken_for_those_of_ssts(path: str) -> None:
    assert not names.is_sst_path(path)
    with pytest.raises(FormatError, match="not the path of an SST"):
        names.origin_of(path)


@pytest.mark.parametrize(
    ("version", "id_", "parent", "crc"),
    [
        (0, "a", "b", 1),
        (10**20, "a", "b", 1),
        (1, "a_b", "c", 1),
        (1, "", "c", 1),
        (1, "a" * 101, "c", 1),
        (1, "a", None, 1),
        (1, "a", "b", 1 << 32),
        (1, None, "b", 1),
        (1, EMPTY_PARENT, "b", 1),
    ],
)
def test_names_that_could_not_be_read_back_cannot_be_made(version, id_, parent, crc) -> None:
    with pytest.raises(FormatError):
        DeltaName(version, id_, parent, crc)


def test_the_longest_names_fit_a_file_system() -> None:
    longest = [
        DeltaName(10**19, "a" * 100, "b" * 100, 0),
        SnapshotName(10**19, "a" * 100),
        SharedName(10**19, 0, 10**19),
    ]
    assert all(len(name.name) <= 255 - len(".12345678") - len(".tmp") for name in longest)


def test_the_name_of_a_delta_says_on_which_version_it_builds() -> None:
    assert DeltaName(7, "a", "b", 1).builds_on == VersionId(6, "b")
    assert DeltaName(7, "a", EMPTY_PARENT, 1).builds_on is None
    assert DeltaName(1, "a", EMPTY_PARENT, 1).builds_on is None
    assert DeltaName(7, "a", names.parent_of(VersionId(6, "b")), 1).builds_on == VersionId(6, "b")
    with pytest.raises(FormatError):
        names.parent_of(VersionId(6, None))
    assert DeltaName(1, "a", names.parent_of(VersionId(0, None)), 1).builds_on is None
