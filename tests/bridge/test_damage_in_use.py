"""Damaged files below a store in use: on the local disk, and in storage as the JVM sees it."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from damage.harms import flips, replacements, truncations
from driver import DriverError, Jvm, gone

from state_store.core.checkpoint.names import DeltaName
from state_store.core.engine.database import write_delta

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]


def mapped_tables(jvm: Jvm) -> set[Path]:
    """Return the SST files that the JVM has mapped."""
    maps = Path(f"/proc/{jvm.process.pid}/maps").read_text().splitlines()
    return {Path(line.split()[-1]) for line in maps if line.endswith(".sst")}


def test_a_damaged_local_file_fails_the_reader_and_is_fetched_again(jvm: Jvm, tmp_path: Path) -> None:
    location = f"probe://{tmp_path}/state"  # remote for the agent, which would link local files
    jvm.provider("p", location)
    rows = {f"key{n}": f"value{n}" * 10 for n in range(500)}
    version, id = jvm.batch("p", 0, None, **rows)
    jvm.provider("q", location)
    jvm("begin", provider="q", store="s", version=version, id=id, read=True)
    jvm("release", store="s")
    damaged = mapped_tables(jvm)
    assert damaged
    for path in damaged:
        with open(path, "r+b") as file:
            file.seek(1000)
            byte = file.read(1)[0]
            file.seek(1000)
            file.write(bytes([byte ^ 4]))
    with pytest.raises(DriverError, match=r"\.sst is damaged at byte 0: the checksum of the block"):
        jvm.rows("q", version, id)
    assert jvm.rows("q", version, id) == rows


def test_a_reader_that_failed_becomes_no_writer_and_holds_nothing(own_jvm: Jvm, tmp_path: Path) -> None:
    """The transaction that would have written is ended: it has memory and the files of a base."""
    location = f"probe://{tmp_path}/state"
    own_jvm.provider("p", location)
    rows = {f"key{n}": f"value{n}" * 10 for n in range(500)}
    version, id = own_jvm.batch("p", 0, None, **rows)
    own_jvm("close_all")
    own_jvm.provider("q", location, localRecovery="false")
    own_jvm("begin", provider="q", store="s", version=version, id=id, read=True)
    damaged = mapped_tables(own_jvm)
    assert damaged
    for path in damaged:
        with open(path, "r+b") as file:
            file.write(bytes(64))
    with pytest.raises(DriverError, match=r"\.sst is damaged"):
        own_jvm("scan", store="s")
    with pytest.raises(DriverError, match="can only be aborted"):
        own_jvm("upgrade", provider="q", store="s", id=id)
    own_jvm("abort", store="s")
    version, id = own_jvm.batch("q", version, id, more="1")
    assert own_jvm.rows("q", version, id) == rows | {"more": "1"}
    own_jvm("close_all")
    assert gone(lambda: own_jvm("memory")["used"] > 0), f"{own_jvm('memory')['used']} bytes are held"
    maps = Path(f"/proc/{own_jvm.process.pid}/maps")
    assert gone(lambda: ".sst" in maps.read_text(), within_s=20), "files of a base are held, though deleted"


def test_damage_in_storage_gives_the_jvm_no_wrong_rows(jvm: Jvm, tmp_path: Path) -> None:
    """A sample of tests/damage runs through both planes: exact rows, or an exception that names the file."""
    location, chance = tmp_path / "state", random.Random(10)
    jvm.provider("writer", location)
    version, id, rows = 0, None, {}
    for number in range(4):
        changes = {f"key{n}": f"{number}-{n}" * 5 for n in range(number * 20, number * 20 + 60)}
        version, id = jvm.batch("writer", version, id, **changes)
        rows |= changes
    deltas = sorted(location.glob("**/delta/*.sst"))
    harms = [
        (path, harm)
        for path in deltas
        for harm in (
            *flips(path, chance, in_each=1),
            *truncations(path, chance, count=3),
            *replacements([other for other in deltas if other != path][:1]),
        )
    ]
    outcomes = {"exact": 0, "refused": 0}
    for number, (path, harm) in enumerate(chance.sample(harms, 12)):
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(location, copy)
        harm.do(copy / path.relative_to(location))
        jvm.provider(f"reader-{number}", copy)
        try:
            found = jvm.rows(f"reader-{number}", version, id)
        except DriverError as error:
            assert path.name.rpartition("_")[0].rpartition("_")[0] in str(error), harm.text
            outcomes["refused"] += 1
        else:
            assert found == rows, f"WRONG ROWS: {path.name}: {harm.text}"
            outcomes["exact"] += 1
    assert outcomes["refused"] > 0


def test_a_damaged_block_in_storage_fails_one_reader_and_is_done_without(jvm: Jvm, tmp_path: Path) -> None:
    rows = {f"key{n}": f"value{n}" * 10 for n in range(500)}
    jvm.provider("writer", tmp_path / "state", fullAfterDeltas="2", minPauseBetweenMerges="0ms")
    version, id = jvm.batch("writer", 0, None, **rows)
    for n in range(3):
        version, id = jvm.batch("writer", version, id, **{f"more{n}": "1"})
        rows[f"more{n}"] = "1"
    assert gone(lambda: not list((tmp_path / "state").glob("**/snapshot/*.zip")))
    table = next((tmp_path / "state").glob("**/shared/*.sst"))
    data = bytearray(table.read_bytes())
    data[1000] ^= 4
    table.unlink()
    table.write_bytes(data)
    jvm.provider("reader", tmp_path / "state", localRecovery="false")
    with pytest.raises(DriverError, match=r"\.sst is damaged at byte 0: the checksum of the block"):
        jvm.rows("reader", version, id)
    assert jvm.rows("reader", version, id) == rows
    assert jvm.rows("reader", version, id) == rows
    jvm.provider("verifying", tmp_path / "state", localRecovery="false", restoreVerification="files")
    assert jvm.rows("verifying", version, id) == rows


def test_a_delta_that_cannot_be_opened_is_fetched_again_within_the_task(jvm: Jvm, tmp_path: Path) -> None:
    """The kept local copy of a provider lacks its end."""
    location = f"probe://{tmp_path}/state"
    jvm.provider("writer", location, localDir=str(tmp_path / "local"))
    rows = {f"key{n}": f"value{n}" for n in range(50)}
    version, id = jvm.batch("writer", 0, None, **rows)
    (kept,) = (tmp_path / "local").glob("**/kept/*/delta@*")
    data = kept.read_bytes()
    kept.unlink()
    kept.write_bytes(data[:-1] + b"x")
    jvm.provider("reader", location, localDir=str(tmp_path / "local"))
    assert jvm.rows("reader", version, id) == rows
    assert "verifying all of them" in jvm.log


class _NewerRecord:
    """Return the metadata of the delta at `path`, in a format of the future."""

    def __init__(self, path: Path) -> None:
        text = path.read_bytes().decode("latin-1")
        self._fields, _ = json.JSONDecoder().raw_decode(text, text.index('{"format":1'))

    def to_json(self) -> bytes:
        return json.dumps({**self._fields, "format": 2}).encode()


def test_a_delta_of_a_newer_format_is_refused_by_name(jvm: Jvm, tmp_path: Path) -> None:
    """Only the format is new, so nothing else refuses the file; it is not reported as damaged."""
    location = tmp_path / "state"
    jvm.provider("writer", location)
    first = jvm.batch("writer", 0, None, one="1")
    at = jvm.batch("writer", *first, two="2")
    *_, path = sorted(location.glob("**/delta/*.sst"))
    name = DeltaName.parse(path.name)
    assert name is not None and name.version == 2
    _, crc = write_delta(tmp_path / "newer.sst", [(b"\0\0key", b"value")], _NewerRecord(path))
    path.unlink()
    newer = path.with_name(replace(name, crc=crc).name)
    (tmp_path / "newer.sst").rename(newer)
    jvm.provider("reader", location, localRecovery="false")
    log = len(jvm.log)
    with pytest.raises(
        DriverError, match=rf"(?s)\[format\].*{at[1]}.*has checkpoint format 2.*Use a release"
    ):
        jvm.rows("reader", *at)
    with pytest.raises(DriverError, match=r"(?s)\[format\].*has checkpoint format 2.*Use a release"):
        jvm("changes", provider="reader", **{"from": 1}, to=2, id=at[1])
    assert "verifying all of them" not in jvm.log[log:]
    assert jvm.rows("reader", *first) == {"one": "1"}


def _with_snapshot(jvm: Jvm, rows: dict[str, str]) -> tuple[int, str]:
    """Make a first version with those rows, and its snapshot, by the provider `writer`."""
    jvm("begin", provider="writer", store="forced", version=0, force=True)
    jvm("put", store="forced", rows=rows)
    committed = jvm("commit", store="forced")
    return committed["version"], committed["id"]


LAZY = {
    "restoreMode": "lazy",
    "hydrationRateLimit": "4",
    "localRecovery": "false",
}
"""Options with practically no background transfers."""


class TestLazyRestores:
    @pytest.fixture
    def written(self, jvm: Jvm, tmp_path: Path) -> tuple[str, dict[str, str], int, str]:
        """Return location, rows, version and id of a store with remote files."""
        location = f"probe://{tmp_path}/state"
        rows = {f"key{n}": f"value{n}" * 20 for n in range(2500)}
        jvm.provider("writer", location, hydrationRateLimit=LAZY["hydrationRateLimit"])
        return location, rows, *_with_snapshot(jvm, rows)

    def test_rows_are_read_as_they_are_needed(self, jvm: Jvm, written: tuple) -> None:
        location, rows, *at = written
        jvm.provider("reader", location, **LAZY)
        jvm("begin", provider="reader", store="s", version=at[0], id=at[1])
        assert jvm("get", store="s", key="key77") == rows["key77"]
        jvm("put", store="s", rows={"key77": "new"})
        at = jvm("commit", store="s")
        assert jvm.rows("reader", at["version"], at["id"]) == {**rows, "key77": "new"}

    def test_rows_of_a_large_delta_are_read_as_they_are_needed(self, jvm: Jvm, tmp_path: Path) -> None:
        """A state without a snapshot has only deltas."""
        location = f"probe://{tmp_path}/state"
        rows = {f"key{n}": f"{n:04d}" * 250 for n in range(2500)}
        jvm.provider("writer", location, hydrationRateLimit=LAZY["hydrationRateLimit"])
        version, id = jvm.batch("writer", 0, None, **rows)
        jvm.provider("reader", location, **LAZY)
        jvm("begin", provider="reader", store="s", version=version, id=id)
        assert jvm("get", store="s", key="key77") == rows["key77"]
        (delta,) = (path for path in mapped_tables(jvm) if path.parent.name == "deltas")
        status = delta.stat()
        assert status.st_size > 2_500_000
        assert status.st_blocks * 512 < status.st_size / 2
        jvm("put", store="s", rows={"key77": "new"})
        at = jvm("commit", store="s")
        assert jvm.rows("reader", at["version"], at["id"]) == {**rows, "key77": "new"}

    def test_a_large_delta_is_recognised_without_another_request(self, jvm: Jvm, tmp_path: Path) -> None:
        """The batch repeats changes, which lie between its last record and the file's end."""
        location = f"probe://{tmp_path}/state"
        jvm.provider("writer", location, hydrationRateLimit=LAZY["hydrationRateLimit"])
        jvm("begin", provider="writer", store="s", version=0, id=None)
        for last in range(2):
            jvm("put", store="s", rows={f"key{n}": f"{n + last:04d}" * 250 for n in range(2500)})
        written = jvm("commit", store="s")
        jvm.provider("reader", location, **LAZY)
        jvm("begin", provider="reader", store="s", version=written["version"], id=written["id"])
        jvm("commit", store="s")
        metrics = jvm("metrics", store="s")["custom"]
        assert metrics["incrementalHydrationLeftBytes"] > 2_500_000
        assert metrics["incrementalOnDemandBytes"] == 0

    def test_an_agent_that_dies_is_replaced_and_asked_again(self, jvm: Jvm, written: tuple) -> None:
        location, rows, *at = written
        jvm.provider("reader", location, **LAZY)
        jvm("begin", provider="reader", store="s", version=at[0], id=at[1], read=True)
        first, actions = jvm.agent(), jvm("actions")
        jvm("on_fs", operation="open", action="kill")
        assert jvm("scan", store="s") == rows
        jvm("release", store="s")
        assert jvm("actions") == actions + 1 and jvm.agent() != first

    def test_failing_storage_fails_only_the_batch(self, jvm: Jvm, written: tuple) -> None:
        location, rows, *at = written
        jvm.provider("reader", location, **LAZY)
        jvm("begin", provider="reader", store="s", version=at[0], id=at[1], read=True)
        jvm("on_fs", operation="open", action="fail", times=1000)
        with pytest.raises(DriverError, match=r"(?s)restored in part, cannot be read.*the probe refuses"):
            jvm("scan", store="s")
        jvm("release", store="s")
        jvm("on_fs", operation="never", action="fail")
        assert jvm.rows("reader", *at) == rows


class TestBackgroundVerification:
    """Verification of files that a restore links from another directory than that of their writer."""

    @pytest.fixture
    def written(self, jvm: Jvm, tmp_path: Path) -> Callable[..., tuple[str, dict[str, str], int, str]]:
        def write(rate: str) -> tuple[str, dict[str, str], int, str]:
            """Return location, rows, version and id of a store whose files are kept locally, too."""
            location = f"probe://{tmp_path}/state"
            rows = {f"key{n}": f"value{n}" * 20 for n in range(2500)}
            jvm.provider("writer", location, localDir=str(tmp_path / "local"), verificationRateLimit=rate)
            return location, rows, *_with_snapshot(jvm, rows)

        return write

    def read(self, jvm: Jvm, location: str, local: Path, at: list, **options: str) -> tuple[int, str, dict]:
        """Run a batch of a provider that has to restore; return version, id and metrics."""
        jvm.provider("reader", location, localDir=str(local), **options)
        return self.batch(jvm, at)

    def batch(self, jvm: Jvm, at: list) -> tuple[int, str, dict]:
        jvm("begin", provider="reader", store="s", version=at[0], id=at[1])
        jvm("get", store="s", key="key2499")
        committed = jvm("commit", store="s")
        return committed["version"], committed["id"], jvm("metrics", store="s")["custom"]

    def test_a_damaged_block_that_no_batch_reads_is_found(
        self, jvm: Jvm, tmp_path: Path, written: Callable[..., tuple]
    ) -> None:
        location, rows, *at = written("100m")
        (kept,) = (tmp_path / "local").glob("kept/*/delta@*")
        data = bytearray(kept.read_bytes())
        data[1000] ^= 4
        kept.unlink()
        kept.write_bytes(data)
        *at, first = self.read(jvm, location, tmp_path / "local", at, verificationRateLimit="100m")
        found = r"damaged in a block that no batch has read yet; .*\.sst is damaged at byte 0: the checksum"
        assert gone(lambda: not re.search(found, jvm.log))
        *at, second = self.batch(jvm, at)
        assert first["incrementalDamagedFiles"] + second["incrementalDamagedFiles"] == 1
        assert second["incrementalRestoreCount"] == 1
        assert jvm.rows("reader", *at) == rows
        assert (kept.stat().st_size, kept.read_bytes()[1000]) == (len(data), data[1000] ^ 4)
        assert self.batch(jvm, at)[-1]["incrementalDamagedFiles"] == 0

    def test_an_incomplete_file_is_left_to_its_fetching(
        self, jvm: Jvm, tmp_path: Path, written: Callable[..., tuple]
    ) -> None:
        location, _, *at = written("100m")
        options = {"restoreMode": "lazy", "verificationRateLimit": "100m"}
        *_, metrics = self.read(jvm, location, tmp_path / "other", at, **options)
        assert (metrics["incrementalVerifiedBytes"], metrics["incrementalVerificationLeftBytes"]) == (0, 0)

    def test_it_keeps_to_its_rate(self, jvm: Jvm, tmp_path: Path, written: Callable[..., tuple]) -> None:
        location, _, *at = written("16k")
        *at, first = self.read(jvm, location, tmp_path / "local", at, verificationRateLimit="16k")
        *_, second = self.batch(jvm, at)
        kept = min((tmp_path / "local").glob("kept/*/delta@*"))
        read = first["incrementalVerifiedBytes"] + second["incrementalVerifiedBytes"]
        assert read <= 128 << 10
        assert read + second["incrementalVerificationLeftBytes"] == kept.stat().st_size > 200_000
