"""Files of checkpoint storage that this machine still has: hard links below one directory, by store and path.

What is found here is only a candidate: whoever takes a file checks its checksum. A file that other places of
this machine use as well (a base, a scratch directory) takes no space of its own. Safe for any thread; several
processes may share one root.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from state_store.core.files.workspace import make_private
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage.durable import link_or_copy

_SEPARATOR = "@"

_LOOKED_AT_ONCE = 8
"""About how many directories are looked at when one has changed."""


class LocalCache:
    """The kept files of all stores below `root`; at most `budget_bytes` once `prune` has run."""

    def __init__(self, root: Path, budget_bytes: int, *, runtime: Runtime = SYSTEM) -> None:
        self.root = root
        self._runtime = runtime
        self._budget_bytes = budget_bytes
        self._lock = runtime.lock()
        self._sizes: dict[str, tuple[int, int]] = {}
        self._not_looked = 0

    def store(self, location: str) -> StoreCache:
        """The part of the store whose directory in checkpoint storage is at `location`."""
        return StoreCache(self.root / hashlib.sha256(location.encode("utf-8")).hexdigest()[:16])

    def prune(self, changed: StoreCache | None = None) -> int:
        """Removes the files that were kept longest ago until the budget is met; gives the bytes removed.

        Within the budget it looks only into the directories of stores that have changed since the last time.
        Of many stores it looks for those only now and then where the caller names the one that has `changed`.
        """
        with self._lock:
            used_bytes = self._used_bytes(changed)
        if used_bytes <= self._budget_bytes:
            return 0
        kept_files = sorted(kept for directory in _directories(self.root) for kept in _files(directory.path))
        excess = sum(size for _, size, _ in kept_files) - self._budget_bytes
        removed = 0
        for _, size, path in kept_files:
            if removed >= excess:
                break
            Path(path).unlink(missing_ok=True)
            removed += size
        self._not_looked = len(self._sizes)  # what was removed is seen the next time
        return removed

    def _used_bytes(self, changed: StoreCache | None) -> int:
        """What is kept, as far as it was looked at."""
        if changed is not None and self._not_looked < len(self._sizes) // _LOOKED_AT_ONCE:
            self._not_looked += 1
            self._sizes.update(self._looked([str(changed.directory)]))
        else:
            self._not_looked = 0
            self._sizes = self._looked(directory.path for directory in _directories(self.root))
        return sum(size for _, size in self._sizes.values())

    def _looked(self, directories: Iterable[str]) -> dict[str, tuple[int, int]]:
        """When each was changed and what it has; one that was changed less than a second before it was looked
        at counts as changed since.
        """
        sizes: dict[str, tuple[int, int]] = {}
        for directory in directories:
            with contextlib.suppress(FileNotFoundError):
                changed_ns = os.stat(directory).st_mtime_ns  # noqa: PTH116 - of many, often
                known = self._sizes.get(directory)
                if known is None or known[0] != changed_ns:
                    is_settled = self._runtime.wall_ms() - changed_ns // 1_000_000 > 1000
                    total = sum(size for _, size, _ in _files(directory))
                    known = (changed_ns if is_settled else -1, total)
                sizes[directory] = known
        return sizes


class StoreCache:
    """The kept files of one store, by their path below the store's directory in checkpoint storage."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find(self, path: str) -> Path | None:
        """The local file that was kept as `path`, not verified; None when there is none."""
        file = self._at(path)
        return file if file.is_file() else None

    def link(self, path: str, target: Path) -> bool:
        """Whether a file was kept as `path`: it lies at `target` then, which must not exist; not verified."""
        try:
            link_or_copy(f"{self.directory}/{_file_name(path)}", target)
            return True
        except FileNotFoundError:
            return False

    def keep(self, path: str, local: Path) -> None:
        """Keeps `local`, which must never be modified again, as `path`. If that fails, nothing is kept, and
        no error is raised.
        """
        self._place(path, lambda file: link_or_copy(local, file))

    def adopt(self, path: str, local: Path) -> None:
        """Like `keep`, but `local` moves."""
        self._place(path, lambda file: os.rename(local, file))  # noqa: PTH104 - in every commit

    def discard(self, path: str) -> None:
        """Forgets `path`; unknown is fine."""
        self._at(path).unlink(missing_ok=True)

    def retain(self, paths: Collection[str]) -> None:
        """Forgets everything but `paths`."""
        keep = {_file_name(path) for path in paths}
        with contextlib.suppress(FileNotFoundError):
            for file in self.directory.iterdir():
                if file.name not in keep:
                    file.unlink(missing_ok=True)

    def remove(self) -> None:
        """Forgets the store."""
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
    except FileNotFoundError:
        return []


def _files(directory: str) -> list[tuple[int, int, str]]:
    """Of each file when its inode was changed last (nanoseconds), its bytes and its path."""
    kept = []
    with contextlib.suppress(FileNotFoundError):
        for item in os.scandir(directory):
            with contextlib.suppress(FileNotFoundError):
                status = item.stat()
                kept.append((status.st_ctime_ns, status.st_size, item.path))
    return kept
