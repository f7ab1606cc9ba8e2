"""A store of numbered versions on a real directory, for tests of clean-ups."""

from __future__ import annotations

import os
from pathlib import Path

from faults import FaultyStorage

from deletion import made_up
from state_store.core.checkpoint.registry import Registry
from state_store.core.deletion.lease import StoreContents
from state_store.core.deletion.retention import Cleanup, Retention, RetentionPolicy
from state_store.core.storage.local import LocalStorage


class Store:
    """Versions 1 to `newest`, snapshots where told, on a real directory."""

    def __init__(self, tmp_path: Path, newest: int, snapshots: dict[int, list[str]] | None = None) -> None:
        self.storage = FaultyStorage(LocalStorage(tmp_path / "store"))
        self.directory = tmp_path / "store"
        for number in range(1, newest + 1):
            self.put(made_up.delta(number).path)
        for number, paths in (snapshots or {}).items():
            self.add_snapshot(number, paths)
        self.newest = made_up.version(newest)
        self.storage.calls.clear()

    def add_snapshot(self, number: int, paths: list[str]) -> None:
        for path in paths:
            self.put(path)
        self.put(made_up.snapshot(number).path, made_up.archive(made_up.version(number), paths))

    def put(self, path: str, data: bytes | None = None) -> None:
        self.storage.inner.write(path, made_up.content(path) if data is None else data, overwrite=True)

    def age(self, path: str, ms: int) -> None:
        file = self.directory / path
        at = file.stat().st_mtime - ms / 1000
        os.utime(file, (at, at))

    def clean(self, **policy: int) -> Cleanup:
        return self.retention(**policy).cleanup(self.newest)

    def retention(self, **policy: int) -> Retention:
        return Retention(self.storage, RetentionPolicy(**{"batches": 2, **policy}))

    def registry(self) -> Registry:
        return StoreContents.read(self.storage.inner).registry(0)

    def files(self) -> set[str]:
        return {str(path.relative_to(self.directory)) for path in self.directory.rglob("*") if path.is_file()}


A, B, C = (made_up.shared(number, number) for number in (3, 6, 9))


def deltas(*numbers: int) -> set[str]:
    return {made_up.delta(number).path for number in numbers}
