"""The goals of this store, each computed from a run: measured, met or missed by how much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from benchmarks.results import CHANGELOG, HDFS, OURS, ROCKSDB, Ratio, Results
from benchmarks.scenarios import executors, large_store, services
from benchmarks.scenarios.store_level import BUDGET_MB

MB = 1 << 20
MISSED = "**missed**"
RESTORE_OBJECTIVE_MS = 10_000  # the default of restoreObjective
_CHANGELOG = "RocksDB + changelog"
_NEAR_ENOUGH_MS = 10


class Outcome(NamedTuple):
    """A goal and its measurement, as the cells of the table; the verdict is empty if there is none."""

    setting: str
    against: str
    aim: str
    measured: str = "not measured"
    verdict: str = ""

    @property
    def met(self) -> bool | None:
        return None if not self.verdict else not self.verdict.startswith(MISSED)


# setting, step, kind of figure, aim against HDFS-backed, aim against RocksDB + changelog, our variant
_ROWS, _OF_5M = "500k keys, 100 B, batch", "5M keys, 100 B, batch 50k uniform"
_RESTORE = ("restore", "restore", "10 deltas, local files absent")
SPEEDS: tuple[tuple[str, tuple[str, str, str], str, float, float, str], ...] = (
    (f"{_ROWS} 20k uniform, 256 MB", ("store", "base", "uniform 20k"), "batch", 5, 10, OURS),
    (f"{_ROWS} 1k uniform, 256 MB", ("store", "base", "uniform 1k"), "batch", 20, 10, OURS),
    (f"{_ROWS} 20k zipf, 256 MB", ("store", "base", "zipf 20k"), "batch", 10, 12, OURS),
    (f"{_ROWS} 100k uniform, 256 MB", ("store", "base", "uniform 100k"), "batch", 2.5, 12, OURS),
    (f"{_OF_5M}, 256 MB", ("growth", "growth", "5M keys, 50k"), "batch", 4, 3, OURS),
    (f"{_OF_5M}, 1 GB", ("growth", "growth, 1 GB", "5M keys, 50k"), "batch", 10, 10, "incremental-1g"),
    (f"{_ROWS} 20k append-only", ("store", "base", "append 20k"), "batch", 5, 8, OURS),
    ("full scan, 1M rows", ("store", "scan", "scan"), "scan", 1, 2, OURS),
    ("prefix scan of 5 rows", ("store", "prefix", "prefix scan"), "prefix", 1, 2, OURS),
    ("restore, no local files, 10 deltas", _RESTORE, "restore", 5, 3, OURS),
)


def outcomes(results: Results) -> list[Outcome]:
    """Return every goal, in the order of the table."""
    return [*_speeds(results), *_restores(results), *_costs(results), *_many_and_large(results)]


def _judged(setting: str, against: str, aim: str, measured: str | None, over: float) -> Outcome:
    """Return the outcome of a goal that is missed if its figure is more than once (`over`) its limit."""
    if measured is None:
        return Outcome(setting, against, aim)
    word = "short" if aim.startswith(">=") else "over"
    return Outcome(setting, against, aim, measured, "met" if over <= 1 else f"{MISSED} {over:.1f}x {word}")


def _at_most(
    setting: str, against: str, value: float | None, limit: float, unit: str, aim: str = ""
) -> Outcome:
    measured = None if value is None else f"{value:.3g}{unit}"
    return _judged(setting, against, aim or f"<= {limit:.3g}{unit}", measured, (value or 0) / (limit or 1))


def _at_least(setting: str, against: str, ratio: Ratio | float | None, aim: float) -> Outcome:
    value = ratio.value if isinstance(ratio, Ratio) else ratio
    measured = None if ratio is None else str(ratio) if isinstance(ratio, Ratio) else f"{ratio:.3g}x"
    return _judged(setting, against, f">= {aim:g}x", measured, aim / value if value else 0)


def _divided(value: float | None, by: float | None) -> float | None:
    return value / by if value is not None and by else None


def _speeds(results: Results) -> Iterator[Outcome]:
    for setting, where, kind, hdfs, rocksdb, ours in SPEEDS:
        for peers, against, aim in (((HDFS,), "HDFS-backed", hdfs), (CHANGELOG, _CHANGELOG, rocksdb)):
            yield _at_least(setting, against, results.ratio(where, peers, kind, ours), aim)


def _restores(results: Results) -> Iterator[Outcome]:
    def first_row(keys: str, local: str) -> float | None:
        where = ("recovery", "recovery", f"{keys} keys, local files {local}")
        return results.median(*where, OURS, "restore", "total_ms")

    own, copied = (results.median(*_RESTORE, OURS, "restore", name) for name in ("total_ms", "copy_ms"))
    limit, aim = 1.3 * copied + 100 if copied else 0, "<= 1.3 x copy + 100 ms"
    local, absent = first_row("500k", "present"), first_row("500k", "absent")
    growth = _divided(first_row("5M", "present"), local)
    yield _at_most("restore, no local files, 10 deltas", "copy of the live bytes", own, limit, " ms", aim)
    yield _at_most("first row, 500k keys, local files", "time", local, 15, " ms")
    yield _at_most("first row, 500k keys, no local files, local storage", "time", absent, 20, " ms")
    yield _at_most("first row at 10 times the state, local files", "itself", growth, 1.3, "x")
    for service, case in (("HDFS", services.HDFS_CASE), ("S3", services.S3_CASE)):
        setting = f"6 GB on {service}, 20 ms a request, end of the first batch, lazy, announced keys"
        ahead, plain = (services.first_batch(services.LARGE, ahead=ahead) for ahead in (True, False))
        own = results.median(services.SCENARIO, case, ahead, "incremental-lazy", "recover", "end_ms")
        rocksdb = results.median(services.SCENARIO, case, plain, ROCKSDB, "recover", "end_ms")
        yield _at_most(setting, "time", own, 4_000, " ms")
        yield _at_least(setting, "RocksDB", _divided(rocksdb, own), 30)
    for kind in ("batch", "restore"):
        yield _at_every_age(results, kind)
    yield _predicted(results)


def _at_every_age(results: Results, kind: str) -> Outcome:
    """Return the age at which the quickest peer comes closest."""
    ratios = [
        (ratio.value, where[2])
        for where, measured in results.measured()
        for ours in results.step(*where)
        if where[0] == "age" and measured == kind and ours.startswith(OURS)
        if (ratio := results.ratio(where, (HDFS, *CHANGELOG), kind, ours))
    ]
    least, label = min(ratios, default=(1.0, None))
    measured_at = None if label is None else f"{least:.1f}x at least ({label})"
    return _judged(f"a {kind} at every age", "the quickest other", ">= 1x", measured_at, 1 / least)


def _predicted(results: Results) -> Outcome:
    """Return the prediction furthest from its measurement, over the last restores of all steps."""
    apart: list[tuple[float, str]] = []
    for where, kind in results.measured():
        for subject, stats in results.step(*where).items():
            metrics = stats.get(kind, {}).get("custom", {}) if kind == "restore" else {}
            if metrics.get("incrementalRestoreLocalFiles"):
                continue  # predictions are for restores without local files
            if subject.startswith(OURS) and "incrementalRestorePredictedMs" in metrics:
                predicted_ms = metrics["incrementalRestorePredictedMs"]
                phases = ("Choose", "Fetch", "Verify", "Ingest")
                measured_ms = sum(metrics.get(f"incrementalRestore{phase}Ms", 0) for phase in phases)
                off_ms = abs(predicted_ms - measured_ms)
                share = 0 if off_ms <= _NEAR_ENOUGH_MS else off_ms / max(1, measured_ms) * 100
                restore = f"{predicted_ms:.0f} ms, was {measured_ms:.0f} ms: {where[1]}, {where[2]}"
                apart.append((share, restore))
    largest, restore = max(apart, default=(0, ""))
    measured = f"{largest:.0f} % at most ({restore}), {len(apart)} restores"
    if not largest:
        measured = f"{_NEAR_ENOUGH_MS} ms apart or less in all {len(apart)}"
    setting, against = "time of a restore without local files, as predicted", "as measured by the agent"
    aim = f"<= 30 % or {_NEAR_ENOUGH_MS} ms apart"
    return _judged(setting, against, aim, measured if apart else None, largest / 30)


def _costs(results: Results) -> Iterator[Outcome]:
    """Yield the goals on memory, storage, CPU, and the share of a query."""

    def heap(subject: str, keys: str) -> float | None:
        return _divided(
            results.median("memory", "memory", f"{keys} keys", subject, "memory", "heap_bytes"), MB
        )

    own, hdfs, rocksdb = (heap(subject, "500k") for subject in (OURS, HDFS, CHANGELOG[0]))
    largest, setting, flat = heap(OURS, "10M"), "JVM heap, 500k keys", "flat (<= 10 MB)"
    grown = None if largest is None or own is None else largest - own
    yield _at_most(setting, "HDFS-backed", own if hdfs else None, (hdfs or 0) / 4, " MB", "<= 1/4")
    limit = (rocksdb or 0) + 10
    yield _at_most(setting, _CHANGELOG, own if rocksdb else None, limit, " MB", "<= its + 10 MB")
    yield _at_most("JVM heap, growth from 500k to 10M keys", "itself", grown, 10, " MB", flat)
    for keys in ("500k keys", "10M keys"):
        native = native_megabytes(results, OURS, keys)
        yield _at_most(f"native and agent memory, {keys}", "its budget", native, BUDGET_MB, " MB")
    where = ("storage", "batches of 20k")
    held, theirs = (
        results.median(*where, "storage", name, "storage", "bytes") for name in (OURS, CHANGELOG[0])
    )
    setting = "storage after 200 batches of 20k, 10 retained"
    yield _at_most(setting, _CHANGELOG, _divided(held, theirs), 1.2, "x")
    for size, highest in (("20k", 2.5), ("1k", 4.0)):
        setting = f"bytes uploaded per byte of change, 100 batches of {size}"
        yield _at_most(setting, "changed bytes", written_per_changed_byte(results, OURS, size), highest, "x")
        ms = results.median("storage", f"batches of {size}", "restore", OURS, "restore", "total_ms")
        yield _at_most("its restore afterwards", "the objective", ms, RESTORE_OBJECTIVE_MS, " ms")
    steps = (results.step(*where, "uniform 20k").get(name, {}) for name in (OURS, CHANGELOG[0]))
    cpu, theirs = (cpu_of(step["segments"]) if "segments" in step else None for step in steps)
    setting = "CPU seconds of executor and agent per batch of 20k"
    yield _at_most(setting, _CHANGELOG, _divided(cpu, theirs), 0.5, "x")
    share = store_share(results, "applyInPandasWithState", OURS)
    setting = "applyInPandasWithState: store's share of a micro-batch"
    yield _at_most(setting, "the micro-batch", None if share is None else share * 100, 2, " %")


def native_megabytes(results: Results, subject: str, label: str) -> float | None:
    """Return the growth of the JVM beyond its resident heap, and of the agent, in MB."""
    empty, full = (
        results.step("memory", "memory", name).get(subject, {}).get("memory") for name in ("empty", label)
    )
    if not empty or not full:
        return None
    grown = full["jvm_anonymous_bytes"]["median"] - empty["jvm_anonymous_bytes"]["median"]
    return (grown + full["children_pss_bytes"]["median"]) / MB


def written_per_changed_byte(results: Results, subject: str, size: str) -> float | None:
    """Return bytes written to checkpoint storage per byte of row written, over the measured batches."""
    case = f"batches of {size}"
    step = results.step("storage", case, f"uniform {size}").get(subject, {})
    if "segments" not in step:
        return None
    operations = step["batch"]["operations"]["median"] * step["segments"]["batches"]
    changed = operations * results.row_bytes("storage", case)
    return float(step["segments"]["total"]["written_bytes"] / changed)


def cpu_of(segments: Mapping[str, Any]) -> float:
    """Return CPU seconds of JVM and agent for each batch, maintenance included."""
    return float(segments["cpu_jvm_s"]["median"] + segments["cpu_children_s"]["median"])


def store_share(results: Results, query: str, subject: str) -> float | None:
    """Return the store's part of a micro-batch.

    It is the time of commits as the query reports them, plus for each written key the time of get and put at
    store level, divided by the time of the tasks: the batch's time on each partition.
    """
    measured = results.scenarios.get("queries", {}).get("queries", {}).get(query, {}).get(subject, {})
    # the smallest batches at store level have the highest figures per key
    steps = (results.step("store", "base", label).get(subject, {}) for label in ("uniform 1k", "uniform 2k"))
    batch = next((step["batch"] for step in steps if "batch" in step), None)
    if "operators" not in measured or batch is None:
        return None
    operators, partitions = measured["operators"], 2
    store_ms = (
        operators["commitTimeMs"]["median"]
        + operators["numRowsUpdated"]["median"] * batch["row_us"]["median"] / 1000
        + operators.get("numStateStoreInstances", {"median": partitions})["median"]
        * batch["open_ms"]["median"]
    )
    return float(store_ms / (measured["durations_ms"]["addBatch"]["median"] * partitions))


def _many_and_large(results: Results) -> Iterator[Outcome]:
    """Yield the goals of executors with many stores, and of a store that is larger than its memory."""
    for count in executors.counts(results)[1:] or [executors.USUAL, executors.MANY]:
        setting, none = f"{count} stores in an executor", "none (<= 0.05)"
        floor, share = executors.floor(results, OURS, count), executors.agent_share(results, OURS, count)
        megabytes, threads, descriptors = (
            (floor.total_bytes / MB, floor.threads, floor.descriptors) if floor else (None, None, None)
        )
        ratio = results.ratio(executors.where(count), CHANGELOG, "batch")
        yield _at_least(f"{setting}, a batch of {executors.BATCH}", _CHANGELOG, ratio, 5)
        yield _at_most(f"{setting}, memory of each", "itself", megabytes, 0.5, " MB")
        yield _at_most(f"{setting}, threads of each", "itself", threads, 0.05, "", none)
        yield _at_most(f"{setting}, descriptors of each", "itself", descriptors, 0.05, "", none)
        yield _at_most(f"{setting}, the agent during a batch", "a core", share, 0.5, "")
    labels = large_store.labels(results)
    where = (large_store.SCENARIO, large_store.SCENARIO, labels[-1] if labels else large_store.AFTER)
    setting = f"batch of 20k, all keys in {large_store.BUDGET}"
    yield _at_most(setting, "a tenth of the keys", large_store.growth(results), 2, "x")
    yield _at_least(setting, _CHANGELOG, results.ratio(where, CHANGELOG, "batch"), 5)
