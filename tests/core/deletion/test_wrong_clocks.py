"""Writers, cleaners and a storage whose clocks are a day apart, or jump: nothing needed is deleted."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from pathlib import Path

import pytest
from runtimes import AdjustedRuntime

from deletion import made_up
from deletion.directory_store import A, B, Store, deltas
from state_store.core.deletion.lease import Lease, ReaderLease
from state_store.core.deletion.retention import Retention, RetentionPolicy
from state_store.core.storage.contract import Entry, ForwardingStorage

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
SKEWS_MS = (-DAY_MS, -HOUR_MS - 1, 0, HOUR_MS + 1, DAY_MS)
UNFINISHED = f"{made_up.shared(7, 7)}.00000000.tmp"
NEEDED = {A, B, UNFINISHED, made_up.snapshot(3).path, made_up.snapshot(6).path}


class SkewedStorage(ForwardingStorage):
    """Storage whose clock is off by `skew_ms`, and jumps by `jump_ms` once the lease is written."""

    def __init__(self, store: Store, skew_ms: int = 0, jump_ms: int = 0) -> None:
        super().__init__(store.storage)
        self._skew_ms, self._jump_ms = skew_ms, jump_ms
        self._before_jump: set[str] = set()

    def jump(self, store: Store) -> None:
        self._before_jump = {path.rpartition("/")[2] for path in store.files()}

    def list_files(self, directory: str) -> list[Entry]:
        return [
            replace(entry, modified_ms=entry.modified_ms + self._off_ms(entry))
            for entry in super().list_files(directory)
        ]

    def _off_ms(self, entry: Entry) -> int:
        is_later = bool(self._before_jump) and entry.name not in self._before_jump
        return self._skew_ms + self._jump_ms * is_later


def machine(off_ms: int, name: str) -> AdjustedRuntime:
    return AdjustedRuntime(wall_ms=lambda: time.time() * 1000 + off_ms, boot=name)


def clean(store: Store, storage: SkewedStorage, kind: type[Lease], writer_ms: int, cleaner_ms: int) -> None:
    """Hold a file, let the storage's clock jump, and clean up by number, by age, and as `repair` does."""
    store.put(UNFINISHED)
    holder = kind(storage, expiry_ms=HOUR_MS, runtime=machine(writer_ms, "writer"))
    assert holder.hold([A]) == frozenset()
    storage.jump(store)
    store.put(made_up.delta(9).path)
    cleaner = machine(cleaner_ms, "cleaner")
    for policy in (RetentionPolicy(100, age_ms=2 * HOUR_MS), RetentionPolicy(3)):
        Retention(storage, policy, runtime=cleaner).cleanup(made_up.version(9))
        Retention(storage, policy, runtime=cleaner).sweep(made_up.version(9), DAY_MS)
        if policy.age_ms:
            assert store.files() >= {*NEEDED, *deltas(*range(1, 10))}, "age alone retired a version"
    assert store.files() >= {A, B, UNFINISHED, made_up.snapshot(6).path, *deltas(7, 8, 9)}


@pytest.mark.tier("more")
@pytest.mark.parametrize("kind", [Lease, ReaderLease])
def test_clocks_that_are_apart_delete_nothing_needed(tmp_path: Path, kind: type[Lease]) -> None:
    for number, (writer_ms, cleaner_ms) in enumerate(itertools.product(SKEWS_MS, SKEWS_MS)):
        store = Store(tmp_path / str(number), 8, {3: [A], 6: [B]})
        clean(store, SkewedStorage(store, SKEWS_MS[number % 5]), kind, writer_ms, cleaner_ms)


@pytest.mark.parametrize("jump_ms", [skew_ms for skew_ms in SKEWS_MS if skew_ms])
def test_a_storage_whose_clock_jumps_deletes_nothing_needed(tmp_path: Path, jump_ms: int) -> None:
    for number, writer_ms in enumerate((0, HOUR_MS)):
        store = Store(tmp_path / str(number), 8, {3: [A], 6: [B]})
        clean(store, SkewedStorage(store, jump_ms=jump_ms), Lease, writer_ms, 0)
