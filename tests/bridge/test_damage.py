"""Files on the local disk of which a byte is not what was written, under a store that is in use."""

from __future__ import annotations

from pathlib import Path

import pytest
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
