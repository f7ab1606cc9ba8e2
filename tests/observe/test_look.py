"""A look reads what it must, each immutable file once, and changes nothing."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import pytest
from query_directory import QueryDirectory, rows

from state_store.cli.main import main
from state_store.core.checkpoint.names import VersionId
from state_store.core.checkpoint.stored_documents import FULL, Cause
from state_store.data.dataset.checkpoints import checkpoints
from state_store.errors import MissingError, OptionError, StorageError
from state_store.observe.figures import store_files
from state_store.observe.look import CountedStorage, Looker, Requests, Watched


def files_below(root: Path) -> dict[str, bytes]:
    """Return all files below a directory with their bytes."""
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_figures_are_those_of_the_files(grown: QueryDirectory) -> None:
    look = Looker(grown.location, objective_ms=10_000).look()
    assert look.batch == 11
    assert look.id == "0b7a4a3c-6f0e-4c7e-9a53-6b8f9a1d2c3e"
    store = look.stores[1]
    assert (store.operator, store.partition, store.store) == (0, 1, "default")
    assert (store.version, store.deltas, store.snapshot_kind, store.snapshot_version) == (12, 4, "merge", 8)
    assert store.full_version == 4
    assert store.chain_since_ms == store.full_ms
    assert store.bytes == sum(
        file.bytes
        for file in store_files(
            look.found[grown.keys[1]], version=VersionId(12, store.checkpoint_id), limit=99
        ).files
        if file.kind != "snapshot"
    )
    assert store.files == 4 + store.shared_files + (store.own_files - 4)
    assert store.stored_bytes == sum(
        path.stat().st_size for path in grown.files(grown.keys[1]) if path.suffix in (".sst", ".zip")
    )
    assert store.error is None


def test_the_history_has_every_version(grown: QueryDirectory) -> None:
    history = Looker(grown.location).look().history
    assert [checkpoint.version for checkpoint in history] == list(range(1, 13))
    by_version = {checkpoint.version: checkpoint for checkpoint in history}
    assert by_version[4].wrote == {"delta": 2, "full": 2}
    assert by_version[8].wrote == {"delta": 2, "merge": 2}
    assert [by_version[version].deltas for version in (3, 4, 5, 8, 12)] == [3, 0, 1, 0, 4]
    assert by_version[12].deltas_since_full == 8
    assert by_version[12].shared_bytes and not by_version[4].shared_bytes
    assert all(checkpoint.restorable for checkpoint in history)


def test_snapshots_say_why_they_were_made_and_with_which_options(query: QueryDirectory) -> None:
    look = Looker(query.location).look()
    assert [store.snapshot_reason for store in look.stores] == ["4 deltas (maxDeltas)"] * 2
    assert [store.snapshot_predicted_ms for store in look.stores] == [1234] * 2
    reasons = {checkpoint.version: checkpoint.reasons for checkpoint in look.history}
    assert reasons[8] == ["4 deltas (maxDeltas)"] and reasons[4] == reasons[12] == []
    assert look.options == {"maxDeltas": "4", "restoreObjective": "20000ms"}


def test_the_objective_is_that_of_the_query_unless_another_is_given(
    query: QueryDirectory, tmp_path: Path
) -> None:
    def objectives(location: str, given: int | None) -> set[int | None]:
        look = Looker(location, objective_ms=given).look()
        shown = {store.restore_objective_ms for store in look.stores} | {look.objective_ms}
        return shown | {checkpoint.restore_objective_ms for checkpoint in look.history}

    assert objectives(query.location, None) == {20_000}
    assert objectives(query.location, 5) == {5}
    assert objectives(query.location, 0) == {0}
    query.merge(query.keys[0], FULL, Cause("requested"))
    assert objectives(query.location, None) == {20_000}, "one by hand does not know the options"
    query.commit(rows(0, 3))
    query.merge(query.keys[0], FULL, Cause("by a later release", None, {"restoreObjective": "a while"}))
    assert objectives(query.location, None) == {10_000}
    young = QueryDirectory(tmp_path / "young", tmp_path / "scratch")
    young.commit(rows(0, 5))
    assert objectives(young.location, None) == {10_000}


def test_a_query_without_a_full_checkpoint_has_a_chain_that_began(tmp_path: Path) -> None:
    query = QueryDirectory(tmp_path / "young", tmp_path / "scratch")
    query.commit(rows(0, 5))
    (store, _) = Looker(query.location).look().stores
    assert store.full_ms is None
    assert store.chain_since_ms is not None


def test_archives_are_read_once(query: QueryDirectory) -> None:
    requests = Requests()
    looker = Looker(query.location, requests=requests)
    looker.look()
    first = requests.counts()
    assert first["read"] >= 4, "two snapshots of each of two stores"
    query.commit(rows(0, 3))
    looker.look()
    second = requests.counts()
    assert second["read"] - first["read"] <= 2, "the commit log alone"
    for key in query.keys:
        query.merge(key, FULL)
    looker.look(fully=True)
    assert requests.counts()["read"] - second["read"] <= 2 + 2, "the new archives, once"


def test_nothing_new_costs_one_listing(query: QueryDirectory) -> None:
    requests = Requests()
    looker = Looker(query.location, requests=requests)
    before = looker.look()
    counted = requests.counts()
    for _ in range(Looker.UNCHANGED_LOOKS - 1):
        assert looker.look() is before
    after = requests.counts()
    assert after["list"] - counted["list"] == Looker.UNCHANGED_LOOKS - 1
    assert after["read"] == counted["read"]
    assert looker.look() is not before, "merges may have come without a commit"


def test_looking_changes_nothing(query: QueryDirectory) -> None:
    before = files_below(query.root)
    Looker(query.location).look()
    assert files_below(query.root) == before


def test_the_storage_of_a_look_refuses_to_write(query: QueryDirectory, tmp_path: Path) -> None:
    storage = CountedStorage(query.storage, Requests())
    local = tmp_path / "file"
    local.write_bytes(b"x")
    for write in (
        lambda: storage.write("a", b"x"),
        lambda: storage.upload(local, "a"),
        lambda: storage.delete("metadata"),
        lambda: storage.download("metadata", tmp_path / "other"),
    ):
        with pytest.raises(StorageError):
            write()
    assert (query.root / "metadata").exists()


def test_a_damaged_store_is_shown_as_such_and_others_go_on(query: QueryDirectory) -> None:
    for path in query.files(query.keys[0]):
        if path.parent.name == "delta":
            path.unlink()
    first, second = Looker(query.location).look().stores
    assert first.error is not None and first.error.kind == "missing"
    assert first.bytes is None
    assert second.error is None and second.bytes


def test_the_partitions_are_those_that_exist(tmp_path: Path) -> None:
    """Spark's metadata say the number of the session; an operator without keys has one partition."""
    made = QueryDirectory(tmp_path / "query", tmp_path / "scratch", partitions=1)
    described = made.root / "state/0/_metadata/metadata"
    described.write_text(described.read_text().replace('"numPartitions": 1', '"numPartitions": 3'))
    made.commit(rows(0, 5), logged=False)
    looker = Looker(made.location)
    assert len(looker.look().stores) == 3
    made.commit(rows(5, 5))
    (store,) = looker.look().stores
    assert (store.partition, store.error) == (0, None)


def test_a_directory_without_a_query_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        Looker(str(tmp_path)).look()


def test_the_checkpoint_of_another_store_is_refused(tmp_path: Path) -> None:
    query = QueryDirectory(tmp_path / "other", tmp_path / "scratch", provider="org.example.Other")
    query.commit(rows(0, 1))
    with pytest.raises(OptionError):
        Looker(query.location).look()


def test_files_know_the_versions_that_need_them(grown: QueryDirectory) -> None:
    look = Looker(grown.location).look()
    files = store_files(look.found[grown.keys[0]], limit=1000)
    assert files.versions == list(range(1, 13))
    assert files.snapshots == {"4": "full", "8": "merge"}
    base = next(file for file in files.files if file.kind == "shared" and file.origin == 4)
    assert (base.first, base.last) == (4, 12)
    assert base.count == 9
    few = store_files(look.found[grown.keys[0]], limit=3)
    assert len(few.files) == 3 and few.omitted == len(files.files) - 3
    assert few.files[-1] == files.files[-1]


@pytest.mark.parametrize(
    ("checkpoint", "title"),
    [
        ("states/types", "aggregation on k_text, k_number, k_flag and 7 more"),
        ("states/flights", "applyInPandasWithState on carrier"),
        ("release-0.2.0/ids", "join of two streams"),
    ],
)
def test_an_operator_has_a_name_for_people(checkpoint: str, title: str, checkout: Path) -> None:
    looker = Looker(str(checkout / "tests/golden" / checkpoint))
    assert [operator.title for operator in looker.look().operators] == [title]
    looker.close()


def test_a_grouping_column_may_be_called_as_spark_calls_those_of_joins(tmp_path: Path) -> None:
    query = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch", partitions=1)
    query.commit(rows(0, 3))
    schema = query.root / "state/0/0/_metadata/schema"
    for name in ("field0", "index"):
        key, value = ({"type": "struct", "fields": [field(each)]} for each in (name, "count"))
        schema.parent.mkdir(parents=True, exist_ok=True)
        texts = [text.encode() for text in ("v1", json.dumps(key), json.dumps(value))]
        schema.write_bytes(b"".join(len(text).to_bytes(2, "big") + text for text in texts))
        looker = Looker(query.location)
        assert looker.look().operators[0].title == f"applyInPandasWithState on {name}"
        looker.close()


def field(name: str) -> dict[str, object]:
    return {"name": name, "type": "string", "nullable": True, "metadata": {}}


def test_looks_at_many_stores_are_rarer_if_nobody_says_how_often(query: QueryDirectory) -> None:
    for grows, paces in ((True, [30, 30, 60, 300]), (False, [30, 30, 30, 30])):
        watched = Watched("query", query.location, every_s=30, grows=grows)
        found = [watched.pace_s()]
        watched.look_now()
        look = watched.state().look
        assert look is not None
        for stores in (200, 400, 5000):
            few = replace(look, stores=tuple(islice(cycle(look.stores), stores)))
            watched._state = replace(watched.state(), look=few)
            found.append(watched.pace_s())
        assert found == paces


def test_a_defect_of_a_look_is_shown_and_the_next_look_is_made(
    query: QueryDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched("query", query.location, every_s=30)
    watched.look_now()
    with monkeypatch.context() as patched:
        patched.setattr(Looker, "look", lambda *_, **__: {}["figure"])
        watched.look_now()
    failed = watched.state()
    assert failed.error is not None and failed.error.kind == "internal"
    assert "KeyError('figure')" in failed.error.message
    assert failed.look is not None and failed.errors == 1
    assert f"a look at {query.location} failed" in caplog.text
    watched.look_now()
    assert watched.state().error is None


def test_a_query_that_takes_the_place_of_another_is_looked_at_anew(
    query: QueryDirectory, tmp_path: Path
) -> None:
    looker = Looker(query.location)
    before = looker.look()
    shutil.rmtree(query.root)
    other = QueryDirectory(query.root, tmp_path / "other", partitions=3)
    other.storage.write("metadata", b'{"id":"another"}', overwrite=True)
    other.commit(rows(0, 3))
    after = looker.look()
    assert (before.batch, after.batch) == (11, 0)
    assert (len(before.stores), len(after.stores)) == (2, 3)
    assert after.id == "another"


@pytest.mark.parametrize("batches", [12, 13])
def test_another_query_with_as_many_batches_is_looked_at_anew(
    query: QueryDirectory, tmp_path: Path, batches: int
) -> None:
    watched = Watched("query", query.location, every_s=30)
    watched.look_now()
    shutil.rmtree(query.root)
    other = QueryDirectory(query.root, tmp_path / "other", partitions=1)
    other.storage.write("metadata", b'{"id":"another"}', overwrite=True)
    for number in range(batches):
        other.commit(rows(number, 1))
        commit = query.root / f"commits/{number}"
        os.utime(commit, (1_700_000_000 + number, 1_700_000_000 + number))
    watched.look_now()
    state = watched.state()
    assert state.look is not None
    assert (state.look.batch, state.look.id, len(state.look.stores)) == (batches - 1, "another", 1)
    assert state.history == state.look.history


def test_another_query_has_no_history_of_the_one_before(query: QueryDirectory, tmp_path: Path) -> None:
    watched = Watched("query", query.location, every_s=30)
    watched.look_now()
    shutil.rmtree(query.root)
    other = QueryDirectory(query.root, tmp_path / "other")
    other.storage.write("metadata", b'{"id":"another"}', overwrite=True)
    watched.look_now()
    assert watched.state().look is not None and watched.state().history == ()


def test_a_query_that_cannot_be_read_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The operator of a service that has no query behind a path hears of it without a look at the page."""
    watched = Watched("nothere", str(tmp_path / "no\x1bthere"), every_s=30)
    watched.look_now()
    watched.look_now()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "query 'nothere' cannot be read" in record.message and "does not exist" in record.message
    assert "\x1b" not in record.message


def test_a_batch_took_what_spark_s_logs_say(query: QueryDirectory) -> None:
    for number, log in ((3, "offsets"), (10, "commits")):
        path = query.root / log / "11"
        if log == "offsets":
            path.write_text("v1")
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    newest = Looker(query.location).look().history[-1]
    assert (newest.batch, newest.batch_ms) == (11, 7000)
    (query.root / "offsets/0").unlink(missing_ok=True)
    (query.root / "commits/0").unlink(missing_ok=True)
    assert Looker(query.location).look().history[0].batch_ms is None, "its log entry is gone"


@pytest.mark.parametrize("checkpoint", ["release-0.2.0/ids", "release-0.2.0/no-ids", "states/flights"])
def test_notebooks_commands_and_serve_say_the_same_of_each_version(
    checkpoint: str, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = str(checkout / "tests/golden" / checkpoint)
    history = Looker(directory).look().history
    served = {made.version: (made.new_bytes, made.bytes, made.files) for made in history}
    in_notebooks: dict[int, tuple[int, ...]] = {}
    for _, lines in checkpoints(directory).groups():
        for line in lines:
            figures = (line.new_bytes, line.size_bytes, line.files)
            others = in_notebooks.get(line.version, (0, 0, 0))
            in_notebooks[line.version] = tuple(map(sum, zip(others, figures, strict=True)))
    assert served == in_notebooks
    assert any(set(made.wrote) > {"delta"} for made in history), "no version has a delta and a snapshot"
    main(["checkpoints", directory, "--json"])
    printed: dict[int, int] = {}
    for store in json.loads(capsys.readouterr().out)["stores"]:
        for made in store["checkpoints"]:
            printed[made["version"]] = printed.get(made["version"], 0) + made["new_bytes"]
    assert printed == {version: figures[0] for version, figures in served.items()}
