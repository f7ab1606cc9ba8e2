"""Checkpoint storage of a simulation: a bucket for each partition, and the way there of each process."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faults import FAULTS, Fault, FaultyStorage

from simulation.turns import EPOCH_MS, Process, Scheduler
from state_store.core.storage.contract import Entry, Storage, check_path
from state_store.errors import ConflictError, MissingError, StateStoreError


class Bucket(Storage):
    """Files in memory, with their times by the storage's own clock. It keeps the contract."""

    def __init__(self, location: str, clock_ms: Callable[[], int]) -> None:
        self.location = location
        self.files: dict[str, tuple[bytes, int]] = {}
        self._clock_ms = clock_ms

    def list_files(self, directory: str) -> list[Entry]:
        prefix = f"{directory}/"
        return [
            Entry(path.removeprefix(prefix), len(data), at_ms)
            for path, (data, at_ms) in sorted(self.files.items())
            if path.startswith(prefix)
        ]

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        data = self._data(path)[offset:]
        return data if length is None else data[:length]

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        if check_path(path) in self.files and not overwrite:
            raise ConflictError(f"'{path}' exists already", file=path)
        self.files[path] = bytes(data), self._clock_ms()

    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        self.write(path, local.read_bytes(), overwrite=overwrite)

    def download(self, path: str, local: Path) -> None:
        data = self._data(path)
        with open(local, "xb") as file:
            file.write(data)

    def delete(self, path: str) -> None:
        self.files.pop(path, None)

    def exists(self, path: str) -> bool:
        return path in self.files

    def _data(self, path: str) -> bytes:
        if path not in self.files:
            raise MissingError(f"'{path}' does not exist", file=path)
        return self.files[path][0]


class Weather:
    """Weather of storage calls: the time that they take, and their faults by name."""

    def __init__(self, scheduler: Scheduler, chance: random.Random) -> None:
        self._scheduler = scheduler
        self._chance = chance
        self.rate = 0.0
        self.damaged_tables_rate = 0.0
        self.names: tuple[str, ...] = ()
        self.storm_until_s = 0.0
        self.usual_s = 0.02
        self.slow_rate = 0.0
        self.slow_s = 0.0
        self.calm_factor = 1
        self.trouble: Callable[[str, str], Fault | None] = lambda operation, path: None

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self.rate = self.damaged_tables_rate = self.slow_rate = self.storm_until_s = 0.0
        self.usual_s, self.calm_factor = 0.02, 20

    def fault(self, operation: str, path: str) -> Fault | None:
        if self._scheduler.now_s < self.storm_until_s:
            return FAULTS["unavailable"].fault
        is_table = operation in ("read", "download") and path.endswith(".sst")
        if is_table and self._chance.random() < self.damaged_tables_rate:
            return FAULTS["damaged-read"].fault
        trouble = self.trouble(operation, path)
        if trouble is not None:
            return trouble
        if self._chance.random() >= self.rate:
            return None
        fitting = [name for name in self.names if operation in FAULTS[name].operations]
        return FAULTS[self._chance.choice(fitting)].fault if fitting else None

    def delay_s(self) -> float:
        if self._chance.random() < self.slow_rate:
            return self._chance.random() * self.slow_s
        return self._chance.random() * self.usual_s


class DistantStorage(FaultyStorage):
    """The bucket as one process has it: a call takes time on its way there and back, and may fail."""

    def __init__(self, bucket: Bucket, weather: Weather, scheduler: Scheduler, process: Process) -> None:
        super().__init__(bucket, weather.fault)
        self._weather = weather
        self._scheduler = scheduler
        self._process = process

    def _do(self, operation: str, path: str, **arguments: Any) -> Any:
        self._scheduler.sleep(self._weather.delay_s())
        try:
            answer = super()._do(operation, path, **arguments)
            self._scheduler.note(operation, f"{self.location}/{path}")
        except StateStoreError as error:
            self._scheduler.note(operation, f"{self.location}/{path}", type(error).__name__)
            raise
        finally:
            if not self._process.is_dead:
                self._scheduler.sleep(self._weather.delay_s())
        return answer


def storage_clock(scheduler: Scheduler, ahead_ms: int = 0) -> Callable[[], int]:
    """Return the storage's clock, which is this far ahead."""
    return lambda: EPOCH_MS + int(scheduler.now_s * 1000) + ahead_ms
