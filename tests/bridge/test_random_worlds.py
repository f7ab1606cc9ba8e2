"""Random worlds: stores whose state is partly remote, beside faults and tools, agree with dicts.

Several stores share a JVM and an agent for which small files are large (`chaos.small_agent`). Their files are
cached by pages, with a cache smaller than the state, or hydrated within a rate and a budget. Keys are
announced, some twice and some that are absent; readers are upgraded; merges run from storage to storage;
agents are killed in the middle of calls, or have no file descriptors; storage fails, or is slow;
`state-store full` runs beside. The storage is a local directory that Spark reaches as if it were remote, S3
or HDFS. In a local directory as it is the JVM stores deltas itself, and nothing is remote.
"""

from __future__ import annotations

import itertools
import os
import random
import resource
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import maven_jars
import minihdfs
import minis3
import pytest
from chaos.small_agent import program
from driver import DriverError, Jvm
from waiting import paths_below

from state_store.core.checkpoint.names import VersionId
from state_store.core.storage import Storage, open_storage
from state_store.data.maintenance.full_checkpoints import store_full_checkpoint
from state_store.data.query import StoreKey
from state_store.errors import StateStoreError

pytestmark = [pytest.mark.spark]

KEYS = 600
STORES = 2
RETAINED = 4
"""Versions that can be read. So clean-ups delete files that bases in use read, if no lease holds them."""
TASK_ATTEMPTS = 4
Version = tuple[int, "str | None"]


class _Store:
    """A store as it should be: the rows of each version, and the versions that led to the newest."""

    def __init__(self, location: str, storage: Callable[[], Storage]) -> None:
        self.location, self.storage = location, storage
        self.rows: dict[Version, dict[str, str]] = {(0, None): {}}
        self.line: list[Version] = [(0, None)]
        self.provider = ""

    @property
    def newest(self) -> Version:
        return self.line[-1]


@dataclass
class _Place:
    """A storage in which stores lie.

    `uri` is a directory as the JVM names it, `own_uri` as this process does. `break_requests` lets some of
    the next requests fail, or end the agent, and `mend_requests` ends that.
    """

    jvm: Jvm
    uri: str
    own_uri: str

    def store(self, number: int) -> _Store:
        return _Store(f"{self.uri}/{number}", lambda: open_storage(f"{self.own_uri}/{number}/0/0"))

    def break_requests(self, chance: random.Random) -> None:
        operation = chance.choice(["open", "any", "create", "list", "rename"])
        action = chance.choice([{"action": "fail"}, {"action": "kill"}, {"action": "sleep", "ms": 5}])
        self.jvm("on_fs", operation=operation, nth=chance.randrange(1, 30), times=3, **action)

    def mend_requests(self) -> None:
        self.jvm("on_fs", operation="never", action="fail")


@dataclass
class _S3Place(_Place):
    """A bucket. More requests fail than S3's client repeats."""

    server: minis3.S3Server

    def break_requests(self, chance: random.Random) -> None:
        fault = chance.choice(
            [minis3.status("503 Slow Down", "SlowDown"), minis3.lost_answer, minis3.broken_off]
        )
        first, method = chance.randrange(1, 30), chance.choice(["GET", "PUT", "any"])
        numbers, agent = itertools.count(1), self.jvm.agent() if chance.random() < 0.3 else None

        def fail(asked: str, path: str) -> minis3.Fault | None:
            if method not in (asked, "any") or not first <= next(numbers) < first + 6:
                return None
            if agent:
                with suppress(ProcessLookupError):
                    os.kill(agent, signal.SIGKILL)
            return fault

        self.server.faults = fail

    def mend_requests(self) -> None:
        self.server.faults = minis3.nothing


class World:
    """A random history. With `faults` calls may fail, and no row may be wrong all the same."""

    def __init__(self, place: _Place, seed: int, pages: bool, faults: bool) -> None:
        self._place, self._pages, self._faults = place, pages, faults
        self._jvm = place.jvm
        self._stores = [place.store(number) for number in range(STORES)]
        self._chance = random.Random(seed)
        self._names = itertools.count()
        self.counts: Counter[str] = Counter()

    def run(self, steps: int) -> None:
        """Do that many things, then end the faults, and read what every store has."""
        deeds: dict[Callable[[_Store], None], int] = {
            self._batch: 12,
            self._read: 4,
            self._reopen: 3,
            self._maintain: 2,
            self._full: 1,
        }
        if self._faults:
            deeds |= {self._kill_agent: 1, self._break_storage: 2, self._starve_agent: 1, self._recover: 1}
        for _ in range(steps):
            store = self._chance.choice(self._stores)
            (deed,) = self._chance.choices(list(deeds), list(deeds.values()))
            self._do(deed, store)
        self._faults = False
        self._mend()
        for store in self._stores:
            self._reopen(store)
            for version in store.line[-2:]:
                self._check(store, version)

    def _do(self, deed: Callable[[_Store], None], store: _Store) -> None:
        if not store.provider:
            self._reopen(store)
        name = deed.__name__.lstrip("_")
        try:
            deed(store)
            self.counts[name] += 1
        except (DriverError, StateStoreError):
            if not self._faults:
                raise
            self.counts[f"{name} that failed"] += 1

    def _reopen(self, store: _Store) -> None:
        chance = self._chance
        if store.provider:
            self._jvm("close", provider=store.provider)
        store.provider = f"p{next(self._names)}"
        options = {
            "restoreMode": "lazy",
            "localRecovery": "false",
            "memoryBudget": chance.choice(["16m", "64m"]),
            "maxDeltas": chance.choice(["2", "5"]),
            "fullAfterMerges": chance.choice(["0", "2"]),
            "minPauseBetweenMerges": "0",
            "retainedCheckpoints": str(RETAINED),
        }
        if self._pages:
            options["localDiskLimit"] = "1"
        else:
            options["hydrationRateLimit"] = chance.choice(["4k", "200k"])
            options["localDiskLimit"] = chance.choice(["0", "1g"])
        self._jvm.provider(store.provider, store.location, **options)

    def _batch(self, store: _Store) -> None:
        chance, base = self._chance, store.newest
        name, rows = f"s{next(self._names)}", dict(store.rows[base])
        is_upgraded = chance.random() < 0.35
        opening = {"provider": store.provider, "version": base[0], "id": base[1]}
        self._jvm("begin", store=name, read=is_upgraded, **opening)
        try:
            if chance.random() < 0.7:
                self._announce(name, rows)
            if is_upgraded:
                self._jvm("upgrade", provider=store.provider, store=name, id=base[1])
            for _ in range(chance.randrange(1, 5)):
                changed = {self._key(): self._value() for _ in range(chance.choice([1, 20, 80]))}
                self._jvm("put", store=name, rows=changed)
                rows |= changed
                self._look_up(name, rows, [self._key() for _ in range(5)])
                removed = self._key()
                self._jvm("remove", store=name, key=removed)
                rows.pop(removed, None)
            if chance.random() < 0.2:
                assert self._jvm("scan", store=name) == rows
            if chance.random() < 0.1:
                self._jvm("abort", store=name)
                return
            committed = self._jvm("commit", store=name)
        except DriverError:
            self._jvm("abort", store=name)
            raise
        version = (committed["version"], committed["id"])
        store.rows[version] = rows
        store.line.append(version)
        assert self._jvm("metrics", store=name)["keys"] == len(rows)

    def _announce(self, name: str, rows: dict[str, str]) -> None:
        keys = [self._key() for _ in range(self._chance.choice([3, 60, 300]))]
        self._jvm("expect", store=name, keys=keys + keys[: self._chance.choice([0, 40])] + ["absent"])
        self._look_up(name, rows, keys[:20])

    def _look_up(self, name: str, rows: dict[str, str], keys: list[str]) -> None:
        for key in keys:
            assert self._jvm("get", store=name, key=key) == rows.get(key), key

    def _read(self, store: _Store) -> None:
        self._check(store, self._chance.choice(store.line[-RETAINED:]))

    def _check(self, store: _Store, version: Version) -> None:
        assert self._jvm.rows(store.provider, *version) == store.rows[version], version

    def _maintain(self, store: _Store) -> None:
        self._jvm("maintain", provider=store.provider)

    def _full(self, store: _Store) -> None:
        """Make a full checkpoint of the version that was committed before the newest, from outside."""
        if len(store.line) > 2:
            store_full_checkpoint(StoreKey(0, 0), store.storage(), VersionId(*store.line[-2]))

    def _kill_agent(self, store: _Store) -> None:
        agent = self._jvm.agent()
        if agent:
            with suppress(ProcessLookupError):
                os.kill(agent, signal.SIGKILL)

    def _starve_agent(self, store: _Store) -> None:
        """Leave the agent few file descriptors, or none, for a while: calls wait for one."""
        agent, more = self._jvm.agent(), self._chance.choice([0, 1, 4])
        with suppress(OSError):  # it has ended
            _limit_descriptors(agent, len(list(Path(f"/proc/{agent}/fd").iterdir())) + more)
        timer = threading.Timer(self._chance.choice([0.2, 2]), _limit_descriptors, [agent])
        timer.daemon = True
        timer.start()

    def _recover(self, store: _Store) -> None:
        """End all faults: then as many attempts as Spark makes are enough, with the same provider."""
        self._mend()
        for attempts_left in reversed(range(TASK_ATTEMPTS)):
            try:
                self._batch(store)
                return
            except DriverError as error:
                if not attempts_left:
                    raise AssertionError("the store does not recover") from error

    def _mend(self) -> None:
        self._place.mend_requests()
        _limit_descriptors(self._jvm.agent())

    def _break_storage(self, store: _Store) -> None:
        self._place.break_requests(self._chance)

    def _key(self) -> str:
        return f"key{self._chance.randrange(KEYS)}"

    def _value(self) -> str:
        return f"{self._chance.random()}" * self._chance.choice([1, 5, 40])


def _limit_descriptors(agent: int | None, count: int | None = None) -> None:
    """Limit the file descriptors of an agent that runs to so many, or to the most that it may have."""
    if agent:
        with suppress(OSError):  # it has ended
            _, hard_limit = resource.prlimit(agent, resource.RLIMIT_NOFILE)
            resource.prlimit(
                agent, resource.RLIMIT_NOFILE, (hard_limit if count is None else count, hard_limit)
            )


@contextmanager
def _jvm(driver_class_path: str, room: Path, *more_class_path: Path) -> Iterator[Jvm]:
    """Yield a JVM whose agents take small files for large ones."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    class_path = os.pathsep.join([driver_class_path, *map(str, more_class_path)])
    jvm = Jvm(class_path, room, python=str(program(room)), PYTHONPATH=path)
    try:
        yield jvm
    finally:
        if jvm.process.poll() is None:
            jvm.kill()
        shutil.rmtree(jvm.tmp, ignore_errors=True)


@contextmanager
def _as_if_remote(driver_class_path: str, room: Path) -> Iterator[_Place]:
    with _jvm(driver_class_path, room) as jvm:
        yield _Place(jvm, f"probe://{room}/state", f"{room}/state")


@contextmanager
def _on_local_disk(driver_class_path: str, room: Path) -> Iterator[_Place]:
    with _jvm(driver_class_path, room) as jvm:
        yield _Place(jvm, f"{room}/state", f"{room}/state")


@contextmanager
def _in_s3(driver_class_path: str, room: Path) -> Iterator[_Place]:
    jars = maven_jars.s3a_jars()
    with minis3.running() as server, mock.patch.dict(os.environ, server.environment):
        (room / "conf").mkdir()
        minihdfs.write_configuration(room / "conf" / "core-site.xml", server.hadoop_properties)
        with _jvm(driver_class_path, room, room / "conf", *jars) as jvm:
            yield _S3Place(jvm, "s3a://bucket/world", "s3a://bucket/world", server)


@contextmanager
def _in_hdfs(driver_class_path: str, room: Path) -> Iterator[_Place]:
    with minihdfs.running() as cluster, _jvm(driver_class_path, room) as jvm:
        yield _Place(jvm, f"{cluster.uri}/world", cluster.webhdfs("/world"))


_PLACES = {"local": _on_local_disk, "remote": _as_if_remote, "s3": _in_s3, "hdfs": _in_hdfs}


def _long(seed: int, steps: int, place: str, pages: bool, faults: bool) -> Any:
    marks = [pytest.mark.tier("long"), pytest.mark.timeout(3000)]
    return pytest.param(seed, steps, place, pages, faults, marks=marks)


@pytest.mark.tier("more")
@pytest.mark.parametrize(
    ("seed", "steps", "place", "pages", "faults"),
    [
        (1, 60, "remote", True, True),
        (2, 60, "remote", False, True),
        (3, 40, "s3", True, True),
        (4, 100, "local", False, True),
        (51, 250, "remote", True, False),
        *(
            _long(seed, 1500, "remote", *kind)
            for seed, *kind in itertools.product((11, 12, 13), (True, False), (True, False))
        ),
        *(_long(seed, 2000, "local", False, True) for seed in (41, 42)),
        *(_long(21, 400, "s3", *kind) for kind in itertools.product((True, False), (True, False))),
        *(_long(31, 200, "hdfs", pages, False) for pages in (True, False)),
    ],
)
def test_stores_agree_with_dicts(
    driver_class_path: str, tmp_path: Path, seed: int, steps: int, place: str, pages: bool, faults: bool
) -> None:
    with _PLACES[place](driver_class_path, tmp_path) as storage:
        world = World(storage, seed, pages, faults)
        world.run(steps)
        has_pages = bool(paths_below(storage.jvm.tmp, "*.uses"))
    print(dict(world.counts))
    assert world.counts["batch"] > steps // 6
    assert has_pages == pages, "pages are not cached as the options say"
