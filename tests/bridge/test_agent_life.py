"""The agent's life: started on demand, replaced if it dies or hangs, ended with its JVM."""

from __future__ import annotations

import os
import secrets
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from driver import DriverError, Jvm, alive, gone
from owned_processes import stopped
from waiting import paths_below

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]


def test_nothing_starts_before_the_first_store(own_jvm: Jvm, tmp_path: Path) -> None:
    own_jvm.provider("p", tmp_path / "state")
    assert own_jvm.agent() is None
    assert not (tmp_path / "state").exists()
    own_jvm.batch("p", 0, a="1")
    assert alive(own_jvm.agent() or 0)


@pytest.mark.parametrize("end", [Jvm.end, Jvm.kill], ids=["in order", "killed"])
def test_nothing_is_left_when_the_jvm_has_ended(
    own_jvm: Jvm, tmp_path: Path, end: Callable[[Jvm], None]
) -> None:
    own_jvm.provider("p", tmp_path / "state")
    version, id = own_jvm.batch("p", 0, a="1")
    own_jvm.rows("p", version, id)
    agent = own_jvm.agent() or 0
    assert alive(agent)
    assert _remains(own_jvm), "the agent has its directories while it runs"
    end(own_jvm)
    assert gone(lambda: alive(agent))
    assert gone(lambda: bool(_remains(own_jvm))), _remains(own_jvm)


def _remains(jvm: Jvm) -> list[Path]:
    return [path for path in paths_below(jvm.tmp) if "state-store" in path.name or path.is_socket()]


@pytest.mark.tier("more")
def test_an_agent_that_died_is_replaced(jvm: Jvm, tmp_path: Path) -> None:
    jvm.provider("p", tmp_path / "state")
    version, id = jvm.batch("p", 0, a="1")
    first = jvm.agent() or 0
    os.kill(first, signal.SIGKILL)
    assert gone(lambda: alive(first))
    version, id = jvm.batch("p", version, id, b="2")
    assert gone(lambda: jvm.agent() in (None, first)), "nobody was told of the commit"
    jvm.provider("q", tmp_path / "state")
    assert jvm.rows("q", version, id) == {"a": "1", "b": "2"}


@pytest.mark.tier("more")
def test_a_commit_on_a_local_disk_does_not_wait_for_the_agent(jvm: Jvm, tmp_path: Path) -> None:
    jvm.provider("p", tmp_path / "state", callTimeout="200s")  # more than a batch takes on a busy machine
    version, id = jvm.batch("p", 0, a="1")
    agent = jvm.agent() or 0
    with stopped(agent):
        version, id = jvm.batch("p", version, id, b="2")
        assert list((tmp_path / "state/0/0/delta").glob(f"{2:020d}_{id}_*.sst"))
    jvm("begin", provider="p", store="s", version=version, id=id)
    jvm("put", store="s", rows={"c": "3"})
    version, id = (committed := jvm("commit", store="s"))["version"], committed["id"]
    assert jvm("metrics", store="s")["custom"]["incrementalChainDeltas"] == 3
    jvm.provider("q", tmp_path / "state", localRecovery="false")
    assert jvm.rows("q", version, id) == {"a": "1", "b": "2", "c": "3"}
    assert jvm.agent() == agent, "the agent was replaced, because a call has waited for it"


@pytest.mark.parametrize("kills", [1, 4])
def test_an_agent_killed_before_it_answers_is_replaced(own_jvm: Jvm, tmp_path: Path, kills: int) -> None:
    left = tmp_path / "left"
    left.write_text("x" * kills)
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
left={shlex.quote(str(left))}
if [ -s "$left" ]; then truncate -s -1 "$left"; kill -9 $$; fi
exec {shlex.quote(own_jvm.python)} "$@"
"""
    )
    python.chmod(0o755)
    own_jvm.provider("p", tmp_path / "state", agentPython=str(python))
    if kills == 4:
        with pytest.raises(DriverError, match=r"killed 4 times in a row before they answered.*exit code 137"):
            own_jvm.batch("p", 0, a="1")
    at = own_jvm.batch("p", 0, a="1")
    assert own_jvm.rows("p", *at) == {"a": "1"}
    assert left.read_text() == ""


CALLS = {
    "commit, before the file": ("commit", "create"),
    "commit, within the rename": ("commit", "rename"),
    "restore, listing": ("restore", "list"),
    "restore, reading": ("restore", "open"),
    "merge, listing": ("merge", "list"),
    "merge, writing": ("merge", "create"),
    "merge, publishing": ("merge", "rename"),
    "cleanup, listing": ("cleanup", "list"),
    "cleanup, condemning": ("cleanup", "create"),
    "cleanup, deleting": ("cleanup", "delete"),
    "deltas, reading": ("deltas", "open"),
}


@pytest.mark.parametrize(("call", "operation"), CALLS.values(), ids=CALLS)
def test_an_agent_killed_in_a_call_is_replaced_and_asked_again(
    jvm: Jvm, tmp_path: Path, call: str, operation: str
) -> None:
    location = f"probe://{tmp_path}/state"
    own = {"retainedCheckpoints": "1", "fullAfterDeltas": "2", "minPauseBetweenMerges": "0ms"}
    jvm.provider("p", location, localRecovery="false", **(own if call == "cleanup" else {}))
    version, id, rows = 0, None, {}
    for batch in range(3):
        version, id = jvm.batch("p", version, id, **{f"k{batch}": str(batch), "same": str(batch)})
        rows |= {f"k{batch}": str(batch), "same": str(batch)}
    if call == "cleanup":  # after the merges there is something to delete
        assert gone(lambda: not list((tmp_path / "state/0/0/snapshot").glob("*.zip")))
        version, id, rows = _forced(jvm, version, id, rows)
    if call in ("restore", "deltas"):  # files of an open store are not read
        jvm("close", provider="p")
    actions, first = jvm("actions"), jvm.agent()

    jvm("on_fs", operation=operation, action="kill")
    if call == "commit":
        version, id = jvm.batch("p", version, id, late="3")
        rows["late"] = "3"
    elif call == "restore":
        jvm.provider("reader", location, localRecovery="false")
        assert jvm.rows("reader", version, id) == rows
    elif call == "merge":
        version, id, rows = _forced(jvm, version, id, rows, operation if operation != "list" else None)
    elif call == "cleanup":
        jvm("maintain", provider="p")
    else:
        jvm.provider("reader", location, localRecovery="false")
        assert len(jvm("changes", provider="reader", **{"from": 1}, to=version, id=id)) == 6

    assert jvm("actions") == actions + 1, "the agent was killed within the call"
    assert jvm.agent() != first
    jvm.provider("later", location)
    assert jvm.rows("later", version, id) == rows


def _forced(
    jvm: Jvm, version: int, id: str | None, rows: dict[str, str], kill_on: str | None = None
) -> tuple[int, str, dict[str, str]]:
    """Run a batch with the snapshot that Spark may force; the agent may be killed in its merge."""
    jvm("begin", provider="p", store="forced", version=version, id=id, force=True)
    jvm("put", store="forced", rows={"forced": str(version)})
    if kill_on is not None:  # the first call is that of the commit
        jvm("on_fs", operation=kill_on, nth=2, action="kill")
    committed = jvm("commit", store="forced")
    return committed["version"], committed["id"], {**rows, "forced": str(version)}


def test_a_repeated_call_lists_the_stores_that_the_jvm_has_open(jvm: Jvm, tmp_path: Path) -> None:
    """Return the base of a merge that ended during the call: the next agent would remove unopened ones."""
    disk = tmp_path / "disk"
    jvm.provider("p", f"probe://{tmp_path}/state", localDir=str(disk))
    version, id = jvm.batch("p", 0, a="1")
    first, done, reports = jvm.agent() or 0, jvm("actions"), jvm.log.count("Merge (")
    jvm("begin", provider="p", store="slow", version=version, id=id)
    jvm("put", store="slow", rows={"b": "slow"})
    jvm("on_fs", operation="create", action="sleep", ms=30000)
    jvm("commit", store="slow", thread="commit")
    assert gone(lambda: jvm("actions") == done), "its delta is on its way"
    _forced(jvm, version, id, {})
    assert gone(lambda: jvm.log.count("Merge (") == reports)
    bases = set(disk.glob("agent-*/*/base-*"))
    assert bases
    jvm("on_fs", operation="create", action="sleep", ms=3000)
    os.kill(first, signal.SIGKILL)
    assert gone(lambda: jvm("actions") == done + 1), "another agent has been asked, and has opened the store"
    assert bases <= set(disk.glob("agent-*/*/base-*")), "the base that was offered is still there"
    committed = jvm("await", thread="commit")
    assert jvm.agent() != first
    assert jvm.rows("p", committed["version"], committed["id"]) == {"a": "1", "b": "slow"}


def test_agents_that_always_die_are_reported_as_an_error(jvm: Jvm, tmp_path: Path) -> None:
    jvm.provider("p", f"probe://{tmp_path}/state")
    version, id = jvm.batch("p", 0, a="1")
    jvm.provider("q", f"probe://{tmp_path}/state")
    jvm("on_fs", operation="list", action="kill", times=20)
    says = r"(?s)agents died 4 times in a row during the call 'restore'.*exit code 137"
    with pytest.raises(DriverError, match=says):
        jvm.rows("q", version, id)
    jvm("on_fs", operation="never", action="fail")
    assert jvm.rows("q", version, id) == {"a": "1"}
    version, id = jvm.batch("p", version, id, b="2")
    assert jvm.rows("p", version, id) == {"a": "1", "b": "2"}


def test_an_agent_that_hangs_is_replaced(jvm: Jvm, tmp_path: Path) -> None:
    # Another agent starts within that time, on a busy machine, too.
    jvm.provider("p", f"probe://{tmp_path}/state", callTimeout="15s")
    version, id = jvm.batch("p", 0, a="1")
    first = jvm.agent() or 0
    jvm("on_fs", operation="create", action="stop")
    version, id = jvm.batch("p", version, id, b="2")
    assert jvm.agent() != first
    assert gone(lambda: alive(first)), "a stopped agent is killed, not left behind"
    assert jvm.rows("p", version, id) == {"a": "1", "b": "2"}


def test_a_provider_closes_while_its_agent_does_not_answer(jvm: Jvm, tmp_path: Path) -> None:
    jvm.provider("p", tmp_path / "p")
    jvm.batch("p", 0, a="1")
    agent = jvm.agent() or 0
    jvm.provider("q", tmp_path / "q", callTimeout="20s")
    with stopped(agent):
        jvm("begin", provider="q", store="s", version=0, thread="task")
        asked = {"thread": "task", "method": "AgentConnection.receive"}
        assert gone(lambda: not jvm("is_in", **asked)), "the store is being opened"
        jvm("close", provider="q")
    assert jvm("await", thread="task") is True
    assert jvm.agent() == agent, "the close has not waited until the agent was replaced"
    jvm("put", store="s", rows={"a": "1"})
    assert jvm("commit", store="s")["version"] == 1, "who has begun may end"


def test_storage_that_is_too_slow_is_an_error_that_names_the_option_and_the_agent_lives(
    jvm: Jvm, tmp_path: Path
) -> None:
    jvm.provider("p", f"probe://{tmp_path}/state")
    version, id = jvm.batch("p", 0, a="1")
    first = jvm.agent()
    jvm.provider("q", f"probe://{tmp_path}/state", callTimeout="10s")
    jvm("on_fs", operation="list", action="sleep", ms=11_000)
    says = r"'restore' took longer than 10000 ms; the agent works otherwise.*incremental\.callTimeout"
    with pytest.raises(DriverError, match=says):
        jvm.rows("q", version, id)
    assert jvm.agent() == first
    assert jvm.rows("q", version, id) == {"a": "1"}


def test_a_slow_merge_is_cancelled_and_the_agent_lives(jvm: Jvm, tmp_path: Path) -> None:
    """The upload of a merge exceeds mergeTimeout; batches continue, and nothing of the merge is left."""
    location = f"probe://{tmp_path}/state"
    jvm.provider("p", location, mergeTimeout="3s", maxDeltas="2", callTimeout="20s")
    at = jvm.batch("p", 0, a="1")
    at = jvm.batch("p", *at, b="2")
    first = jvm.agent()
    jvm("on_fs", operation="create", nth=2, times=1, action="sleep", ms=4000)
    at = jvm.batch("p", *at, c="3")  # starts the merge of version 2
    assert gone(lambda: "the full merge of version 2" not in jvm.log and "merge of version 2" not in jvm.log)
    assert gone(lambda: "took longer than 3000 ms" not in jvm.log), jvm.log[-2000:]
    at = jvm.batch("p", *at, d="4")
    assert jvm.agent() == first
    assert jvm.rows("p", *at) == {"a": "1", "b": "2", "c": "3", "d": "4"}


def test_the_next_agent_removes_the_files_of_a_store_that_was_owed_a_merge(
    own_jvm: Jvm, tmp_path: Path
) -> None:
    """The provider is closed while its merge runs, and the agent dies before the merge ends."""
    own_jvm.provider("p", f"probe://{tmp_path}/state", maxDeltas="2", minPauseBetweenMerges="0ms")
    at = own_jvm.batch("p", 0, a="1")
    (directory,) = (path.parent for path in own_jvm.tmp.rglob("incoming"))
    at = own_jvm.batch("p", *at, b="2")
    own_jvm("on_fs", operation="create", nth=2, action="sleep", ms=600_000)
    own_jvm.batch("p", *at, c="3")  # starts the merge of version 2
    assert gone(lambda: own_jvm("actions") == 0), "the merge has not come to the storage"
    own_jvm("close", provider="p")
    assert directory.exists(), "the merge has ended"
    os.kill(own_jvm.agent() or 0, signal.SIGKILL)
    own_jvm.provider("q", tmp_path / "other")
    own_jvm.batch("q", 0, a="1")
    assert gone(directory.exists)


def test_merges_are_made_while_no_call_is_under_way(jvm: Jvm, tmp_path: Path) -> None:
    """The agent's schedule triggers it, through connections of the JVM, which takes the new base."""
    jvm.provider("p", f"probe://{tmp_path}/state", maxDeltas="2", minPauseBetweenMerges="0ms")
    at: tuple[int, str | None] = (0, None)
    heard_before = jvm.log.count("Merge (")
    for number in range(3):
        at = jvm.batch("p", *at, **{f"k{number}": str(number)})
    snapshot = tmp_path / "state/0/0/snapshot"
    assert gone(lambda: not list(snapshot.glob(f"{2:020d}_*.zip")))
    assert gone(lambda: jvm.log.count("Merge (") == heard_before)
    jvm("begin", provider="p", store="s", version=at[0], id=at[1])
    jvm("put", store="s", rows={"k3": "3"})
    committed = jvm("commit", store="s")
    custom = jvm("metrics", store="s")["custom"]
    assert (custom["incrementalMergeCount"], custom["incrementalChainDeltas"]) == (1, 2)
    assert custom["SnapshotLastUploaded.partition_0_default"] == 2
    assert jvm.rows("p", committed["version"], committed["id"]) == {f"k{n}": str(n) for n in range(4)}


def test_a_task_that_is_interrupted_in_a_call_leaves_the_agent_alone(jvm: Jvm, tmp_path: Path) -> None:
    jvm.provider("p", f"probe://{tmp_path}/state")
    version, id = jvm.batch("p", 0, a="1")
    first = jvm.agent()
    jvm("begin", provider="p", store="s", version=version, id=id)
    jvm("put", store="s", rows={"b": "2"})
    actions = jvm("actions")
    jvm("on_fs", operation="create", action="sleep", ms=5000)
    jvm("commit", store="s", thread="task")
    assert gone(lambda: jvm("actions") == actions), "the call has not come to the storage"
    jvm("interrupt", thread="task")
    with pytest.raises(DriverError):
        jvm("await", thread="task")
    assert jvm.agent() == first
    version, id = jvm.batch("p", version, id, b="3")
    assert jvm.rows("p", version, id) == {"a": "1", "b": "3"}


def test_log_lines_of_the_agent_are_in_the_log_of_the_jvm(jvm: Jvm, tmp_path: Path) -> None:
    jvm.provider("p", tmp_path / "state")
    jvm("begin", provider="p", store="s", version=0, force=True)
    jvm("put", store="s", rows={"a": "1"})
    jvm("commit", store="s")
    agent = jvm.agent()
    line = f"INFO AgentLog: agent {agent}, store 0/0/default: merged version 1"
    assert gone(lambda: line not in jvm.log), "it comes by another way than the answer"


def test_an_executor_that_is_killed_between_the_parts_of_a_file_leaves_nothing(
    jvm: Jvm, own_jvm: Jvm, tmp_path: Path
) -> None:
    location = f"probe://{tmp_path}/state"
    rows = {f"k{number:02}": secrets.token_hex(1 << 19) for number in range(22)}  # of 1 MiB: three parts
    jvm.provider("p", location)
    at = jvm.batch("p", 0, **rows)
    own_jvm.provider("q", location, transferThreads="1")
    own_jvm("on_fs", operation="open", nth=3, action="sleep", ms=600_000)
    own_jvm("begin", provider="q", store="s", version=at[0], id=at[1], read=True, thread="task")
    assert gone(lambda: own_jvm("actions") == 0), "the third part was not asked for"
    agent = own_jvm.agent() or 0
    partial = [path for path in own_jvm.tmp.rglob("*.sst") if path.stat().st_size > 16 << 20]
    assert [path.stat().st_blocks * 512 < path.stat().st_size for path in partial] == [True]
    own_jvm.kill()
    assert gone(lambda: alive(agent))
    assert gone(lambda: bool(_remains(own_jvm))), _remains(own_jvm)
    jvm.provider("r", location, transferThreads="1", localRecovery="false")
    assert jvm.rows("r", *at) == rows
