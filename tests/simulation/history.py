"""One history of a simulated cluster: a query that goes on, and everything that goes wrong meanwhile."""

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

from simulation.cluster import (
    EMPTY,
    Executor,
    Provider,
    Site,
    Task,
    Truth,
    Version,
    random_changes,
)
from simulation.engine import ModelDatabase
from simulation.scheduler import Scheduler, Thread
from simulation.storage import Bucket, DistantStorage, Weather, storage_clock
from state_store.checkpoint.archive import unpack
from state_store.checkpoint.lineage import Lineages
from state_store.checkpoint.listing import Listing
from state_store.checkpoint.manifest import Manifest
from state_store.checkpoint.names import SnapshotName, VersionId
from state_store.checkpoint.registry import whole_snapshots
from state_store.cli.stores.verification import verify_store
from state_store.deletion.contents import StoreContents
from state_store.embedded.store import EmbeddedStore
from state_store.errors import DamagedError, FormatError, MissingError, StateStoreError
from state_store.query import StoreKey
from state_store.runtime import SystemRuntime

HONEST = ("error-before", "error-after", "unavailable", "full-disk")
DAMAGE = ("damaged-read", "short-read")
LYING = ("torn-write", "silently-torn-write", "stale-listing")

MOST_FAILURES = 4
"""Attempts at a task before the query fails, as Spark's `spark.task.maxFailures`."""

LEASE_EXPIRY_S = 120
LONGEST_LEASE_S = 3600
"""That of an embedded store."""

TEMPORARY_EXPIRY_S = 600
PROFILES = ("calm", "failing", "failing", "failing", "damaging", "lying")


class QueryFailedError(Exception):
    """A task failed too often, or the driver died; the query starts again from its last committed batch."""


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
        self._ids = ids
        self._retain = self.chance.randrange(2, 5)
        self._runs = self._applications = 1
        self._jobs = self._tasks = 0
        self._executors: list[Executor] = []
        self._born = 0
        self._driver: Thread | None = None
        self._is_calm = self._is_quiet = False
        self._driver_dies = False
        self._manifests: dict[bytes, Manifest | None] = {}
        self._site: Any = None

    @property
    def trace(self) -> list[str]:
        return self.scheduler.trace

    @property
    def _pauses_s(self) -> list[float]:
        return [1, 5, 20] if self.is_prompt else [1, 20, 200, 700]

    @property
    def is_lying(self) -> bool:
        return self.profile == "lying"

    def run(self) -> None:
        with tempfile.TemporaryDirectory(prefix="simulation-", dir=_memory()) as name, _model_engine():
            directory = Path(name)
            self._site = Site(
                self.scheduler,
                self.bucket,
                self.weather,
                self.truth,
                self._ids,
                self._retain,
                self._options(),
                directory,
            )
            self._set_weather()
            with _no_system():
                self.scheduler.run(self._main)
            self._check_end(directory)

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
            self._executors.append(self._new_executor())
        self.scheduler.start(self.scheduler.process("chaos"), "chaos", self._chaos)
        tries = 0
        while len(self.committed) <= self.batches:
            tries += 1
            if tries > 3 * self.batches:
                break  # the faults leave it no chance; what is there must be right all the same
            try:
                self._batch(self.chance)
            except QueryFailedError:
                self._note("the query starts again")
                self._runs += 1
                self.scheduler.sleep(self.chance.uniform(0, 5))
            self.scheduler.sleep(self.chance.uniform(0, 3))
        self._calm_down()

    def _batch(self, chance: random.Random) -> None:
        before = self.committed[-1]
        self._jobs += 1
        attempts = [self._launch(before, self._preferred(chance), again=False)]
        failures = 0
        may_speculate = chance.random() < 0.3
        patience_s = chance.uniform(0.5, 20)
        until_s = self.scheduler.now_s + patience_s
        while not (done := [one for one in attempts if one.version is not None]):
            if self._driver_dies:
                self._driver_dies = False
                self._applications += 1
                raise QueryFailedError
            over = [one for one in attempts if one.has_failed or one.is_lost]
            if len(over) > failures:
                failures = len(over)
                if failures >= MOST_FAILURES:
                    raise QueryFailedError
            if len(over) == len(attempts):
                attempts.append(self._launch(before, chance.choice(self._executors)))
            elif self.scheduler.now_s >= until_s:
                is_stuck = self.scheduler.now_s >= until_s + 60
                if is_stuck or (may_speculate and len(attempts) < 3):
                    attempts.append(self._launch(before, chance.choice(self._executors)))
                    until_s = self.scheduler.now_s + (patience_s if not is_stuck else 0)
            self.scheduler.wait(chance.uniform(0.1, 5))
        if chance.random() < 0.05 and not self._is_calm:
            raise QueryFailedError  # the driver dies between the task's success and its own log
        winner = done[0].version
        assert winner is not None
        self.committed.append(winner)
        self._note("committed", winner[0], winner[1])

    def _preferred(self, chance: random.Random) -> Executor:
        return self._executors[0] if chance.random() < 0.8 else chance.choice(self._executors)

    def _launch(self, before: Version, executor: Executor, *, again: bool = True) -> _Attempt:
        attempt = _Attempt(executor, before)
        provider = executor.provider(f"run-{self._runs}")
        self._tasks += 1
        application = self._applications
        task = Task(f"{application:08x}", self._tasks, again, lambda: application == self._applications)
        # Without ids two copies of a task have to come to the same rows: nobody tells which one Spark took.
        change = random_changes(self.chance if self._ids else random.Random(f"{self.seed} job {self._jobs}"))
        self._note("task of", before[0] + 1, "on", executor.name)

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
        self._count(f"task: {error.kind}")
        if isinstance(error, MissingError | DamagedError | FormatError):
            is_honest = self.profile in ("calm", "failing")
            is_current = before == self.committed[-1]
            assert not (is_honest and is_current), f"a task of the current batch failed: {error}"
        assert not self._is_quiet, f"without faults a task failed: {error}"

    def _new_executor(self) -> Executor:
        self._born += 1
        ahead_ms = self.chance.choice([0, 0, -3_600_000, 3_600_000])
        return Executor(self._site, f"executor-{self._born}", ahead_ms)

    # ---- what goes wrong ---------------------------------------------------------------------------------

    def _chaos(self) -> None:
        chance = random.Random(f"{self.seed} chaos")
        pause_s = chance.choice([3.0, 15.0, 60.0])
        deeds = [
            self._kill_agent,
            self._kill_executor,
            self._pause_executor,
            self._pause_agent,
            self._storm,
            self._jump,
            self._end_driver,
            self._move,
            self._full_from_outside,
            self._ask_for_a_snapshot,
        ]
        if self.is_lying:
            deeds.append(self._power_cut)
        weights = [chance.choice([0, 1, 1, 4]) for _ in deeds]
        weights[0] += 1
        while True:
            self.scheduler.sleep(chance.expovariate(1 / pause_s))
            if self._is_calm:
                return
            (deed,) = chance.choices(deeds, weights)
            self._note(deed.__name__.strip("_").replace("_", " "))
            self._count(deed.__name__.strip("_"))
            deed(chance)

    def _kill_agent(self, chance: random.Random) -> None:
        chance.choice(self._executors).kill_agent()

    def _kill_executor(self, chance: random.Random) -> None:
        number = chance.randrange(len(self._executors))
        self._executors[number].kill()
        self._executors[number] = self._new_executor()

    def _pause_executor(self, chance: random.Random) -> None:
        chance.choice(self._executors).pause(chance.choice(self._pauses_s) * chance.random())

    def _pause_agent(self, chance: random.Random) -> None:
        chance.choice(self._executors).pause(chance.choice(self._pauses_s) * chance.random(), agent_only=True)

    def _storm(self, chance: random.Random) -> None:
        if self.profile != "calm":
            self.weather.storm_until_s = self.scheduler.now_s + chance.uniform(0.1, 20)

    def _jump(self, chance: random.Random) -> None:
        """The wall clock of a machine jumps. Leases hold as long as the storage's clock does not jump too."""
        for process in self.scheduler.processes:
            if not process.is_dead and chance.random() < 0.3:
                process.wall_ahead_ms += chance.choice([-1, 1]) * chance.randrange(86_400_000)

    def _end_driver(self, chance: random.Random) -> None:
        self._driver_dies = True

    def _move(self, chance: random.Random) -> None:
        """Partitions prefer another executor from now on."""
        self._executors.append(self._executors.pop(0))

    def _full_from_outside(self, chance: random.Random) -> None:
        """Somebody makes a full checkpoint of a committed version from another machine."""
        number = len(self.scheduler.processes)
        process = self.scheduler.process(f"outside-{number}")
        version = chance.choice(self.committed[-2:])
        if version == EMPTY:
            return
        directory = self._site.directory / f"outside-{number}"

        def work() -> None:
            storage = DistantStorage(self.bucket, self.weather, self.scheduler, process)
            with contextlib.suppress(StateStoreError):
                store = EmbeddedStore(
                    storage, directory, has_checkpoint_ids=self._ids, runtime=process.runtime
                )
                with store:
                    store.load(self._named(version))
                    self.truth.check(version, _rows(store), "a read")
                    store.checkpoint(full=True)

        self.scheduler.start(process, "full", work)

    def _ask_for_a_snapshot(self, chance: random.Random) -> None:
        executor = chance.choice(self._executors)
        provider = executor.providers.get(f"run-{self._runs}")
        if provider is None or provider.newest is None:
            return
        kind = chance.choice(["incremental", "full"])

        def work() -> None:
            with contextlib.suppress(StateStoreError):
                provider.snapshot(kind)

        self.scheduler.start(executor.jvm, "snapshot", work)

    def _power_cut(self, chance: random.Random) -> None:
        """The storage loses some of what it was given last; what it keeps of it may be empty."""
        now_ms = storage_clock(self.scheduler)()
        for path, (_, at_ms) in sorted(self.bucket.files.items()):
            if now_ms - at_ms < 10_000 and chance.random() < 0.3:
                if chance.random() < 0.5:
                    del self.bucket.files[path]
                else:
                    self.bucket.files[path] = b"", at_ms

    # ---- the end -----------------------------------------------------------------------------------------

    def _calm_down(self) -> None:
        """No more faults: the query goes on for some batches, and after one clean-up nothing is left over."""
        self._is_calm = True
        self.weather.clear()
        self._note("calm")
        self.scheduler.sleep(1500)  # zombies wake up and end, leases run out
        if self.is_lying:
            return
        self._is_quiet = True
        self._executors.append(self._new_executor())
        self._executors.insert(0, self._executors.pop())
        self._driver_dies = False
        for _ in range(2):
            self._quiet_batch()
        self.scheduler.sleep(LONGEST_LEASE_S + TEMPORARY_EXPIRY_S)
        for process in self.scheduler.processes:
            process.wall_ahead_ms = 30 * 86_400_000  # a lease by a clock that was ahead runs out late
        self._quiet_batch()
        provider = self._last_provider()
        made = provider.snapshot("full")
        assert "base" in made or "skipped" in made, made
        for _ in range(self._retain + 1):  # a clean-up looks at leases when it has files to delete
            self._quiet_batch()
        self.scheduler.sleep(LONGEST_LEASE_S + TEMPORARY_EXPIRY_S)
        self._quiet_batch()
        provider = self._last_provider()
        version, id_ = provider.newest or EMPTY
        for one in self._executors:
            one.check_local_files()
        cleaned = provider._call("cleanup", version=version, id=id_)
        self._note("last clean-up", cleaned["deleted_files"])
        for executor in self._executors[1:]:
            executor.kill()
        provider.close()
        left = [path for path in self._executors[0].directory.rglob("*") if path.name.startswith(_WORK)]
        assert not left, f"left on the local disk: {left}"

    def _quiet_batch(self) -> None:
        count = len(self.committed)
        while len(self.committed) == count:
            try:
                self._batch(_Preferring(self.chance.getrandbits(32)))
            except QueryFailedError:
                raise AssertionError("without faults the query failed") from None
        self.scheduler.sleep(1)

    def _last_provider(self) -> Provider:
        return self._executors[0].provider(f"run-{self._runs}")

    def _check_end(self, directory: Path) -> None:
        """Every retained version is restored exactly, `verify` is content, nothing is left over."""
        retained = [version for version in self.committed[-self._retain :] if version != EMPTY]
        for version in retained:
            self._check_restored(version, directory / f"end-{version[0]}")
        if self.is_lying:
            return
        newest = self.committed[-1]
        verdict = verify_store(StoreKey(0, 0), self.bucket, lambda: self._named(newest), every=True)
        assert not verdict.findings, f"verify finds {verdict.findings}"
        assert verdict.restored == VersionId(*newest)
        contents = StoreContents.read(self.bucket)
        floor = newest[0] - self._retain + 1
        needed = {file.path for file in contents.registry(floor).entries()}
        over = [
            path
            for path in sorted(self.bucket.files)
            if path not in needed and not self._is_attempt(path, floor, contents)
        ]
        assert not over, f"left in checkpoint storage: {over}"

    def _is_attempt(self, path: str, floor: int, contents: StoreContents) -> bool:
        """Deltas of versions that stay do so whether or not something can be made of them."""
        listing = contents.listing
        return any(one.path == path and one.version >= floor for one in (*listing.deltas, *listing.refused))

    def _named(self, version: Version) -> VersionId:
        """As Spark names it."""
        return VersionId(version[0], version[1] if self._ids else None)

    def _check_restored(self, version: Version, directory: Path) -> None:
        try:
            with EmbeddedStore(self.bucket, directory, has_checkpoint_ids=self._ids) as store:
                store.load(self._named(version))
                self.truth.check(version, _rows(store), "the last restore")
        except (DamagedError, MissingError):
            if not self.is_lying:
                raise

    def changed(self, path: str) -> None:
        """A file of the bucket came or went: what is retained can be restored by somebody who begins now, and
        where nobody was slow, every snapshot that is retained is whole."""
        if self.is_lying or not path.startswith(("delta/", "shared/", "snapshot/")):
            return
        newest = max(number for number, _ in self.truth.rows)
        floor = max(1, newest - self._retain + 1)
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

    def _note(self, *words: object) -> None:
        self.scheduler.note("--", *words)

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


_WORK = ("base-", "scratch-")


class _Preferring(random.Random):
    """Chance for quiet batches: they stay on the first executor."""

    def random(self) -> float:
        return 0.5


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


def _rows(store: EmbeddedStore) -> dict[bytes, bytes]:
    return {b"\0\0" + key: value for key, value in store.scan()}


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
