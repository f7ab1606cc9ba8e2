"""The processes of a cluster, found by a variable that all of them inherit."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MARK = "STATE_STORE_CHAOS"
SOCKETS = "state-store-"
"""Beginning of the names of directories that agents have their sockets in."""


@dataclass(frozen=True)
class Process:
    """A living process; `since` tells it from a later one with the same number."""

    pid: int
    parent: int
    since: int
    stopped: bool
    arguments: str
    java: bool

    @property
    def role(self) -> str:
        """executor, agent, python (a worker of Spark's), worker, master, driver, or nothing of these."""
        if self.java:
            roles = {
                "CoarseGrainedExecutorBackend": "executor",
                "deploy.worker.Worker": "worker",
                "deploy.master.Master": "master",
                "SparkSubmit": "driver",
            }
        else:
            roles = {
                "state_store_agent": "agent",
                "pyspark.daemon": "python",
                "prepared_workers": "python",
                "chaos.query_process": "driver",
            }
        return next((role for words, role in roles.items() if words in self.arguments), "")

    def send(self, number: int) -> bool:
        """Send it a signal. Returns False if it has ended."""
        if not self._lives():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def _lives(self) -> bool:
        now = _read(self.pid)
        return now is not None and now.since == self.since

    def stop(self) -> bool:
        return self.send(signal.SIGSTOP)

    def resume(self) -> bool:
        """Let a process that was stopped or starved go on."""
        with contextlib.suppress(OSError):
            if self._lives():
                _, hard = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
                resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (hard, hard))
        return self.send(signal.SIGCONT)

    def starve(self) -> bool:
        """Let it open no more files and connections. Returns False if it has ended."""
        try:
            numbers = [int(entry.name) for entry in Path(f"/proc/{self.pid}/fd").iterdir()]
            _, hard = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
            if not self._lives():
                return False
            resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (len(numbers), hard))
        except OSError:
            return False
        return True

    def clean(self) -> bool:
        """Remove the directories of the Unix sockets that it listens on. Returns False if there are none."""
        own = set()
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{self.pid}/fd").iterdir():
                with contextlib.suppress(OSError):  # it is closed
                    own.add(str(entry.readlink()))
        lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
        sockets = [Path(fields[7]) for fields in lines if len(fields) > 7 and f"socket:[{fields[6]}]" in own]
        directories = {path.parent for path in sockets if path.parent.name.startswith(SOCKETS)}
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)
        return bool(directories)

    def kill(self) -> bool:
        return self.send(signal.SIGKILL)


def marked(mark: str) -> list[Process]:
    """Return the living processes that were started with `mark` as the value of `MARK`."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                if wanted not in (directory / "environ").read_bytes().split(b"\0"):
                    continue
            except OSError:
                continue
            if (process := _read(int(directory.name))) is not None:
                found.append(process)
    return found


def family(processes: list[Process], ancestor: int) -> Iterator[Process]:
    """Yield the processes that `ancestor` started, and those that these started, `ancestor` first."""
    yield from (process for process in processes if process.pid == ancestor)
    for child in [child for child in processes if child.parent == ancestor]:
        yield from family(processes, child.pid)


def _read(pid: int) -> Process | None:
    """None when it has ended, even if its parent has not noticed."""
    directory = Path(f"/proc/{pid}")
    try:
        fields = (directory / "stat").read_text().rpartition(")")[2].split()
        arguments = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        java = (directory / "exe").readlink().name == "java"
    except OSError:
        return None
    if fields[0] in "ZX":
        return None
    return Process(pid, int(fields[1]), int(fields[19]), fields[0] in "Tt", arguments, java)
