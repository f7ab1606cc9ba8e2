"""A store on any storage, and the rows that its versions must have: for tests of storage that fails."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from state_store.core.checkpoint.names import SnapshotName, VersionId
from state_store.core.deletion.retention import Cleanup, Retention, RetentionPolicy
from state_store.core.storage.contract import Storage
from state_store.data.embedded import EmbeddedStore
from state_store.data.maintenance.verification import verify_store
from state_store.data.query import StoreKey
from state_store.errors import StateStoreError

Rows = dict[bytes, bytes]
T = TypeVar("T")

ATTEMPTS = 200
"""So often is a call repeated before the storage counts as broken for good."""


class Witness:
    """Drives a store through `storage`; a failed call is tried again, as Spark does with a batch.

    `errors` are the failures so far. `check` looks through another storage at what is there.
    """

    def __init__(self, storage: Storage, directory: Path, *, seed: int = 1, value_bytes: int = 40) -> None:
        self.storage = storage
        self.errors: list[StateStoreError] = []
        self.rows: dict[VersionId, Rows] = {}
        self._chance = random.Random(seed)
        self._value_bytes = value_bytes
        self._directory = directory
        self._numbers = itertools.count()
        self.store = self.retried(self.opened)

    def opened(self) -> EmbeddedStore:
        """Another executor on the same storage, empty."""
        return EmbeddedStore(self.storage, self._directory / f"executor-{next(self._numbers)}")

    def retried(self, action: Callable[[], T]) -> T:
        """Return the action's result, as soon as it succeeds. Raises what it raised in the last attempt."""
        for attempt in itertools.count(1):
            try:
                return action()
            except StateStoreError as error:
                self.errors.append(error)
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError

    def commit(self, count: int = 20) -> VersionId:
        """Commit a batch that changes `count` of a hundred keys, and removes one."""
        changed = {b"key-%02d" % number: self._value() for number in self._chance.sample(range(100), count)}
        gone = b"key-%02d" % self._chance.randrange(100)
        rows = {**self.rows.get(self.store.version, {}), **changed}
        rows.pop(gone, None)
        for key, value in changed.items():
            self.store.put(key, value)
        self.store.remove(gone)
        try:
            version = self.retried(self.store.commit)
        except StateStoreError:
            self.store.abort()
            raise
        self.rows[version] = rows
        return version

    def checkpoint(self, *, full: bool = False) -> None:
        """A snapshot of the newest version. One that was there already is what was wanted."""
        newest = self.store.version

        def attempt() -> None:
            if full or newest.number not in self._snapshots():
                self.store.checkpoint(full=full)

        self.retried(attempt)

    def clean_up(self, keep: int = 3) -> Cleanup:
        """Retires all versions but `keep`."""
        retention = Retention(self.storage, RetentionPolicy(batches=keep))
        return self.retried(lambda: retention.cleanup(self.store.version))

    def restored(self, version: VersionId) -> Rows:
        """The rows of a version as an executor gets them that has nothing. Raises as a restore does."""
        with self.opened() as store:
            store.load(version)
            return dict(store.scan())

    def check(self, storage: Storage | None = None, *, newest: int = 3) -> None:
        """The newest versions have their rows, and nothing is damaged, looked at through `storage`."""
        before, self.storage = self.storage, storage or self.storage
        try:
            for version in list(self.rows)[-newest:]:
                assert self.restored(version) == self.rows[version], version
            key = StoreKey(0, 0, "default")
            verdict = verify_store(key, self.storage, lambda: self.store.version, every=True)
            assert verdict.findings == ()
        finally:
            self.storage = before

    def _value(self) -> bytes:
        return self._chance.randbytes(self._value_bytes)

    def _snapshots(self) -> set[int]:
        entries = self.storage.list_files("snapshot")
        names = [SnapshotName.parse(entry.name) for entry in entries if entry.size_bytes]
        return {name.version for name in names if name is not None}
