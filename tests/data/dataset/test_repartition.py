"""A checkpoint with another number of partitions: the same rows, each where Spark looks for its key."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import state_store
from dataset.golden_states import VERSIONS, checkpoint, expected, in_order, shown
from state_store.cli import exit_codes
from state_store.cli.main import main
from state_store.data.dataset.rewriting import store_writer
from state_store.data.dataset.rewriting.repartition import repartition
from state_store.data.dataset.rewriting.spark_files import SHUFFLE_PARTITIONS
from state_store.data.query import Query
from state_store.errors import ConflictError, DamagedError, FormatError, OptionError

JOIN = Path(__file__).resolve().parents[2] / "golden" / "release-0.2.0"
NEWEST = VERSIONS[-1]


def without_partition(rows: list[dict]) -> list[dict]:
    return in_order({name: value for name, value in row.items() if name != "partition_id"} for row in rows)


@pytest.mark.parametrize("name", ["types", "flights"])
@pytest.mark.parametrize("partitions", [1, 5])
def test_rows_are_the_same_and_each_is_found(name, partitions, tmp_path):
    source, target = str(checkpoint(name, tmp_path)), str(tmp_path / "target")
    done = repartition(source, target, partitions)
    rows = expected(name, NEWEST)
    assert (done.version, done.rows) == (NEWEST, len(rows))
    with state_store.open(target) as state:
        assert state.partitions == tuple(range(partitions))
        found = [shown(row) for row in state.to_arrow().to_pylist()]
        assert without_partition(found) == without_partition(rows)
        for row in found:
            again = state.get({key: row[key] for key in state.columns.key_names})
            assert again is not None and shown(again) == row
    assert main(["verify", target]) == 0
    with state_store.open(source) as before:
        assert in_order(shown(row) for row in before.to_arrow().to_pylist()) == rows


def test_a_lost_row_is_an_error(tmp_path, monkeypatch):
    source, target = str(checkpoint("flights", tmp_path)), tmp_path / "target"
    all_rows = store_writer.rows
    monkeypatch.setattr(
        store_writer, "rows", lambda *place: (page.take(slice(1, None)) for page in all_rows(*place))
    )
    with pytest.raises(DamagedError, match="says that it has"):
        repartition(source, str(target), 5)
    assert not target.exists()


@pytest.mark.parametrize("form", ["ids", "no-ids"])
def test_all_stores_of_a_join_are_repartitioned_together(form, tmp_path):
    source, target = str(shutil.copytree(JOIN / form, tmp_path / form)), str(tmp_path / "target")
    repartition(source, target, 3)
    places: dict[str, dict] = {}
    for store in (
        f"{side}-{kind}" for side in ("left", "right") for kind in ("keyToNumValues", "keyWithIndexToValue")
    ):
        with state_store.open(source, store=store) as before, state_store.open(target, store=store) as after:
            rows = after.to_arrow().to_pylist()
            assert without_partition(rows) == without_partition(before.to_arrow().to_pylist())
            for row in rows:
                assert places.setdefault(row["field0"], row["partition_id"]) == row["partition_id"]
    assert set(places.values()) == {0, 1, 2}
    logs = [Query.open(location).committed() for location in (source, target)]
    assert {key.name for key in logs[0]} == {key.name for key in logs[1]}
    assert all((version.checkpoint_id is None) == (form == "no-ids") for version in logs[1].values())


def test_spark_s_logs_have_the_number(tmp_path):
    source, target = checkpoint("flights", tmp_path), tmp_path / "target"
    repartition(str(source), str(target), 7)
    for path in sorted((source / "offsets").glob("[0-9]*")):
        before, after = path.read_text().split("\n"), (target / "offsets" / path.name).read_text().split("\n")
        assert json.loads(before[1])["conf"].pop(SHUFFLE_PARTITIONS) == "2"
        assert json.loads(after[1])["conf"][SHUFFLE_PARTITIONS] == "7"
        assert (before[0], before[2:]) == (after[0], after[2:])
    assert (target / "metadata").read_bytes() == (source / "metadata").read_bytes()
    assert Query.open(str(target)).operators[0].stores == {"default": 7}


def test_impossible_arguments_are_refused(tmp_path):
    source = checkpoint("flights", tmp_path)
    target = str(tmp_path / "target")
    assert main(["repartition", str(source), target, "--partitions", "3", "--json"]) == 0
    with pytest.raises(ConflictError, match="is not empty"):
        repartition(str(source), target, 3)
    with pytest.raises(OptionError, match="partitions is 1 or more"):
        repartition(str(source), str(tmp_path / "other"), 0)
    assert main(["repartition", str(tmp_path / "none"), target, "--partitions", "3"]) == exit_codes.NOT_FOUND
    shutil.rmtree(source / "commits")
    with pytest.raises(DamagedError, match="commit log is lost"):
        repartition(str(source), str(tmp_path / "other"), 3)


def test_keys_in_another_partition_than_spark_s_hash_are_not_moved(tmp_path):
    source = checkpoint("flights", tmp_path)
    first, second = source / "state/0/0", source / "state/0/1"
    first.rename(tmp_path / "kept")
    second.rename(first)
    (tmp_path / "kept").rename(second)
    commit = max((source / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    lines = commit.read_text().split("\n")
    entry = json.loads(lines[1])
    entry["stateUniqueIds"]["0"].reverse()
    commit.write_text("\n".join([lines[0], json.dumps(entry)]))
    shutil.copytree(second / "_metadata", first / "_metadata")
    with pytest.raises(FormatError, match="not in the partition in which Spark's hash"):
        repartition(str(source), str(tmp_path / "target"), 3)
