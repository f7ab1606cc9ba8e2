"""Recovery from real services on the loopback, whose requests are late: an HDFS, and an S3 as `moto` has it.

A loopback is too near to be true. To HDFS the client waits before each request, and carries this many bytes a
second in each stream (`scala/driver/DelayedFileSystem.scala`). The S3 service waits before it answers a
request; what a stream carries is what `moto` gives. All stores read with the input stream of S3A that does
not read ahead, as `docs/operations.md` says.
"""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.environment import minicluster
from benchmarks.environment.providers import CHANGELOG, HDFS, ROCKSDB, Variant, incremental
from benchmarks.scenarios.store_level import BUDGET_MB, FAR, Extent, Run, Step, batches, case, load, short

SCENARIO = "services"
REQUEST_MS = 20
_TESTS = Path(__file__).resolve().parents[2] / "tests"
_SIZES = (500_000, 5_000_000, 50_000_000)
_BATCH, _QUICK_BATCH = 20_000, 100
_MOST_IN_HEAP, _MOST_WITH_CHANGELOG = 5_000_000, 500_000
_FILE_MANAGERS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

HDFS_CASE, S3_CASE = "recovery, HDFS", "recovery, S3"


def sizes(extent: Extent) -> list[int]:
    """Keys of the stores that are recovered from HDFS: 500,000, and the larger ones up to `--largest`."""
    if extent.is_quick:
        return [1_000]
    return [keys for keys in _SIZES if keys <= max(extent.largest, _SIZES[0])]


def hdfs_runs(extent: Extent, ours: bool, uri: str) -> list[Run]:
    """A JVM for each size."""
    conf = {
        **FAR["hadoop_conf"],
        "fs.delayed.request.ms": str(REQUEST_MS),
        "fs.hdfs.impl": "statestore.benchmark.DelayedHdfs",
        "spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGERS,
    }
    return [
        _run(HDFS_CASE, keys, extent, ours, storage=f"{uri}/benchmark/{keys}", hadoop_conf=conf)
        for keys in sizes(extent)
    ]


def s3_runs(extent: Extent, ours: bool, properties: dict[str, str]) -> list[Run]:
    """The smallest size alone: `moto` computes in one thread, and keeps everything in memory."""
    keys = sizes(extent)[0]
    return [_run(S3_CASE, keys, extent, ours, storage="s3a://bucket/benchmark", hadoop_conf=properties)]


def _run(name: str, keys: int, extent: Extent, ours: bool, **where: Any) -> Run:
    size = _QUICK_BATCH if extent.is_quick else _BATCH
    label = f"{short(keys)} keys, local files absent"
    again = {"local": "absent", "repetitions": 1 if extent.is_quick else 2}
    steps: list[Step] = [
        load(keys),
        batches(extent, "uniform", size, batches=2, segments=1, label=f"batches at {short(keys)}"),
        {"do": "restore", "label": label, **again},
        {"do": "recover", "label": f"{label}, batch of {short(size)}", "size": size, **again},
    ]
    return Run([case(name, _subjects(keys), steps, ours=ours, **where)], heap_mb=4096)


def _subjects(keys: int) -> list[Variant]:
    lazy = incremental(BUDGET_MB, "incremental-lazy", restoreMode="lazy", lazyRestoreThreshold="1m")
    peers = [HDFS] if keys <= _MOST_IN_HEAP else []
    peers += [ROCKSDB, CHANGELOG] if keys <= _MOST_WITH_CHANGELOG else [ROCKSDB]
    return [*peers, incremental(BUDGET_MB, restoreMode="eager"), lazy]


@contextlib.contextmanager
def hdfs(out: Path) -> Iterator[str]:
    """A cluster for the context; its URI."""
    with minicluster.started(minicluster.jar(), out / "minicluster.log") as uri:
        yield uri


@contextlib.contextmanager
def s3() -> Iterator[dict[str, str]]:
    """A service in a process of its own for the context; what S3A is configured with."""
    command = [sys.executable, "-m", "minis3", str(REQUEST_MS)]
    process = subprocess.Popen(
        command,
        cwd=_TESTS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        found = _of_tests("minis3").S3Server(port=int(process.stdout.readline())).hadoop_properties
        yield {**found, "fs.s3a.bucket.bucket.input.stream.type": "classic"}
    finally:
        process.stdin.close()
        process.wait(20)
        process.stdout.close()


def s3a_jars() -> list[Path]:
    """What a driver JVM needs for `s3a:` URIs."""
    found: list[Path] = _of_tests("maven_jars").s3a_jars()
    return found


def _of_tests(name: str) -> Any:
    """A module that tests have, too."""
    if str(_TESTS) not in sys.path:
        sys.path.append(str(_TESTS))
    return importlib.import_module(name)
