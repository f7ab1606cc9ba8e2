"""Damaged files under a store that is in use: on the local disk, and in storage as the JVM sees it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from damage.harms import flips, replacements, truncations
from driver import DriverError, Jvm

pytestmark = pytest.mark.spark


def mapped_tables(jvm: Jvm) -> set[Path]:
    """The SST files that the JVM has mapped."""
    maps = Path(f"/proc/{jvm.process.pid}/maps").read_text().splitlines()
    return {Path(line.split()[-1]) for line in maps if line.endswith(".sst")}


def test_a_damaged_local_file_fails_the_reader_and_is_fetched_again(jvm: Jvm, tmp_path: Path) -> None:
    location = f"probe://{tmp_path}/state"  # not local to the agent, which would link local files
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


def test_damage_in_storage_gives_the_jvm_no_wrong_rows(jvm: Jvm, tmp_path: Path) -> None:
    """A sample of tests/damage through both planes: exactly the rows, or an exception that names the file."""
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
            assert path.name.rpartition("_")[0].rpartition("_")[0] in str(error), harm.what
            outcomes["refused"] += 1
        else:
            assert found == rows, f"WRONG ROWS: {path.name}: {harm.what}"
            outcomes["exact"] += 1
    assert outcomes["refused"] > 0
