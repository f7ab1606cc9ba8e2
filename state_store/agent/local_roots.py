"""Where an agent works on local disk, and the removal of what dead executors left there.

Below the option `localDir` each executor has a directory `agent-<digest>` with a file `owner`, which its
agent has locked as long as it lives, and which names the executor's JVM. An agent that starts removes those
whose lock is free and whose JVM is gone: an executor that was killed together with its agent leaves nothing
for long.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
from hashlib import sha256
from pathlib import Path

from state_store.agent.log import AGENT
from state_store.core.files.workspace import make_private
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.settings.option import PREFIX
from state_store.core.settings.options import Options
from state_store.errors import OptionError

OWNER = "owner"
KEPT = "kept"
"""Below `localDir`: files that survive an executor, for the next one."""

FOREIGN_LEASE_S = 86_400.0
"""How long the directory of an executor stays that runs, or ran, where its processes cannot be seen from
here: in another container on the same disk."""


class LocalRoots:
    """The directories of this agent: `directory` and, for queries with `localDir`, one below that. Their
    names are the same for an agent that replaces this one. Safe for any thread.
    """

    def __init__(self, directory: Path, runtime: Runtime = SYSTEM) -> None:
        self._directory = directory
        self._runtime = runtime
        self._lock = runtime.lock()
        self._roots = {directory}
        self._owners: list[int] = []

    def of(self, options: Options) -> Path:
        """The directory for a store with these options."""
        if not options.local_dir:
            return self._directory
        parent = Path(options.local_dir)
        root = parent / f"agent-{sha256(str(self._directory).encode('utf-8')).hexdigest()[:16]}"
        with self._lock:
            if root not in self._roots:
                make_private(parent)
                _refuse_exchangeable(parent)
                for directory in (root, parent / KEPT):
                    make_private(directory)
                    _keep_private(directory)
                self._owners.append(_own(root))
                self._roots.add(root)
                _sweep(parent, root, self._runtime)
        return root

    def all(self) -> list[Path]:
        """All that were given out, and `directory`."""
        with self._lock:
            return list(self._roots)


def _refuse_exchangeable(parent: Path) -> None:
    """Raises OptionError where another user could exchange what lies in `parent`: one that is not root owns
    it or the link that leads to it, or others may write there and it has no sticky bit. Who may write by a
    group that this process is in is trusted.
    """
    directory = parent.resolve()
    status = directory.lstat()
    if not {parent.lstat().st_uid, status.st_uid} <= {os.getuid(), 0}:
        raise _refusal(parent, "belongs to another user, who could exchange what is kept there", _BELOW)
    is_others = status.st_mode & stat.S_IWGRP and status.st_gid not in {os.getegid(), *os.getgroups()}
    if (status.st_mode & stat.S_IWOTH or is_others) and not status.st_mode & stat.S_ISVTX:
        what = "may be written by other users, who could exchange what is kept there"
        raise _refusal(parent, what, f"{_BELOW}, or 'chmod +t' it")


def _keep_private(directory: Path) -> None:
    """Make a directory that this user made private; raise OptionError if it is something else."""
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise _refusal(directory, "is a link or a file, not a directory that an agent made", "remove it")
    if status.st_uid != os.getuid():
        raise _refusal(directory, "belongs to another user", "set localDir to a directory of this user's")
    if status.st_mode & 0o077:
        directory.chmod(0o700)


_BELOW = "set localDir to a directory below it that does not exist, which is then made for this user alone"


def _refusal(directory: Path, what: str, remedy: str) -> OptionError:
    return OptionError(f"'{directory}' {what}: {remedy}", file=str(directory), option=f"{PREFIX}localDir")


def _own(root: Path) -> int:
    """Locks the file that says whose the directory is, until this process ends; its descriptor."""
    descriptor = os.open(root / OWNER, os.O_RDWR | os.O_CREAT, 0o600)
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    jvm = os.getppid()
    fields = {"jvm": jvm, "started": _start_time(jvm), "space": _process_space()}
    os.truncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(fields).encode("utf-8"), 0)
    return descriptor


def _sweep(parent: Path, own: Path, runtime: Runtime) -> None:
    for root in parent.glob("agent-*"):
        if root != own and _is_ours(root) and _is_abandoned(root, runtime):
            AGENT.info(f"'{root}' of an executor that is gone is removed")
            shutil.rmtree(root, ignore_errors=True)


def _is_ours(root: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return root.lstat().st_uid == os.getuid()
    return False  # another agent removed it


def _is_abandoned(root: Path, runtime: Runtime) -> bool:
    try:
        descriptor = os.open(root / OWNER, os.O_RDWR)
    except OSError:
        return _age_s(root, runtime) > FOREIGN_LEASE_S
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fields = json.loads(os.pread(descriptor, 4096, 0))
        if fields["space"] == _process_space():
            return bool(fields["started"] != _start_time(fields["jvm"]))
        return _age_s(root / OWNER, runtime) > FOREIGN_LEASE_S
    except (OSError, ValueError, KeyError, TypeError):
        return False  # its agent lives, or it is being made just now
    finally:
        os.close(descriptor)


def _start_time(process: int) -> str | None:
    """When the process started, as the kernel counts; None where there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _process_space() -> str:
    """Where process numbers mean the same: this boot and this container."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return "unknown"


def _age_s(path: Path, runtime: Runtime) -> float:
    with contextlib.suppress(OSError):
        return runtime.wall_ms() / 1000 - path.stat().st_mtime
    return 0.0
