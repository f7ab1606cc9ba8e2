"""`state-store full`: exactly the version that Spark committed, whatever happens meanwhile."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest
from query_directory import QueryDirectory, rows

from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.core.checkpoint.names import VersionId
from state_store.core.engine.database import DatabaseSettings
from state_store.data.maintenance import full_checkpoints
from state_store.data.query import StoreKey
from state_store.errors import ConflictError, MissingError

FIRST, SECOND = StoreKey(0, 0), StoreKey(0, 1)


@pytest.fixture
def query(tmp_path):
    """A store under checkpoint format 1 after three batches."""
    made = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch", partitions=1, ids=False)
    for batch in range(3):
        made.commit(rows(batch * 10, 20))
    return made


def run_json(capsys, *arguments: object) -> tuple[int, dict]:
    code = main([*map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def snapshots(query, key=FIRST) -> list[str]:
    return [path.name for path in query.files(key) if path.suffix == ".zip"]


def test_without_ids_a_batch_that_runs_is_not_taken(query, capsys):
    query.commit(rows(90, 5), logged=False)
    code, made = run_json(capsys, "full", query.root)
    assert code == ExitCode.OK
    assert [outcome["version"] for outcome in made["stores"]] == [3]
    (snapshot,) = snapshots(query)
    assert snapshot.startswith(f"{3:020}_a0-")


def replacing(query, monkeypatch, name, *, after=False):
    """While `full` works, just before or after it calls `name`, the newest batch runs again."""
    real = getattr(full_checkpoints, name)

    def late(*arguments, **named):
        if not after:
            query.run_again(rows(7, 3, b"second"))
        result = real(*arguments, **named)
        if after:
            query.run_again(rows(7, 3, b"second"))
        return result

    monkeypatch.setattr(full_checkpoints, name, late)


@pytest.mark.parametrize(
    ("step", "after"),
    [("restore", False), ("merge", True), ("publish", False), ("publish", True)],
)
@pytest.mark.parametrize("merged", [False, True], ids=["deltas", "snapshot"])
def test_without_ids_a_batch_that_runs_again_meanwhile_is_what_counts(
    query, monkeypatch, capsys, step, after, merged
):
    if merged:
        query.merge(FIRST, "incremental")
    first = query.newest[FIRST]
    replacing(query, monkeypatch, step, after=after)
    code, _ = run_json(capsys, "full", query.root)
    assert code == ExitCode.OK
    assert snapshots(query) == [f"{3:020}_{first.checkpoint_id}.zip"]
    query.newest[FIRST] = VersionId(3, None)
    assert query.restored(FIRST) == query.state[FIRST]
    assert b"key-000007" in query.restored(FIRST)


def test_a_delta_that_a_cleanup_removes_meanwhile_is_no_conflict(query, monkeypatch, capsys):
    real = full_checkpoints.publish

    def late(*arguments, **named):
        (delta,) = (path for path in query.files(FIRST) if path.match(f"delta/{1:020}_*"))
        delta.unlink()
        return real(*arguments, **named)

    monkeypatch.setattr(full_checkpoints, "publish", late)
    code, _ = run_json(capsys, "full", query.root)
    assert code == ExitCode.OK
    assert query.restored(FIRST) == query.state[FIRST]


@pytest.mark.parametrize("step", ["restore", "publish"])
def test_a_query_that_goes_on_and_retires_the_version_is_followed(tmp_path, monkeypatch, capsys, step):
    """With `publish`: between one store and the next. With `restore`: while the store is worked on."""
    query = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch", partitions=2)
    query.commit(rows(0, 20))
    real, calls = getattr(full_checkpoints, step), []

    def late(*arguments, **named):
        calls.append(arguments)
        if len(calls) == 1:
            for batch in range(3):
                query.commit(rows(batch * 10, 20))
            [query.merge(key, "full") for key in query.keys]
            old = [path for key in query.keys for path in query.files(key) if int(path.name[:20]) < 4]
            [path.unlink() for path in old]
        return real(*arguments, **named)

    monkeypatch.setattr(full_checkpoints, step, late)
    code, made = run_json(capsys, "full", query.root, "--stores", 1)
    assert code == ExitCode.OK
    assert [outcome["version"] for outcome in made["stores"]] == ([4, 4] if step == "restore" else [1, 4])
    assert query.restored(SECOND) == query.state[SECOND]


@pytest.mark.parametrize("ids", [True, False])
def test_a_committed_version_that_cannot_be_restored_is_an_error(tmp_path, ids):
    query = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch", partitions=1, ids=ids)
    for batch in range(3):
        query.commit(rows(batch * 10, 20))
    for path in query.files(FIRST):
        if path.name.startswith(f"{3:020}"):
            path.unlink()
    with pytest.raises(
        MissingError, match="which Spark committed last, cannot be restored; versions that can"
    ):
        full_checkpoints.store_full_checkpoint(FIRST, query.store(FIRST), query.newest[FIRST])
    assert snapshots(query) == []


def test_attempts_that_cannot_be_told_apart_are_a_conflict(tmp_path):
    query = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch", partitions=1)
    query.commit(rows(0, 3))
    query.write_version(FIRST, rows(0, 4), None)
    with pytest.raises(ConflictError, match="2 attempts of version 1"):
        full_checkpoints.store_full_checkpoint(FIRST, query.store(FIRST), VersionId(1, None))


def test_nothing_is_made_before_the_first_commit(tmp_path, capsys):
    query = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch")
    query.commit(rows(0, 3), logged=False)
    assert main(["full", str(query.root)]) == ExitCode.NOT_FOUND
    assert "has not committed a batch" in capsys.readouterr().err
    assert snapshots(query) == []


def test_a_store_that_fails_does_not_stop_the_others(tmp_path, capsys):
    query = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch")
    query.commit(rows(0, 3))
    [path.unlink() for path in query.files(FIRST)]
    code, made = run_json(capsys, "full", query.root)
    assert code == ExitCode.NOT_FOUND
    assert [outcome.get("version") for outcome in made["stores"]] == [None, 1]
    assert main(["full", str(query.root)]) == ExitCode.NOT_FOUND
    printed = capsys.readouterr()
    assert "0/1/default" in printed.out
    assert "cannot be restored" in printed.err


def test_a_full_disk_stops_one_store_alone(tmp_path, monkeypatch, capsys):
    query = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch")
    query.commit(rows(0, 3))
    real = full_checkpoints.merge

    def fail(context, *arguments):
        if context.storage.location.endswith("/0/0"):
            raise OSError(28, "No space left on device", "/tmp/full")
        return real(context, *arguments)

    monkeypatch.setattr(full_checkpoints, "merge", fail)
    code, made = run_json(capsys, "full", query.root)
    assert code == ExitCode.RETRY
    assert "No space left" in made["stores"][0]["error"]["message"]
    assert made["stores"][1]["version"] == 1


@pytest.mark.parametrize(
    ("written", "asked", "made"),
    [("lz4", None, "lz4"), ("none", None, "none"), ("none", "lz4", "lz4"), ("lz4", "none", "none")],
)
def test_compression_is_that_of_the_query(tmp_path, written, asked, made):
    settings = DatabaseSettings(compression=written)
    query = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch", partitions=1, settings=settings)
    query.commit(rows(0, 3000))
    before = query.merge(FIRST, "full").manifest
    query.commit(rows(0, 3))
    storage = query.store(FIRST)
    after = full_checkpoints.store_full_checkpoint(FIRST, storage, query.newest[FIRST], compression=asked)
    ratio = {("none", "lz4"): 1 / 8.7, ("lz4", "none"): 8.7}.get((written, made), 1)
    assert after.bytes == pytest.approx(before.total_bytes * ratio, rel=0.1)


@pytest.mark.tier("more")
@pytest.mark.parametrize("command", ["full", "verify"])
def test_few_descriptors_are_enough(tmp_path, command):
    """Eight stores of more tables each than half of what the process may open."""
    limit = 60
    small = DatabaseSettings(file_bytes=4 << 10)
    query = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch", partitions=1, settings=small)
    query.commit(rows(0, 15_000))
    assert query.merge(FIRST, "full").new_files > limit / 2
    query.commit(rows(0, 3))
    query.multiply(8)
    done = subprocess.run(
        [sys.executable, "-m", "state_store.cli", command, str(query.root), "--stores", "8"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == ExitCode.OK, done.stderr
