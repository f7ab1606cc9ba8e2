"""Histories of one store through the agent, in a checkpoint directory with Spark's logs."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from agent.harness import InProcess, Job
from faults import FaultyStorage
from query_directory import QueryDirectory, Rows

from state_store.core.checkpoint.names import VersionId
from state_store.core.storage.local import LocalStorage
from state_store.data.query import StoreKey

INTERVAL_MS = 10_000
KEY_BYTES, VALUE_BYTES = 16, 100
FILE_BYTES = 128 << 10
BEGUN_MS = 1_700_000_000_000


def key_of(number: int) -> bytes:
    """Return a long as Spark encodes it, with its column family: a word of nulls, then the number."""
    return b"\0\0" + bytes(8) + random.Random(number).randbytes(8)


class Batch(NamedTuple):
    """A batch: bytes and files in storage after its clean-up, bytes before it (`peak`), uploads, requests."""

    size_bytes: int
    files: int
    peak_bytes: int
    uploaded_bytes: int
    requests: Counter[str]


class History(QueryDirectory):
    """A query of one store, whose batches write the changes of `changes` and commit through the agent."""

    def __init__(
        self,
        root: Path,
        changes: Callable[[int], Rows],
        retain: int,
        options: dict[str, str],
        file_bytes: int = FILE_BYTES,
    ) -> None:
        super().__init__(root, root.parent / "scratch", partitions=1)
        self.changes, self.retain, self.file_bytes = changes, retain, file_bytes
        self.batches: list[Batch] = []
        self._store = FaultyStorage(LocalStorage(root / self.keys[0].path))
        client = InProcess(
            root.parent / "local",
            now_ms=self._now_ms,
            storages=lambda uri: self._store,
            file_bytes=file_bytes,
        )
        options = {"fullScheduleJitter": "0", **options}
        self._job = Job(client, root / self.keys[0].path, retain=retain, **options)

    def run(self, batches: int) -> None:
        """Run this many batches, each after the merges of the last."""
        files: dict[Path, int] = {}
        for batch in range(batches):
            known = files
            self.commit(self.changes(batch))
            before = self._files()
            uploaded_bytes = sum(size for path, size in before.items() if path not in known)
            self._job.cleanup()
            files, requests = self._files(), Counter(operation for operation, _ in self._store.calls)
            self._store.calls.clear()
            at_s = self._now_ms() / 1000
            sizes = (sum(files.values()), len(files), sum(before.values()), uploaded_bytes)
            self.batches.append(Batch(*sizes, requests))
            (self.root / f"commits/{batch - self.retain - 1}").unlink(missing_ok=True)
            os.utime(self.root / f"commits/{batch}", (at_s, at_s))
        self._job.close()

    def write_version(self, key: StoreKey, rows: Rows, parent: VersionId | None) -> VersionId:
        """Commit a version through the agent, and wait for its merge."""
        self._job.commit(rows)
        scheduler, instance = self._job.client.calls.scheduler, self._job.store["instance"]
        while True:
            with scheduler._changed:
                store = scheduler._queue._stores[instance]
                if store.running is None and store.publishing.waiting is None:
                    return VersionId(self._job.version, self._job.id)
            time.sleep(0.0005)

    def _files(self) -> dict[Path, int]:
        store = self.root / self.keys[0].path
        directories = ("delta", "shared", "snapshot")
        return {path: path.stat().st_size for name in directories for path in (store / name).glob("*")}

    def _now_ms(self) -> int:
        return BEGUN_MS + len(self.batches) * INTERVAL_MS


@dataclass
class Writes:
    """Batches over `keys` keys.

    The first writes all; each later one draws some existing keys, adds `new` ones and removes the oldest.
    """

    keys: int
    draws: int
    exponent: float = 0.0
    new: int = 0

    def __post_init__(self) -> None:
        self._chance = random.Random(17)
        self._first, self._next = 0, self.keys
        self.written: list[int] = []
        weights = (rank**-self.exponent for rank in range(1, self.keys + 1))
        self._weights = list(itertools.accumulate(weights))

    def __call__(self, batch: int) -> dict[bytes, bytes | None]:
        if batch == 0:
            return {key_of(number): self._value() for number in range(self.keys)}
        ranks = self._chance.choices(range(self.keys), cum_weights=self._weights, k=self.draws)
        chosen = {self._first + rank for rank in ranks}
        gone = set(range(self._first, self._first + self.new))
        fresh = set(range(self._next, self._next + self.new))
        self._first, self._next = self._first + self.new, self._next + self.new
        puts = (chosen - gone) | fresh
        self.written.append(len(puts))
        return {key_of(number): self._value() for number in puts} | {key_of(number): None for number in gone}

    @property
    def per_batch(self) -> float:
        """Return the number of different keys that a batch writes."""
        return sum(self.written) / len(self.written)

    def _value(self) -> bytes:
        return self._chance.randbytes(VALUE_BYTES)
