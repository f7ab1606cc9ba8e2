"""Plan for a cluster, drawn from a seed: faults, options of the stores, the format of checkpoints."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

STORES = "spark.sql.streaming.stateStore."
FAULTS_A_LIFE = 60
"""Most faults in the life of one set of queries; then they have to be right, and others begin."""

_MEAN_PAUSE_S = 1.2
_MAX_PAUSE_S = 6.0

KINDS: Mapping[str, int] = {
    "kill-executor": 18,
    "stop-executor": 12,
    "decommission-executor": 5,
    "kill-agent": 20,
    "stop-agent": 12,
    "starve-agent": 6,
    "clean-agent": 4,
    "kill-python": 10,
    "stop-python": 8,
    "kill-machine": 4,
    "stop-machine": 6,
    "kill-driver": 3,
    "stop-driver": 2,
}
"""The kinds of faults and how often each is drawn. `machine` is a worker of the cluster with all that it has
started; a driver that is stopped is replaced at once, and wakes up beside its successor. An agent that is
starved gets no more file descriptors; where one is cleaned, the directory of its socket is removed."""

_ON_S3 = {kind: weight for kind, weight in KINDS.items() if kind != "stop-driver"}
STORAGES: Mapping[str, Mapping[str, int]] = {
    "local": KINDS,
    "remote": KINDS,
    "hdfs": {**KINDS, "stop-datanode": 20, "stop-storage": 15},
    "s3": {**_ON_S3, "stop-storage": 20, "refuse-storage": 15},
}
"""The kinds for each storage of checkpoints. `remote` is the local disk under a scheme that the store takes
for a service's, so that restores may be lazy. `storage` is the whole service; a DataNode that is stopped is
gone with its connections, and started anew. A service that refuses answers `503 Slow Down`. On S3 no driver
wakes up beside its successor: nothing keeps the two from writing one entry of Spark's own logs, which S3A
moves to its name by a copy."""

_STOPS_S: Mapping[str, tuple[float, float]] = {
    "stop-executor": (0.3, 25),
    "stop-agent": (0.3, 20),
    "starve-agent": (0.3, 20),
    "stop-python": (0.3, 8),
    "stop-machine": (4, 75),
    "stop-driver": (8, 25),
    "stop-datanode": (2, 15),
    "stop-storage": (0.3, 20),
    "refuse-storage": (0.3, 20),
}
"""The shortest and the longest time of a fault of each kind that lasts."""


@dataclass(frozen=True)
class Fault:
    """`kind` is done to one process of those it may be done to, `after_s` after the fault before.

    `choice`, from 0 to 1, says which process; a fault that lasts ends after `for_s`.
    """

    kind: str
    after_s: float
    choice: float
    for_s: float = 0.0

    @property
    def target(self) -> str:
        """Victim: executor, agent, python, machine, driver, datanode or storage."""
        return self.kind.partition("-")[2]

    @property
    def lasts(self) -> bool:
        return self.kind in _STOPS_S

    def __str__(self) -> str:
        return f"{self.kind} for {self.for_s:.1f} s" if self.lasts else self.kind


@dataclass(frozen=True, eq=False)
class Profile:
    """Options at one of their extremes: those of the state store by their names, and Spark's in full."""

    name: str
    store: Mapping[str, Any]
    spark: Mapping[str, str]


_MERGE_ALWAYS = {"maxDeltas": 1, "minPauseBetweenMerges": "0s"}
PROFILES = (
    Profile(
        "merges at each commit, a full checkpoint after each second",
        {**_MERGE_ALWAYS, "fullAfterMerges": 2, "fullScheduleJitter": "0s"},
        {STORES + "maintenanceInterval": "200ms", "spark.sql.streaming.minBatchesToRetain": "3"},
    ),
    Profile(
        "the least memory",
        {"memoryBudget": "16m", "maxDeltas": 6, "minPauseBetweenMerges": "100ms", "transferThreads": 1},
        {"spark.locality.wait": "0s", "spark.sql.streaming.minBatchesToRetain": "10"},
    ),
    Profile(
        "the shortest retention and leases",
        {
            **_MERGE_ALWAYS,
            "fullAfterDeltas": 3,
            "retainedCheckpoints": 1,
            "mergeTimeout": "20s",
            "leaseExpiry": "60s",
        },
        {STORES + "maintenanceInterval": "100ms", "spark.sql.streaming.minBatchesToRetain": "2"},
    ),
    Profile(
        "stores that are unloaded after each batch, nothing kept on local disk",
        {"localRecovery": "false", "maxDeltas": 4, "snapshotCompression": "lz4", "fullAfterMerges": 3},
        {STORES + "unloadOnCommit": "true", "spark.locality.wait": "0s"},
    ),
    Profile(
        "executors that come and go, snapshots that Spark forces",
        {"maxDeltas": 3, "maxConcurrentMerges": 4},
        {
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true",
            "spark.dynamicAllocation.minExecutors": "1",
            "spark.dynamicAllocation.maxExecutors": "3",
            "spark.dynamicAllocation.executorIdleTimeout": "4s",
            "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
            "spark.executor.cores": "1",
            STORES + "forceSnapshotUploadOnLag": "true",
            STORES + "maintenanceInterval": "300ms",
        },
    ),
    Profile("as a session has it that sets nothing", {}, {}),
)

_LAZY = {
    "restoreMode": "lazy",
    "snapshotCompression": "none",
    "localRecovery": "false",
    "maxDeltas": 2,
}
RESTORES: Mapping[str, Mapping[str, Any]] = {
    "as the profile says": {},
    "by pages of a cache that is smaller than the state": {**_LAZY, "localDiskLimit": 1},
    "at once, by pages of a cache of about a tenth of the state": {
        "restoreMode": "eager",
        "snapshotCompression": "none",
        "localDiskLimit": "96k",
    },
    "in the background, as far as there is room": {
        **_LAZY,
        "hydrationRateLimit": "20k",
        "localDiskLimit": "256k",
    },
}
"""Options by which files come to an executor where checkpoints are in remote storage, each with every
profile. With options of their own, the agents are those of `small_agent`."""

PLACEMENTS = ("spark", "balanced")
"""Values of `placement`, each with every profile: executors are killed, and others join, in every life."""


@dataclass(frozen=True)
class Plan:
    """The life of one set of queries."""

    seed: int
    life: int
    checkpoint_format: int
    profile: Profile
    faults: tuple[Fault, ...]
    placement: str
    restores: str

    @property
    def caches_pages(self) -> bool:
        """True if executors cache the files of remote storage by pages."""
        return RESTORES[self.restores].get("localDiskLimit") == 1

    def __str__(self) -> str:
        return (
            f"life {self.life}: seed {self.seed}, {len(self.faults)} faults, checkpoint format "
            f"{self.checkpoint_format}, placement {self.placement}, restores {self.restores}, "
            f"{self.profile.name}"
        )


def plans(
    seed: int, faults: int, formats: tuple[int, ...] = (2, 1), kinds: Mapping[str, int] = KINDS
) -> list[Plan]:
    """Return the lives in which this many faults happen; the same for the same arguments on every machine."""
    lives = -(-faults // FAULTS_A_LIFE)
    shares = [faults // lives + (life < faults % lives) for life in range(lives)]
    return [_plan(seed, life, share, formats, kinds) for life, share in enumerate(shares)]


def _plan(seed: int, life: int, faults: int, formats: tuple[int, ...], kinds: Mapping[str, int]) -> Plan:
    rng = random.Random(f"{seed}/{life}")
    profile = PROFILES[(seed + life) % len(PROFILES)]
    # With as many profiles as an even number, each would meet one format only.
    checkpoint_format = formats[(life + life // len(PROFILES)) % len(formats)]
    placement = random.Random(f"{seed}/{life}/placement").choice(PLACEMENTS)
    restores = random.Random(f"{seed}/{life}/restores").choice(list(RESTORES))
    hits = tuple(_fault(rng, kinds) for _ in range(faults))
    return Plan(seed, life, checkpoint_format, profile, hits, placement, restores)


def _fault(rng: random.Random, kinds: Mapping[str, int]) -> Fault:
    (kind,) = rng.choices(list(kinds), weights=list(kinds.values()))
    after_s = min(rng.expovariate(1 / _MEAN_PAUSE_S), _MAX_PAUSE_S)
    choice, (least_s, most_s) = rng.random(), _STOPS_S.get(kind, (0.0, 0.0))
    # Short and long stops alike: a pause, one that a time-out ends, and one that outlives everything.
    for_s = least_s * (most_s / least_s) ** rng.random() if most_s else 0.0
    return Fault(kind, after_s, choice, for_s)
