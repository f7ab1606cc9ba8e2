"""Statistics of a state, against Spark's reading of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import state_store
from dataset.golden_states import VERSIONS, checkpoint, expected
from state_store.cli.main import main
from state_store.core.checkpoint.names import tombstone_path
from state_store.core.checkpoint.stored_documents import pack_tombstone
from state_store.core.storage.local import LocalStorage
from state_store.errors import MissingError


@pytest.fixture(scope="module")
def flights(tmp_path_factory) -> str:
    return str(checkpoint("flights", tmp_path_factory.mktemp("states")))


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_are_counted_without_a_restore(flights, version, monkeypatch):
    monkeypatch.setattr("state_store.data.dataset.partitions.restore", None)
    rows = expected("flights", version)
    with state_store.open(flights, version=version) as state:
        assert state.count() == len(rows)
        found = state.stats(sample=0)
        assert {partition.partition: partition.rows for partition in found.partitions} == {
            number: sum(row["partition_id"] == number for row in rows) for number in (0, 1)
        }
        assert (found.rows, found.sampled, found.is_exact) == (len(rows), (), False)
        assert found.skew == max(partition.rows for partition in found.partitions) / (len(rows) / 2)


@pytest.mark.tier("more")
def test_sizes_are_those_of_the_rows(tmp_path):
    directory = str(checkpoint("types", tmp_path))
    with state_store.open(directory) as state:
        found = state.stats(sample=None)
        assert found.is_exact and found.rows == state.count()
        assert len(found.largest) == 5
        assert [entry.size_bytes for entry in found.largest] == sorted(
            (entry.size_bytes for entry in found.largest), reverse=True
        )
        assert found.key_bytes == tuple(sorted(found.key_bytes))
        assert found.largest[0].size_bytes <= found.key_bytes[-1] + found.value_bytes[-1]
        assert found.value_bytes[0] < found.average_bytes < found.largest[0].size_bytes
        for entry in found.largest:
            row = state.get(entry.key)
            assert row is not None and row["partition_id"] == entry.partition
        few = state.stats(sample=1)
        assert (few.sampled, few.is_exact) == ((0,), False)
        assert [(entry.version, entry.removes) for entry in found.recent] == [
            (version, 0) for version in VERSIONS
        ]
        assert sum(entry.puts for entry in found.recent) >= found.rows
        assert [entry.version for entry in state.stats(sample=0, recent=2).recent] == [3, 4]


def test_the_history_of_a_key_equals_its_row_of_each_version(flights):
    with state_store.open(flights) as state:
        for carrier in ("C0", "C3", "C4"):
            found = {version.version: version for version in state.history(carrier)}
            for version in VERSIONS:
                rows = [row for row in expected("flights", version) if row["carrier"] == carrier]
                assert found[version].row == (rows[0] if rows else None)
            assert [version.is_changed for version in found.values()].count(True) >= 1
        assert not found[VERSIONS[-1]].is_changed  # C4 has no more flights
        assert all(version.row is None and not version.is_changed for version in state.history("nobody"))


def test_the_commands_print_statistics_and_history(flights, capsys):
    assert main(["stats", flights, "--json", "--exact"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["rows"] == len(expected("flights", VERSIONS[-1])) and document["is_exact"]
    assert main(["stats", flights]) == 0
    assert f"version {VERSIONS[-1]}: {document['rows']} rows in 2 partitions" in capsys.readouterr().out
    assert main(["history", flights, "C4", "--json"]) == 0
    (*_, last) = json.loads(capsys.readouterr().out)
    assert last["is_changed"] and last["row"]["carrier"] == "C4"
    assert main(["history", flights, "C4"]) == 0
    assert "flights" in capsys.readouterr().out


@pytest.mark.parametrize("version", VERSIONS)
def test_ages_of_keys_are_those_of_their_last_changes(flights, version):
    with state_store.open(flights, version=version) as state:
        found = state.stats(sample=None).ages
        carriers = [row["carrier"] for row in expected("flights", version)]
        histories = {carrier: state.history(carrier) for carrier in carriers}
    last = {
        carrier: max(version.version for version in history if version.is_changed)
        for carrier, history in histories.items()
    }
    assert {version.version: version.keys for version in found.last_changes if version.keys} == Counter(
        last.values()
    )
    assert (found.older, found.keys) == (0, len(carriers))
    times = {(version.version, version.committed_ms) for history in histories.values() for version in history}
    assert {(version.version, version.committed_ms) for version in found.last_changes} <= times


def test_keys_that_no_delta_has_are_older(flights, monkeypatch):
    monkeypatch.setattr("state_store.data.dataset.stats.MAX_DELTAS", 2)
    with state_store.open(flights) as state:
        found = state.stats(sample=None).ages
        assert [change.version for change in found.last_changes] == [3, 4]
        assert found.keys == state.count() and found.older == 1  # C4 has no more flights


def test_expired_rows_are_counted_by_the_clock_of_the_query(flights, tmp_path):
    for version in VERSIONS:
        commit = json.loads((Path(flights) / f"commits/{version - 1}").read_text().splitlines()[1])
        rows = expected("flights", version)
        over = [row for row in rows if 0 <= row["timeoutTimestamp"] < commit["nextBatchWatermarkMs"]]
        with state_store.open(flights, version=version) as state:
            found = state.stats(sample=None).expired
        assert found is not None and (found.column, found.clock) == ("timeoutTimestamp", "watermark")
        assert (found.rows, found.looked_at) == (len(over), len(rows))
        assert found.at_ms == commit["nextBatchWatermarkMs"]
    with state_store.open(str(checkpoint("types", tmp_path))) as state:
        assert state.stats().expired is None


def test_condemned_deltas_of_older_versions_are_left_out(tmp_path, capsys):
    """A clean-up has condemned them, and not deleted them: a reader came in between, or it broke off."""
    directory = checkpoint("flights", tmp_path)
    state_store.full_checkpoint(directory)
    for partition in (0, 1):
        storage = LocalStorage(directory / f"state/0/{partition}")
        old = [f"delta/{entry.name}" for entry in storage.list_files("delta") if int(entry.name[:20]) < 4]
        assert len(old) == 3
        storage.write(tombstone_path("0123456789abcdef"), pack_tombstone(frozenset(old)))
    for words in (["stats"], ["stats", "--exact"], ["history", "C1"], ["diff", "0"], ["estimate"], ["show"]):
        assert main([words[0], str(directory), *words[1:]]) == 0, capsys.readouterr().err
    with state_store.open(directory) as state:
        found = state.stats(sample=None)
        assert [change.version for change in found.ages.last_changes][-1] == VERSIONS[-1]
        assert [changes.version for changes in found.recent] == [4]
        assert [version.version for version in state.history("C1")] == [4]
    with state_store.open(directory, version=2) as state:  # while nothing has deleted them
        assert state.count() > 0
    for path in old:
        (directory / f"state/0/{partition}" / path).unlink()
    with pytest.raises(MissingError):
        state_store.open(directory, version=2)
