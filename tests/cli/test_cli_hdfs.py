"""`state-store` on a real HDFS, by both of its schemes."""

from __future__ import annotations

import json

import pytest
from query_directory import QueryDirectory, rows

from state_store.cli.main import main
from state_store.cli.process import ExitCode

pytestmark = pytest.mark.hdfs


@pytest.fixture
def locations(hdfs_cluster, monkeypatch) -> list[str]:
    """A directory of the cluster as hdfs: and as webhdfs: URI."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hdfs_cluster.configuration))
    return [f"{hdfs_cluster.uri}/cli/checkpoint", hdfs_cluster.webhdfs("/cli/checkpoint")]


def test_every_command_works_on_hdfs(locations, tmp_path, capsys):
    query = QueryDirectory(tmp_path / "unused", tmp_path / "scratch", location=locations[0])
    for batch in range(3):
        query.commit(rows(batch * 10, 20))
    query.merge(query.keys[0], "incremental")
    query.commit(rows(5, 20))
    for location in locations:
        assert main(["full", location, "--partition", "1"]) == 0
        assert main(["verify", location]) == 0
        assert "no problem found" in capsys.readouterr().out
        assert main(["files", location, "--json"]) == 0
        stores = json.loads(capsys.readouterr().out)["stores"]
        full = [file for file in stores[1]["files"] if file["path"].startswith("shared/") and file["holders"]]
        assert {file["origin"] for file in full} == {4}
        assert main(["checkpoints", location]) == 0
        assert "full 4" in capsys.readouterr().out
    assert main(["checkpoints", f"{locations[0]}-not-there"]) == ExitCode.NOT_FOUND


def test_an_unreachable_namenode_is_told_and_can_be_tried_again(capsys):
    assert main(["checkpoints", "webhdfs://localhost:1/checkpoint"]) == ExitCode.RETRY
    assert "localhost:1" in capsys.readouterr().err
