"""Versions have the times of their batches, in a checkpoint and in a copy of it, in every tool."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import state_store
from dataset.golden_states import VERSIONS, checkpoint
from state_store.cli.main import main
from state_store.data.query import CommitTimes, Query
from state_store.data.query.targets import unfinished_batch
from state_store.observe.look import Looker

BEGAN_MS = [1_700_000_000_000 + number * 3_600_000 for number in range(len(VERSIONS))]
"""The begins of the batches, an hour apart."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a checkpoint whose batches took a minute each."""
    made = checkpoint("flights", tmp_path)
    for batch, began_ms in enumerate(BEGAN_MS):
        path = made / f"offsets/{batch}"
        lines = path.read_text(encoding="utf-8").splitlines()
        described = {**json.loads(lines[1]), "batchTimestampMs": began_ms}
        path.write_text("\n".join([lines[0], json.dumps(described), *lines[2:]]), encoding="utf-8")
        os.utime(made / f"commits/{batch}", (began_ms / 1000 + 60,) * 2)
    return made


def times_ms(directory: Path) -> list[int]:
    times = Query.open(str(directory)).logs.end_times_ms()
    return [times[batch] for batch in sorted(times)]


def test_the_times_of_a_checkpoint_are_those_of_its_files(directory: Path) -> None:
    assert times_ms(directory) == [began_ms + 60_000 for began_ms in BEGAN_MS]


@pytest.mark.parametrize("copied_s", [BEGAN_MS[-1] / 1000 + 100_000, BEGAN_MS[-1] / 1000 + 10 * 365 * 86_400])
def test_a_batch_of_a_copy_was_committed_when_the_next_began(directory: Path, copied_s: float) -> None:
    for path in (directory / "commits").iterdir():
        os.utime(path, (copied_s, copied_s))
    assert times_ms(directory) == [*BEGAN_MS[1:], BEGAN_MS[-1] + 3_600_000]
    for number, began_ms in enumerate(BEGAN_MS[1:]):
        with state_store.open(directory, at=began_ms / 1000 + 60) as state:
            assert state.version == VERSIONS[number]
    assert state_store.measure(directory).workload.interval_ms == 3_600_000


def test_batches_after_a_copy_have_the_times_of_their_files(directory: Path) -> None:
    copied_s = BEGAN_MS[-1] / 1000 - 600
    for batch in range(len(VERSIONS) - 1):
        os.utime(directory / f"commits/{batch}", (copied_s, copied_s))
    assert times_ms(directory) == [*BEGAN_MS[1:-1], round(copied_s * 1000), BEGAN_MS[-1] + 60_000]


def test_clocks_may_differ_a_little(directory: Path) -> None:
    late_s = [began_ms / 1000 + 30 for began_ms in BEGAN_MS[1:]]
    for batch, at_s in enumerate(late_s):
        os.utime(directory / f"commits/{batch}", (at_s, at_s))
    assert times_ms(directory)[:-1] == [round(at_s * 1000) for at_s in late_s]


COPIED_MS = BEGAN_MS[-1] + 400 * 86_400_000
ENDS_MS = [*BEGAN_MS[1:], BEGAN_MS[-1] + 3_600_000]
"""When the batches of a copy ended, as far as it says: when the next began, and after as long a time."""


@pytest.fixture
def copied(directory: Path) -> Path:
    """Return a copy of the checkpoint: all its files are of the day on which it was copied."""
    for path in directory.rglob("*"):
        if path.is_file():
            os.utime(path, (COPIED_MS / 1000, COPIED_MS / 1000))
    return directory


def times_by_tool(directory: Path) -> dict[str, dict[int, int | None]]:
    """Return the times of the versions, as each tool says them."""
    checkpoints = state_store.checkpoints(directory)
    chains = state_store.chain(directory)
    key = state_store.open(directory).to_arrow().to_pylist()[0]
    look = Looker(str(directory)).look()
    return {
        "checkpoints": {at.version.number: at.made_ms for store in checkpoints.values() for at in store},
        "chain": {link.version.number: link.made_ms for chain in chains.values() for link in chain.links},
        "history": {
            at.version: at.committed_ms for at in state_store.history(directory, {"carrier": key["carrier"]})
        },
        "serve": {checkpoint.version: checkpoint.made_ms for checkpoint in look.history},
    }


def test_every_tool_knows_the_times_of_a_copy(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for tool, found in times_by_tool(copied).items():
        assert found == {version: ENDS_MS[version - 1] for version in found}, tool
        assert VERSIONS[-1] in found, tool
    look = Looker(str(copied)).look()
    assert look.committed_ms == ENDS_MS[-1]
    assert {store.committed_ms for store in look.stores} == {ENDS_MS[-1]}
    assert {store.chain_since_ms for store in look.stores} <= set(ENDS_MS)
    ages = state_store.open(copied).stats().ages
    assert {at.committed_ms for at in ages.last_changes} <= set(ENDS_MS)


def test_tools_say_if_they_cannot_know_a_time(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for log in ("offsets", "commits"):
        (copied / log / "0").unlink()
        (copied / log / "1").unlink()
    for tool, found in times_by_tool(copied).items():
        known = {version: ENDS_MS[version - 1] if version > 2 else None for version in found}
        assert found == known, tool
    assert main(["chain", str(copied), "--utc"]) == 0
    assert "version 1  unknown  delta" in capsys.readouterr().out
    assert main(["checkpoints", str(copied), "--utc"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert {row[0]: row[1] for row in rows if row and row[0].isdigit()} == {
        "1": "unknown",
        "2": "unknown",
        "3": "2023-11-15",
        "4": "2023-11-15",
    }


def test_a_version_that_is_not_committed_has_the_time_of_its_file_but_in_a_copy() -> None:
    ends_ms = {4: 1000, 5: 2000}
    usual, copy = CommitTimes(ends_ms), CommitTimes(ends_ms, frozenset(ends_ms))
    assert (usual.of(7, 3000, is_committed=False), copy.of(7, 3000, is_committed=False)) == (3000, None)
    assert (usual.of(6, 1900, is_committed=False), copy.of(6, 9000, is_committed=False)) == (1900, 2000)
    assert usual.of(4, 900) == copy.of(4, 900) == 900
    assert CommitTimes({}).of(1, 77) == 77


def test_the_batch_that_a_copy_had_begun_is_no_sign_of_life(copied: Path) -> None:
    began_ms = BEGAN_MS[-1] + 3_600_000
    path = copied / f"offsets/{len(VERSIONS)}"
    path.write_text((copied / "offsets/0").read_text().replace(str(BEGAN_MS[0]), str(began_ms)))
    query = Query.open(str(copied))
    assert unfinished_batch(query, COPIED_MS) is None
    assert "began 5 s ago" in str(unfinished_batch(query, began_ms + 5000))
    assert "began 0 s ago" in str(unfinished_batch(query, began_ms - 5000)), "the driver's clock is ahead"
