"""The scenarios by name, each with a function that runs it and returns its result as values for JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import medians
from benchmarks.environment import jvm, minicluster, s3_service
from benchmarks.scenarios import executors, large_store, queries, rewrites, services, store_level
from benchmarks.scenarios.store_level import Extent, Run

_TIMEOUT_S = {"quick": 3600, "standard": 7200, "full": 6 * 3600}

Result = dict[str, Any]

STORE_LEVEL: dict[str, Callable[[Extent, bool], list[Run]]] = {
    "store": store_level.store,
    "growth": store_level.growth,
    "size": large_store.size,
    "age": store_level.age,
    "restore": store_level.restore,
    "recovery": store_level.recovery,
    "storage": store_level.storage,
    "memory": store_level.memory,
    "executors": executors.executors,
    "hdfs": store_level.hdfs,
}


def _store_level(name: str) -> Callable[[Extent, bool, Path], Result]:
    def run(extent: Extent, ours: bool, out: Path) -> Result:
        return run_cases(STORE_LEVEL[name](extent, ours), extent, out / f"{name}.log")

    return run


def run_cases(
    runs: list[store_level.Run], extent: Extent, log: Path, more_classes: Sequence[Path] = ()
) -> Result:
    """Run store-level cases; return specifications and statistics by case.

    Cases with the same name, each from its own JVM, are joined.
    """
    log.unlink(missing_ok=True)
    measured = _Measured(extent, log)
    for run in runs:
        measured.run(run, more_classes)
    return measured.result()


class _Measured:
    """The measurements of JVMs that ran one after the other."""

    def __init__(self, extent: Extent, log: Path) -> None:
        self._extent = extent
        self._log = log
        self._events: list[medians.Event] = []
        self._specs: dict[str, Any] = {}

    def run(self, run: store_level.Run, more_classes: Sequence[Path] = ()) -> None:
        cases = self._extent.asked(run.cases)
        if not cases:
            return
        self._events += jvm.run(
            cases,
            heap_mb=run.heap_mb,
            touch_heap=run.touch_heap,
            timeout_s=_TIMEOUT_S[self._extent.name],
            log=self._log,
            archived=self._extent.is_quick and not more_classes,
            more_classes=more_classes,
        )
        for case in cases:
            spec = self._specs.setdefault(case["name"], {**case, "subjects": []})
            spec["subjects"] = spec["subjects"] + case["subjects"]

    def result(self) -> Result:
        return {"specs": self._specs, "cases": medians.by_case(self._events)}


def _on_hdfs(extent: Extent, ours: bool, out: Path) -> Result:
    jar = minicluster.jar()
    with minicluster.started(jar, out / "minicluster.log") as uri:
        runs = [
            store_level.Run([{**case, "storage": f"{uri}/benchmark/{case['name']}"} for case in run.cases])
            for run in store_level.hdfs(extent, ours)
        ]
        return run_cases(runs, extent, out / "hdfs.log")


def _on_services(extent: Extent, ours: bool, out: Path) -> Result:
    """Run HDFS, then S3, then the local disk; each service runs only while it is measured."""
    log = out / f"{services.SCENARIO}.log"
    log.unlink(missing_ok=True)
    measured = _Measured(extent, log)
    for part in services.parts(extent, ours, services.HDFS_CASE):
        with services.hdfs(out) as uri:
            measured.run(services.hdfs_run(part, extent, uri))
    for part in services.parts(extent, ours, services.S3_CASE):
        with services.s3(out) as properties:
            measured.run(services.s3_run(part, extent, properties), s3_service.client_jars())
    for part in services.parts(extent, ours, services.LOCAL_CASE):
        measured.run(services.local_run(part, extent))
    return measured.result()


def _queries(extent: Extent, ours: bool, out: Path) -> Result:
    return queries.run(extent, ours, out / "queries.log")


def _vectorized(extent: Extent, ours: bool, out: Path) -> Result:
    """Run the forms of a function on this store and on Spark's.

    It runs on this store, on Spark's default store unless that is left out, and on both of Spark's in the
    full extent.
    """
    theirs = {"quick": [] if ours else ["hdfs"], "standard": ["hdfs"], "full": ["hdfs", "rocksdb-changelog"]}
    stores = [*(["incremental"] if ours else []), *theirs[extent.name]]
    return {"functions": _comparison("vectorized", stores, extent, out)["scenarios"]}


def _processors(extent: Extent, ours: bool, out: Path) -> Result:
    """Run processors in both workers, on this store, and in the full extent on Spark's store too."""
    stores = ["incremental"] if ours else []
    if extent.name == "full" or not ours:
        stores.append("rocksdb-changelog")
    return {"processors": _comparison("processor_forms", stores, extent, out)["results"]}


def _engines(extent: Extent, ours: bool, out: Path) -> Result:
    """Run the same work on all engines whose environments exist; the quick extent takes Spark alone."""
    if not ours:
        return {}
    words = [] if extent.is_quick else ["--figures", "speed,recovery,latency"]
    return {"engines": _comparison("side_by_side", [], extent, out, words, package="engines")}


def _tools(extent: Extent, ours: bool, out: Path) -> Result:
    """Run the tools on state beside Spark's repartition of its store, alone and as jobs."""
    return _comparison("state_tools", [], extent, out) if ours else {}


def _comparison(
    name: str,
    stores: Sequence[str],
    extent: Extent,
    out: Path,
    words: Sequence[str] = (),
    *,
    package: str = "comparisons",
) -> Result:
    """Return what a module of `comparisons` or `engines` writes, which runs in a process of its own."""
    outcome = out / f"{name}.found"
    command = [
        sys.executable,
        "-m",
        f"benchmarks.{package}.{name}",
        "--json",
        str(outcome),
        *(["--stores", ",".join(stores)] if stores else []),
        *words,
    ]
    with open(out / f"{name}.log", "wb") as log:
        done = subprocess.run(
            [*command, *(["--quick"] if extent.is_quick else [])],
            cwd=Path(__file__).resolve().parent.parent,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            timeout=_TIMEOUT_S[extent.name],
        )
    if done.returncode:
        raise RuntimeError(f"the process ended with {done.returncode}; its log is {log.name}")
    result: Result = json.loads(outcome.read_text())
    outcome.unlink()
    return result


def _merges(extent: Extent, ours: bool, out: Path) -> Result:
    return rewrites.run(extent)


RUNNERS: dict[str, Callable[[Extent, bool, Path], Result]] = {
    **{name: _store_level(name) for name in STORE_LEVEL if name != "hdfs"},
    "queries": _queries,
    "hdfs": _on_hdfs,
    services.SCENARIO: _on_services,
    "merges": _merges,
    "vectorized": _vectorized,
    "processors": _processors,
    "engines": _engines,
    "tools": _tools,
}

USUAL = [name for name in RUNNERS if name not in (services.SCENARIO, "processors", "engines", "tools")]
"""The scenarios of a run that names none. The others take minutes, and `services` needs jars from Maven."""

QUICK = [*USUAL, "engines"]
"""The scenarios of a quick run that names none."""
