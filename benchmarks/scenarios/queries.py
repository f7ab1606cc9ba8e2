"""Real queries end to end: the time of a micro-batch, by phase, with each provider on one stream of flights.

The queries run in their own process (`query_job`), so that no other work shares their JVM.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyspark

from benchmarks.environment import providers
from benchmarks.medians import spread
from benchmarks.scenarios.store_level import BUDGET_MB, RETAINED, Extent

_TIMEOUT_S = {"quick": 3600, "standard": 7200, "full": 7200}
_SIZES = {  # "only": names of queries; empty is all
    "quick": {
        "files": 2,
        "rows": 2_000,
        "repetitions": 1,
        "only": ["applyInPandasWithState", "session windows", "stream-stream join"],
    },
    "standard": {"files": 6, "rows": 120_000, "repetitions": 1, "only": []},
    "full": {"files": 12, "rows": 336_776, "repetitions": 3, "only": []},
}


class QueryJobError(RuntimeError):
    """The process that runs the queries failed; the message has the end of its log."""


def run(extent: Extent, ours: bool, log: Path) -> dict[str, Any]:
    """Run all queries with all providers; return statistics, and the queries whose outputs differed."""
    subjects = [providers.HDFS]
    if not extent.is_quick:
        subjects.append(providers.CHANGELOG)
    if extent.is_full:
        subjects.append(providers.ROCKSDB)
    if ours:
        subjects.append(providers.incremental(BUDGET_MB))
    retain = {"spark.sql.streaming.minBatchesToRetain": str(RETAINED)}
    described = [
        {
            "name": variant.name,
            "provider": variant.provider,
            "title": variant.title,
            "conf": {**retain, **variant.conf},
        }
        for variant in subjects
    ]
    jar = providers.jar_for(pyspark.__version__) if ours else None
    with tempfile.TemporaryDirectory(prefix="state-store-queries-") as work:
        spec = {
            "work": work,
            "subjects": described,
            "jar": str(jar) if jar else None,
            **_SIZES[extent.name],
        }
        events = _run_job(spec, Path(work), log, _TIMEOUT_S[extent.name])
    return {"sizes": _SIZES[extent.name], "subjects": described, "queries": _by_query(events)}


def _run_job(spec: Mapping[str, Any], work: Path, log: Path, timeout_s: int) -> list[dict[str, Any]]:
    (work / "spec.json").write_text(json.dumps(spec))
    command = [
        sys.executable,
        "-m",
        "benchmarks.scenarios.query_job",
        str(work / "spec.json"),
        str(log.with_suffix(".jsonl")),
    ]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    root = Path(__file__).resolve().parents[2]
    with open(log, "wb") as sink:
        done = subprocess.run(
            command,
            env=environment,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            timeout=timeout_s,
        )
    if done.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
        raise QueryJobError(f"the queries ended with {done.returncode}; their log is {log}:\n{tail}")
    return [json.loads(line) for line in log.with_suffix(".jsonl").read_text().splitlines()]


def _by_query(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    groups: dict[str, dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        groups[event["query"]][event["subject"]].append(event)
    return {query: _compare(subjects) for query, subjects in groups.items()}


def _compare(subjects: Mapping[str, list[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return statistics by provider; a provider whose output differs from the first one's has an error."""
    contents = {name: [run["content"] for run in runs if "content" in run] for name, runs in subjects.items()}
    reference = next((outputs[0] for outputs in contents.values() if outputs), None)
    result: dict[str, Any] = {}
    for name, runs in subjects.items():
        errors = [run["error"] for run in runs if "error" in run]
        differs = [outputs for outputs in contents[name] if outputs != reference]
        if differs:
            errors.append(f"output differs: {differs[0]} instead of {reference}")
        good = [run for run in runs if "batches" in run]
        result[name] = {**(_phases(good) if good else {}), **({"error": errors} if errors else {})}
    return result


def _phases(runs: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the phases of batches, without the first batch, which plans, compiles, starts workers."""
    batches = [batch for run in runs for batch in run["batches"][1:]]
    durations = sorted({name for batch in batches for name in batch["durations"]})
    operators = sorted({name for batch in batches for name in batch["operators"]})
    custom = sorted({name for batch in batches for name in batch["custom"]})
    return {
        "durations_ms": {name: spread([b["durations"].get(name, 0) for b in batches]) for name in durations},
        "operators": {name: spread([b["operators"].get(name, 0) for b in batches]) for name in operators},
        "custom": {name: spread([b["custom"].get(name, 0) for b in batches])["median"] for name in custom},
        "rows": spread([b["rows"] for b in batches]),
        "content": runs[0]["content"],
    }
