"""Versions have the times of their batches, in a checkpoint and in a copy of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import state_store
from dataset.golden_states import VERSIONS, checkpoint
from state_store.data.query import Query

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
