"""The files of this machine: their permissions, and the cost of the budget of kept files."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from state_store.core.files import workspace as workspace_module
from state_store.core.files.workspace import LocalCache, Workspace, discard


def keep(cache: LocalCache, store: str, path: str, tmp_path: Path, size_bytes: int = 10) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"x" * size_bytes)
    cache.store(store).keep(path, local)
    local.unlink()


def test_directories_are_open_to_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        workspace = Workspace(tmp_path / "agent" / "store")
        workspace.open()
        with workspace.new_base(1):
            pass
        keep(LocalCache(tmp_path / "kept", 100), "store", "delta/a", tmp_path)
    finally:
        os.umask(before)
    made = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert len(made) == 6
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}


def test_a_base_stays_unless_its_making_fails(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    with workspace.new_base(1) as base:
        (base / "file").write_bytes(b"x")
    with pytest.raises(KeyboardInterrupt), workspace.new_base(2) as failed:
        (failed / "file").write_bytes(b"x")
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == [base.name]


def test_a_base_is_removed_though_a_thread_makes_files_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the thread make a file whenever the directory is empty and about to go."""
    workspace = Workspace(tmp_path)
    with workspace.new_base(1) as base:
        pass
    refused: list[str] = []
    remove = os.rmdir

    def make_file_and_remove(path: Any, **how: Any) -> None:
        try:
            (base / "part").write_bytes(b"x")
        except FileNotFoundError as error:
            refused.append(str(error))
        remove(path, **how)

    monkeypatch.setattr(os, "rmdir", make_file_and_remove)
    discard(base)
    assert refused
    assert not list(tmp_path.iterdir())
    discard(base)


def test_the_budget_holds_over_all_stores_and_the_oldest_go(tmp_path: Path) -> None:
    cache = LocalCache(tmp_path / "kept", 35)
    for number in range(5):
        keep(cache, f"store-{number % 2}", f"delta/{number}", tmp_path)
    assert cache.prune() == 20
    assert cache.store("store-0").find("delta/0") is None
    assert cache.store("store-0").find("delta/4") is not None
    assert cache.prune() == 0


def test_many_stores_are_looked_at_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each store's clean-up prunes. Its cost may not grow with the number of other stores."""
    cache = LocalCache(tmp_path / "kept", 1000)
    for number in range(80):
        keep(cache, f"store-{number}", "delta/1", tmp_path)
    assert cache.prune() == 0
    rounds: list[Path] = []
    directories = workspace_module._directories
    monkeypatch.setattr(
        workspace_module, "_directories", lambda root: rounds.append(root) or directories(root)
    )
    for number in range(80):
        keep(cache, f"store-{number}", "delta/2", tmp_path)
        assert cache.prune(cache.store(f"store-{number}")) == (number >= 20) * 10
    assert len(rounds) > 60  # beyond the budget, what is there is what counts
    rounds.clear()
    for number in range(80):
        cache.store(f"store-{number}").discard("delta/2")
        assert cache.prune(cache.store(f"store-{number}")) == 0
    assert 0 < len(rounds) < 10


def test_files_that_others_keep_count_soon(tmp_path: Path) -> None:
    cache = LocalCache(tmp_path / "kept", 1000)
    for number in range(80):
        keep(cache, f"store-{number}", "delta/1", tmp_path)
    assert cache.prune() == 0
    for number in range(30):
        keep(LocalCache(tmp_path / "kept", 1 << 20), "of another process", f"delta/{number}", tmp_path)
    assert sum(cache.prune(cache.store("store-0")) for _ in range(12)) == 100


def test_only_what_has_changed_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = LocalCache(tmp_path / "kept", 35)
    for number in range(3):
        keep(cache, f"store-{number}", "delta/1", tmp_path)
        os.utime(cache.store(f"store-{number}").directory, (1e9, 1e9))
    looked: list[str] = []
    files = workspace_module._files

    def noting(directory: str) -> list[tuple[int, int, str]]:
        looked.append(directory)
        return files(directory)

    monkeypatch.setattr(workspace_module, "_files", noting)
    assert cache.prune() == 0
    assert len(looked) == 3
    looked.clear()
    assert cache.prune() == 0
    assert looked == []
    keep(cache, "store-1", "delta/2", tmp_path)
    assert cache.prune() == 10


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
def test_a_disk_that_fails_keeps_nothing_and_fails_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"x" * 10)

    def fail(*arguments: object, **how: object) -> Any:
        raise OSError(code, os.strerror(code))

    cache = LocalCache(tmp_path / "kept", 5)
    store = cache.store("store")
    with monkeypatch.context() as failing:
        failing.setattr(workspace_module, "make_private", fail)
        store.adopt("delta/a", local)
        store.keep("delta/a", local)
    store.keep("delta/a", local)
    assert store.find("delta/a")
    with monkeypatch.context() as failing:
        for module, name in ((os, "scandir"), (os, "link"), (Path, "unlink"), (Path, "is_file")):
            failing.setattr(module, name, fail)
        failing.setattr(workspace_module, "link_or_copy", fail)
        assert not store.link("delta/a", tmp_path / "target")
        assert store.find("delta/a") is None
        store.discard("delta/a")
        store.retain(())
        assert cache.prune(store) == 0
    assert cache.prune(store) == 10
