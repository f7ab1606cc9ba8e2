"""Recovery from real services on the loopback with added latency: an HDFS, and an S3 service.

Without latency a loopback is faster than any real service. The clients of both wait before each request, and
each of their streams has a pace (`scala/driver/DelayedFileSystem.scala`, `scala_s3/DelayedRequests.scala`).
All stores read with the input stream of S3A that does not read ahead, as `docs/operations.md` recommends.

In addition the largest state is recovered from the local disk, as the scenario `recovery` does with smaller
states.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.environment import minicluster, s3_service
from benchmarks.environment.providers import CHANGELOG, HDFS, ROCKSDB, Variant, incremental
from benchmarks.scenarios.store_level import BUDGET_MB, FAR, Extent, Run, Step, batches, case, load, short

SCENARIO = "services"
REQUEST_MS = 20
STREAM_BYTES = 100 << 20
_SMALL, _MEDIUM, LARGE = 500_000, 5_000_000, 10_000_000
_VALUE_BYTES, _LARGE_VALUE_BYTES = 100, 580
_BATCH, _QUICK_BATCH = 20_000, 100
_FILE_MANAGERS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

HDFS_CASE, S3_CASE, LOCAL_CASE = "recovery, HDFS", "recovery, S3", "recovery, local disk"


def sizes(extent: Extent) -> list[int]:
    """Return the numbers of keys of the recovered stores.

    They are 500,000 (60 MB) and, up to `--largest`, 5 million (600 MB) and 10 million of 6 GB.
    """
    if extent.is_quick:
        return [1_000]
    return [keys for keys in (_SMALL, _MEDIUM, LARGE) if keys <= max(extent.largest, _SMALL)]


def first_batch(keys: int, size: int = _BATCH, local: str = "absent", *, ahead: bool = False) -> str:
    """Return the name of the step that recovers into a batch of this size, with or without local files.

    `ahead` is for the step whose keys are announced before they are looked up.
    """
    return f"{_first_row(keys, local)}, batch of {short(size)}" + (", looked ahead" if ahead else "")


def _first_row(keys: int, local: str) -> str:
    bytes_each = ", 600 B each" if keys == LARGE else ""
    return f"{short(keys)} keys{bytes_each}, local files {local}"


@dataclass(frozen=True)
class Part:
    """Stores of one size on one service and in one JVM, where they take turns."""

    keys: int
    subjects: Sequence[Variant]


def parts(extent: Extent, ours: bool, name: str) -> list[Part]:
    """Return the runs of a case: a run for each size, and for the largest size one for each store.

    A disk need not hold the largest files of several stores. On the local disk there is only the largest
    size.
    """
    if extent.cases and name not in extent.cases:
        return []
    variants_by_keys = [
        (
            keys,
            [
                variant
                for variant in _subjects(keys, name)
                if extent.measures(variant.name) and (ours or not variant.is_ours)
            ],
        )
        for keys in sizes(extent)
        if keys == LARGE or name != LOCAL_CASE
    ]
    return [
        Part(keys, some)
        for keys, subjects in variants_by_keys
        for some in ([[variant] for variant in subjects] if keys == LARGE else [subjects])
        if some
    ]


def hdfs_run(part: Part, extent: Extent, uri: str) -> Run:
    """Return a part on this cluster.

    The delayed file manager has one client for all stores, so all of them poll for a closed file as often as
    this store.
    """
    conf = {
        **FAR["hadoop_conf"],
        "fs.delayed.request.ms": str(REQUEST_MS),
        "fs.delayed.stream.bytes": str(STREAM_BYTES),
        "fs.hdfs.impl": "statestore.benchmark.DelayedHdfs",
        "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "10",
        "dfs.client.block.write.locateFollowingBlock.retries": "11",
        "spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGERS,
    }
    return _run(HDFS_CASE, part, extent, storage=f"{uri}/benchmark", hadoop_conf=conf)


def s3_run(part: Part, extent: Extent, properties: dict[str, str]) -> Run:
    """Return a part on this service."""
    return _run(S3_CASE, part, extent, storage=f"s3a://{s3_service.BUCKET}/benchmark", hadoop_conf=properties)


def local_run(part: Part, extent: Extent) -> Run:
    """Return a part on the local disk, with and without the files of the earlier task."""
    return _run(LOCAL_CASE, part, extent, where=("absent", "present"))


def _run(name: str, part: Part, extent: Extent, where: Sequence[str] = ("absent",), **shape: Any) -> Run:
    keys, size = part.keys, _QUICK_BATCH if extent.is_quick else _BATCH
    often = 1 if extent.is_quick or (keys == LARGE and name != LOCAL_CASE) else 2
    steps: list[Step] = [
        {**load(keys), "chunk_bytes": (512 << 20) if keys == LARGE else (64 << 20)},
        batches(extent, "uniform", size, batches=2, segments=1, label=f"batches at {short(keys)}"),
    ]
    for local in where:
        again = {"local": local, "repetitions": often}
        steps += [
            {"do": "restore", "label": _first_row(keys, local), **again},
            {"do": "recover", "label": first_batch(keys, size, local), "size": size, **again},
        ]
        if name != LOCAL_CASE:  # there all files are there
            label = first_batch(keys, size, local, ahead=True)
            steps.append({"do": "recover", "label": label, "size": size, "ahead": True, **again})
    values = _LARGE_VALUE_BYTES if keys == LARGE else _VALUE_BYTES
    return Run([case(name, part.subjects, steps, ours=True, value_bytes=values, **shape)], heap_mb=4096)


def _subjects(keys: int, name: str) -> list[Variant]:
    """Return the subjects of a size.

    A heap of 4 GB does not hold the largest state in the HDFS-backed store. Local files are linked at
    once, so a restore from the local disk is never lazy.
    """
    peers = [ROCKSDB, CHANGELOG] if keys == LARGE else [HDFS, ROCKSDB, CHANGELOG]
    if name == LOCAL_CASE:
        return [*peers, incremental(BUDGET_MB)]
    lazy = incremental(BUDGET_MB, "incremental-lazy", restoreMode="lazy")
    return [*peers, incremental(BUDGET_MB, restoreMode="eager"), lazy]


@contextlib.contextmanager
def hdfs(out: Path) -> Iterator[str]:
    """Run a cluster for the context, and yield its URI."""
    with minicluster.started(minicluster.jar(), out / "minicluster.log") as uri:
        yield uri


@contextlib.contextmanager
def s3(out: Path) -> Iterator[dict[str, str]]:
    """Run a service for the context, and yield the configuration of its clients."""
    with s3_service.started(out / "s3-service.log") as url:
        properties = s3_service.client_properties(url, REQUEST_MS, STREAM_BYTES)
        yield {**properties, f"fs.s3a.bucket.{s3_service.BUCKET}.input.stream.type": "classic"}
