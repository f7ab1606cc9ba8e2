"""Attempts at a version under checkpoint format 1, where the store gives them ids of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from driver import PREFIX, DriverError, Jvm, gone

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]

FORMAT_1 = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "1"}


def providers(jvm: Jvm, location: str) -> None:
    """Make the providers `p` and `q` of one store, as two executors have them."""
    for name in ("p", "q"):
        jvm("provider", provider=name, location=location, conf=FORMAT_1)


def test_under_format_1_a_retry_replaces_the_version(jvm: Jvm, tmp_path: Path) -> None:
    providers(jvm, str(tmp_path / "state"))
    assert jvm.batch("p", 0, a="1") == (1, None)
    jvm.batch("p", 1, b="first")
    jvm.batch("p", 1, b="second")
    assert jvm.rows("p", 2) == {"a": "1", "b": "second"}
    assert jvm.rows("q", 2) == {"a": "1", "b": "second"}


def test_memory_forgets_versions_that_another_executor_recommitted_in_format_1(
    jvm: Jvm, tmp_path: Path
) -> None:
    providers(jvm, str(tmp_path / "state"))
    jvm.batch("p", 0, a="1")
    jvm.batch("p", 1, b="first")
    jvm.batch("q", 1, b="second")
    with pytest.raises(DriverError, match="version 2, which it builds on, was committed anew"):
        jvm.batch("p", 2, c="3")
    assert jvm.rows("p", 2) == {"a": "1", "b": "second"}
    jvm.batch("p", 2, c="3")
    assert jvm.rows("p", 3) == jvm.rows("q", 3) == {"a": "1", "b": "second", "c": "3"}


def test_under_format_1_a_task_looks_again_after_an_attempt_that_failed(jvm: Jvm, tmp_path: Path) -> None:
    """The delta of an attempt is stored and its commit fails: the task of the next job knows that."""
    jvm("provider", provider="p", location=f"probe://{tmp_path}/state", conf=FORMAT_1)
    jvm.batch("p", 0, a="1")
    for store in ("first", "second"):
        jvm("begin", provider="p", store=store, version=1, first=True)
        jvm("put", store=store, rows={"b": store})
        if store == "first":
            jvm("on_fs", operation="list", action="fail")
            with pytest.raises(DriverError, match="the probe refuses"):
                jvm("commit", store=store)
    jvm("commit", store="second")
    deltas = sorted(path.name for path in (tmp_path / "state/0/0/delta").glob(f"{2:020d}_*.sst"))
    assert [name.split("_")[1].split("-")[0] for name in deltas] == ["a0", "a1"]
    jvm("provider", provider="q", location=f"probe://{tmp_path}/state", conf=FORMAT_1)
    assert jvm.rows("p", 2) == jvm.rows("q", 2) == {"a": "1", "b": "second"}


def test_under_format_1_an_attempt_whose_commit_failed_after_its_upload_does_not_count(
    jvm: Jvm, tmp_path: Path
) -> None:
    """The batch runs again: its delta is stored, and the commit fails in the listing after it."""
    jvm("provider", provider="p", location=f"probe://{tmp_path}/state", conf=FORMAT_1)
    jvm.batch("p", 0, a="1")
    jvm.batch("p", 1, b="taken")
    jvm("begin", provider="p", store="again", version=1)
    jvm("put", store="again", rows={"c": "failed"})
    jvm("on_fs", operation="list", action="fail")
    with pytest.raises(DriverError, match="the probe refuses"):
        jvm("commit", store="again")
    jvm("abort", store="again")
    assert len(list((tmp_path / "state/0/0/delta").glob(f"{2:020d}_*.sst"))) == 2, "both are in storage"
    jvm("provider", provider="q", location=f"probe://{tmp_path}/state", conf=FORMAT_1)
    assert jvm.rows("p", 2) == jvm.rows("q", 2) == {"a": "1", "b": "taken"}


def test_under_format_1_an_attempt_whose_commit_failed_does_not_count_if_its_local_file_stays(
    jvm: Jvm, tmp_path: Path
) -> None:
    """A directory with a file takes the place of the local delta: it cannot be removed."""
    location, go = f"probe://{tmp_path}/state", tmp_path / "go"
    jvm(
        "provider",
        provider="p",
        location=location,
        conf=FORMAT_1 | {f"{PREFIX}localDir": str(tmp_path / "local")},
    )
    jvm.batch("p", 0, a="1")
    jvm.batch("p", 1, b="taken")
    jvm("begin", provider="p", store="again", version=1)
    jvm("put", store="again", rows={"c": "failed"})
    before = jvm("actions")
    jvm("on_fs", operation="list", action="fail_later", until=str(go))
    jvm("commit", store="again", thread="commit")
    assert gone(lambda: jvm("actions") == before), "the commit does not look at storage"
    (delta,) = (tmp_path / "local").glob("agent-*/*/incoming/*.sst")
    delta.unlink()
    delta.mkdir()
    (delta / "file").touch()
    go.touch()
    with pytest.raises(DriverError, match="the probe refuses"):
        jvm("await", thread="commit")
    jvm("abort", store="again")
    assert len(list((tmp_path / "state/0/0/delta").glob(f"{2:020d}_*.sst"))) == 2, "both are in storage"
    jvm("provider", provider="q", location=location, conf=FORMAT_1)
    assert jvm.rows("p", 2) == jvm.rows("q", 2) == {"a": "1", "b": "taken"}


@pytest.mark.parametrize("then", ["close", "open again", "go on"])
def test_under_format_1_a_refusal_that_storage_failed_is_repeated(
    jvm: Jvm, tmp_path: Path, then: str
) -> None:
    """Storage fails from the listing after the upload on, so the mark on the attempt fails as well."""
    location = f"probe://{tmp_path}/state"
    jvm("provider", provider="p", location=location, conf=FORMAT_1)
    jvm.batch("p", 0, a="1")
    jvm.batch("p", 1, b="taken")
    jvm("begin", provider="p", store="again", version=1)
    jvm("put", store="again", rows={"c": "failed"})
    jvm("on_fs", operation="any", nth=3, times=1000, action="fail")
    with pytest.raises(DriverError, match="the probe refuses"):
        jvm("commit", store="again")
    jvm("abort", store="again")
    deltas = tmp_path / "state/0/0/delta"
    assert len(list(deltas.glob(f"{2:020d}_*.sst"))) == 2, "both are in storage"
    assert not list(deltas.glob("*.refused"))
    expected = {"a": "1", "b": "taken"}
    if then == "open again":
        jvm("close", provider="p")
        assert not list(deltas.glob("*.refused"))
    jvm("on_fs", operation="never", action="fail")
    if then == "close":
        jvm("close", provider="p")
        assert list(deltas.glob("*.refused"))
    if then == "go on":
        jvm.batch("p", 2, c="3")
        expected["c"] = "3"
    jvm("provider", provider="q", location=location, conf=FORMAT_1)
    assert jvm.rows("q", len(expected)) == expected


def test_memory_forgets_the_commit_of_a_failed_task_in_format_1(jvm: Jvm, tmp_path: Path) -> None:
    """If another executor has made the version since, the next task does not build on it."""
    providers(jvm, str(tmp_path / "state"))
    jvm.batch("p", 0, a="1")
    jvm("begin", provider="p", store="s", version=1, first=True)
    jvm("put", store="s", rows={"b": "first"})
    jvm("commit", store="s")
    jvm("fail_task", store="s")
    assert gone(lambda: not list((tmp_path / "state/0/0/delta").glob("*.refused")))
    jvm.batch("q", 1, b="second")
    jvm.batch("p", 2, c="3")
    assert jvm.rows("p", 3) == jvm.rows("q", 3) == {"a": "1", "b": "second", "c": "3"}


def test_under_format_1_a_copy_that_ends_after_the_committed_attempt_is_refused(
    jvm: Jvm, tmp_path: Path
) -> None:
    """Both attempts begin before either commits, as a task and its speculative copy do."""
    providers(jvm, str(tmp_path / "state"))
    jvm.batch("p", 0, a="1")
    for name in ("p", "q"):
        jvm("begin", provider=name, store=name, version=1, first=True)
        jvm("put", store=name, rows={"b": name})
    jvm("commit", store="p")
    with pytest.raises(DriverError, match="another attempt"):
        jvm("commit", store="q")
    jvm("abort", store="q")
    assert jvm.rows("p", 2) == jvm.rows("q", 2) == {"a": "1", "b": "p"}
    jvm.batch("q", 2, c="3")
    assert jvm.rows("p", 3) == {"a": "1", "b": "p", "c": "3"}


def test_under_format_1_a_copy_whose_machine_dies_between_upload_and_look_does_not_count(
    own_jvm: Jvm, driver_class_path: str, tmp_path: Path
) -> None:
    """Its delta is in storage without a mark, and has the ordinal of the attempt that committed first."""
    location = f"probe://{tmp_path}/state"
    providers(own_jvm, location)
    own_jvm.batch("p", 0, a="1")
    for name in ("p", "q"):
        own_jvm("begin", provider=name, store=name, version=1, first=True)
        own_jvm("put", store=name, rows={"b": name})
    own_jvm("commit", store="p")
    deltas = tmp_path / "state/0/0/delta"
    (first,) = deltas.glob(f"{2:020d}_a0-*.sst")
    os.utime(first, (first.stat().st_mtime - 10,) * 2)  # whatever the resolution of the storage's clock is
    own_jvm("on_fs", operation="list", times=1000, action="fail")
    with pytest.raises(DriverError, match="the probe refuses"):
        own_jvm("commit", store="q")
    own_jvm.kill()
    for mark in deltas.glob("*.refused"):
        mark.unlink()  # the machine died before it
    assert len(list(deltas.glob(f"{2:020d}_a0-*.sst"))) == 2, "both are in storage"
    room = tmp_path / "next"
    room.mkdir()
    after = Jvm(driver_class_path, room)
    try:
        after("provider", provider="r", location=location, conf=FORMAT_1)
        assert after.rows("r", 2) == {"a": "1", "b": "p"}
        after.batch("r", 2, c="3")
        assert after.rows("r", 3) == {"a": "1", "b": "p", "c": "3"}
    finally:
        after.kill()
