"""The changes between versions: from deltas, and from both versions if deltas are gone."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from query_directory import QueryDirectory

import state_store
from dataset.golden_states import VERSIONS, checkpoint, clean_up, expected, shown
from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.data.rows.encoder import encode
from state_store.errors import MissingError

JOIN = Path(__file__).resolve().parents[2] / "golden" / "release-0.2.0" / "ids"
PAIRS = list(itertools.combinations([0, *VERSIONS], 2))


def by_key(name: str, version: int, keys: list[str]) -> dict[str, dict]:
    rows = expected(name, version) if version else []
    return {repr([row[key] for key in keys]): row for row in rows}


def wanted(name: str, older: int, newer: int, keys: list[str]) -> dict[str, tuple]:
    """Return change, values before and values after by key."""
    before, after = by_key(name, older, keys), by_key(name, newer, keys)

    def values(row: dict | None) -> dict | None:
        return None if row is None else {k: v for k, v in row.items() if k not in (*keys, "partition_id")}

    found = {}
    for key in before.keys() | after.keys():
        old, new = values(before.get(key)), values(after.get(key))
        if old != new:
            kind = "added" if old is None else "removed" if new is None else "changed"
            found[key] = (kind, old, new)
    return found


def changes_by_key(table, keys: list[str]) -> dict[str, tuple]:
    rows = table.to_pylist()
    found = {
        repr([row[key] for key in keys]): (
            row["change"],
            row["before"] and shown(row["before"]),
            row["after"] and shown(row["after"]),
        )
        for row in rows
    }
    assert len(found) == len(rows)
    return found


@pytest.mark.tier("more")
@pytest.mark.parametrize("name", ["types", "flights"])
def test_diff_shows_the_changes_between_any_two_versions(name, tmp_path):
    directory = str(checkpoint(name, tmp_path))
    kinds = set()
    for older, newer in PAIRS:
        with state_store.open(directory, version=newer) as state:
            keys = state.columns.key_names
            found = changes_by_key(state.diff(older).read_all(), keys)
            assert found == wanted(name, older, newer, keys), (older, newer)
            kinds |= {change for change, _, _ in found.values()}
    assert kinds == {"added", "changed"}


@pytest.mark.tier("more")
def test_rows_that_a_join_evicted_are_removals(tmp_path):
    directory = str(shutil.copytree(JOIN, tmp_path / "join"))
    states = {}
    for version in range(2, 7):
        with state_store.open(directory, store="left-keyWithIndexToValue", version=version) as state:
            states[version] = {(row["field0"], row["index"]): row for row in state.to_arrow().to_pylist()}
            found = changes_by_key(state.diff(version - 1).read_all(), ["field0", "index"])
        removed = {key for key, (change, _, _) in found.items() if change == "removed"}
        if version > 2:
            assert removed == {repr(list(key)) for key in states[version - 1].keys() - states[version].keys()}
    assert removed


def test_both_versions_are_compared_if_a_delta_is_gone(tmp_path, capsys):
    """After a full checkpoint, no restore needs the delta of the newest version."""
    directory = str(checkpoint("flights", tmp_path))
    assert main(["full", directory]) == 0
    clean_up(directory)
    for delta in Path(directory).glob(f"state/0/*/delta/{VERSIONS[-1]:020}_*"):
        delta.unlink()
    with state_store.open(directory) as state:
        keys = state.columns.key_names
        older = VERSIONS[-2]
        assert changes_by_key(state.diff(older).read_all(), keys) == wanted(
            "flights", older, VERSIONS[-1], keys
        )
        with pytest.raises(MissingError, match="its delta was removed"):
            state.changes(older).read_all()


def test_the_feed_has_the_writes_of_each_version(tmp_path):
    directory = str(checkpoint("flights", tmp_path))
    with state_store.open(directory) as state:
        state_now: dict[str, dict] = {}
        for row in state.changes(0).read_all().to_pylist():
            assert row["batch"] == row["version"] - 1
            values = {name: row[name] for name in state.schema.names}
            if row["change"] == "removed":
                assert state_now.pop(row["carrier"])["partition_id"] == row["partition_id"]
                assert {name for name, value in values.items() if value is not None} == {
                    "carrier",
                    "partition_id",
                }
            else:
                state_now[row["carrier"]] = values
        assert sorted(state_now.values(), key=repr) == expected("flights", VERSIONS[-1])
        assert state.changes(VERSIONS[-1]).read_all().num_rows == 0
        with pytest.raises(MissingError, match="there is no version 5 yet"):
            state.diff(VERSIONS[-1] + 1)


def test_the_command_prints_the_changes(tmp_path, capsys):
    directory = str(checkpoint("flights", tmp_path))
    assert main(["diff", directory, "1", "--format", "json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["carrier"]: row["change"] for row in rows} == {
        key[2:-2]: change for key, (change, _, _) in wanted("flights", 1, VERSIONS[-1], ["carrier"]).items()
    }
    assert main(["diff", directory, "1", "2"]) == 0
    assert "changes from version 1 to version 2" in capsys.readouterr().out
    assert main(["diff", directory, "1", "--feed"]) == 0
    assert "put" in capsys.readouterr().out
    assert main(["diff", directory, "3", "2"]) == ExitCode.USAGE


def test_versions_of_changes_are_chosen_by_batch_and_by_time(tmp_path, capsys):
    directory = str(checkpoint("flights", tmp_path))
    for path in (Path(directory) / "commits").glob("[0-9]*"):
        os.utime(path, (1_700_000_000 + int(path.name), 1_700_000_000 + int(path.name)))
    moment = datetime.datetime.fromtimestamp(1_700_000_001, datetime.timezone.utc)
    with state_store.open(directory) as state:
        assert state.diff(moment).read_all() == state.diff(2).read_all()
        assert state.changes(moment).read_all() == state.changes(2).read_all()
    answers = []
    for older, newer in (("2", "3"), ("batch:1", "batch:2"), (f"{moment:%FT%T}", "2023-11-14 22:13:22")):
        assert main(["diff", directory, older, newer, "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1] == answers[2] != []
    assert main(["diff", directory, "batch:x"]) == ExitCode.USAGE
    assert "is not a moment, such as" in capsys.readouterr().err


def test_leases_of_both_versions_are_released(tmp_path):
    directory = checkpoint("flights", tmp_path)
    with state_store.open(str(directory)) as state:
        state.diff(1).read_all()
    assert list(Path(directory).glob("state/0/*/lease/*.json")) == []


def test_a_family_that_was_made_anew_is_compared_by_its_name(tmp_path):
    """Spark gives a state variable that was removed, and comes again, another id."""
    columns = pa.schema([("name", pa.string())])
    query = QueryDirectory(tmp_path / "query", tmp_path / "scratch", partitions=1)
    description = json.dumps(
        {"type": "struct", "fields": [{"name": "name", "type": "string", "nullable": True, "metadata": {}}]}
    ).encode()
    texts = (b"v1", description, description)
    schema = b"".join(len(text).to_bytes(2, "big") + text for text in texts)
    query.storage.write("state/0/0/_metadata/schema", schema, overwrite=True)

    def encoded(*names: str) -> list[bytes]:
        return encode(pa.RecordBatch.from_pydict({"name": names}, columns).columns, len(names)).to_pylist()

    a, b, c, old, new = encoded("a", "b", "c", "old", "new")
    query.commit({a: old, b: old})
    query.commit_anew({a: old, b: new, c: new}, family=3)
    with state_store.open(str(query.root)) as state:
        found = state.diff(1).read_all().to_pylist()
    assert [(row["name"], row["change"]) for row in found] == [("b", "changed"), ("c", "added")]
