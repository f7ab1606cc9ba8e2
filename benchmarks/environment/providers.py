"""The measured providers: class, options, and the check that this installation has them.

A `Variant` is a provider with a set of options. If a case has a memory budget, every variant that has such an
option gets the same: ours as its budget, RocksDB as its block cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from state_store.core.settings.option import PREFIX
from state_store.core.settings.session import PROVIDER_CLASS
from state_store.session import build, releases

STATE = "org.apache.spark.sql.execution.streaming.state."
CONF = "spark.sql.streaming.stateStore."
OURS = PREFIX

INCREMENTAL_CLASS = PROVIDER_CLASS

# Batches follow each other without a pause here. So the minimum pause between merges, which is in real time,
# must not decide how many batches pass between two merges.
_BACK_TO_BACK = {OURS + "minPauseBetweenMerges": "0"}
_NO_FULL = {
    OURS + name: "0"
    for name in ("fullAfterDeltas", "fullAfterMerges", "fullAfterFiles", "fullSpaceAmplification")
}
_WRITE_BUFFER_MB = 64


@dataclass(frozen=True)
class Variant:
    """A measured provider.

    `conf` has SQL options; `{dir}` in a value stands for a local directory of the variant.
    """

    name: str
    title: str
    provider: str
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        return self.provider == INCREMENTAL_CLASS


HDFS = Variant("hdfs", "HDFS-backed", STATE + "HDFSBackedStateStoreProvider")
ROCKSDB = Variant("rocksdb", "RocksDB", STATE + "RocksDBStateStoreProvider")
CHANGELOG = Variant(
    "rocksdb-changelog",
    "RocksDB + changelog",
    ROCKSDB.provider,
    {CONF + "rocksdb.changelogCheckpointing.enabled": "true"},
)
INCREMENTAL = Variant(
    "incremental",
    "incremental",
    INCREMENTAL_CLASS,
    {CONF + "checkpointFormatVersion": "2", OURS + "localDir": "{dir}", **_BACK_TO_BACK},
)


def changelog_with_cache(budget_mb: int, stores: int) -> Variant:
    """Return RocksDB + changelog at its best: a block cache that makes its memory equal to the budget."""
    cache_mb = max(8, budget_mb // stores - _WRITE_BUFFER_MB)
    return Variant(
        "rocksdb-cache",
        "RocksDB + changelog, larger cache",
        ROCKSDB.provider,
        {**CHANGELOG.conf, CONF + "rocksdb.blockCacheSizeMB": str(cache_mb)},
    )


def bounded(variant: Variant, budget_mb: int) -> Variant:
    """Return RocksDB with one block cache and one bound of write buffers for all stores of an executor."""
    options = {"boundedMemoryUsage": "true", "maxMemoryUsageMB": str(budget_mb)}
    conf = {CONF + "rocksdb." + option: value for option, value in options.items()}
    return Variant(
        f"{variant.name}-bounded",
        f"{variant.title}, bounded memory",
        variant.provider,
        {**variant.conf, **conf},
    )


def incremental(budget_mb: int, name: str = "incremental", **options: str) -> Variant:
    """Return this store with a memory budget and further options, by their names below `...incremental.`."""
    conf = {**INCREMENTAL.conf, OURS + "memoryBudget": f"{budget_mb}m"}
    conf.update({OURS + option: value for option, value in options.items()})
    title = "incremental" if name == "incremental" else name.replace("incremental-", "incremental, ")
    return Variant(name, title, INCREMENTAL_CLASS, conf)


def incremental_never_full(budget_mb: int) -> Variant:
    """Return ours without full checkpoints."""
    options = {option.removeprefix(OURS): value for option, value in _NO_FULL.items()}
    return incremental(budget_mb, "incremental-no-full", **options)


def incremental_never_merged(budget_mb: int) -> Variant:
    """Return ours without merges: the chain has a delta for each batch."""
    off = {"maxDeltas": "1000000", "maxDeltaShare": "0", "restoreObjective": "0"}
    off |= {option.removeprefix(OURS): value for option, value in _NO_FULL.items()}
    return incremental(budget_mb, "incremental-unmerged", **off)


def peers(budget_mb: int, stores: int = 1) -> list[Variant]:
    """Return Spark's providers: both with defaults, RocksDB with changelog, and with a larger cache."""
    return [HDFS, ROCKSDB, CHANGELOG, changelog_with_cache(budget_mb, stores)]


def jar_for(spark_version: str) -> Path | None:
    """Return the jar of this store for this Spark, or None if it has not been built."""
    jar = build.JAR_DIRECTORY / releases.jar_name(spark_version)
    return jar if jar.is_file() else None
