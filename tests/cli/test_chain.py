"""`state-store chain`: the files that make a version."""

from __future__ import annotations

import json

import pytest
from dataset.golden_states import VERSIONS, checkpoint

import state_store
from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.data.query import StoreKey


@pytest.fixture(scope="module")
def flights(tmp_path_factory) -> str:
    return str(checkpoint("flights", tmp_path_factory.mktemp("states")))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_files_of_a_chain_are_those_that_the_checkpoint_lists(flights, version, capsys):
    assert main(["chain", flights, "--version", str(version), "--json"]) == 0
    chains = json.loads(capsys.readouterr().out)
    assert main(["checkpoints", flights, "--json"]) == 0
    stores = json.loads(capsys.readouterr().out)["stores"]
    assert len(chains) == len(stores) == 2
    for chain, store in zip(chains, stores, strict=True):
        listed = next(entry for entry in store["checkpoints"] if entry["version"] == version)
        versions = [link["version"] for link in chain["chain"]]
        assert versions == list(range(version, 0, -1))
        read = [link for link in chain["chain"] if link["is_read"]]
        assert versions[: len(read)] == [link["version"] for link in read]
        bases = [link["version"] for link in read if link["snapshot"]]
        assert bases == ([listed["snapshot"]["version"]] if listed["snapshot"] else [])
        assert len(read) - len(bases) == listed["deltas"]


def test_notebooks_show_it_and_the_versions_that_can_be_restored(flights):
    chains = state_store.chain(flights)
    shown = chains[StoreKey(0, 1)]._repr_html_()
    assert f"store 0/1/default, version {VERSIONS[-1]}: from snapshot" in shown
    assert shown.count("<tr>") == len(chains[StoreKey(0, 1)].links) + 1
    assert f"<td>{chains.largest.size_bytes}</td>" in chains._repr_html_()
    checkpoints = state_store.checkpoints(flights, partition=0)
    assert list(checkpoints) == [StoreKey(0, 0)]
    assert checkpoints._repr_html_().count("<tr>") == len(VERSIONS) + 1
    assert "1 partition<" in checkpoints._repr_html_()


def test_it_is_drawn(flights, capsys):
    assert main(["chain", flights, "--partition", "1"]) == 0
    text = capsys.readouterr().out
    size_bytes = state_store.chain(flights)[StoreKey(0, 1)].size_bytes
    assert f"version {VERSIONS[-1]}: a restore reads {size_bytes / 1000:.1f} kB, from snapshot" in text
    assert "merge snapshot of 2 files" in text
    assert main(["chain", flights, "--version", "9"]) == ExitCode.NOT_FOUND
