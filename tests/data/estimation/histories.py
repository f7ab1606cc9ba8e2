"""Histories of one store through the agent, in a checkpoint directory with Spark's logs."""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agent.harness import InProcess, Job
from faults import FaultyStorage

from state_store.core.settings.session import PROVIDER_CLASS, PROVIDER_KEY
from state_store.core.storage.local import LocalStorage

INTERVAL_MS = 10_000
KEY_BYTES, VALUE_BYTES = 16, 100
FILE_BYTES = 128 << 10
BEGUN_MS = 1_700_000_000_000
_DIRECTORIES = ("delta", "shared", "snapshot")


def key_of(number: int) -> bytes:
    """Return a long as Spark encodes it, with its column family: a word of nulls, then the number."""
    return b"\0\0" + bytes(8) + random.Random(number).randbytes(8)


@dataclass
class History:
    """A query of one store whose batches write the changes of `changes`.

    `stored` are bytes and files after each batch and its clean-up, `peaks` those before it, `uploaded` the
    bytes that the batch uploaded, `requests` its requests to storage, by operation.
    """

    root: Path
    changes: Callable[[int], dict[bytes, bytes | None]]
    retain: int
    options: dict[str, str]
    stored: list[tuple[int, int]] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)
    uploaded: list[int] = field(default_factory=list)
    file_bytes: int = FILE_BYTES
    requests: list[Counter[str]] = field(default_factory=list)

    def run(self, batches: int) -> None:
        """Run this many batches, each after the merges of the last."""
        store = self.root / "state" / "0" / "0"
        self._write("state/0/_metadata/metadata", _METADATA)
        storage = FaultyStorage(LocalStorage(store))
        client = InProcess(
            self.root.parent / "local",
            now_ms=self._now_ms,
            storages=lambda uri: storage,
            file_bytes=self.file_bytes,
        )
        options = {"fullScheduleJitter": "0", **self.options}
        job = Job(client, store, retain=self.retain, **options)
        known: set[Path] = set()
        for batch in range(batches):
            self._write(
                f"offsets/{batch}", {"batchWatermarkMs": 0, "conf": {PROVIDER_KEY: PROVIDER_CLASS}}, "{}"
            )
            job.commit(self.changes(batch))
            _wait_until_idle(job)
            found = _files(store)
            self.peaks.append(sum(found.values()))
            self.uploaded.append(sum(size for path, size in found.items() if path not in known))
            job.cleanup()
            self.requests.append(Counter(operation for operation, _ in storage.calls))
            storage.calls.clear()
            found = _files(store)
            known = set(found)
            self.stored.append((sum(found.values()), len(found)))
            self._write(f"commits/{batch}", {"stateUniqueIds": {"0": [[job.id]]}})
            (self.root / f"commits/{batch - self.retain - 1}").unlink(missing_ok=True)
            at_s = self._now_ms() / 1000
            os.utime(self.root / f"commits/{batch}", (at_s, at_s))
        job.close()

    def _now_ms(self) -> int:
        return BEGUN_MS + len(self.stored) * INTERVAL_MS

    def _write(self, path: str, content: dict, *more: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(["v1", json.dumps(content), *more]))


_METADATA = {
    "operatorInfo": {"operatorId": 0, "operatorName": "applyInPandasWithState"},
    "stateStoreInfo": [{"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 1}],
}


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


def _files(store: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for name in _DIRECTORIES for path in (store / name).glob("*")}


def _wait_until_idle(job: Job) -> None:
    scheduler, instance = job.client.calls.scheduler, job.store["instance"]
    while True:
        with scheduler._changed:
            store = scheduler._queue._stores[instance]
            if store.running is None and store.publishing.waiting is None:
                return
        time.sleep(0.0005)
