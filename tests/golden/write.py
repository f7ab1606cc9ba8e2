"""Writes the golden files of the checkpoint format that this release writes: run once for each version.

    python tests/golden/write.py tests/golden/format-1

Two stores, `ids` and `no-ids` (Spark's checkpoint formats 2 and 1), each with deltas, a full
snapshot, an incremental one on top, removed keys, two column families, an empty batch, an empty key
and an empty value; and `expected.json`: what each version holds, as hexadecimal digits. Never run it
again over files that a release wrote.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

from agent.harness import InProcess, Job  # noqa: E402

BIG = 40


def batches() -> list[dict[bytes, bytes | None]]:
    """Changes of eight batches; keys start with the id of their column family."""
    first = {b"\0\0row-%03d" % row: b"value %03d " % row * 4 for row in range(BIG)}
    return [
        first,
        {b"\0\1index-%02d" % row: b"" for row in range(10)},
        {b"\0\0row-%03d" % row: None for row in range(0, BIG, 4)},
        {},
        {b"\0\0": b"an empty key", b"\0\0row-001": b"", b"\0\1index-03": None},
        {b"\0\0list": b"one,two", bytes([0, 0, 255, 255, 255]): bytes(range(256))},
        {b"\0\0row-002": b"changed", b"\0\0never there": None},
        {b"\0\0list": b"one,two,three"},
    ]


def write(root: Path, *, ids: bool) -> list[dict[str, object]]:
    """Write a store below `root`, and return the rows of its versions."""
    with tempfile.TemporaryDirectory() as local:
        client = InProcess(Path(local), max_runs=2, size_amplification_percent=1000)
        job = Job(client, root, ids=ids, families={"default": 0, "index": 1})
        for number, changes in enumerate(batches(), start=1):
            job.commit(changes)
            if number == 3:
                job.merge("full")
            if number == 7:
                job.merge("incremental")
        return [
            {
                "version": version,
                "id": id_,
                "rows": {key.hex(): value.hex() for key, value in sorted(state.items())},
            }
            for version, (id_, state) in job.versions.items()
            if version
        ]


def main(target: Path) -> None:
    target.mkdir(parents=True)
    expected = {name: write(target / name, ids=name == "ids") for name in ("ids", "no-ids")}
    for directory in ("lease", "tombstone"):
        for path in target.rglob(directory):
            path.rmdir()
    (target / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
