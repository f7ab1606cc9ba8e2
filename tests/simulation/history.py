"""One history of a simulated cluster: a query that goes on, and what holds all the time meanwhile."""

from __future__ import annotations

import contextlib
import functools
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from simulation.cluster import EMPTY, Executor, Site, Task, Truth, Version, random_changes
from simulation.deeds import Deeds
from simulation.ending import calm_down, check_end
from simulation.engine import ModelDatabase
from simulation.scheduler import Scheduler, Thread
from simulation.storage import Bucket, Weather, storage_clock
from simulation.terms import LEASE_EXPIRY_S, TEMPORARY_EXPIRY_S, QueryFailedError
from state_store.checkpoint.archive import unpack
from state_store.checkpoint.lineage import Lineages
from state_store.checkpoint.listing import Listing
from state_store.checkpoint.manifest import Manifest
from state_store.checkpoint.names import SnapshotName, VersionId
from state_store.checkpoint.registry import whole_snapshots
from state_store.errors import DamagedError, FormatError, MissingError, StateStoreError
from state_store.runtime import SystemRuntime

HONEST = ("error-before", "error-after", "unavailable", "full-disk")
DAMAGE = ("damaged-read", "short-read")
LYING = ("torn-write", "silently-torn-write", "stale-listing")

MOST_FAILURES = 4
"""Attempts at a task before the query fails, as Spark's `spark.task.maxFailures`."""

PROFILES = ("calm", "failing", "failing", "failing", "damaging", "lying")


@dataclass
class _Attempt:
    """A task that runs, or ran, on an executor."""

    executor: Executor
    before: Version
    thread: Thread | None = None
    version: Version | None = None
    has_failed: bool = False

    @property
    def is_lost(self) -> bool:
        return self.executor.is_dead and self.version is None


class History:
    """The history of one seed. `run` raises AssertionError where something is not as it must be.

    `committed` are the versions that Spark has committed, `trace` says what happened, step by step. In a
    prompt history nobody is slower than a lease allows.
    """

    def __init__(
        self, seed: int, *, ids: bool = True, batches: int | None = None, profile: str | None = None
    ) -> None:
        self.chance = random.Random(f"{seed} history")
        self.seed = seed
        self.profile = self.chance.choice(PROFILES)
        self.batches = self.chance.randrange(8, 24)
        self.is_prompt = self.chance.random() < 0.5
        self.profile = profile or self.profile
        self.batches = batches or self.batches
        self.scheduler = Scheduler(seed)
        self.weather = Weather(self.scheduler, random.Random(f"{seed} weather"))
        self.bucket = _WatchedBucket(self)
        self.truth = Truth(any_attempt=self.is_lying and not ids)
        self.committed: list[Version] = [EMPTY]
        self.counts: dict[str, int] = {}
        self.ids = ids
        self.retain = self.chance.randrange(2, 5)
        self.runs = self._applications = 1
        self._jobs = self._tasks = 0
        self.executors: list[Executor] = []
        self._born = 0
        self._driver: Thread | None = None
        self.is_calm = self.is_quiet = False
        self.driver_dies = False
        self._manifests: dict[bytes, Manifest | None] = {}
        self.site: Any = None

    @property
    def trace(self) -> list[str]:
        return self.scheduler.trace

    @property
    def is_lying(self) -> bool:
        return self.profile == "lying"

    def run(self) -> None:
        with tempfile.TemporaryDirectory(prefix="simulation-", dir=_memory()) as name, _model_engine():
            directory = Path(name)
            self.site = Site(
                self.scheduler,
                self.bucket,
                self.weather,
                self.truth,
                self.ids,
                self.retain,
                self._options(),
                directory,
            )
            self._set_weather()
            with _no_system():
                self.scheduler.run(self._main)
            check_end(self, directory)

    # ---- the set-up --------------------------------------------------------------------------------------

    def _options(self) -> dict[str, str]:
        chance = self.chance
        return {
            "maxDeltas": str(chance.randrange(1, 5)),
            "fullAfterMerges": str(chance.randrange(0, 5)),
            "minPauseBetweenMerges": chance.choice(["0", "2s"]),
            "maxConcurrentMerges": str(chance.randrange(1, 3)),
            "mergeTimeout": "60s",
            "leaseExpiry": f"{LEASE_EXPIRY_S}s",
            "temporaryExpiry": f"{TEMPORARY_EXPIRY_S}s",
            "cleanupTimeout": "60s",
            "transferThreads": str(chance.randrange(1, 4)),
            "localRecovery": chance.choice(["true", "false"]),
        }

    def _set_weather(self) -> None:
        chance, weather = self.chance, self.weather
        names = {
            "calm": (),
            "failing": HONEST,
            "damaging": HONEST + DAMAGE,
            "lying": HONEST + DAMAGE + LYING,
        }[self.profile]
        if names:
            weather.names = tuple(chance.sample(names, chance.randrange(1, len(names) + 1)))
            weather.rate = chance.choice([0.003, 0.01, 0.05])
        weather.usual_s = chance.choice([0.02, 0.2, 1.0])
        weather.slow_rate = chance.choice([0.0, 0.01, 0.05])
        weather.slow_s = 2.0 if self.is_prompt else chance.choice([2.0, 20.0, 150.0])

    # ---- the query ---------------------------------------------------------------------------------------

    def _main(self) -> None:
        self._driver = self.scheduler.current
        for _ in range(self.chance.randrange(2, 4)):
            self.executors.append(self.new_executor())
        self.scheduler.start(self.scheduler.process("chaos"), "chaos", Deeds(self).go_on)
        tries = 0
        while len(self.committed) <= self.batches:
            tries += 1
            if tries > 3 * self.batches:
                break  # the faults leave it no chance; what is there must be right all the same
            try:
                self.batch(self.chance)
            except QueryFailedError:
                self.note("the query starts again")
                self.runs += 1
                self.scheduler.sleep(self.chance.uniform(0, 5))
            self.scheduler.sleep(self.chance.uniform(0, 3))
        calm_down(self)

    def batch(self, chance: random.Random) -> None:
        before = self.committed[-1]
        self._jobs += 1
        attempts = [self._launch(before, self._preferred(chance), again=False)]
        failures = 0
        may_speculate = chance.random() < 0.3
        patience_s = chance.uniform(0.5, 20)
        until_s = self.scheduler.now_s + patience_s
        while not (done := [one for one in attempts if one.version is not None]):
            if self.driver_dies:
                self.driver_dies = False
                self._applications += 1
                raise QueryFailedError
            over = [one for one in attempts if one.has_failed or one.is_lost]
            if len(over) > failures:
                failures = len(over)
                if failures >= MOST_FAILURES:
                    raise QueryFailedError
            if len(over) == len(attempts):
                attempts.append(self._launch(before, chance.choice(self.executors)))
            elif self.scheduler.now_s >= until_s:
                is_stuck = self.scheduler.now_s >= until_s + 60
                if is_stuck or (may_speculate and len(attempts) < 3):
                    attempts.append(self._launch(before, chance.choice(self.executors)))
                    until_s = self.scheduler.now_s + (patience_s if not is_stuck else 0)
            self.scheduler.wait(chance.uniform(0.1, 5))
        if chance.random() < 0.05 and not self.is_calm:
            raise QueryFailedError  # the driver dies between the task's success and its own log
        winner = done[0].version
        assert winner is not None
        self.committed.append(winner)
        self.note("committed", winner[0], winner[1])

    def _preferred(self, chance: random.Random) -> Executor:
        return self.executors[0] if chance.random() < 0.8 else chance.choice(self.executors)

    def _launch(self, before: Version, executor: Executor, *, again: bool = True) -> _Attempt:
        attempt = _Attempt(executor, before)
        provider = executor.provider(f"run-{self.runs}")
        self._tasks += 1
        application = self._applications
        task = Task(f"{application:08x}", self._tasks, again, lambda: application == self._applications)
        # Without ids two copies of a task have to come to the same rows: nobody tells which one Spark took.
        change = random_changes(self.chance if self.ids else random.Random(f"{self.seed} job {self._jobs}"))
        self.note("task of", before[0] + 1, "on", executor.name)

        def work() -> None:
            try:
                attempt.version = provider.run_task(before, change, task)
            except StateStoreError as error:
                self.scheduler.note("task failed:", type(error).__name__, error)
                attempt.has_failed = True
                self._check_error(error, before)
            if self._driver is not None and not self._driver.has_ended:
                self.scheduler.wake(self._driver)

        attempt.thread = self.scheduler.start(executor.jvm, f"task-{before[0] + 1}", work)
        return attempt

    def _check_error(self, error: StateStoreError, before: Version) -> None:
        """What a task of the newest version may fail with."""
        self.count(f"task: {error.kind}")
        if isinstance(error, MissingError | DamagedError | FormatError):
            is_honest = self.profile in ("calm", "failing")
            is_current = before == self.committed[-1]
            assert not (is_honest and is_current), f"a task of the current batch failed: {error}"
        assert not self.is_quiet, f"without faults a task failed: {error}"

    def new_executor(self) -> Executor:
        self._born += 1
        ahead_ms = self.chance.choice([0, 0, -3_600_000, 3_600_000])
        return Executor(self.site, f"executor-{self._born}", ahead_ms)

    # ---- what holds all the time -------------------------------------------------------------------------

    def named(self, version: Version) -> VersionId:
        """As Spark names it."""
        return VersionId(version[0], version[1] if self.ids else None)

    def changed(self, path: str) -> None:
        """A file of the bucket came or went: what is retained can be restored by somebody who begins now, and
        where nobody was slow, every snapshot that is retained is whole."""
        if self.is_lying or not path.startswith(("delta/", "shared/", "snapshot/")):
            return
        newest = max(number for number, _ in self.truth.rows)
        floor = max(1, newest - self.retain + 1)
        wanted = {
            VersionId(*one) for one in self.committed if one[0] >= floor or one == self.committed[-1]
        } - {VersionId(*EMPTY)}
        listing = Listing.from_files((path, len(data)) for path, (data, _) in self.bucket.files.items())
        manifests = {}
        for name in listing.snapshots:
            manifest = self._manifest(name)
            if manifest is not None:
                manifests[name] = manifest
        whole = whole_snapshots(listing, manifests)
        missing = wanted - set(Lineages(listing.deltas, whole).restorable())
        assert not missing, f"since '{path}' came or went, {missing} cannot be restored"
        broken = [name.path for name in manifests.keys() - whole.keys() if name.version >= floor]
        assert not (broken and self.is_prompt), f"since '{path}' came or went, {broken} lack files"

    def _manifest(self, name: SnapshotName) -> Manifest | None:
        data = self.bucket.files[name.path][0]
        if data not in self._manifests:
            try:
                self._manifests[data] = unpack(data, file=name.path).manifest
            except DamagedError:
                self._manifests[data] = None
        return self._manifests[data]

    def note(self, *words: object) -> None:
        self.scheduler.note("--", *words)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


class _WatchedBucket(Bucket):
    def __init__(self, history: History) -> None:
        super().__init__(storage_clock(history.scheduler))
        self._history = history

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        super().write(path, data, overwrite=overwrite)
        if path.startswith("snapshot/"):
            self._history.changed(path)

    def delete(self, path: str) -> None:
        super().delete(path)
        self._history.changed(path)


def _memory() -> str | None:
    """Where files take no disk."""
    shared = Path("/dev/shm")
    return str(shared) if shared.is_dir() else None


@contextlib.contextmanager
def _model_engine() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for module in ("snapshots.restore", "snapshots.merge", "embedded.store"):
            stack.enter_context(mock.patch(f"state_store.{module}.Database", ModelDatabase))
        yield


@contextlib.contextmanager
def _no_system() -> Iterator[None]:
    """Whoever takes something from the machine fails."""

    def refuse(name: str, *arguments: object, **named: object) -> None:
        raise AssertionError(f"the machine's {name} is used in a simulation")

    with contextlib.ExitStack() as stack:
        for name in ("wall_ms", "monotonic_s", "uptime_ms", "random_bytes", "sleep", "start"):
            stack.enter_context(mock.patch.object(SystemRuntime, name, functools.partial(refuse, name)))
        yield
