"""Executors of a simulated cluster: a JVM, with a model of the data plane, and the real agent beside it.

A JVM keeps the rows of the versions that it has in memory, writes deltas, calls its agent as docs/protocol.md
says, and takes the bases that merges make. Whatever it is given to read is compared with what was committed.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulation import engine
from simulation.scheduler import Scheduler
from simulation.storage import Bucket, DistantStorage, Weather
from state_store.agent.calls import Calls
from state_store.agent.failures import as_state_store_error
from state_store.checkpoint.metadata import ColumnFamily, DeltaMetadata
from state_store.checkpoint.names import EMPTY_PARENT
from state_store.embedded.store import EmbeddedStore
from state_store.engine.settings import DatabaseSettings
from state_store.errors import BusyError, ConflictError, InternalError, StateStoreError, StorageError

Rows = dict[bytes, bytes]
Changes = dict[bytes, "bytes | None"]
Version = tuple[int, "str | None"]

EMPTY: Version = (0, None)
CALL_TIMEOUT_S = 120.0
_AGENT_TRIES = 3


@dataclass(frozen=True)
class Task:
    """What Spark tells a task of itself: the application (8 hexadecimal digits), a number that grows with
    each task that it launches, and whether it has launched one of the same job for this partition before.

    `is_wanted`: whether its application still runs. Without ids a task does not begin when that has ended,
    as executors end with it: one that did could not be told from a task of the next application.
    """

    application: str
    number: int
    again: bool
    is_wanted: Callable[[], bool] = lambda: True


class WrongRowsError(AssertionError):
    """What was read is not what was committed."""


class Truth:
    """The rows of every attempt at every version that was ever written, committed or not.

    With `any_attempt` those of each attempt at a version are right: without ids, storage that loses the delta
    of one attempt leaves another for the same number.
    """

    def __init__(self, *, any_attempt: bool = False) -> None:
        self.rows: dict[Version, Rows] = {EMPTY: {}}
        self._any_attempt = any_attempt

    def check(self, version: Version, found: Rows, what: str) -> None:
        others = [rows for (number, _), rows in self.rows.items() if number == version[0]]
        if found != self.rows[version] and not (self._any_attempt and found in others):
            raise WrongRowsError(f"{what} of version {version}: {found} instead of {self.rows[version]}")


@dataclass(frozen=True)
class Site:
    """What all executors of a cluster share."""

    scheduler: Scheduler
    bucket: Bucket
    weather: Weather
    truth: Truth
    ids: bool
    retain: int
    options: dict[str, str]
    directory: Path


class Agent:
    """The agent's process: the real calls, on a simulated runtime and a distant storage."""

    def __init__(self, site: Site, name: str, directory: Path, wall_ahead_ms: int) -> None:
        self.process = site.scheduler.process(name)
        self.process.wall_ahead_ms = wall_ahead_ms
        storage = DistantStorage(site.bucket, site.weather, site.scheduler, self.process)
        self.calls = Calls(
            directory,
            settings=lambda options: DatabaseSettings(threads=1),
            open_storage=lambda uri, *, jvm: storage,
            runtime=self.process.runtime,
        )


class Executor:
    """One executor: its JVM, its agent (started anew when it is gone), its providers by run."""

    def __init__(self, site: Site, name: str, wall_ahead_ms: int = 0) -> None:
        self.site = site
        self.name = name
        self.jvm = site.scheduler.process(f"{name}/jvm")
        self.chance = self.jvm.chance
        self.directory = site.directory / name
        self.directory.mkdir()
        self.providers: dict[str, Provider] = {}
        self.unheard: set[Path] = set()
        self.wall_ahead_ms = wall_ahead_ms
        self._agents = itertools.count(1)
        self._instances = itertools.count(1)
        self._agent: Agent | None = None
        site.scheduler.start(self.jvm, "maintenance", self._maintain)

    @property
    def is_dead(self) -> bool:
        return self.jvm.is_dead

    def kill(self) -> None:
        """The machine is gone, with everything on it."""
        self.site.scheduler.kill(self.jvm)
        if self._agent is not None:
            self.site.scheduler.kill(self._agent.process)
        shutil.rmtree(self.directory)

    def kill_agent(self) -> None:
        """The agent's process is gone; what it had on disk is left as it was."""
        if self._agent is None or self._agent.process.is_dead:
            return
        aside = self.directory.with_name(f"{self.directory.name}-aside")
        self.directory.rename(aside)
        self.site.scheduler.kill(self._agent.process)
        shutil.rmtree(self.directory, ignore_errors=True)
        aside.rename(self.directory)

    def pause(self, seconds: float, *, agent_only: bool = False) -> None:
        if not agent_only:
            self.site.scheduler.pause(self.jvm, seconds)
        if self._agent is not None:
            self.site.scheduler.pause(self._agent.process, seconds)

    def provider(self, run: str) -> Provider:
        """That of the run; one of an earlier run is unloaded by the maintenance."""
        if run not in self.providers:
            self.providers[run] = Provider(self, run, next(self._instances))
        return self.providers[run]

    def check_local_files(self) -> None:
        """While nothing runs: the databases here are those that the JVM has, and for each store the one from
        which its next merge starts. A close that no agent has heard leaves what it has until the executor
        ends: the JVM says it once.
        """
        held = {path for provider in self.providers.values() for path in provider.held}
        found = {str(path) for path in self.directory.rglob("base-*") if path.parent not in self.unheard}
        over = sorted(found - held)
        assert len(over) <= len(self.providers), f"left on the local disk: {over}"

    def call(self, op: str, timeout_s: float = CALL_TIMEOUT_S, **arguments: Any) -> dict[str, Any]:
        """Calls the agent from a thread of the JVM; a dead agent is replaced and asked again. Raises what it
        answers, and BusyError where it does not in time."""
        for _ in range(_AGENT_TRIES):
            agent = self._living_agent()
            exchange = _Exchange(agent.calls, {"op": op, **arguments})
            self.site.scheduler.start(agent.process, op, exchange.serve).join(timeout_s)
            if exchange.failure is not None:
                raise exchange.failure
            if exchange.answer is not None:
                return exchange.answer
            if not agent.process.is_dead:
                exchange.is_abandoned = True
                raise BusyError(f"the agent did not answer {op!r} in time")
        raise StorageError("the agent dies again and again")

    def _living_agent(self) -> Agent:
        if self._agent is None or self._agent.process.is_dead:
            name = f"{self.name}/agent-{next(self._agents)}"
            self._agent = Agent(self.site, name, self.directory, self.wall_ahead_ms)
            self.site.scheduler.start(self.jvm, "events", lambda: self._listen(self._agent))
        return self._agent

    def _listen(self, agent: Agent) -> None:
        """Fetches the events of one agent as long as it lives."""
        last = 0
        while not agent.process.is_dead:
            self.site.scheduler.sleep(10 * (self.site.weather.calm_factor - 1))
            exchange = _Exchange(agent.calls, {"op": "events", "after": last, "wait_ms": 30_000})
            self.site.scheduler.start(agent.process, "events", exchange.serve).join()
            for event in (exchange.answer or {}).get("events", ()):
                last = event["number"]
                for provider in self.providers.values():
                    if provider.instance == event["store"] and event["event"] == "merged":
                        provider.offered(event["merged"]["base"])

    def _maintain(self) -> None:
        while True:
            self.site.scheduler.sleep(self.chance.uniform(0.5, 15) * self.site.weather.calm_factor)
            for provider in list(self.providers.values()):
                try:
                    provider.maintain()
                except StateStoreError as error:
                    self.site.scheduler.note("maintenance failed:", type(error).__name__)
                    _never_internal(error)


class _Exchange:
    """One call as the agent's server handles it."""

    def __init__(self, calls: Calls, request: dict[str, Any]) -> None:
        self._calls = calls
        self._request = request
        self.answer: dict[str, Any] | None = None
        self.failure: StateStoreError | None = None
        self.is_abandoned = False

    def serve(self) -> None:
        try:
            answer = self._calls.handle(self._request)
        except StateStoreError as error:
            self.failure = error
        except Exception as error:
            self.failure = as_state_store_error(error)
            _never_internal(self.failure, error)
        else:
            if self.is_abandoned:
                self._calls.undelivered(self._request, answer)
            else:
                self.answer = answer.to_json()


def _never_internal(failure: StateStoreError, cause: BaseException | None = None) -> None:
    """A defect of the program is never a fault's doing."""
    if isinstance(failure, InternalError):
        raise AssertionError(f"internal error: {failure}") from (cause or failure)


class Provider:
    """The store of one run in one JVM."""

    def __init__(self, executor: Executor, run: str, instance: int) -> None:
        self.executor = executor
        self.run = run
        self.instance = instance
        self.newest: Version | None = None
        self.users = 0
        self.used_at_s = executor.site.scheduler.now_s
        self._memory: dict[Version, Rows] = {EMPTY: {}}
        self._base: Path | None = None
        self._offered: Path | None = None
        self.held: set[str] = set()
        self._incoming: Path | None = None
        self._taken: dict[int, str] = {}
        self._last: tuple[Version, dict[str, Any]] | None = None
        self._tried = 0
        self.is_closed = False
        self._files = itertools.count(1)

    def run_task(self, before: Version, change: Callable[[Rows], Changes], task: Task) -> Version:
        """A task of the next version: loads the one before, changes rows, commits. Raises StateStoreError.

        Without ids Spark names the version before by its number; here `before` says what it must be then.
        """
        site = self.executor.site
        if self.is_closed:
            raise StorageError("the provider was closed")
        self.users += 1
        try:
            base = self._load(before)
            rows = self._memory[base]
            if not site.ids:
                site.truth.check(before, rows, "what memory has")
            seen = self._seen(base, task)
            if not site.ids and not task.is_wanted():
                raise StorageError("the application of this task has ended")
            site.scheduler.sleep(self.executor.chance.random() * 0.5)
            version = self._commit(base, rows, change(rows), seen, task)
            if not site.ids and site.weather.calm_factor == 1 and self.executor.chance.random() < 0.03:
                self._given_up(version)
                raise StorageError("the task failed after its commit")
            return version
        finally:
            self.users -= 1
            self.used_at_s = site.scheduler.now_s

    def maintain(self) -> None:
        """What Spark's maintenance does: clean up, or unload what was not used for long."""
        if not self.users and self.executor.site.scheduler.now_s - self.used_at_s > 120:
            self.close()
        elif self.newest is not None:
            version, id_ = self.newest
            self._call("cleanup", version=version, id=id_)

    def snapshot(self, kind: str) -> dict[str, Any]:
        """Spark, or somebody at the command line, asks for a snapshot of the newest version."""
        version, id_ = self.newest or EMPTY
        answer = self._call("snapshot", 600.0, version=version, id=id_, kind=kind, reason="asked")
        if "base" in answer:
            self.offered(answer["base"])
        return answer

    def offered(self, base: dict[str, Any]) -> None:
        """A merge made a base; it is used from the next task on."""
        directory = Path(base["directory"])
        self.held.add(str(directory))
        self.executor.site.truth.check(
            (base["version"], base["id"]), engine.rows_of(directory), "the merged base"
        )
        before, self._offered = self._offered, directory
        if before is not None:
            self._release(before)

    def close(self) -> None:
        self.is_closed = True
        self.executor.providers.pop(self.run, None)
        try:
            self._call("close")
        except StateStoreError:
            self.executor.unheard |= {Path(one).parent for one in self.held}
            raise

    def _load(self, version: Version) -> Version:
        """Sees to it that the version is in memory; the name that it has there."""
        if self._offered is not None:
            before, self._base, self._offered = self._base, self._offered, None
            if before is not None:
                self._release(before)
        ids = self.executor.site.ids
        known = version if ids or version == EMPTY else (version[0], self._taken.get(version[0], ""))
        if known not in self._memory:
            answer = self._call("restore", version=version[0], id=version[1] if ids else None)
            directory = Path(answer["directory"])
            self.held.add(str(directory))
            rows = engine.rows_of(directory)
            self.executor.site.truth.check(version, rows, "the restored base")
            if not ids:
                known = version[0], answer["id"]
                self._take(known, answer["attempts"])
            before, self._base = self._base, directory
            self._memory = {EMPTY: {}, known: rows}
            if before is not None:
                self._release(before)
        return known

    def _take(self, version: Version, seen: dict[str, Any]) -> None:
        """Without ids: the number stands for this attempt, above which storage had those."""
        self._taken[version[0]] = version[1] or ""
        self._last = version, seen

    def _seen(self, base: Version, task: Task) -> dict[str, Any]:
        """Without ids: what storage has above the version that the task builds on."""
        if self.executor.site.ids:
            return {"ordinal": 0, "seen": []}
        is_first = not task.again and base[0] + 1 > self._tried
        if is_first and self._last is not None and self._last[0] == base:
            return self._last[1]
        return self._call("attempts", version=base[0])

    def _given_up(self, version: Version) -> None:
        """Without ids: the task failed after its commit."""
        if self._taken.get(version[0]) == version[1]:
            del self._taken[version[0]]
        try:
            self._call("refuse", version=version[0], id=version[1])
        except StateStoreError as error:
            _never_internal(error)

    def _commit(
        self, before: Version, rows: Rows, changes: Changes, seen: dict[str, Any], task: Task
    ) -> Version:
        site, runtime = self.executor.site, self.executor.jvm.runtime
        self._tried = max(self._tried, before[0] + 1)
        id_ = f"a{seen['ordinal']}-{task.application}-{task.number}-{runtime.unique(4)}"
        if site.ids:
            id_ = runtime.uuid()
        version: Version = before[0] + 1, id_
        after = {**rows, **{key: value for key, value in changes.items() if value is not None}}
        for key, value in changes.items():
            if value is None:
                after.pop(key, None)
        site.truth.rows[version] = after
        parent = before[1] or EMPTY_PARENT
        metadata = DeltaMetadata(
            version[0], id_, parent, len(after), 0, 0, {"default": ColumnFamily(0, False, len(after))}, "test"
        )
        path = self._incoming_directory() / f"{version[0]}_{next(self._files)}.sst"
        size, crc = engine.write_delta(path, sorted(changes.items()), metadata)
        try:
            answer = self._call(
                "commit",
                seen=seen["seen"],
                version=version[0],
                id=id_,
                parent=parent,
                path=str(path),
                bytes=size,
                crc=crc,
                keys=len(after),
                memory_short=self.executor.chance.random() < 0.1,
            )
        except StateStoreError as error:
            path.unlink(missing_ok=True)
            if isinstance(error, ConflictError):
                self._taken, self._last = {}, None
            raise
        self._memory[version] = after
        if not site.ids:
            self._take(version, answer["attempts"])
        self.newest = version
        return version

    def _incoming_directory(self) -> Path:
        if self._incoming is None:
            self._incoming = Path(self._call("open")["incoming"])
        self._incoming.mkdir(parents=True, exist_ok=True)
        return self._incoming

    def _release(self, directory: Path) -> None:
        """A courtesy: the next agent finds what this one was not told."""
        self.held.discard(str(directory))
        try:
            self._call("release", directory=str(directory))
        except StateStoreError as error:
            _never_internal(error)

    def _call(self, op: str, timeout_s: float = CALL_TIMEOUT_S, **arguments: Any) -> dict[str, Any]:
        site = self.executor.site
        store = {
            "instance": self.instance,
            "location": site.bucket.location,
            "operator": 0,
            "partition": 0,
            "name": "default",
            "run": self.run,
            "ids": site.ids,
            "retain": site.retain,
            "options": site.options,
            "held": sorted(self.held),
        }
        return self.executor.call(op, timeout_s, store=store, **arguments)


def rows_of(store: EmbeddedStore) -> Rows:
    """The rows of an embedded store as executors have them."""
    return {b"\0\0" + key: value for key, value in store.scan()}


def random_changes(chance: random.Random) -> Callable[[Rows], Changes]:
    """Some puts with values that no other attempt writes, some removals."""
    unique = chance.getrandbits(48)

    def change(rows: Rows) -> Changes:
        keys = [b"\0\0" + bytes([97 + chance.randrange(12)]) for _ in range(chance.randrange(0, 6))]
        return {
            key: None if chance.random() < 0.3 else f"{unique:x}.{number}".encode()
            for number, key in enumerate(dict.fromkeys(keys))
        }

    return change
