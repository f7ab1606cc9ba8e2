"""Local disks of agents: nothing is left there, at any order of deaths and closes."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from owned_processes import started
from waiting import awaited

from agent.harness import PATIENCE_S, AgentProcess, InProcess, Job, contents, rows_of
from state_store.agent import local_roots
from state_store.agent.local_roots import LocalRoots
from state_store.core.settings.options import parse
from state_store.core.storage.hadoop import write_frame
from state_store.errors import BusyError, OptionError, StorageError


def rows(number: int, count: int = 50) -> dict[bytes, bytes | None]:
    return {b"\0\0%d-%05d" % (number, row): os.urandom(30) for row in range(count)}


def test_a_replaced_agent_keeps_what_the_jvm_has_open_and_nothing_else(tmp_path: Path) -> None:
    directory = tmp_path / "local"
    agent = AgentProcess(directory)
    job = Job(agent.connect(), tmp_path / "state")
    for number in range(3):
        job.commit(rows(number))
    answer = job.restore()
    held = answer["directory"]
    root = Path(held).parent
    (root / "base-3-9-abcdef").mkdir()  # of a restore or a merge that was under way
    (root / "scratch-7-abcdef").mkdir()
    agent.process.kill()
    agent.process.wait()
    with AgentProcess(directory) as successor:
        job.client = successor.connect()
        job.store["held"] = [held]
        job.commit(rows(4))
        assert [path.name for path in root.glob("base-*")] == [Path(held).name]
        assert not list(root.glob("scratch-*"))
        assert rows_of(answer) == job.versions[3][1]
        job.call("release", directory=held)
        assert not Path(held).exists()


@pytest.mark.parametrize("local_recovery", ["true", "false"])
def test_a_replaced_agent_closes_what_its_predecessor_had_open(tmp_path: Path, local_recovery: str) -> None:
    directory = tmp_path / "local"
    job = Job(InProcess(directory), tmp_path / "state", localRecovery=local_recovery)
    job.commit(rows(1))
    held = Path(job.restore()["directory"])
    job.client = InProcess(directory)  # it has not heard of the store
    job.close()
    assert not held.parent.exists()
    assert any(directory.rglob("*.sst")) == (local_recovery == "true")


def test_a_call_that_comes_after_the_close_leaves_nothing(tmp_path: Path) -> None:
    """The JVM gave up waiting for it, and closed the provider, while the agent stood still."""
    directory = tmp_path / "local"
    job = Job(InProcess(directory), tmp_path / "state", localRecovery="false")
    job.commit(rows(1))
    job.close()
    with pytest.raises(BusyError, match="the store is closed"):
        job.restore()
    job.call("release", directory=str(directory / "any"))
    job.close()
    assert [path.name for path in directory.rglob("*") if path.is_file()] == ["owner"]


def test_closing_a_provider_leaves_its_successor_alone(tmp_path: Path) -> None:
    """Spark may replace a provider while a task still uses it: the same run, the same location."""
    client = InProcess(tmp_path / "local")
    first = Job(client, tmp_path / "state")
    first.commit(rows(1))
    second = Job(client, tmp_path / "state", run=first.store["run"])
    second.version, second.id, second.state = first.version, first.id, first.state
    second.versions = first.versions
    first.close()
    second.commit(rows(2))
    assert rows_of(second.restore()) == second.state


def test_an_answer_that_nobody_waits_for_leaves_no_directory(tmp_path: Path) -> None:
    with AgentProcess() as agent:
        job = Job(agent.connect(remote=tmp_path), "remote:/state")
        for number in range(3):
            job.commit(rows(number))
        job.merge("full")
    with AgentProcess(log_level="DEBUG") as agent:
        job.client = agent.connect(remote=tmp_path)
        root = Path(job.call("open")["incoming"]).parent
        are_gone = threading.Event()
        for server in job.client.files:
            server.before = lambda header: are_gone.wait(PATIENCE_S)
        for op in ({"op": "restore"}, {"op": "deltas", "first": 1}):
            impatient = agent.connect()
            write_frame(impatient.channel, {**op, "store": job.store, "version": 3, "id": job.id})
            impatient.close()
        are_gone.set()
        awaited(lambda: len(ended_connections(agent)) == 2, "both answers are made")
        newest = 1  # the restored base stays as the one that merges start from
        assert len(list(root.glob("base-*"))) == newest


def ended_connections(agent: AgentProcess) -> list[str]:
    """Return the lines of the log on connections that broke when an answer was sent."""
    return [line["message"] for line in agent.log() if line["message"].startswith("a connection ended: ")]


def test_a_base_stays_that_an_event_has_given_although_nobody_waits_for_the_answer(tmp_path: Path) -> None:
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state")
    job.commit(rows(1))
    request = {"op": "snapshot", "store": job.store, "version": job.version, "id": job.id, "kind": "full"}
    calls = job.client.calls
    calls.undelivered(request, calls.handle(request))
    (event,) = job.events()
    base = event["merged"]["base"]["directory"]
    job.commit(rows(2))
    job.merge("full")
    assert contents(base) == job.versions[1][1]
    job.call("release", directory=base)
    assert not Path(base).exists()


# ---- executors that died together with their agent ------------------------------------------------------


@contextmanager
def other_executor(disk: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a stand-in for an executor whose agent has a directory below `disk`; it says so, and waits."""
    code = (
        "import sys, pathlib\n"
        "from state_store.agent.local_roots import LocalRoots\n"
        "from state_store.core.settings.options import parse\n"
        "roots = LocalRoots([pathlib.Path(sys.argv[2])])\n"
        "(roots.of(parse({'localDir': sys.argv[1]}), '') / 'incoming').mkdir()\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, disk, name]
    with started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process


def directories(disk: Path) -> int:
    return len(list(disk.glob("agent-*")))


def test_directories_of_dead_executors_go_when_an_agent_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    options = parse({"localDir": str(disk)})
    with other_executor(disk, "/one"):
        LocalRoots([Path("/two")]).of(options, "")
        assert directories(disk) == 2, "the agent lives"
    LocalRoots([Path("/three")]).of(options, "")
    assert directories(disk) == 3, "the agent died, but its JVM (this process) lives and may start another"
    (owner,) = [path for path in disk.glob("agent-*/owner") if (path.parent / "incoming").is_dir()]
    fields = json.loads(owner.read_text())
    assert fields["jvm"] == os.getpid()
    owner.write_text(json.dumps({**fields, "started": "1"}))
    LocalRoots([Path("/four")]).of(options, "")
    assert not owner.exists(), "the JVM is gone as well"
    assert directories(disk) == 3


def test_directories_of_other_containers_stay_for_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    options = parse({"localDir": str(disk)})
    with other_executor(disk, "/one"):
        pass
    monkeypatch.setattr(local_roots, "_process_space", lambda: "another container")
    LocalRoots([Path("/two")]).of(options, "")
    assert directories(disk) == 2
    (owner,) = [path for path in disk.glob("agent-*/owner") if (path.parent / "incoming").is_dir()]
    yesterday_s = time.time() - local_roots.FOREIGN_LEASE_S - 60
    os.utime(owner, (yesterday_s, yesterday_s))
    LocalRoots([Path("/three")]).of(options, "")
    assert not owner.exists()


def test_a_directory_in_use_stays_where_its_lock_is_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    options = parse({"localDir": str(disk)})
    used = LocalRoots([Path("/one")])
    owner = used.of(options, "") / local_roots.OWNER
    owner.unlink()  # a cleaner of temporary files took it, and the lock went with it
    used.show_use()
    with other_executor(disk, "/gone"):
        pass
    yesterday_s = time.time() - local_roots.FOREIGN_LEASE_S - 60
    for path in disk.glob("agent-*/owner"):
        os.utime(path, (yesterday_s, yesterday_s))
    used.show_use()
    monkeypatch.setattr(local_roots, "_process_space", lambda: "another container")
    monkeypatch.setattr(local_roots, "_lock", lambda descriptor: False)
    LocalRoots([Path("/two")]).of(options, "")
    assert owner.exists()
    assert directories(disk) == 2, "nobody uses the third one"


def test_an_agent_shows_that_it_uses_its_directories(tmp_path: Path) -> None:
    with AgentProcess(tmp_path / "local") as agent:
        job = Job(agent.connect(), tmp_path / "state")
        job.call("open")
        owner = tmp_path / "local" / local_roots.OWNER
        os.utime(owner, (0, 0))
        job.call("events", after=0, wait_ms=0)
        awaited(lambda: owner.stat().st_mtime > 0, "the time of use")


# ---- a disk that is full --------------------------------------------------------------------------------


def test_a_full_local_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state")
    job.commit(rows(1))

    def full(path: Path, *arguments: object, **named: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", full)
        with pytest.raises(StorageError, match=r"the disk of '.*' is full: No space left"):
            job.merge("full")
    assert job.merge("full")["kind"] == "full"


def test_the_agent_raises_its_limit_of_descriptors() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = min(
        len(list(Path("/proc/self/fd").iterdir())) + 128, hard
    )  # those that other tests left open count too
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
    try:
        with AgentProcess() as agent:
            limits = Path(f"/proc/{agent.process.pid}/limits").read_text()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
    assert line.split()[3] == line.split()[4] == str(hard)


def test_local_directories_are_this_users_alone(tmp_path: Path) -> None:
    job = Job(InProcess(tmp_path / "agent"), tmp_path / "state", localDir=str(tmp_path / "disk"))
    job.commit({b"\0\0a": b"1"})
    (root,) = (tmp_path / "disk").glob("agent-*")
    assert root.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "disk/kept").stat().st_mode & 0o777 == 0o700


def test_local_directories_that_others_may_read_become_private(tmp_path: Path) -> None:
    roots = LocalRoots([Path("/one")])
    options = parse({"localDir": str(tmp_path / "disk")})
    root = roots.of(options, "")
    for directory in (root, root.parent / "kept"):
        directory.chmod(0o755)
    assert LocalRoots([Path("/one")]).of(options, "") == root
    assert [path.stat().st_mode & 0o777 for path in (root, root.parent / "kept")] == [0o700, 0o700]


def own_by_another(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the file of `path` belong to another user from now on, who is not root."""
    lstat = Path.lstat

    def foreign(self: Path) -> os.stat_result:
        found = lstat(self)
        if self != path:
            return found
        return os.stat_result((*found[:4], os.getuid() + 1, *found[5:10]))

    monkeypatch.setattr(Path, "lstat", foreign)


def refusal(local_dir: Path) -> OptionError:
    with pytest.raises(OptionError) as caught:
        LocalRoots([Path("/one")]).of(parse({"localDir": str(local_dir)}), "")
    assert caught.value.option.endswith("localDir")
    return caught.value


def test_a_local_directory_that_another_user_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    (disk / "kept").mkdir(parents=True)
    own_by_another(disk / "kept", monkeypatch)
    assert "kept' belongs to another user" in str(refusal(disk))
    assert not list(disk.glob("agent-*/owner"))


def test_a_link_instead_of_a_local_directory_is_refused(tmp_path: Path) -> None:
    """A user who may write the directory behind a link could exchange files."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "disk/kept").symlink_to(tmp_path / "elsewhere")
    assert "kept' is a link" in str(refusal(tmp_path / "disk"))
    (tmp_path / "disk/kept").unlink()
    (tmp_path / "disk/kept").touch()
    assert "kept' is a link or a file" in str(refusal(tmp_path / "disk"))


@pytest.mark.parametrize("which", ["directory", "target", "link"])
def test_a_local_directory_below_one_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """Its owner could exchange the directories in it, or what the link leads to."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    own_by_another(tmp_path / ("link" if which == "link" else "disk"), monkeypatch)
    error = refusal(tmp_path / ("disk" if which == "directory" else "link"))
    assert "belongs to another user, who could exchange" in str(error)
    assert not list((tmp_path / "disk").iterdir())


@pytest.mark.parametrize(
    ("mode", "own_group", "is_refused"),
    [
        (0o777, True, True),
        (0o1777, False, False),
        (0o775, True, False),
        (0o775, False, True),
        (0o755, False, False),
    ],
)
def test_only_this_user_may_write_beside_the_local_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, own_group: bool, is_refused: bool
) -> None:
    """Others only where the sticky bit keeps them from exchanging what is not theirs; whoever is in a group
    that this process is in is trusted.
    """
    disk = tmp_path / "disk"
    disk.mkdir()
    disk.chmod(mode)
    group = disk.stat().st_gid
    groups = [group] if own_group else [group + 1]
    monkeypatch.setattr(os, "getegid", lambda: groups[0])
    monkeypatch.setattr(os, "getgroups", lambda: groups)
    if is_refused:
        assert "may be written by other users, who could exchange" in str(refusal(disk))
    below = disk / "below"
    assert LocalRoots([Path("/one")]).of(parse({"localDir": str(below)}), "").parent == below
    if not is_refused:
        assert LocalRoots([Path("/one")]).of(parse({"localDir": str(disk)}), "").parent == disk


def test_directories_of_other_users_are_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "disk/agent-0123456789abcdef"
    theirs.mkdir(parents=True)
    long_ago_s = time.time() - local_roots.FOREIGN_LEASE_S - 60
    os.utime(theirs, (long_ago_s, long_ago_s))
    with monkeypatch.context() as patch:
        own_by_another(theirs, patch)
        LocalRoots([Path("/one")]).of(parse({"localDir": str(tmp_path / "disk")}), "")
        assert theirs.is_dir()
    LocalRoots([Path("/two")]).of(parse({"localDir": str(tmp_path / "disk")}), "")
    assert not theirs.exists()


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("file:///mnt/ssd", "set it to '/mnt/ssd'"),
        ("hdfs://host/x", "not the URI"),
        ("/a,/b", "set spark.local.dir to the list"),
        ("~/x", "not an absolute path"),
        ("$HOME/x", "not an absolute path"),
        ("relative", "not an absolute path"),
    ],
)
def test_a_local_dir_that_means_another_place_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, advice: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match="localDir") as failure:
        LocalRoots([tmp_path / "one"]).of(parse({"localDir": text}), "")
    assert advice in failure.value.message
    assert not list(tmp_path.iterdir()), "nothing was made"


def test_stores_are_spread_over_the_disks_and_stay_where_they_are(tmp_path: Path) -> None:
    disks = [tmp_path / f"disk{number}" for number in range(3)]
    roots = [LocalRoots(disks), LocalRoots(disks)]
    locations = [f"/state/0/{partition}" for partition in range(30)]
    found = [[each.of(parse({}), location) for location in locations] for each in roots]
    assert found[0] == found[1]
    assert set(found[0]) == set(disks)


def test_an_agent_removes_nothing_that_another_has_taken_over(tmp_path: Path) -> None:
    directory = tmp_path / "local"
    replaced = LocalRoots([directory])
    replaced.of(parse({}), "")
    assert replaced.owned() == [directory]
    successor = LocalRoots([directory])
    successor.of(parse({}), "")
    assert replaced.owned() == []
    assert successor.owned() == [directory]


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.ENOLCK])
def test_a_disk_without_locks_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("fcntl.flock", refuse)
    options = parse({"localDir": str(tmp_path / "disk")})
    first = LocalRoots([Path("/one")]).of(options, "")
    LocalRoots([Path("/two")]).of(options, "")
    assert first.is_dir(), "its JVM lives"


def test_a_directory_that_a_cleaner_removed_is_made_again(tmp_path: Path) -> None:
    roots = LocalRoots([tmp_path / "local"])
    for _ in range(2):
        assert roots.of(parse({}), "").is_dir()
        shutil.rmtree(tmp_path / "local")
