"""The calls of docs/protocol.md: their answers and refusals, and repeated calls."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from faults import FaultyStorage, once, torn_write

from agent.harness import AgentProcess, InProcess, Job, rows_of
from state_store.core.checkpoint.names import DeltaName
from state_store.core.storage.local import LocalStorage
from state_store.errors import (
    ConflictError,
    DamagedError,
    MissingError,
    OptionError,
    StorageError,
    UnknownOutcomeError,
)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(InProcess(tmp_path / "local", max_runs=2), tmp_path / "state", retain=4)


def rows(count: int) -> dict[bytes, bytes | None]:
    return {b"\0\0" + os.urandom(4): os.urandom(20) for _ in range(count)}


def test_open_gives_what_the_data_plane_needs(job: Job) -> None:
    assert Path(job.opened["incoming"]).is_dir()
    assert job.opened["memory_budget_bytes"] == (512 - 64) << 20  # the rest is the agent's own, and code
    assert job.opened["options"]["minPauseBetweenMerges"] == 0
    assert job.opened["options"]["restoreObjective"] == 10_000


def test_two_runs_with_other_options_do_not_mix(tmp_path: Path) -> None:
    client = InProcess(tmp_path / "local")
    first = Job(client, tmp_path / "one", maxDeltas="3")
    two = Job(client, tmp_path / "two", maxDeltas="5")
    for _ in range(6):
        first.commit(rows(3))
        two.commit(rows(3))
    # A request that still waits is replaced by that of the next commit.
    reasons = [job.events()[0]["merged"]["reason"] for job in (first, two)]
    assert reasons[0] in {f"{deltas} deltas (maxDeltas)" for deltas in (3, 4, 5)}
    assert reasons[1] == "5 deltas (maxDeltas)"
    with pytest.raises(OptionError):
        Job(client, tmp_path / "three", maxDeltas="many")


def test_the_first_query_of_an_executor_sets_what_all_share(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = InProcess(tmp_path / "local")
    first = Job(client, tmp_path / "one", memoryBudget="64m")
    two = Job(client, tmp_path / "two", memoryBudget="1g", maxDeltas="5")
    assert two.opened["memory_budget_bytes"] == first.opened["memory_budget_bytes"]
    assert two.opened["options"]["memoryBudget"] == 64 << 20
    assert two.opened["options"]["maxDeltas"] == 5
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert "memoryBudget counts for the whole executor" in warning.getMessage()
    first.call("close")
    two.call("close")
    three = Job(client, tmp_path / "three", memoryBudget="1g")
    assert three.opened["options"]["memoryBudget"] == 1 << 30
    assert caplog.records == [warning]


def test_a_commit_is_there_and_its_chain_is_told(job: Job) -> None:
    for number in range(1, 4):
        answer = job.commit(rows(10))
        deltas = list(job.location.glob("delta/*.sst"))
        assert answer["chain"] == {
            "deltas": number,
            "deltas_since_full": number,
            "merges_since_full": 0,
            "files": number,
            "bytes": sum(path.stat().st_size for path in deltas),
            "shared_files": 0,
            "shared_bytes": 0,
            "snapshot_version": None,
            "snapshot_kind": None,
            "full_version": None,
        }
    assert not list(Path(job.opened["incoming"]).iterdir())


def test_the_chain_says_what_its_snapshot_shares_with_older_ones(job: Job) -> None:
    job.commit(rows(5000))
    job.merge("full")
    job.commit(rows(10))
    merged = job.merge("incremental")
    chain = job.commit(rows(10))["chain"]
    assert (chain["snapshot_version"], chain["snapshot_kind"], chain["full_version"]) == (2, "incremental", 1)
    assert chain["shared_files"] == merged["shared_files"] - 1 == 1, "the delta of version 2 is its own"
    shared = [path for path in job.location.glob("shared/*.sst") if path.name.startswith(f"{1:020}-")]
    assert chain["shared_bytes"] == sum(path.stat().st_size for path in shared)


def test_a_commit_can_be_made_again(job: Job) -> None:
    job.commit(rows(10))
    arguments = job.write(rows(10))
    first = job.call("commit", **arguments)
    again = job.call("commit", **arguments)
    assert again["chain"] == first["chain"]
    assert len(list(job.location.glob("delta/*.sst"))) == 2


def test_a_commit_that_reached_the_storage_can_be_made_again_by_another_agent(
    job: Job, tmp_path: Path
) -> None:
    job.commit(rows(10))
    arguments = job.write(rows(10))
    first = job.call("commit", **arguments)
    job.client = InProcess(tmp_path / "another")
    assert job.call("commit", **arguments)["chain"] == first["chain"]


def test_the_data_plane_stores_deltas_itself_only_where_that_is_the_commit(tmp_path: Path) -> None:
    """Without Spark's ids an attempt has to look whether it counts, which is left to the agent."""
    client = InProcess(tmp_path / "local")
    assert Job(client, tmp_path / "state").opened["delta_directory"] == str(tmp_path / "state/delta")
    assert Job(client, tmp_path / "other", ids=False).opened["delta_directory"] is None


@pytest.mark.parametrize("another", [False, True], ids=["the same agent", "another agent"])
def test_a_delta_that_the_data_plane_has_stored_is_learned(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, another: bool
) -> None:
    job.commit(rows(10))
    arguments = job.write(rows(10))
    if another:
        job.client = InProcess(tmp_path / "another")
    name = DeltaName(2, arguments["id"], arguments["parent"], arguments["crc"]).name
    os.link(arguments["path"], Path(job.opened["delta_directory"]) / name)
    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "upload", None)  # it is not stored again
        chain = job.call("commit", stored=True, **arguments)["chain"]
    assert (chain["deltas"], chain["files"]) == (2, 2)
    assert not Path(arguments["path"]).exists(), "it is kept for restores"
    job.version, job.id, job.state = job.next
    assert job.commit(rows(10))["chain"]["deltas"] == 3
    assert job.rows() == job.state


def test_a_delta_of_another_size_is_refused(job: Job, tmp_path: Path) -> None:
    arguments = job.write(rows(10))
    with pytest.raises(DamagedError, match="instead of"):
        job.call("commit", **{**arguments, "bytes": arguments["bytes"] + 1})
    with pytest.raises(MissingError, match="does not exist"):
        job.call("commit", **{**arguments, "path": str(tmp_path / "nowhere")})
    assert not list(job.location.glob("delta/*"))


def test_a_commit_on_a_version_that_is_not_there_is_refused(job: Job) -> None:
    job.commit(rows(1))
    with pytest.raises(MissingError, match="version 1 "):
        job.call("commit", **{**job.write(rows(1)), "parent": "another"})


def test_a_checkpoint_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a directory belongs")
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state")
    with pytest.raises(StorageError, match=str(tmp_path / "state")):
        job.commit(rows(1))


def test_the_deltas_of_a_lineage_are_handed_out_until_they_are_released(job: Job) -> None:
    for _ in range(5):
        job.commit(rows(3))
    answer = job.call("deltas", version=5, id=job.id, first=3)
    assert [(file["version"], file["id"]) for file in answer["files"]] == [
        (version, job.versions[version][0]) for version in (3, 4, 5)
    ]
    assert all(Path(file["path"]).read_bytes() for file in answer["files"])
    job.call("release", directory=answer["directory"])
    assert not Path(answer["directory"]).exists()
    (job.location / "delta" / Path(answer["files"][1]["path"]).name).unlink()
    with pytest.raises(MissingError, match=f"{4:020d}"):
        job.call("deltas", version=5, id=job.id, first=3)


def test_answers_tell_ages(tmp_path: Path) -> None:
    now_ms = [1_000_000]
    job = Job(InProcess(tmp_path / "local", now_ms=lambda: now_ms[0]), tmp_path / "state")
    assert job.commit(rows(10))["ages"] == {"snapshot_age_ms": None, "full_age_ms": None}
    job.merge("full")
    now_ms[0] += 5000
    for _ in range(3):
        job.commit(rows(10))
    job.merge("incremental")
    now_ms[0] += 2000
    answer = job.commit(rows(10))
    assert answer["chain"]["deltas_since_full"] in (1, 4)
    assert answer["ages"]["snapshot_age_ms"] == 2000
    assert answer["ages"]["full_age_ms"] in (2000, 7000)
    assert job.restore()["ages"] == answer["ages"]


def test_a_restored_store_knows_how_old_its_chain_is(tmp_path: Path) -> None:
    now_ms = [1_000_000]

    def clock() -> int:
        return now_ms[0]

    job = Job(InProcess(tmp_path / "local", now_ms=clock), tmp_path / "state", fullInterval="1h")
    job.commit(rows(10))
    job.merge("full")
    now_ms[0] += 3_600_000 + 600_000
    other = Job(InProcess(tmp_path / "other", now_ms=clock), tmp_path / "state", fullInterval="1h")
    other.versions = job.versions
    other.restore(1)
    for _ in range(2):  # the second makes the first certain
        other.commit(rows(1))
    (event,) = other.events()
    assert event["merged"]["kind"] == "full"
    assert "fullInterval" in event["merged"]["reason"]


def test_cleanup_lists_nothing_when_nothing_can_go(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(6):
        job.commit(rows(3))
    job.cleanup()
    store = job.open_store
    job.commit(rows(3))

    def forbidden(directory: str) -> None:
        raise AssertionError(f"'{directory}' was listed")

    with monkeypatch.context() as patch:
        patch.setattr(store.context.storage, "list_files", forbidden)
        answer = job.cleanup()
    assert [version["version"] for version in answer["retained"]] == [4, 5, 6, 7]
    job.merge("full")
    for _ in range(5):
        job.commit(rows(3))
    answer = job.cleanup()
    assert answer["deleted_files"] >= 7
    assert answer["deleted_bytes"] > 0
    left = {int(path.name[:20]) for path in job.location.glob("delta/*")}
    assert left == {8, 9, 10, 11, 12}, "9 to 12 are retained; they start from snapshot 7"


def test_close_leaves_only_what_local_recovery_keeps(job: Job, tmp_path: Path) -> None:
    job.commit(rows(10))
    job.restore()
    job.call("close")
    assert sorted(path.name for path in (tmp_path / "local").iterdir()) == ["kept", "owner"]
    job.call("close")
    again = Job(job.client, job.location)
    again.versions = job.versions
    assert rows_of(again.restore(job.version)) == job.state


def test_local_files_elsewhere_survive_the_agent(tmp_path: Path) -> None:
    options = {"localDir": str(tmp_path / "disk")}
    with AgentProcess() as agent:
        job = Job(agent.connect(), tmp_path / "state", **options)
        for _ in range(3):
            job.commit(rows(10))
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["kept"]
    with AgentProcess() as agent:
        other = Job(agent.connect(), tmp_path / "state", **options)
        other.versions = job.versions
        answer = other.restore(3)
        assert (answer["local_files"], answer["fetched_files"]) == (3, 0)
        assert rows_of(answer) == job.state


def test_a_store_lives_on_any_file_system_of_the_jvm(tmp_path: Path) -> None:
    """The same life of a store, every file passing through connections that the JVM lends."""
    with AgentProcess() as agent:
        client = agent.connect(remote=tmp_path)
        job = Job(client, "remote:/state", retain=3)
        for _ in range(6):
            job.commit(rows(50))
        job.merge("incremental")
        job.commit(rows(5))
        job.merge("full")
        job.commit(rows(5))
        assert job.cleanup()["deleted_files"] > 0
        assert {"list", "read", "write", "delete", "mkdirs"} <= set(client.asked)
        other = Job(agent.connect(), "remote:/state")
        other.versions = job.versions
        assert rows_of(other.restore(8)) == job.state
    with AgentProcess() as agent:
        client = agent.connect(remote=tmp_path)
        other = Job(client, "remote:/state")
        other.versions = job.versions
        assert rows_of(other.restore(8)) == job.state
        assert "download" in client.asked


def test_a_failure_of_the_jvms_file_system_keeps_its_kind(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    with AgentProcess() as agent:
        job = Job(agent.connect(remote=tmp_path), "remote:/state")
        with pytest.raises(StorageError):
            job.commit(rows(1))
        assert agent.connect().call("ping")


def test_answers_are_json_of_plain_types(job: Job) -> None:
    answers = [
        job.opened,
        *(job.commit(rows(5)) for _ in range(3)),
        job.merge(),
        job.restore(),
        job.cleanup(),
    ]
    assert json.loads(json.dumps(answers)) == answers


def test_numbers_of_operators_and_partitions_may_be_negative(tmp_path: Path) -> None:
    """Spark's own suites give random numbers."""
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state")
    negative = {**job.store, "operator": -455034847, "partition": -1, "instance": 9}
    assert job.client.call("open", store=negative) is not None


def test_half_a_delta_under_its_name_is_not_taken_for_the_commit(tmp_path: Path) -> None:
    """A write was torn and its answer lost: the same commit again finds another file of that name."""
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state")
    job.commit({b"\0\0a": b"1"})
    faulty = FaultyStorage(job.open_store.context.storage, once("upload", "delta/", torn_write))
    object.__setattr__(job.open_store, "context", replace(job.open_store.context, storage=faulty))
    arguments = job.write({b"\0\0b": b"2"})
    with pytest.raises(UnknownOutcomeError):
        job.call("commit", **arguments)
    with pytest.raises(ConflictError):
        job.call("commit", **arguments)
    assert faulty.faults == 1
