"""A line a batch, made of the progress that Spark reports."""

from __future__ import annotations

from typing import Any

from rich.filesize import decimal as size

WHERE_NEXT = "Where next: README.md, docs/operations.md, `state-store --help`."

FIRST_IS_SLOW = (
    "(The first batch of a process takes several times as long as others: the JVM compiles what it runs,\n"
    "and Python's workers start. The part of it that is the restore of the stores is in its line.)"
)
RESTORE_STEPS = ("Choose", "Fetch", "Verify")

HEAD = (
    f"{'batch':>5}  {'rows':>6}  {'keys':>6}  {'delta':>9}  {'chain':<19}  {'ms':>6}  "
    "restores, and merges since the last batch"
)


def batch(progress: dict[str, Any]) -> str:
    """Return `progress` (StreamingQueryProgress as JSON) as a line under HEAD."""
    (operator,) = progress["stateOperators"]
    metrics = operator["customMetrics"]
    files = metrics.get("incrementalChainFiles")
    chain = "" if files is None else f"{files} files, {size(metrics['incrementalChainBytes'])}"
    delta = "" if files is None else size(metrics["incrementalDeltaBytes"])
    total_ms = progress["durationMs"].get("triggerExecution", 0)
    notes = ", ".join(filter(None, [_restores(metrics), _merges(metrics)]))
    return (
        f"{progress['batchId']:>5}  {progress['numInputRows']:>6,}  {operator['numRowsTotal']:>6,}  "
        f"{delta:>9}  {chain:<19}  {total_ms:>6,}  {notes}"
    ).rstrip()


def _restores(metrics: dict[str, int]) -> str:
    count = metrics.get("incrementalRestoreCount", 0)
    took_ms = sum(metrics.get(f"incrementalRestore{step}Ms", 0) for step in RESTORE_STEPS)
    return f"{count} stores restored in {took_ms} ms" if count else ""


def _merges(metrics: dict[str, int]) -> str:
    count, fulls = metrics.get("incrementalMergeCount", 0), metrics.get("incrementalFullCount", 0)
    if not count:
        return ""
    kind = f"{count} merge{'s' if count > 1 else ''}" + (f" ({fulls} full)" if fulls else "")
    uploaded = size(metrics["incrementalUploadedBytes"])
    return (
        f"{kind} in {metrics['incrementalMergeMs']} ms: {metrics['incrementalSharedFiles']} files shared, "
        f"{metrics['incrementalNewFiles']} new; {uploaded} uploaded"
    )


def side_by_side(times: dict[str, Any]) -> str:
    """Return the time of a batch by the ordinary and by the vectorised function."""
    ordinary, vectorised = times["follow"], times["follow_all"]
    return (
        f"the same {times['rows']:,} flights of {times['aircraft']:,} aircraft in one batch: "
        f"a call for each aircraft {ordinary:,} ms, @state_store.vectorized {vectorised:,} ms "
        f"({ordinary / vectorised:.1f} times as fast); equal output: {times['equal']}"
    )
