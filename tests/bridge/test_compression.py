"""A base with compressed files, or some compressed files, is read as any other, also if it is remote."""

from __future__ import annotations

from pathlib import Path

import pytest
from driver import Jvm, gone

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]


@pytest.mark.parametrize("deltas", [0, 2])
def test_a_restored_base_of_compressed_files_is_read(jvm: Jvm, tmp_path: Path, deltas: int) -> None:
    """The deltas after the snapshot lie beside its tables, and are not compressed."""
    rows = {f"key{number}": f"value{number}" * 10 for number in range(500)}
    state = tmp_path / "state"
    eager = {"fullAfterDeltas": "2", "fullScheduleJitter": "0", "minPauseBetweenMerges": "0ms"}
    jvm.provider("writer", state, snapshotCompression="lz4", **eager)
    version, id = 0, None
    for number in range(3):  # the third batch merges the first two
        version, id = jvm.batch("writer", version, id, **rows, batch=str(number))
    rows["batch"] = "2"
    assert gone(lambda: not list(state.glob("**/snapshot/*.zip")))
    jvm("close", provider="writer")
    jvm.provider("writer", state, snapshotCompression="lz4")
    for number in range(deltas):
        rows |= {f"key{number}": "new", f"more{number}": "1"}
        version, id = jvm.batch("writer", version, id, **{f"key{number}": "new", f"more{number}": "1"})

    jvm.provider("reader", tmp_path / "state", localRecovery="false")
    jvm("begin", provider="reader", store="read", read=True, version=version, id=id)
    found = {key: jvm("get", store="read", key=key) for key in ("key0", "key400", "none")}
    assert found == {"key0": rows["key0"], "key400": rows["key400"], "none": None}
    jvm("release", store="read")
    assert jvm.rows("reader", version, id) == rows
    assert "verifying all of them" not in jvm.log
