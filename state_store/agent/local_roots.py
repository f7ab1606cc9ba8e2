"""The local directories of an agent, and who owns them.

Each directory has a file `owner`. The agent that works there has locked it as long as it lives, has written
into it who it is and which JVM it belongs to, and sets its time to now every hour. The last agent that wrote
it is the owner: an agent that was replaced, and wakes up late, finds another name there and removes nothing.

Below the option `localDir` each executor has a directory `agent-<digest>`. An agent that starts there removes
those whose lock is free and whose JVM is gone: an executor that was killed together with its agent leaves
nothing for long.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import stat
import zlib
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from state_store.agent.supervision import AGENT
from state_store.core.files.workspace import make_private
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.settings.option import PREFIX
from state_store.core.settings.options import Options
from state_store.errors import OptionError

OWNER = "owner"
KEPT = "kept"
"""Directory below `localDir` for files that survive an executor, for the next one."""

FOREIGN_LEASE_S = 86_400.0
"""Time without a sign of use after which the directory of an executor is removed whose processes cannot be
seen from here: one in another container on the same disk.
"""

SHOW_USE_S = 3600.0
"""Time after which an agent shows again that it uses its directories."""

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)
"""Errors of file systems without locks: Lustre without `-o flock`, NFS without lockd."""

_OPTION = f"{PREFIX}localDir"

_BELOW = "set localDir to a directory below it that does not exist, which is then made for this user alone"


class LocalRoots:
    """The directories for local files of this agent. Safe for any thread.

    There is one in each of `directories`, which are Spark's local disks, and one in each `localDir` that a
    query sets. An agent that replaces this one computes the same names, and uses the directories again.
    """

    def __init__(self, directories: Sequence[Path], runtime: Runtime = SYSTEM) -> None:
        self._directories = list(directories)
        self._runtime = runtime
        self._agent = runtime.unique()
        self._lock = runtime.lock()
        self._owned: dict[Path, int] = {}
        self._given = set(self._directories)

    @property
    def disks(self) -> int:
        """Number of directories among which stores are spread."""
        return len(self._directories)

    def of(self, options: Options, location: str) -> Path:
        """Return the directory for a store with these options; the same location always gets the same disk.

        Raises:
            OptionError: `localDir` cannot be used.
            OSError: The disk is full or fails.
        """
        if not options.local_dir:
            root = self._directories[zlib.crc32(location.encode("utf-8")) % len(self._directories)]
            self._own(root)
            return root
        parent = checked_local_dir(options.local_dir)
        digest = sha256(str(self._directories[0]).encode("utf-8")).hexdigest()[:16]
        root = parent / f"agent-{digest}"
        with self._lock:
            if root in self._owned and root.is_dir():
                return root
            make_private(parent)
            _refuse_exchangeable(parent)
            for directory in (root, parent / KEPT):
                make_private(directory)
                _keep_private(directory)
            self._own(root)
        _sweep(parent, root, self._runtime)
        return root

    def all(self) -> list[Path]:
        """Return all that were given out, and the directories of the agent."""
        with self._lock:
            return sorted(self._given)

    def show_use(self) -> None:
        """Set the times of the files that name the owners to now, and make those that a cleaner removed.

        Where locks do not work, or a file was removed together with its lock, an agent in another container
        goes by the time. Called now and then.
        """
        for root in self.owned():
            with contextlib.suppress(OSError):
                if root.is_dir():
                    self._own(root)
                    os.utime(root / OWNER)

    def owned(self) -> list[Path]:
        """Return the directories that no other agent has taken over: this agent removes them when it ends."""
        return [root for root in self.all() if _owner(root).get("agent", self._agent) == self._agent]

    def _own(self, root: Path) -> None:
        """Lock the file that names the owner of a directory until this process ends, and write it."""
        with self._lock:
            if root in self._owned and (root / OWNER).exists():
                return
            make_private(root)
            descriptor = os.open(root / OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _lock(descriptor)
                jvm = os.getppid()
                fields = {
                    "jvm": jvm,
                    "started": _start_time(jvm),
                    "space": _process_space(),
                    "agent": self._agent,
                }
                os.truncate(descriptor, 0)
                os.pwrite(descriptor, json.dumps(fields).encode("utf-8"), 0)
            except BaseException:
                os.close(descriptor)
                raise
            if root in self._owned:
                os.close(self._owned[root])
            self._owned[root] = descriptor
            self._given.add(root)


def checked_local_dir(text: str) -> Path:
    """Return the directory that `localDir` names.

    Raises:
        OptionError: It is a URI, a list, or not an absolute path. The directory would be made in another
            place than the user means.
    """
    if "://" in text or text.startswith("file:"):
        path = "/" + text.partition(":")[2].lstrip("/")
        raise OptionError(f"{_OPTION} is a path, not the URI '{text}': set it to '{path}'", option=_OPTION)
    if any(part.strip().startswith(("/", "~")) for part in text.split(",")[1:]):
        raise OptionError(
            f"{_OPTION} is one directory, not the list '{text}': to use several disks, leave it out and set "
            "spark.local.dir to the list",
            option=_OPTION,
        )
    if not text.startswith("/"):
        raise OptionError(
            f"{_OPTION} is '{text}', which is not an absolute path: write it out, without '~' or variables",
            option=_OPTION,
        )
    return Path(text)


def _owner(root: Path) -> dict[str, Any]:
    """Return what the owner of a directory wrote there, or nothing."""
    with contextlib.suppress(OSError, ValueError):
        fields = json.loads((root / OWNER).read_text("utf-8"))
        if isinstance(fields, dict):
            return fields
    return {}


def _refuse_exchangeable(parent: Path) -> None:
    """Refuse a directory in which another user could exchange files.

    Users who may write by a group that this process is in are trusted.

    Raises:
        OptionError: Another user than root owns it or the link that leads to it; or others may write there,
            and it has no sticky bit.
    """
    directory = parent.resolve()
    status = directory.lstat()
    if not {parent.lstat().st_uid, status.st_uid} <= {os.getuid(), 0}:
        raise _refusal(parent, "belongs to another user, who could exchange what is kept there", _BELOW)
    is_others = status.st_mode & stat.S_IWGRP and status.st_gid not in {os.getegid(), *os.getgroups()}
    if (status.st_mode & stat.S_IWOTH or is_others) and not status.st_mode & stat.S_ISVTX:
        fault = "may be written by other users, who could exchange what is kept there"
        raise _refusal(parent, fault, f"{_BELOW}, or 'chmod +t' it")


def _keep_private(directory: Path) -> None:
    """Make a directory that this user made private; raise OptionError if it is something else."""
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise _refusal(directory, "is a link or a file, not a directory that an agent made", "remove it")
    if status.st_uid != os.getuid():
        raise _refusal(directory, "belongs to another user", "set localDir to a directory of this user's")
    if status.st_mode & 0o077:
        directory.chmod(0o700)


def _refusal(directory: Path, fault: str, remedy: str) -> OptionError:
    return OptionError(f"'{directory}' {fault}: {remedy}", file=str(directory), option=_OPTION)


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
        descriptor = os.open(root / OWNER, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return _age_s(root, runtime) > FOREIGN_LEASE_S
    try:
        return not _lock(descriptor) and _is_dead(root, descriptor, runtime)
    except (OSError, ValueError, KeyError, TypeError):
        return False  # it is being made just now
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock a file, if the file system has locks. Return True if another agent that lives has locked it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return False


def _is_dead(root: Path, descriptor: int, runtime: Runtime) -> bool:
    fields = json.loads(os.pread(descriptor, 4096, 0))
    if fields["space"] == _process_space():
        return bool(fields["started"] != _start_time(fields["jvm"]))
    return _age_s(root / OWNER, runtime) > FOREIGN_LEASE_S


def _start_time(process: int) -> str | None:
    """Return the start time of a process, as the kernel counts it, or None if there is no such process."""
    try:
        return Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _process_space() -> str:
    """Return a name of the boot and the container, inside which a process number means one process."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return "unknown"


def _age_s(path: Path, runtime: Runtime) -> float:
    with contextlib.suppress(OSError):
        return runtime.wall_ms() / 1000 - path.stat().st_mtime
    return 0.0
