"""A state with a damaged or missing file: the loss is reported, and undamaged partitions can be read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import state_store
from dataset.golden_states import VERSIONS, checkpoint, expected, in_order
from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.errors import DamagedError, MissingError, OptionError

NEWEST = VERSIONS[-1]


@pytest.fixture
def directory(tmp_path) -> Path:
    return checkpoint("flights", tmp_path)


def partition_with_rows() -> tuple[int, list[dict]]:
    """Return the partition with the most rows, and these."""
    rows = expected("flights", NEWEST)
    numbers = [row["partition_id"] for row in rows]
    number = max(set(numbers), key=numbers.count)
    return number, [row for row in rows if row["partition_id"] == number]


def first_delta(directory: Path, partition: int) -> Path:
    return sorted((directory / f"state/0/{partition}/delta").glob("0*.sst"))[0]


def harm(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[120] ^= 1  # in a value
    path.unlink()
    path.write_bytes(data)


def test_the_loss_by_a_damaged_file_is_reported(directory, capsys):
    number, rows = partition_with_rows()
    damaged = first_delta(directory, number)
    harm(damaged)
    with state_store.open(str(directory)) as state:
        with pytest.raises(DamagedError) as raised:
            state.to_arrow()
        message = raised.value.message
        assert (
            f"partition {number} of store 'default' of operator 0 cannot be read at version {NEWEST}"
            in message
        )
        assert f"its {len(rows)} rows are lost" in message
        assert damaged.name in message
        assert "rows with keys from carrier = 'C" in message and " to carrier = 'C" in message
        assert "state-store repair" in message and "partitions=..." in message
        lost_key = rows[0]["carrier"]
        with pytest.raises(DamagedError, match=f"partition {number}"):
            state.get(lost_key)
    assert main(["show", str(directory)]) == ExitCode.PROBLEM
    assert f"partition {number} of store" in capsys.readouterr().err
    assert main(["export", str(directory), str(directory.parent / "exported")]) == ExitCode.PROBLEM
    assert f"partition {number} of store" in capsys.readouterr().err


@pytest.mark.parametrize("how", ["damaged", "gone"])
def test_undamaged_partitions_can_be_read(directory, how):
    number, lost = partition_with_rows()
    if how == "damaged":
        harm(first_delta(directory, number))
    else:
        shutil.rmtree(directory / f"state/0/{number}/delta")
        shutil.rmtree(directory / f"state/0/{number}/snapshot", ignore_errors=True)
    undamaged = [row for row in expected("flights", NEWEST) if row["partition_id"] != number]
    with state_store.open(str(directory), on_damage="skip") as state:
        assert in_order(state.to_arrow().to_pylist()) == undamaged
        assert list(state.lost) == [number]
        assert f"partition {number}" in str(state.lost[number])
        assert state.export(directory.parent / "exported") == len(undamaged)
    others = [partition for partition in state.partitions if partition != number]
    with state_store.open(str(directory), partitions=others) as state:
        assert in_order(state.to_arrow().to_pylist()) == undamaged
        assert not state.lost
    kind = DamagedError if how == "damaged" else MissingError
    with pytest.raises(kind, match=f"partition {number} of store"), state_store.open(str(directory)) as state:
        state.to_pandas()
    assert lost


def test_nothing_is_lost_of_undamaged_partitions(directory):
    with state_store.open(str(directory), on_damage="skip") as state:
        assert in_order(state.to_arrow().to_pylist()) == expected("flights", NEWEST)
        assert state.lost == {}
    with pytest.raises(OptionError, match="'raise' or 'skip'"):
        state_store.open(str(directory), on_damage="ignore")


def test_a_retired_version_is_not_reported_as_lost(directory):
    for path in directory.glob(f"state/0/*/delta/{1:020}_*"):
        path.unlink()
    for path in directory.glob("state/0/*/snapshot/*"):
        path.unlink()
    with pytest.raises(MissingError) as raised:
        state_store.open(str(directory), version=1)
    assert "lost" not in raised.value.message


def test_the_missing_file_of_the_newest_version_is_named(directory: Path) -> None:
    for snapshot in (directory / "state/0/1/snapshot").iterdir():
        snapshot.unlink()
    gone = first_delta(directory, 1)
    gone.unlink()
    with pytest.raises(MissingError, match=r"files of store 0/1/default are missing") as raised:
        state_store.open(directory)
    assert f"there is no 'delta/{'_'.join(gone.name.split('_')[:2])}_*.sst'" in raised.value.message
