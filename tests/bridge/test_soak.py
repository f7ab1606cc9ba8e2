"""Thousands of batches on many stores: the resources of JVM, agent, storage and local disk do not grow."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from driver import Jvm, gone
from waiting import awaited

pytestmark = [pytest.mark.spark]

STORES = 8
LIVE_KEYS = 300
KEYS_A_BATCH = 20
LIFE = 10
"""Batches after which a family that passes is removed."""
SAMPLES = 20
MIB = 1 << 20

GROWTH = {
    "heap of the JVM (bytes)": 3 * MIB,
    "memory of the JVM (bytes)": 16 * MIB,
    "memory of the agent (bytes)": 6 * MIB,
    "descriptors of the JVM": 8,
    "descriptors of the agent": 8,
    "threads of the JVM": 3,
    "threads of the agent": 3,
    "mappings of the JVM": 40,
    "files in storage": 20,
    "bytes in storage": MIB,
    "files on local disk": 30,
    "bytes on local disk": MIB,
}
"""Bounds of the growth from the first sample to the last, by a line through the samples of each half.

One sample cannot tilt the line. Merges and clean-ups have caught up before each sample.
"""

KILLED_EACH = 71
"""Batches of a soak on remote storage after which the agent is killed."""

REMOTE = {"restoreMode": "lazy", "localRecovery": "false", "localDiskLimit": "1"}


def bounds_of_remote(kills: int) -> dict[str, int]:
    """Return the bounds where agents are killed that often.

    Each sample is of an agent of another age. The files that a killed one has leased stay for `leaseExpiry`,
    whose least value is a minute, and those that it was about to publish for 24 times as long, longer than
    the test runs.
    """
    return {
        **GROWTH,
        "heap of the JVM (bytes)": 8 * MIB,
        "memory of the agent (bytes)": 24 * MIB,
        "threads of the agent": 16,
        "descriptors of the agent": 24,
        "threads of the JVM": 12,
        "files in storage": GROWTH["files in storage"] + 12 * kills,
        "bytes in storage": GROWTH["bytes in storage"] + kills * (64 << 10),
    }


class Soak:
    """Run batches, in turns, on stores that merge, make full checkpoints, expire, are read and reopened.

    With `families` the rows lie in so many column families, as the state variables of a processor do. Another
    family comes and goes with all of its rows, under a new name each time, as a variable that is deleted.

    With `is_remote` each call of the storage takes two milliseconds, a store reads what it was restored from
    past a small cache, and the agent is killed in the middle of a batch now and then.
    """

    def __init__(self, jvm: Jvm, room: Path, families: int = 0, *, is_remote: bool = False) -> None:
        self._jvm, self._room = jvm, room
        self._is_remote = is_remote
        self.kills = 0
        if is_remote:
            jvm("on_fs", operation="any", action="sleep", ms=2, times=2**31 - 1)
        self._families = families
        self._names = ",".join(f"family-{number}" for number in range(families))
        self._versions: list[tuple[int, str | None]] = [(0, None)] * STORES
        self._batches = 0
        for number in range(STORES):
            self._open(number)

    def run(self, batches: int) -> None:
        for _ in range(batches):
            number = self._batches % STORES
            self._batch(number)
            self._batches += 1
            if self._batches % 37 == 0:
                self._jvm("maintain", provider=f"p{number}")
            if self._batches % 61 == 0:
                self._jvm("close", provider=f"p{number}")
                self._open(number)
            if self._batches % 101 == 0:
                self._read(number)

    def settle(self) -> None:
        """Wait until merges and clean-ups have caught up and storage does not change any more."""
        for _ in range(2):  # the next clean-up deletes files that a merge replaced
            for number in range(STORES):
                self._jvm("maintain", provider=f"p{number}")
            quiet, found = 0, -1
            while quiet < 6:
                time.sleep(0.05)
                before, found = found, self.files()
                quiet = quiet + 1 if before == found else 0

    def files(self) -> int:
        return sum(1 for _ in _sizes(self._room))

    def check_rows(self) -> None:
        """Check that every store has exactly the rows of its newest batches."""
        for number, (version, checkpoint_id) in enumerate(self._versions):
            end = version * KEYS_A_BATCH
            live = range(max(0, end - LIVE_KEYS), end)
            expected = {f"k{key}": f"v{key // KEYS_A_BATCH}-{key}" for key in live}
            assert self._scan(f"p{number}", version, checkpoint_id) == expected

    def _open(self, number: int, name: str = "p", **options: str) -> None:
        conf = {
            "memoryBudget": "16m",
            "maxDeltas": "3",
            "minPauseBetweenMerges": "0s",
            "fullAfterMerges": "4",
            "mergeTimeout": "20s",
            "leaseExpiry": "60s",
            **(REMOTE if self._is_remote else {}),
            **options,
        }
        prefix = "spark.sql.streaming.stateStore."
        self._jvm(
            "provider",
            provider=f"{name}{number}",
            location=f"{'probe://' if self._is_remote else ''}{self._room / str(number)}",
            families=self._families > 0,
            conf={
                **{f"{prefix}incremental.{key}": value for key, value in conf.items()},
                f"{prefix}checkpointFormatVersion": "2",
                "spark.sql.streaming.minBatchesToRetain": "4",
            },
        )

    def _batch(self, number: int) -> None:
        version, checkpoint_id = self._versions[number]
        first, store = version * KEYS_A_BATCH, f"s{number}"
        self._jvm("begin", provider=f"p{number}", store=store, version=version, id=checkpoint_id)
        families = self._families
        if families:
            self._change_families(store, version)
        rows = {"from": first, "until": first + KEYS_A_BATCH}
        self._jvm("fill", store=store, value=f"v{version}", families=families, **rows)
        old = first - LIVE_KEYS
        rows = {"from": max(0, old), "until": max(0, old + KEYS_A_BATCH)}
        self._jvm("drop", store=store, families=families, **rows)
        if self._is_remote and self._batches % KILLED_EACH == KILLED_EACH - 1:
            os.kill(self._jvm.agent() or 0, signal.SIGKILL)
            self.kills += 1
        committed = self._jvm("commit", store=store)
        self._versions[number] = committed["version"], committed["id"]

    def _change_families(self, store: str, version: int) -> None:
        """Fill the family that will go, and every tenth time put another one in its place."""
        passing, is_new = f"passing-{version // LIFE}", version % LIFE == 0
        gone = {"remove": f"passing-{version // LIFE - 1}"} if is_new and version else {}
        self._jvm("families", store=store, create=f"{self._names},{passing}", **gone)
        self._jvm(
            "put", store=store, family=passing, rows={f"{version}-{n}": "v" for n in range(KEYS_A_BATCH)}
        )

    def _scan(self, provider: str, version: int, checkpoint_id: str | None) -> dict[str, str]:
        """Return the rows of a version, under one name of a store: the JVM keeps stores by their names."""
        is_read = not self._families  # a store knows only families that it was told of, which takes a writer
        self._jvm("begin", provider=provider, store="read", read=is_read, version=version, id=checkpoint_id)
        if self._families:
            self._jvm("families", store="read", create=self._names)
        rows: dict[str, str] = self._jvm("scan", store="read", families=self._families)
        self._jvm("release" if is_read else "abort", store="read")
        return rows

    def _read(self, number: int) -> None:
        """Restore the store from storage beside the open one."""
        self._open(number, "reader", localRecovery="false")
        version, checkpoint_id = self._versions[number]
        rows = self._scan(f"reader{number}", version, checkpoint_id)
        assert len(rows) == min(LIVE_KEYS, version * KEYS_A_BATCH)
        self._jvm("close", provider=f"reader{number}")


def _sample(jvm: Jvm, storage: Path) -> dict[str, int]:
    processes = {"JVM": jvm.process.pid, "agent": jvm.agent() or 0}
    found = {"heap of the JVM (bytes)": jvm("memory")["heap"]}
    for name, pid in processes.items():
        directory = Path(f"/proc/{pid}")
        status = dict(line.split(":", 1) for line in (directory / "status").read_text().splitlines())
        found[f"memory of the {name} (bytes)"] = int(status["RssAnon"].split()[0]) * 1024
        found[f"descriptors of the {name}"] = len(list((directory / "fd").iterdir()))
        found[f"threads of the {name}"] = int(status["Threads"])
    found["mappings of the JVM"] = len(Path(f"/proc/{processes['JVM']}/maps").read_text().splitlines())
    for name, place in {"in storage": storage, "on local disk": jvm.tmp}.items():
        sizes = list(_sizes(place))
        found[f"files {name}"], found[f"bytes {name}"] = len(sizes), sum(sizes)
    return found


def _growth(samples: list[int]) -> float:
    """Return the growth of what grows in both halves of the time.

    A thread that load starts, with its share of memory, is a step in one of them.
    """
    middle = len(samples) // 2
    halves = (samples[: middle + 1], samples[middle:])
    return min(_slope(half) for half in halves) * (len(samples) - 1)


def _slope(samples: list[int]) -> float:
    """Return the median of the slopes between any two samples."""
    pairs = itertools.combinations(enumerate(samples), 2)
    return statistics.median((b - a) / (later - earlier) for (earlier, a), (later, b) in pairs)


def test_a_line_is_growth_and_a_step_is_not() -> None:
    noise = [3, 0, 2, 4, 1, 0, 2, 3, 1, 4, 0, 2, 3, 1, 2]
    assert _growth([5 * number + more for number, more in enumerate(noise)]) > 60
    for step in range(1, len(noise)):
        assert _growth([more + 100 * (number >= step) for number, more in enumerate(noise)]) < 10


def _sizes(directory: Path) -> Iterator[int]:
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                yield (Path(parent) / name).lstat().st_size
            except FileNotFoundError:  # another process removed it
                continue


@pytest.fixture
def small_jvm(driver_class_path: str, tmp_path: Path) -> Iterator[Jvm]:
    """Yield a JVM whose heap is resident from the start, so that all growth is outside of it."""
    heap = ("-Xms128m", "-Xmx128m", "-XX:+AlwaysPreTouch")
    jvm = Jvm(driver_class_path, tmp_path, heap=heap)
    yield jvm
    jvm.kill()
    gone(lambda: any(jvm.tmp.glob("state-store-*")))
    shutil.rmtree(jvm.tmp, ignore_errors=True)


@pytest.mark.parametrize(
    ("batches", "families", "is_remote"),
    [
        pytest.param(1000, 0, False, marks=pytest.mark.tier("more")),
        pytest.param(2000, 20, False, marks=[pytest.mark.tier("long"), pytest.mark.timeout(3000)]),
        pytest.param(10_000, 0, False, marks=[pytest.mark.tier("long"), pytest.mark.timeout(8000)]),
        pytest.param(4000, 0, True, marks=[pytest.mark.tier("long"), pytest.mark.timeout(8000)]),
    ],
)
def test_nothing_grows(small_jvm: Jvm, tmp_path: Path, batches: int, families: int, is_remote: bool) -> None:
    soak = Soak(small_jvm, tmp_path / "state", families, is_remote=is_remote)
    agent = None
    samples = []
    for _ in range(SAMPLES):
        soak.run(batches // SAMPLES)
        soak.settle()
        samples.append(_sample(small_jvm, tmp_path / "state"))
        agent = agent or small_jvm.agent()
    soak.check_rows()
    assert soak.kills == (batches // KILLED_EACH if is_remote else 0)
    assert (small_jvm.agent() == agent) != is_remote, "an agent that was replaced began anew"
    bounds = bounds_of_remote(soak.kills) if is_remote else GROWTH
    counted = samples[SAMPLES // 4 :]
    growth = {resource: _growth([sample[resource] for sample in counted]) for resource in bounds}
    for resource in bounds:
        counts = [sample[resource] for sample in counted]
        print(f"{resource}: {growth[resource]:+.1f} by the line through {counts}")
    assert {resource: by for resource, by in growth.items() if by > bounds[resource]} == {}


FAMILIES = 30


@pytest.mark.tier("more")
@pytest.mark.parametrize(
    ("stores", "batches"), [(2, 60), pytest.param(30, 1000, marks=pytest.mark.tier("long"))]
)
def test_only_versions_in_memory_have_their_column_families(
    own_jvm: Jvm, tmp_path: Path, stores: int, batches: int
) -> None:
    """Each version has families of its own, as each batch adds a row to all; merges make versions old."""
    prefix = "spark.sql.streaming.stateStore."
    conf = {
        f"{prefix}incremental.memoryBudget": "16m",
        f"{prefix}incremental.maxDeltas": "3",
        f"{prefix}incremental.minPauseBetweenMerges": "0s",
        f"{prefix}checkpointFormatVersion": "2",
    }
    versions: list[tuple[int, str | None]] = [(0, None)] * stores
    for number in range(stores):
        location = str(tmp_path / "state" / str(number))
        own_jvm("provider", provider=f"p{number}", location=location, conf=conf, families=True)

    def batch() -> None:
        for number in range(stores):
            version, checkpoint_id = versions[number]
            own_jvm("begin", provider=f"p{number}", store="s", version=version, id=checkpoint_id)
            own_jvm("fill_families", store="s", families=FAMILIES, key=f"k{version}")
            committed = own_jvm("commit", store="s")
            versions[number] = committed["version"], committed["id"]

    def families_after_a_batch() -> int:
        batch()
        return int(own_jvm("instances", **{"class": ".checkpoint.ColumnFamily"}))

    for _ in range(batches - 1):
        batch()
    assert families_after_a_batch() >= FAMILIES * stores
    # On a busy machine merges come late, and versions stay in memory until then.
    awaited(lambda: families_after_a_batch() < FAMILIES * stores * 30, "old versions leave the memory")
    memory = own_jvm("memory")
    assert memory["used"] <= memory["budget"]
