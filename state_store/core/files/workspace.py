"""The local directories of an open store, and the copies of stored files that this machine still has.

A `Workspace` has directories for the incoming deltas, bases and merges of a store. All of them are on one
file system, so that files pass between them as hard links. Only their owner can open them. The files in them
have the mode that the umask gives: in local checkpoint storage a delta becomes a hard link, and this module
does not decide who may read it there.

A `LocalCache` keeps files of checkpoint storage as hard links below one directory, by store and path. A file
that is found there is only a candidate: the reader verifies its checksum. A file that a base or a scratch
directory uses, too, takes no space of its own. Several processes may share one root.

A task of Spark's has one directory for all of its temporary files (`task_directory`). Spark ends a task that
it has given up by killing its Python process, which removes nothing: a copy of a slow task, a task of a job
that was cancelled. So the directory is locked for as long as the process lives, and a task that begins on the
machine removes those that are not. On a file system without locks they stay. Those of another machine stay,
too: where machines share a directory, locks may be known only on the machine that has them.

Workspaces and caches are safe for any thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage.local_disk import link_or_copy
from state_store.errors import BusyError

_SEPARATOR = "@"

_LOOKED_AT_ONCE = 8
"""About this many directories are looked at when one has changed."""

TASK_PREFIX = f"state-store-task-{os.uname().nodename}@"
"""Begin of the names of this machine's task directories; no name of a machine has an `@`."""


# ---- the directories of an open store -------------------------------------------------------------------


class Workspace:
    """Directories below `root`, which is private to this process and store. `open` makes them."""

    def __init__(self, root: Path, *, runtime: Runtime = SYSTEM) -> None:
        self.root = root
        self._runtime = runtime
        self._numbers = itertools.count(1)
        self._removed = False

    @property
    def incoming(self) -> Path:
        """Directory in which the JVM puts deltas before it commits them."""
        return self.root / "incoming"

    def open(self, *, held: Collection[Path] = ()) -> None:
        """Make `incoming`, and remove the files that a dead predecessor left.

        Args:
            held: The bases that the JVM has open; they stay.
        """
        make_private(self.incoming)
        for path in (*self.root.glob("scratch-*"), *self.root.glob("base-*")):
            if path not in held:
                shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def new_base(self, version: int) -> Iterator[Path]:
        """Make a directory for the database of `version`. It is removed if the body fails."""
        directory = self._new(f"base-{version}")
        try:
            yield directory
        except BaseException:
            discard(directory)
            raise

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Make a directory that is removed after the body."""
        directory = self._new("scratch")
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def owns(self, directory: Path) -> bool:
        """Return True if `directory` is one of the bases here."""
        return directory.parent == self.root and is_base(directory)

    def remove(self) -> None:
        """Remove everything for good, so that work that still runs finds no place. May be called twice."""
        self._removed = True
        shutil.rmtree(self.root, ignore_errors=True)

    def _new(self, prefix: str) -> Path:
        if self._removed:
            raise BusyError(f"'{self.root}' was removed: the store is closed")
        directory = self.root / f"{prefix}-{next(self._numbers)}-{self._runtime.unique(3)}"
        make_private(directory)
        return directory


def is_base(directory: Path) -> bool:
    """Return True if `directory` has the name of a base in a workspace."""
    return directory.name.startswith("base-")


def discard(directory: Path) -> None:
    """Remove a base, if it is there, although threads may still make files in it.

    They find it under its name no more, so they cannot keep it from being removed. What a failing disk keeps
    goes when the workspace is opened again.
    """
    doomed = directory.with_name(f"scratch-{directory.name}")
    try:
        directory.rename(doomed)
    except OSError:
        doomed = directory
    shutil.rmtree(doomed, ignore_errors=True)


def make_private(directory: Path) -> None:
    """Make `directory` and its missing parents, for their owner alone. Leave a directory that exists."""
    if directory.is_dir():
        return
    make_private(directory.parent)
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)


# ---- copies of stored files -----------------------------------------------------------------------------


class LocalCache:
    """The kept files of all stores below `root`: at most `budget_bytes` after `prune`."""

    def __init__(self, root: Path, budget_bytes: int, *, runtime: Runtime = SYSTEM) -> None:
        self.root = root
        self._runtime = runtime
        self._budget_bytes = budget_bytes
        self._lock = runtime.lock()
        self._sizes: dict[str, tuple[int, int]] = {}
        self._not_looked = 0

    def store(self, location: str, *, without: str | None = None) -> StoreCache:
        """Return the part of the store whose directory in checkpoint storage is at `location`.

        Args:
            location: The location.
            without: The directory there whose files are not kept.
        """
        name = location.encode("utf-8", "surrogateescape")  # a path may have any bytes
        return StoreCache(self.root / hashlib.sha256(name).hexdigest()[:16], without)

    def prune(self, changed: StoreCache | None = None) -> int:
        """Remove the files that were kept longest ago until the budget is met.

        Only the directories that changed since the last call are looked into.

        Args:
            changed: The store that changed. The directories of many other stores are looked at only now and
                then.

        Returns:
            The bytes removed.
        """
        with self._lock:
            used_bytes = self._used_bytes(changed)
        if used_bytes <= self._budget_bytes:
            return 0
        kept_files = sorted(file for directory in _directories(self.root) for file in _files(directory.path))
        excess = sum(size for _, size, _ in kept_files) - self._budget_bytes
        removed = 0
        for _, size, path in kept_files:
            if removed >= excess:
                break
            with contextlib.suppress(OSError):  # another file goes in the place of one that cannot be removed
                Path(path).unlink(missing_ok=True)
                removed += size
        self._not_looked = len(self._sizes)  # the next call sees the sizes after this removal
        return removed

    def _used_bytes(self, changed: StoreCache | None) -> int:
        """Return the bytes that are kept, as far as directories were looked at."""
        if changed is not None and self._not_looked < len(self._sizes) // _LOOKED_AT_ONCE:
            self._not_looked += 1
            self._sizes.update(self._looked([str(changed.directory)]))
        else:
            self._not_looked = 0
            self._sizes = self._looked(directory.path for directory in _directories(self.root))
        return sum(size for _, size in self._sizes.values())

    def _looked(self, directories: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return the time of the last change (nanoseconds) and the bytes of each directory.

        A directory that was changed less than a second ago counts as changed the next time, too.
        """
        sizes: dict[str, tuple[int, int]] = {}
        for directory in directories:
            with contextlib.suppress(OSError):
                changed_ns = os.stat(directory).st_mtime_ns  # noqa: PTH116 - of many, often
                known_size = self._sizes.get(directory)
                if known_size is None or known_size[0] != changed_ns:
                    is_old = self._runtime.wall_ms() - changed_ns // 1_000_000 > 1000
                    total = sum(size for _, size, _ in _files(directory))
                    known_size = (changed_ns if is_old else -1, total)
                sizes[directory] = known_size
        return sizes


class StoreCache:
    """The kept files of one store, by their path below the store's directory in checkpoint storage.

    A disk that fails keeps nothing: no method raises for it, since every file can be fetched.
    """

    def __init__(self, directory: Path, without: str | None = None) -> None:
        self.directory = directory
        self._without = None if without is None else f"{without}/"

    def find(self, path: str) -> Path | None:
        """Return the local file that was kept as `path`, not verified; None if there is none."""
        file = self._at(path)
        with contextlib.suppress(OSError):
            return file if file.is_file() else None
        return None

    def link(self, path: str, target: Path) -> bool:
        """Link the file that was kept as `path` to `target`, which must not exist; it is not verified.

        Returns:
            False if there is none.
        """
        try:
            link_or_copy(f"{self.directory}/{_file_name(path)}", target)
            return True
        except OSError:  # a download to a target that is at fault fails, too
            return False

    def keep(self, path: str, local: Path) -> None:
        """Keep `local`, which must never be modified again, as `path`.

        If that fails, nothing is kept, and no error is raised.
        """
        if self._without is None or not path.startswith(self._without):
            self._place(path, lambda file: link_or_copy(local, file))

    def adopt(self, path: str, local: Path) -> None:
        """Keep `local` as `path` by moving it, else like `keep`."""
        self._place(path, lambda file: os.rename(local, file))  # noqa: PTH104 - in every commit

    def discard(self, path: str) -> None:
        """Forget `path`; an unknown one is fine."""
        with contextlib.suppress(OSError):
            self._at(path).unlink(missing_ok=True)

    def retain(self, paths: Collection[str]) -> None:
        """Forget everything but `paths`."""
        keep = {_file_name(path) for path in paths}
        with contextlib.suppress(OSError):
            for file in self.directory.iterdir():
                if file.name not in keep:
                    with contextlib.suppress(OSError):  # `prune` tries again
                        file.unlink(missing_ok=True)

    def remove(self) -> None:
        """Forget the store."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _place(self, path: str, place: Callable[[str], object]) -> None:
        file = f"{self.directory}/{_file_name(path)}"
        for _ in range(2):
            try:
                place(file)
                return
            except FileExistsError:
                return
            except FileNotFoundError:
                with contextlib.suppress(OSError):
                    make_private(self.directory)
            except OSError:
                return

    def _at(self, path: str) -> Path:
        return self.directory / _file_name(path)


def _file_name(path: str) -> str:
    return path.replace("/", _SEPARATOR)


def _directories(root: Path) -> list[os.DirEntry[str]]:
    try:
        return [item for item in os.scandir(root) if item.is_dir()]
    except OSError:  # nothing is kept there, or nothing can be removed
        return []


def _files(directory: str) -> list[tuple[int, int, str]]:
    """Return the last change of the inode (nanoseconds), the bytes and the path of each file."""
    entries = []
    with contextlib.suppress(OSError):
        for item in os.scandir(directory):
            with contextlib.suppress(OSError):
                status = item.stat()
                entries.append((status.st_ctime_ns, status.st_size, item.path))
    return entries


# ---- temporary files of a task ---------------------------------------------------------------------------


@contextlib.contextmanager
def task_directory() -> Iterator[None]:
    """Let this process make its temporary files in a directory that is removed after the body.

    Directories of tasks that were killed are removed before the body. For one thread of a process at a time.

    Raises:
        OSError: the directory cannot be made.
    """
    parent = tempfile.gettempdir()
    _remove_abandoned(Path(parent))
    directory, descriptor = _locked_directory(parent)
    tempfile.tempdir = str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = parent
        shutil.rmtree(directory, ignore_errors=True)
        os.close(descriptor)


def _locked_directory(parent: str) -> tuple[Path, int]:
    """Make a directory; return it and the descriptor that locks it until it is closed."""
    while True:
        directory = Path(tempfile.mkdtemp(prefix=TASK_PREFIX, dir=parent))
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # another task took it for abandoned before it was locked
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_own = directory.exists()
        except BlockingIOError:
            is_own = False
        except OSError:  # there are no locks, so nobody removes it
            is_own = True
        if is_own:
            return directory, descriptor
        os.close(descriptor)


def _remove_abandoned(parent: Path) -> None:
    for directory in parent.glob(f"{glob.escape(TASK_PREFIX)}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(descriptor)
