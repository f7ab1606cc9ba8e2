"""The state of a query whose checkpoint is on S3 or HDFS: copied there, read, rewritten, repaired."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset
import pytest

import state_store
from dataset.golden_states import VERSIONS, checkpoint, expected, in_order
from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.core.storage import open_storage
from state_store.data.query import Query, StoreKey

pytestmark = pytest.mark.tier("more")

NEWEST = VERSIONS[-1]


@pytest.fixture(params=["s3", pytest.param("webhdfs", marks=pytest.mark.hdfs)])
def remote(request, monkeypatch) -> Iterator[str]:
    """Yield a new remote directory."""
    name = f"dataset/{uuid.uuid4()}"
    if request.param == "webhdfs":
        yield request.getfixturevalue("hdfs_cluster").webhdfs(f"/{name}")
        return
    for variable, value in request.getfixturevalue("s3_server").environment.items():
        monkeypatch.setenv(variable, value)
    yield f"s3://bucket/{name}"


def rows_of(location: str) -> list[dict]:
    with state_store.open(location) as state:
        return in_order(state.to_arrow().to_pylist())


def test_a_remote_state_is_copied_read_rewritten_and_repaired(remote, tmp_path, capsys):
    local, copy, filled = str(checkpoint("flights", tmp_path)), f"{remote}/copy", f"{remote}/filled"
    rows = expected("flights", NEWEST)
    assert main(["cp", local, copy]) == 0
    assert rows_of(copy) == rows
    with state_store.open(copy) as state:
        assert state.get(rows[0]["carrier"]) == rows[0]
        assert state.count() == len(rows)
    assert main(["export", copy, str(tmp_path / "exported")]) == 0
    exported = pyarrow.dataset.dataset(tmp_path / "exported", format="parquet").to_table()
    assert in_order(exported.to_pylist()) == rows
    assert main(["export", copy, f"{remote}/exported/"]) == 0
    assert main(["export", copy, f"{remote}/exported"]) == ExitCode.RETRY
    assert main(["import", copy, f"{remote}/exported", filled]) == 0
    assert rows_of(filled) == rows
    part = f"{remote}/exported/part-00000.parquet"
    assert main(["import", copy, part, f"{filled}-in-part"]) == ExitCode.USAGE
    assert "give their directory" in capsys.readouterr().err
    assert main(["import", copy, f"{remote}/nothing", f"{filled}-no"]) == ExitCode.NOT_FOUND
    assert main(["show", copy, "--format", "csv", "--output", f"{remote}/rows.csv"]) == 0
    assert main(["show", copy, "--format", "csv", "--output", f"{remote}/rows.csv"]) == ExitCode.RETRY
    assert len(open_storage(remote).read("rows.csv").splitlines()) == len(rows) + 1
    assert main(["repartition", copy, f"{remote}/more", "--partitions", "3"]) == 0
    without = [{**row, "partition_id": 0} for row in rows_of(f"{remote}/more")]
    assert in_order(without) == in_order({**row, "partition_id": 0} for row in rows)
    capsys.readouterr()
    _damage_the_snapshot(copy, Path(local))
    assert main(["repair", copy, "--apply", "--json"]) == 0
    (first, _) = json.loads(capsys.readouterr().out)["stores"]
    assert [step["action"] for step in first["steps"]] == ["rebuild"]
    assert main(["verify", copy]) == 0
    assert rows_of(copy) == rows


def _damage_the_snapshot(copy: str, local: Path) -> None:
    """Damage the snapshot of the first partition; the deltas before it still exist."""
    key = StoreKey(0, 0)
    storage = open_storage(Query.open(copy).uri(key))
    for delta in (local / key.path / "delta").iterdir():
        if not storage.exists(f"delta/{delta.name}"):
            storage.upload(delta, f"delta/{delta.name}")
    (snapshot,) = storage.list_files("snapshot")
    storage.write(f"snapshot/{snapshot.name}", b"nothing", overwrite=True)
