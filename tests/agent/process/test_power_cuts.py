"""Checkpoint storage on a directory whose disk is full at any step, or whose machine loses power after it.

The steps are the calls of the operating system that make, fill, sync and name files of the storage, of the
real code, in a commit, a merge and a clean-up. After a cut the disk has what was synced. Of the rest it may
have all names or none, and of files that were not synced no byte.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.harness import InProcess, Job, rows_of
from state_store.errors import StateStoreError

pytestmark = pytest.mark.tier("more")

Step = Callable[[str, Path], None]


class Disk:
    """The disk of a storage: `before` and `after` are called for each step, with its kind and path."""

    def __init__(self, patch: pytest.MonkeyPatch, root: Path) -> None:
        self.root = root
        self.before: Step = lambda kind, path: None
        self.after: Step = lambda kind, path: None
        self.synced: set[int] = set()
        self.names: dict[Path, dict[str, bytes | None]] = {}
        """By synced directories, what they had then: files with their bytes, directories as None."""
        real_open, real_write, real_fsync, real_link = os.open, os.write, os.fsync, os.link
        real_mkdir, real_rename = os.mkdir, os.rename

        def made(path: Any, flags: int, mode: int = 0o777, **how: Any) -> int:
            if not flags & os.O_CREAT:
                return real_open(path, flags, mode, **how)
            return self._do("make", path, lambda: real_open(path, flags, mode, **how))

        def written(descriptor: int, data: Any) -> int:
            return self._do("write", _path(descriptor), lambda: real_write(descriptor, data))

        def synced(descriptor: int) -> None:
            path = _path(descriptor)

            def sync() -> None:
                real_fsync(descriptor)
                if path.is_dir():
                    self.names[path] = {item.name: self._bytes(item) for item in path.iterdir()}
                else:
                    self.synced.add(path.stat().st_ino)

            self._do("sync", path, sync)

        def linked(source: Any, target: Any, **how: Any) -> None:
            self._do("link", target, lambda: real_link(source, target, **how))

        def renamed(source: Any, target: Any, **how: Any) -> None:
            self._do("rename", target, lambda: real_rename(source, target, **how))

        def made_directory(path: Any, mode: int = 0o777, **how: Any) -> None:
            self._do("mkdir", path, lambda: real_mkdir(path, mode, **how))

        for name, call in (
            ("open", made),
            ("write", written),
            ("fsync", synced),
            ("link", linked),
            ("rename", renamed),
            ("mkdir", made_directory),
        ):
            patch.setattr(os, name, call)

    def _do(self, kind: str, path: Any, call: Callable[[], Any]) -> Any:
        place = Path(os.fsdecode(path))
        is_ours = self.root in (place, *place.parents)
        if is_ours:
            self.before(kind, place)
        result = call()
        if is_ours:
            self.after(kind, place)
        return result

    def _bytes(self, path: Path) -> bytes | None:
        if path.is_dir():
            return None
        return path.read_bytes() if path.stat().st_ino in self.synced else b""

    def with_all_names(self, image: Path) -> None:
        """Copy what is there, without the bytes that were not synced."""
        for path in self.root.rglob("*"):
            target = image / path.relative_to(self.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file():
                target.write_bytes(self._bytes(path) or b"")

    def with_synced_names(self, image: Path, directory: Path | None = None) -> None:
        """Copy the names that were synced, with the bytes that their files had then."""
        image.mkdir(parents=True, exist_ok=True)
        at = directory or self.root
        for name, data in self.names.get(at, {}).items():
            if data is None:
                self.with_synced_names(image / name, at / name)
            else:
                (image / name).write_bytes(data)


def _path(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").readlink()


def rows(number: int) -> dict[bytes, bytes | None]:
    return {b"\0\0%d-%03d" % (number, row): os.urandom(20) for row in range(20)}


def live(job: Job, failing: Callable[[Callable[[], Any]], Any]) -> None:
    """Commit, merge and clean up through `failing`, which makes each call."""
    failing(lambda: job.commit(rows(1)))
    failing(lambda: job.commit(rows(2)))
    failing(lambda: job.merge("incremental"))
    failing(lambda: job.commit(rows(3)))
    failing(lambda: job.merge("full"))
    failing(lambda: job.commit(rows(4)))
    failing(lambda: job.commit(rows(5)))
    failing(lambda: job.cleanup())


def test_after_a_power_cut_at_any_step_the_last_commit_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, tmp_path / "state")
    job = Job(InProcess(tmp_path / "local"), disk.root, retain=2)
    images: list[tuple[str, Path, int, str | None, dict[bytes, bytes]]] = []

    def cut(kind: str, path: Path) -> None:
        for take in (disk.with_all_names, disk.with_synced_names):
            image = tmp_path / "images" / str(len(images))
            disk.after = lambda kind, path: None
            take(image)
            disk.after = cut
            step = f"{take.__name__} after {kind} of {path.relative_to(disk.root)}"
            images.append((step, image, job.version, job.id, dict(job.state)))

    disk.after = cut
    live(job, lambda call: call())
    assert len(images) > 60
    assert {path.name for path in disk.root.iterdir()} >= {"delta", "shared", "snapshot", "lease"}
    monkeypatch.undo()
    for number, (step, image, version, checkpoint_id, state) in enumerate(images):
        if version == 0:
            continue
        again = Job(InProcess(tmp_path / "again" / str(number)), image)
        restored = again.call("restore", version=version, id=checkpoint_id)
        assert rows_of(restored) == state, step
        shutil.rmtree(tmp_path / "again" / str(number))


class FullOnce:
    """A disk that is full at step `nth`; `call` tries again after that, and judges the failure."""

    def __init__(self, disk: Disk, nth: int) -> None:
        self.disk, self.nth = disk, nth
        self.steps = self.failures = 0
        disk.before = self._step

    def _step(self, kind: str, path: Path) -> None:
        self.steps += 1
        if self.steps == self.nth:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def call(self, call: Callable[[], Any]) -> None:
        before = self._files()
        try:
            call()
        except StateStoreError as error:
            self.failures += 1
            assert "No space left on device" in error.message
            assert "free" in error.message.lower() and str(self.disk.root) in error.message
            left = self._files() - before
            assert not [path for path in left if path.suffix == ".tmp"]
            assert all(path.stat().st_ino in self.disk.synced for path in left), "visible, but not synced"
            call()

    def _files(self) -> set[Path]:
        return {path for path in self.disk.root.rglob("*") if path.is_file()}


def test_a_disk_that_is_full_at_any_step_fails_that_call_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nth, failures = 0, 0
    while True:
        nth += 1
        with monkeypatch.context() as patch:
            full = FullOnce(Disk(patch, tmp_path / str(nth) / "state"), nth)
            job = Job(InProcess(tmp_path / str(nth) / "local"), full.disk.root, retain=2)
            live(job, full.call)
            full.nth = 0
            assert rows_of(job.restore()) == job.state
        failures += full.failures
        shutil.rmtree(tmp_path / str(nth))
        if full.steps < nth:
            break
    assert failures > 30
