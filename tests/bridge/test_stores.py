"""Stores of one JVM: versions, concurrent views, merges, metrics, and errors as the caller sees them."""

from __future__ import annotations

import re
import shlex
import stat
import sys
import time
import uuid
from pathlib import Path

import pytest
from driver import PREFIX, DriverError, Jvm, gone
from waiting import PATIENCE_S, paths_below

pytestmark = pytest.mark.spark


@pytest.mark.tier("more")
def test_ids_follow_the_lineage(jvm: Jvm, tmp_path: Path) -> None:
    jvm.provider("p", tmp_path / "state")
    jvm("begin", provider="p", store="s", version=0)
    jvm("put", store="s", rows={"a": "1"})
    first = jvm("commit", store="s")
    assert (first["version"], first["base"]) == (1, None)
    jvm("begin", provider="p", store="t", version=1, id=first["id"])
    second = jvm("commit", store="t")
    assert (second["version"], second["base"]) == (2, first["id"])


@pytest.mark.dear("the first test of a store in a JVM, which is compiled and started for it")
def test_two_tries_of_a_batch_are_two_versions(jvm: Jvm, tmp_path: Path) -> None:
    jvm.provider("p", tmp_path / "state")
    version, base = jvm.batch("p", 0, a="1")
    _, lost = jvm.batch("p", version, base, b="lost")
    _, kept = jvm.batch("p", version, base, b="kept")
    assert jvm.rows("p", 2, lost) == {"a": "1", "b": "lost"}
    assert jvm.rows("p", 2, kept) == {"a": "1", "b": "kept"}
    jvm.provider("q", tmp_path / "state")
    assert jvm.rows("q", 2, lost) == {"a": "1", "b": "lost"}


@pytest.mark.parametrize("taken", ["first", "second"])
def test_a_batch_that_runs_a_second_time_restores_nothing(jvm: Jvm, tmp_path: Path, taken: str) -> None:
    """Two actions of `foreachBatch` do this: each begins with a read store; Spark takes the first."""
    jvm.provider("p", tmp_path / "state")
    version, id = jvm.batch("p", 0, a="0")
    restores = jvm.log.count("Restored version")
    for batch in range(1, 6):
        made = {}
        for run in ("first", "second"):
            jvm("begin", provider="p", store="r", version=version, id=id, read=True)
            jvm("begin", provider="p", store="w", version=version, id=id)
            assert jvm("scan", store="r") == {"a": "0"} | {f"b{i}": taken for i in range(1, batch)}
            jvm("put", store="w", rows={f"b{batch}": run})
            made[run] = jvm("commit", store="w")
            jvm("release", store="r")
            time.sleep(0.1)  # so that the version is indexed meanwhile, as between two jobs
        version, id = made[taken]["version"], made[taken]["id"]
    assert jvm.log.count("Restored version") == restores


def test_a_reader_keeps_its_view_while_another_thread_commits(jvm: Jvm, tmp_path: Path) -> None:
    jvm.provider("p", tmp_path / "state")
    version, id = jvm.batch("p", 0, a="1", b="1")
    jvm("begin", provider="p", store="reader", version=version, id=id, read=True)
    jvm.batch("p", version, id, a="2", c="2")
    assert jvm("scan", store="reader") == {"a": "1", "b": "1"}
    assert jvm("get", store="reader", key="c") is None
    jvm("release", store="reader")


def test_a_read_store_becomes_a_write_store(jvm: Jvm, tmp_path: Path) -> None:
    jvm.provider("p", tmp_path / "state")
    version, id = jvm.batch("p", 0, a="1")
    jvm("begin", provider="p", store="s", version=version, id=id, read=True)
    with pytest.raises(DriverError, match="opened to read"):
        jvm("put", store="s", rows={"b": "2"})
    # Spark may have replaced the provider that opened it.
    jvm.provider("successor", tmp_path / "state")
    jvm("close", provider="p")
    jvm("upgrade", provider="successor", store="s", id=id)
    jvm("put", store="s", rows={"b": "2"})
    assert jvm("scan", store="s") == {"a": "1", "b": "2"}
    committed = jvm("commit", store="s")
    assert jvm.rows("successor", committed["version"], committed["id"]) == {"a": "1", "b": "2"}


def test_a_provider_that_is_closed_lets_its_stores_finish(jvm: Jvm, tmp_path: Path) -> None:
    jvm.provider("p", tmp_path / "state")
    jvm("begin", provider="p", store="first", version=0, force=True)
    jvm("put", store="first", rows={"a": "1"})
    heard_before = jvm.log.count("Merge (")
    first = jvm("commit", store="first")
    assert gone(lambda: jvm.log.count("Merge (") == heard_before)
    version, id = first["version"], first["id"]
    jvm("begin", provider="p", store="s", version=version, id=id)  # takes the base of the merge
    for thread in ("one", "two"):
        jvm("close", provider="p", thread=thread)
    for thread in ("one", "two"):
        assert jvm("await", thread=thread) is True
    with pytest.raises(DriverError, match="is closed"):
        jvm("begin", provider="p", store="t", version=version, id=id)
    jvm("put", store="s", rows={"b": "2"})
    committed = jvm("commit", store="s")
    assert jvm("metrics", store="s")["keys"] == 2, "Spark asks for them after the commit"
    jvm.provider("q", tmp_path / "state")
    assert jvm.rows("q", committed["version"], committed["id"]) == {"a": "1", "b": "2"}


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_nothing_can_be_done_after_the_end(jvm: Jvm, tmp_path: Path, end: str) -> None:
    jvm.provider("p", tmp_path / "state")
    version, id = jvm.batch("p", 0, a="1", b="2")
    jvm("begin", provider="p", store="s", version=version, id=id)
    jvm("open_scan", store="s")
    assert jvm("next", store="s") in "ab"
    jvm(end, store="s")
    state = {"commit": "COMMITTED", "abort": "ABORTED"}[end]
    with pytest.raises(DriverError, match=f"transaction on version {version} of the state store has ended"):
        jvm("next", store="s")
    for command, arguments in (
        ("put", {"rows": {"a": "1"}}),
        ("get", {"key": "a"}),
        ("scan", {}),
        ("commit", {}),
    ):
        with pytest.raises(DriverError, match=f"after {state}"):
            jvm(command, store="s", **arguments)
    if end == "abort":
        jvm("abort", store="s")


def test_many_stores_run_at_once(jvm: Jvm, tmp_path: Path) -> None:
    conf = {
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
        PREFIX + "maxDeltas": "2",
        PREFIX + "minPauseBetweenMerges": "0ms",
    }
    names = [f"p{partition}" for partition in range(8)]
    for partition, name in enumerate(names):
        jvm("provider", provider=name, location=str(tmp_path / "state"), partition=partition, conf=conf)
    at: dict[str, tuple[int, str | None]] = dict.fromkeys(names, (0, None))
    for batch in range(5):
        for name in names:
            jvm("begin", provider=name, store=name, version=at[name][0], id=at[name][1])
            jvm("fill", store=name, **{"from": batch * 10}, until=batch * 10 + 20, value=f"{name}-{batch}")
            jvm("commit", store=name, thread=name)
        for name in names:
            committed = jvm("await", thread=name)
            at[name] = committed["version"], committed["id"]
            jvm("maintain", provider=name)
    for name in names:
        rows = jvm.rows(name, *at[name])
        assert len(rows) == 60
        assert rows["k45"] == f"{name}-4-45"
        assert rows["k5"] == f"{name}-0-5"


def test_a_snapshot_that_spark_forces_exists_after_the_commit(jvm: Jvm, tmp_path: Path) -> None:
    jvm.provider("p", tmp_path / "state")
    version, id = jvm.batch("p", 0, a="1")
    jvm("begin", provider="p", store="s", version=version, id=id, force=True)
    jvm("put", store="s", rows={"b": "2"})
    heard_before = jvm.log.count("Merge (")
    committed = jvm("commit", store="s")
    snapshots = list((tmp_path / "state/0/0/snapshot").iterdir())
    assert [path.name for path in snapshots] == [f"{2:020d}_{committed['id']}.zip"]
    assert gone(lambda: jvm.log.count("Merge (") == heard_before)
    custom = jvm("metrics", store="s")["custom"]
    assert (custom["incrementalForcedSnapshots"], custom["incrementalMergeCount"]) == (1, 1)
    jvm("begin", provider="p", store="t", version=2, id=committed["id"])
    later = jvm("commit", store="t")
    custom = jvm("metrics", store="t")["custom"]
    assert custom["SnapshotLastUploaded.partition_0_default"] == 2
    assert (custom["incrementalMergeCount"], custom["incrementalChainDeltas"]) == (0, 1)
    jvm("replay", provider="p", store="r", **{"from": 2}, from_id=committed["id"], to=3, to_id=later["id"])
    assert jvm("scan", store="r") == {"a": "1", "b": "2"}
    jvm("release", store="r")


@pytest.mark.tier("more")
def test_the_bases_of_merges_are_taken_though_no_snapshot_can_be_reported(
    own_jvm: Jvm, tmp_path: Path
) -> None:
    conf = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}
    own_jvm("provider", provider="p", location=str(tmp_path / "state"), conf=conf, lost_driver=True)
    version, id = own_jvm.batch("p", 0, a="1")
    for _ in range(4):
        heard_before = own_jvm.log.count("Merge (")
        own_jvm("begin", provider="p", store="s", version=version, id=id, force=True)
        committed = own_jvm("commit", store="s")
        version, id = committed["version"], committed["id"]
        assert gone(lambda before=heard_before: own_jvm.log.count("Merge (") == before)

    def are_left() -> bool:
        nonlocal version, id
        version, id = own_jvm.batch("p", version, id, b="2")  # which takes the base that was offered last
        return len(paths_below(own_jvm.tmp, "base-*")) > 1

    assert gone(are_left), "unread bases stay on the disk"


def test_a_version_is_brought_into_the_index_after_its_commit(jvm: Jvm, tmp_path: Path) -> None:
    """Without a later batch, which would release the version. Metrics are of the first request's time."""
    pause_s = 0.05
    while pause_s < PATIENCE_S:
        tries = f"{pause_s:g}"
        jvm.provider(f"p{tries}", tmp_path / f"state{tries}")
        jvm("begin", provider=f"p{tries}", store="s", version=0)
        jvm("fill", store="s", **{"from": 0, "until": 5000})
        jvm("commit", store="s")
        time.sleep(pause_s)
        if jvm("metrics", store="s")["custom"]["incrementalIndexBytes"] > 5000 * 8:
            return
        pause_s *= 2
    pytest.fail("it was not, minutes after the commit")


def test_a_batch_reports_its_figures(jvm: Jvm, tmp_path: Path) -> None:
    jvm.provider("p", tmp_path / "state")
    version, id = jvm.batch("p", 0, a="1", b="1", c="1")
    jvm.provider("q", tmp_path / "state")
    jvm("begin", provider="q", store="s", version=version, id=id)
    assert jvm("get", store="s", key="a") == "1"
    jvm("put", store="s", rows={"a": "2", "d": "2"})
    jvm("remove", store="s", key="b")
    jvm("commit", store="s")
    metrics = jvm("metrics", store="s")
    custom = metrics["custom"]
    assert metrics["keys"] == 3
    assert metrics["memory"] > 0
    assert (custom["incrementalDeltaPuts"], custom["incrementalDeltaRemoves"]) == (2, 1)
    assert custom["incrementalDeltaBytes"] > 0
    assert custom["incrementalUploadedBytes"] == custom["incrementalDeltaBytes"]
    assert custom["incrementalRestoreCount"] == 1
    assert custom["incrementalRestoreDeltas"] == 1
    assert custom["incrementalChainDeltas"] == 2
    assert custom["incrementalDeltasSinceFull"] == 2
    assert custom["incrementalChainFiles"] == 2
    assert custom["incrementalChainBytes"] > 0
    assert custom["incrementalIndexHits"] + custom["incrementalIndexMisses"] > 0


def test_look_ups_before_an_upgrade_are_counted(jvm: Jvm, tmp_path: Path) -> None:
    """An aggregation reads its state before its store may write."""
    jvm.provider("p", tmp_path / "state")
    version, id = jvm.batch("p", 0, a="1", b="2")
    jvm("begin", provider="p", store="s", version=version, id=id, read=True)
    assert [jvm("get", store="s", key=key) for key in ("a", "b", "c")] == ["1", "2", None]
    jvm("upgrade", provider="p", store="s", id=id)
    assert _look_ups(jvm) == 3
    assert jvm("get", store="s", key="a") == "1"
    jvm("put", store="s", rows={"a": "3"})
    jvm("commit", store="s")
    assert _look_ups(jvm) == 4


def _look_ups(jvm: Jvm) -> int:
    custom = jvm("metrics", store="s")["custom"]
    return int(custom["incrementalIndexHits"] + custom["incrementalIndexMisses"])


def test_the_restore_for_a_reader_is_counted_by_the_next_writer_once(jvm: Jvm, tmp_path: Path) -> None:
    """Spark 4.0 opens a store to read, and once more to write; later releases make a writer of the reader."""
    jvm.provider("p", tmp_path / "state")
    version, id = jvm.batch("p", 0, a="1")

    def restores(provider: str, store: str) -> int:
        jvm("commit", store=store)
        return int(jvm("metrics", store=store)["custom"]["incrementalRestoreCount"])

    for provider in ("apart", "upgraded"):
        jvm.provider(provider, tmp_path / "state")
        jvm("begin", provider=provider, store=f"{provider}-r", version=version, id=id, read=True)
        if provider == "apart":
            jvm("begin", provider=provider, store=f"{provider}-w", version=version, id=id)
            assert restores(provider, f"{provider}-w") == 1
            jvm("release", store=f"{provider}-r")
        else:
            jvm("upgrade", provider=provider, store=f"{provider}-r", id=id)
            assert restores(provider, f"{provider}-r") == 1
        jvm("begin", provider=provider, store=f"{provider}-again", version=version, id=id)
        assert restores(provider, f"{provider}-again") == 0
    jvm.provider("other", tmp_path / "state")
    assert jvm.rows("other", version, id) == {"a": "1"}
    later, later_id = jvm.batch("p", version, id, b="2")
    jvm("begin", provider="other", store="later", version=later, id=later_id)
    assert restores("other", "later") == 1


def test_the_changes_of_each_batch_are_read(jvm: Jvm, tmp_path: Path) -> None:
    jvm.provider("p", tmp_path / "state")
    version, id = jvm.batch("p", 0, a="1", b="1")
    jvm("begin", provider="p", store="s", version=version, id=id)
    jvm("remove", store="s", key="a")
    jvm("put", store="s", rows={"b": "2"})
    committed = jvm("commit", store="s")
    changes = jvm("changes", provider="p", **{"from": 1}, to=2, id=committed["id"])
    found = sorted((change["batch"], change["key"], change["kind"], change["value"]) for change in changes)
    assert [(batch, key, value) for batch, key, _, value in found] == [
        (0, "a", "1"),
        (0, "b", "1"),
        (1, "a", None),
        (1, "b", "2"),
    ]
    assert [kind for _, _, kind, _ in found] == ["update", "update", "delete", "update"]


@pytest.mark.tier("more")
def test_reading_changes_leaves_nothing_on_local_disk(own_jvm: Jvm, tmp_path: Path) -> None:
    own_jvm.provider("p", tmp_path / "state")
    at = own_jvm.batch("p", 0, a="1")
    at = own_jvm.batch("p", *at, b="2")
    own_jvm("close", provider="p")
    for _ in range(2):
        own_jvm.provider("reader", tmp_path / "state")
        assert len(own_jvm("changes", provider="reader", **{"from": 1}, to=2, id=at[1])) == 2
        assert gone(lambda: bool(paths_below(own_jvm.tmp, "base-*")))
        own_jvm("close", provider="reader")
        assert gone(lambda: bool(paths_below(own_jvm.tmp, "incoming"))), "only read, and closed all the same"


def test_a_provider_that_is_closed_late_leaves_its_successor_alone(jvm: Jvm, tmp_path: Path) -> None:
    run = str(uuid.uuid4())
    conf = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}
    jvm("provider", provider="p", location=str(tmp_path / "state"), conf=conf, run=run)
    at = jvm.batch("p", 0, a="1")
    jvm("begin", provider="p", store="zombie", version=at[0], id=at[1])
    jvm("close", provider="p")
    jvm("provider", provider="q", location=str(tmp_path / "state"), conf=conf, run=run)
    at = jvm.batch("q", *at, b="2")
    jvm("abort", store="zombie")
    at = jvm.batch("q", *at, c="3")
    assert jvm.rows("q", *at) == {"a": "1", "b": "2", "c": "3"}


def test_changes_that_the_same_batch_replaced_are_shown_too(jvm: Jvm, tmp_path: Path) -> None:
    jvm.provider("p", tmp_path / "state")
    jvm("begin", provider="p", store="s", version=0)
    for value in ("1", "2", "longer than before", "4"):
        jvm("put", store="s", rows={"a": value, f"other-{value}": value})
    jvm("remove", store="s", key="other-2")
    committed = jvm("commit", store="s")
    changes = jvm("changes", provider="p", **{"from": 1}, to=1, id=committed["id"])
    of_a = [change["value"] for change in changes if change["key"] == "a"]
    assert of_a == ["1", "2", "longer than before", "4"]
    of_removed = [change["value"] for change in changes if change["key"] == "other-2"]
    assert of_removed == ["2", None]
    jvm.provider("q", tmp_path / "state")
    assert jvm.rows("q", 1, committed["id"]) == {
        "a": "4",
        "other-1": "1",
        "other-longer than before": "longer than before",
        "other-4": "4",
    }


@pytest.mark.parametrize("restored", [False, True])
def test_changes_of_a_removed_family_are_not_those_of_a_later_one(
    jvm: Jvm, tmp_path: Path, restored: bool
) -> None:
    conf = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}
    id, version = None, 0

    def begin(provider: str, **families: str) -> None:
        jvm("begin", provider=provider, store="s", version=version, id=id)
        jvm("families", store="s", **families)

    for name in ("p", "q"):
        jvm("provider", provider=name, location=str(tmp_path / "state"), conf=conf, families=True)
    later = "q" if restored else "p"
    begin("p", create="kept,removed")
    jvm("put", store="s", rows={"a": "old"}, family="removed")
    id, version = jvm("commit", store="s")["id"], 1
    begin("p", create="removed", remove="removed")
    id, version = jvm("commit", store="s")["id"], 2
    begin(later, create="kept,later")
    jvm("put", store="s", rows={"a": "new"}, family="later")
    id = jvm("commit", store="s")["id"]
    changes = jvm("changes", provider=later, **{"from": 1}, to=3, id=id, family="later")
    assert changes == [{"kind": "update", "key": "a", "value": "new", "batch": 2}]


# ---- errors ---------------------------------------------------------------------------------------------


def test_a_misspelt_option_is_named_with_the_nearest(jvm: Jvm, tmp_path: Path) -> None:
    jvm.provider("p", tmp_path / "state", maxDelta="3")
    with pytest.raises(DriverError, match=r"\[option\].*no option .*maxDelta\b.*nearest is .*maxDeltas"):
        jvm("begin", provider="p", store="s", version=0)


def test_an_option_of_another_type_is_named(jvm: Jvm, tmp_path: Path) -> None:
    jvm.provider("p", tmp_path / "state", maxDeltas="many")
    with pytest.raises(DriverError, match=r"\[option\].*maxDeltas.*'many'"):
        jvm("begin", provider="p", store="s", version=0)


def test_a_local_dir_that_cannot_be_used_is_named_with_the_remedy_of_its_cause(
    jvm: Jvm, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    jvm.provider("p", tmp_path / "state", localDir=str(file))
    with pytest.raises(DriverError) as raised:
        jvm.batch("p", 0, a="1")
    text = str(raised.value)
    assert str(file) in text and "(remove the file that stands where a directory has to be" in text
    jvm.provider("q", tmp_path / "state", localDir=f"{file},/tmp")
    with pytest.raises(DriverError, match=r"\[option\].* is one directory, not the list") as listed:
        jvm.batch("q", 0, a="1")
    for error in (raised, listed):
        assert "Free space" not in str(error.value)


def test_a_python_that_does_not_exist_is_named(jvm: Jvm, tmp_path: Path) -> None:
    jvm.provider("p", tmp_path / "state", agentPython="/no/such/python")
    with pytest.raises(
        DriverError, match=r"interpreter '/no/such/python' \(option .*agentPython\) cannot be started"
    ):
        jvm("begin", provider="p", store="s", version=0)


def test_a_python_without_rocksdict_is_named_with_the_fix(jvm: Jvm, tmp_path: Path) -> None:
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S -E "$@"\n')  # no site-packages
    bare.chmod(bare.stat().st_mode | stat.S_IXUSR)
    jvm.provider("p", tmp_path / "state", agentPython=str(bare))
    fix = r"(?s)rocksdict.*pip install rocksdict.*--archives.*\. .*'.*bare-python' \(option .*agentPython\)"
    with pytest.raises(DriverError, match=fix) as failure:
        jvm("begin", provider="p", store="s", version=0)
    assert all(
        message.count("pip install") == 1 for message in str(failure.value).split("\nAgentException: ")
    )


def test_storage_that_refuses_a_commit_is_an_error_with_the_file_and_loses_nothing(
    jvm: Jvm, tmp_path: Path
) -> None:
    jvm.provider("p", f"probe://{tmp_path}/state")
    version, id = jvm.batch("p", 0, a="1")
    jvm("on_fs", operation="create", action="fail")
    with pytest.raises(DriverError, match=r"\[storage\].*delta/0*2_.*the probe refuses"):
        jvm.batch("p", version, id, b="2")
    version, id = jvm.batch("p", version, id, b="3")
    assert jvm.rows("p", version, id) == {"a": "1", "b": "3"}


def test_a_restore_fetches_several_files_at_once(jvm: Jvm, tmp_path: Path) -> None:
    """Let each of four requests for a file wait until all four are at work."""
    location, options = f"probe://{tmp_path}/state", {"transferThreads": "4", "maxDeltas": "100"}
    jvm.provider("p", location, **options)
    version, id = 0, None
    for number in range(8):
        version, id = jvm.batch("p", version, id, **{f"k{number}": "1"})
    jvm.provider("q", location, localRecovery="false", **options)
    done = jvm("actions")
    jvm("on_fs", operation="open", times=4, action="meet")
    assert len(jvm.rows("q", version, id)) == 8
    assert jvm("actions") == done + 4


def test_merges_are_repeated_up_to_the_option(jvm: Jvm, tmp_path: Path) -> None:
    jvm.provider("p", f"probe://{tmp_path}/state", tolerableFailedMerges="1")
    version, id = 0, None
    for number in (1, 2):
        jvm("begin", provider="p", store="s", version=version, id=id, force=True)
        jvm("put", store="s", rows={"a": str(version)})
        # The delta is the first file that a commit creates; files that the merge creates later fail.
        jvm("on_fs", operation="create", nth=2, times=100, action="fail")
        committed = jvm("commit", store="s")
        jvm("on_fs", operation="never", action="fail")
        version, id = committed["version"], committed["id"]
        # The failure is an event, which may come after the commit's answer and the agent's own line.
        failure = re.compile(rf"Merge \(\w+\) of .* at version {version} failed, {number} in a row")
        assert gone(lambda failure=failure: not failure.search(jvm.log))
    with pytest.raises(
        DriverError, match=r"(?s)2 merges of .* failed in a row.*tolerableFailedMerges = 1.*the probe refuses"
    ):
        jvm("begin", provider="p", store="s", version=version, id=id)
    jvm.provider("q", f"probe://{tmp_path}/state")
    assert jvm.rows("q", version, id) == {"a": "1"}


def test_a_version_that_does_not_exist_is_named(jvm: Jvm, tmp_path: Path) -> None:
    jvm.provider("p", tmp_path / "state")
    jvm.batch("p", 0, a="1")
    said = r"NOT_EXISTS\] '.*' does not exist: incremental state store \[missing\]: version 7"
    with pytest.raises(DriverError, match=said):
        jvm("begin", provider="p", store="s", version=7, id="5d1b5a1c-0000-4000-8000-000000000000")


def test_an_unknown_scheme_is_named(jvm: Jvm) -> None:
    jvm.provider("p", "nosuch://host/state")
    with pytest.raises(DriverError, match='No FileSystem for scheme "nosuch"'):
        jvm("begin", provider="p", store="s", version=0)


def test_row_checksums_are_refused_at_the_start(jvm: Jvm, tmp_path: Path) -> None:
    conf = {"spark.sql.streaming.stateStore.rowChecksum.enabled": "true"}
    with pytest.raises(DriverError, match=r"rowChecksum\.enabled is not supported"):
        jvm("provider", provider="p", location=str(tmp_path / "state"), conf=conf)
