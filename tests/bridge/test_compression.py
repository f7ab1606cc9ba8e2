"""A base with compressed files, or some compressed files, is read as any other, also if it is remote."""

from __future__ import annotations

from pathlib import Path

import pytest
from driver import Jvm, gone

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]


ROWS = {f"key{number}": f"value{number}" * 10 for number in range(500)}


def written(jvm: Jvm, state: Path, deltas: int) -> tuple[int, str | None, dict[str, str]]:
    """Write a store with a compressed snapshot and deltas after it; return its version and its rows."""
    eager = {"fullAfterDeltas": "2", "fullScheduleJitter": "0", "minPauseBetweenMerges": "0ms"}
    jvm.provider("writer", state, snapshotCompression="lz4", **eager)
    version, id = 0, None
    for number in range(3):  # the third batch merges the first two
        version, id = jvm.batch("writer", version, id, **ROWS, batch=str(number))
    assert gone(lambda: not list(state.glob("**/snapshot/*.zip")))
    jvm("close", provider="writer")
    stored_bytes = sum(path.stat().st_size for path in state.glob("**/shared/*.sst"))
    assert 0 < stored_bytes < sum(map(len, ROWS.values())), "the snapshot is not compressed"
    jvm.provider("writer", state, snapshotCompression="lz4")
    rows = {**ROWS, "batch": "2"}
    for number in range(deltas):
        changes = {f"key{number}": "new", f"more{number}": "1"}
        rows |= changes
        version, id = jvm.batch("writer", version, id, **changes)
    jvm("close", provider="writer")
    return version, id, rows


def check(jvm: Jvm, version: int, id: str | None, rows: dict[str, str]) -> None:
    """Compare rows that the provider `reader` finds, by key and in a scan."""
    jvm("begin", provider="reader", store="read", read=True, version=version, id=id)
    values = {key: jvm("get", store="read", key=key) for key in ("key0", "key400", "none")}
    assert values == {"key0": rows["key0"], "key400": rows["key400"], "none": None}
    jvm("release", store="read")
    assert jvm.rows("reader", version, id) == rows
    assert "verifying all of them" not in jvm.log


@pytest.mark.parametrize("deltas", [0, 2])
def test_a_restored_base_of_compressed_files_is_read(jvm: Jvm, tmp_path: Path, deltas: int) -> None:
    """The deltas after the snapshot lie beside its tables, and are not compressed."""
    version, id, rows = written(jvm, tmp_path / "state", deltas)
    jvm.provider("reader", tmp_path / "state", localRecovery="false")
    check(jvm, version, id, rows)


@pytest.mark.parametrize("options", [{"hydrationRateLimit": "20k"}, {"localDiskLimit": "1"}])
def test_compressed_files_that_are_remote_are_read(
    own_jvm: Jvm, tmp_path: Path, options: dict[str, str]
) -> None:
    """Tables that come whole in the background, and those that have pages, are compressed."""
    version, id, rows = written(own_jvm, tmp_path / "state", 2)
    lazy = {"restoreMode": "lazy", "localRecovery": "false"}
    own_jvm.provider("reader", f"probe://{tmp_path / 'state'}", **lazy, **options)
    check(own_jvm, version, id, rows)
