"""States that are larger than the local disk: rows are read past it, and a full disk loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from driver import DriverError, Jvm
from mounted_disks import mounted_disk

from state_store.agent.lazy.file_cache import MIN_BYTES

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]

DISK_BYTES = 6 << 20
KEYS = 20_000
ROWS = {f"key{n:05d}": f"{n:06d}" * 100 for n in range(KEYS)}
"""Rows of twice as many bytes as the disk has."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a file system that is smaller than the least room of the cache of pages."""
    with mounted_disk(tmp_path / "small", str(DISK_BYTES)) as path:
        yield path


@pytest.fixture
def written(own_jvm: Jvm, tmp_path: Path) -> tuple[str, int, str]:
    """Return the location of a store in remote storage with all rows, its version and its id."""
    location = f"probe://{tmp_path}/state"
    own_jvm.provider("writer", location, localDir=str(tmp_path / "wide"), localRecovery="false")
    version, id = own_jvm.batch("writer", 0, None, **ROWS)
    own_jvm("close_all")
    return location, version, id


def fill(directory: Path) -> Path:
    """Fill the disk of a directory; return the file that does."""
    filler = directory / "filler"
    with open(filler, "wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(4096))
    return filler


def test_a_commit_reads_no_row_again_that_was_read_before_the_upgrade(
    own_jvm: Jvm, written: tuple[str, int, str], tmp_path: Path
) -> None:
    location, *at = written
    own_jvm.provider("reader", location, **limited(tmp_path / "local"))
    own_jvm("begin", provider="reader", store="s", version=at[0], id=at[1], read=True)
    keys = sorted(ROWS)[::10]
    own_jvm("expect", store="s", keys=keys)
    own_jvm("upgrade", provider="reader", store="s", id=at[1])
    own_jvm("put", store="s", rows=dict.fromkeys(keys, "changed"))
    opened = own_jvm("actions")
    own_jvm("on_fs", operation="open", action="sleep", ms=0, times=10_000)
    committed = own_jvm("commit", store="s")
    assert own_jvm("actions") == opened, "the commit has read files in storage"
    own_jvm("on_fs", operation="never", action="fail")
    assert own_jvm.rows("reader", committed["version"], committed["id"]) == ROWS | dict.fromkeys(
        keys, "changed"
    )


def test_a_disk_that_is_smaller_than_the_limit_is_enough(
    own_jvm: Jvm, written: tuple[str, int, str], small_disk: Path
) -> None:
    location, *at = written
    own_jvm.provider("reader", location, **limited(small_disk))
    own_jvm("begin", provider="reader", store="s", version=at[0], id=at[1])
    for number in range(0, KEYS, 7):
        key = f"key{number:05d}"
        assert own_jvm("get", store="s", key=key) == ROWS[key]
    changes = {f"key{number:05d}": "changed" for number in range(0, KEYS, 10)} | {"new": "1"}
    own_jvm("put", store="s", rows=changes)
    committed = own_jvm("commit", store="s")
    assert own_jvm.rows("reader", committed["version"], committed["id"]) == ROWS | changes


def test_a_full_disk_fails_a_commit_and_loses_nothing(
    own_jvm: Jvm, written: tuple[str, int, str], small_disk: Path
) -> None:
    location, *at = written
    own_jvm.provider("reader", location, **limited(small_disk))
    own_jvm("begin", provider="reader", store="s", version=at[0], id=at[1])
    assert own_jvm("get", store="s", key="key00000") == ROWS["key00000"]
    filler = fill(small_disk)
    changes = {f"key{number:05d}": f"{number:03d}" * 50 for number in range(5, KEYS, 10)}
    own_jvm("put", store="s", rows=changes)
    with pytest.raises(DriverError, match=r"(?i)no space left|is full"):
        own_jvm("commit", store="s")
    own_jvm("abort", store="s")
    assert own_jvm.rows("reader", *at) == ROWS
    filler.unlink()
    version, id = own_jvm.batch("reader", *at, **changes)
    assert own_jvm.rows("reader", version, id) == ROWS | changes


def test_a_scan_of_a_state_larger_than_the_cache_evicts_nothing_that_look_ups_read(
    own_jvm: Jvm, tmp_path: Path
) -> None:
    """A round of look-ups in the same rows asks storage for nothing, before and after the scan."""
    location = f"probe://{tmp_path}/state"
    keys = [f"key{number:05d}" for number in range(16_000)]
    own_jvm.provider("writer", location, localDir=str(tmp_path / "wide"), localRecovery="false")
    own_jvm("begin", provider="writer", store="w", version=0)
    for first in range(0, len(keys), 4_000):
        own_jvm("put", store="w", rows={key: key * 300 for key in keys[first : first + 4_000]})
    written = own_jvm("commit", store="w")
    own_jvm("close_all")
    state_bytes = sum(path.stat().st_size for path in (tmp_path / "state").rglob("*.sst"))
    assert state_bytes > 2 * MIN_BYTES

    own_jvm.provider("reader", location, **limited(tmp_path / "local"))
    own_jvm("begin", provider="reader", store="s", version=written["version"], id=written["id"], read=True)
    own_jvm("on_fs", operation="open", action="sleep", ms=0, times=1_000_000)

    def opened_by_look_ups() -> int:
        before = own_jvm("actions")
        for key in keys[::200]:
            assert own_jvm("get", store="s", key=key) == key * 300
        return own_jvm("actions") - before

    assert opened_by_look_ups() > 0
    assert opened_by_look_ups() == 0
    before = own_jvm("actions")
    assert len(own_jvm("scan", store="s")) == len(keys)
    assert own_jvm("actions") > before, "the scan reads nothing from storage"
    assert opened_by_look_ups() == 0
    own_jvm("on_fs", operation="never", action="fail")


def limited(local: Path) -> dict[str, str]:
    return {
        "restoreMode": "lazy",
        "localRecovery": "false",
        "localDir": str(local),
        "localDiskLimit": "1",
    }
