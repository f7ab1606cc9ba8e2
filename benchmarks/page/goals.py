"""The goals of this store, each computed from a run: measured, met or missed by how much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.results import CHANGELOG, HDFS, OURS, ROCKSDB, Results
from benchmarks.scenarios import executors, large_store, services
from benchmarks.scenarios.store_level import BUDGET_MB

_MB = 1 << 20
RESTORE_OBJECTIVE_MS = 10_000  # the default of restoreObjective


@dataclass(frozen=True)
class Outcome:
    """A goal and its measurement, as texts; `met` is None if the run did not measure it."""

    setting: str
    against: str
    aim: str
    measured: str
    met: bool | None
    missed_by: str = ""


def outcomes(results: Results) -> list[Outcome]:
    """Return every goal, in the order of the table."""
    rows: list[Outcome] = []
    for setting, where, kind, hdfs, rocksdb, ours in SPEEDS:
        rows.append(_speed(results, setting, where, kind, (HDFS,), "HDFS-backed", hdfs, ours))
        rows.append(_speed(results, setting, where, kind, CHANGELOG, "RocksDB + changelog", rocksdb, ours))
    return rows + [made for check in _CHECKS for made in check(results)]


# setting, step, kind of figure, aim against HDFS-backed, aim against RocksDB + changelog, our variant
SPEEDS: tuple[tuple[str, tuple[str, str, str], str, float, float, str], ...] = (
    ("500k keys, 100 B, batch 20k uniform, 256 MB", ("store", "base", "uniform 20k"), "batch", 5, 10, OURS),
    ("500k keys, 100 B, batch 1k uniform, 256 MB", ("store", "base", "uniform 1k"), "batch", 20, 10, OURS),
    ("500k keys, 100 B, batch 20k zipf, 256 MB", ("store", "base", "zipf 20k"), "batch", 10, 12, OURS),
    (
        "500k keys, 100 B, batch 100k uniform, 256 MB",
        ("store", "base", "uniform 100k"),
        "batch",
        2.5,
        12,
        OURS,
    ),
    ("5M keys, 100 B, batch 50k uniform, 256 MB", ("growth", "growth", "5M keys, 50k"), "batch", 4, 3, OURS),
    (
        "5M keys, 100 B, batch 50k uniform, 1 GB",
        ("growth", "growth, 1 GB", "5M keys, 50k"),
        "batch",
        10,
        10,
        "incremental-1g",
    ),
    ("500k keys, 100 B, batch 20k append-only", ("store", "base", "append 20k"), "batch", 5, 8, OURS),
    ("full scan, 1M rows", ("store", "scan", "scan"), "scan", 1, 2, OURS),
    ("prefix scan of 5 rows", ("store", "prefix", "prefix scan"), "prefix", 1, 2, OURS),
    (
        "restore, no local files, 10 deltas",
        ("restore", "restore", "10 deltas, local files absent"),
        "restore",
        5,
        3,
        OURS,
    ),
)


def _speed(
    results: Results,
    setting: str,
    where: tuple[str, str, str],
    kind: str,
    peers: tuple[str, ...],
    against: str,
    aim: float,
    ours: str,
) -> Outcome:
    ratio = results.ratio(where, peers, kind, ours)
    if ratio is None:
        return Outcome(setting, against, f">= {aim:g}x", "not measured", None)
    met = ratio.value >= aim
    return Outcome(
        setting, against, f">= {aim:g}x", str(ratio), met, "" if met else f"{aim / ratio.value:.1f}x short"
    )


def _at_most(
    setting: str, against: str, value: float | None, limit: float, unit: str, aim: str = ""
) -> Outcome:
    aim = aim or f"<= {limit:.3g}{unit}"
    if value is None:
        return Outcome(setting, against, aim, "not measured", None)
    met = value <= limit
    return Outcome(
        setting, against, aim, f"{value:.3g}{unit}", met, "" if met else f"{value / limit:.1f}x over"
    )


def _at_least(setting: str, against: str, ratio: float | None, aim: float) -> Outcome:
    if ratio is None:
        return Outcome(setting, against, f">= {aim:g}x", "not measured", None)
    met = ratio >= aim
    missed_by = "" if met else f"{aim / ratio:.1f}x short"
    return Outcome(setting, against, f">= {aim:g}x", f"{ratio:.3g}x", met, missed_by)


def _copy(results: Results) -> list[Outcome]:
    where = ("restore", "restore", "10 deltas, local files absent")
    own = results.median(*where, OURS, "restore", "total_ms")
    copied = results.median(*where, OURS, "restore", "copy_ms")
    limit = 1.3 * copied + 100 if copied else 0
    return [
        _at_most(
            "restore, no local files, 10 deltas",
            "copy of the live bytes",
            own,
            limit,
            " ms",
            "<= 1.3 x copy + 100 ms",
        )
    ]


def _recovery(results: Results) -> list[Outcome]:
    def first_row(keys: str, local: str) -> float | None:
        where = ("recovery", "recovery", f"{keys} keys, local files {local}")
        return results.median(*where, OURS, "restore", "total_ms")

    local, absent, large = (
        first_row("500k", "present"),
        first_row("500k", "absent"),
        first_row("5M", "present"),
    )
    growth = large / local if large and local else None
    return [
        _at_most("first row, 500k keys, local files", "time", local, 15, " ms"),
        _at_most("first row, 500k keys, no local files, local storage", "time", absent, 20, " ms"),
        _at_most("first row at 10 times the state, local files", "itself", growth, 1.3, "x"),
    ]


def _services(results: Results) -> list[Outcome]:
    ours, rows = "incremental-lazy", []
    for service, case in (("HDFS", services.HDFS_CASE), ("S3", services.S3_CASE)):
        setting = f"6 GB on {service}, 20 ms a request, end of the first batch, lazy, announced keys"
        where = (services.SCENARIO, case, services.first_batch(services.LARGE))
        ahead = (*where[:2], services.first_batch(services.LARGE, ahead=True))
        own = results.median(*ahead, ours, "recover", "end_ms")
        rocksdb = results.median(*where, ROCKSDB, "recover", "end_ms")
        rows += [
            _at_most(setting, "time", own, 4_000, " ms"),
            _at_least(setting, "RocksDB", rocksdb / own if own and rocksdb else None, 30),
        ]
    return rows


def _ages(results: Results) -> list[Outcome]:
    """Return for batches and restores the age at which the quickest peer comes closest."""
    rows = []
    for kind, setting in (("batch", "a batch at every age"), ("restore", "a restore at every age")):
        ratios = [
            (ratio.value, where[2], ours)
            for where, measured in results.measured()
            for ours in results.step(*where)
            if where[0] == "age" and measured == kind and ours.startswith(OURS)
            if (ratio := results.ratio(where, (HDFS, *CHANGELOG), kind, ours))
        ]
        against = "the quickest other"
        if not ratios:
            rows.append(Outcome(setting, against, ">= 1x", "not measured", None))
            continue
        least, where, _ = min(ratios)
        met = least >= 1
        missed_by = "" if met else f"{1 / least:.1f}x short"
        rows.append(Outcome(setting, against, ">= 1x", f"{least:.1f}x at least ({where})", met, missed_by))
    return rows


_PHASES = ("Choose", "Fetch", "Verify", "Ingest")
_NEAR_ENOUGH_MS = 10


def _predicted(results: Results) -> list[Outcome]:
    """Return the prediction furthest from its measurement, over the last restores of all steps."""
    setting, against = "time of a restore without local files, as predicted", "as measured by the agent"
    aim = f"<= 30 % or {_NEAR_ENOUGH_MS} ms apart"
    apart: list[tuple[float, str]] = []
    for where, kind in results.measured():
        for subject, stats in results.step(*where).items():
            metrics = stats.get(kind, {}).get("custom", {}) if kind == "restore" else {}
            if metrics.get("incrementalRestoreLocalFiles"):
                continue  # predictions are for restores without local files
            if subject.startswith(OURS) and "incrementalRestorePredictedMs" in metrics:
                predicted_ms = metrics["incrementalRestorePredictedMs"]
                measured_ms = sum(metrics.get(f"incrementalRestore{phase}Ms", 0) for phase in _PHASES)
                off_ms = abs(predicted_ms - measured_ms)
                share = 0 if off_ms <= _NEAR_ENOUGH_MS else off_ms / max(1, measured_ms) * 100
                apart.append(
                    (share, f"{predicted_ms:.0f} ms, was {measured_ms:.0f} ms: {where[1]}, {where[2]}")
                )
    if not apart:
        return [Outcome(setting, against, aim, "not measured", None)]
    largest, restore = max(apart)
    measured = (
        f"{largest:.0f} % at most ({restore}), {len(apart)} restores"
        if largest
        else f"10 ms apart or less in all {len(apart)}"
    )
    met = largest <= 30
    return [Outcome(setting, against, aim, measured, met, "" if met else f"{largest / 30:.1f}x over")]


def _heap(results: Results) -> list[Outcome]:
    def heap(subject: str, keys: str) -> float | None:
        found = results.median("memory", "memory", f"{keys} keys", subject, "memory", "heap_bytes")
        return None if found is None else found / _MB

    own, hdfs, rocksdb = (heap(subject, "500k") for subject in (OURS, HDFS, CHANGELOG[0]))
    largest = heap(OURS, "10M")
    grown = None if largest is None or own is None else largest - own
    return [
        _at_most(
            "JVM heap, 500k keys", "HDFS-backed", own if hdfs else None, (hdfs or 0) / 4, " MB", "<= 1/4"
        ),
        _at_most(
            "JVM heap, 500k keys",
            "RocksDB + changelog",
            own if rocksdb else None,
            (rocksdb or 0) + 10,
            " MB",
            "<= its + 10 MB",
        ),
        _at_most("JVM heap, growth from 500k to 10M keys", "itself", grown, 10, " MB", "flat (<= 10 MB)"),
    ]


def native_megabytes(results: Results, subject: str, label: str) -> float | None:
    """Return the growth of the JVM beyond its resident heap, and of the agent, in MB."""
    step = results.scenarios.get("memory", {}).get("cases", {}).get("memory", {})
    empty, full = (step.get(name, {}).get(subject, {}).get("memory") for name in ("empty", label))
    if not empty or not full:
        return None
    grown = full["jvm_anonymous_bytes"]["median"] - empty["jvm_anonymous_bytes"]["median"]
    return (grown + full["children_pss_bytes"]["median"]) / _MB


def _native(results: Results) -> list[Outcome]:
    return [
        _at_most(
            f"native and agent memory, {keys} keys",
            "its budget",
            native_megabytes(results, OURS, f"{keys} keys"),
            BUDGET_MB,
            " MB",
        )
        for keys in ("500k", "10M")
    ]


def _stored(results: Results) -> list[Outcome]:
    def stored(subject: str) -> float | None:
        return results.median("storage", "batches of 20k", "storage", subject, "storage", "bytes")

    own, theirs = stored(OURS), stored(CHANGELOG[0])
    ratio = own / theirs if own and theirs else None
    return [_at_most("storage after 200 batches of 20k, 10 retained", "RocksDB + changelog", ratio, 1.2, "x")]


def written_per_changed_byte(results: Results, subject: str, size: str) -> float | None:
    """Return bytes written to checkpoint storage per byte of row written, over the measured batches."""
    case = f"batches of {size}"
    step = results.step("storage", case, f"uniform {size}").get(subject, {})
    if "segments" not in step:
        return None
    operations = step["batch"]["operations"]["median"] * step["segments"]["batches"]
    return float(
        step["segments"]["total"]["written_bytes"] / (operations * results.row_bytes("storage", case))
    )


def _uploaded(results: Results) -> list[Outcome]:
    rows = []
    for size, limit in (("20k", 2.5), ("1k", 4.0)):
        setting = f"bytes uploaded per byte of change, 100 batches of {size}"
        rows.append(
            _at_most(setting, "changed bytes", written_per_changed_byte(results, OURS, size), limit, "x")
        )
        restored = results.median("storage", f"batches of {size}", "restore", OURS, "restore", "total_ms")
        rows.append(
            _at_most("its restore afterwards", "the objective", restored, RESTORE_OBJECTIVE_MS, " ms")
        )
    return rows


def cpu_seconds(results: Results, where: tuple[str, str, str], subject: str) -> float | None:
    """Return CPU seconds of JVM and agent for each batch, maintenance included."""
    segments = results.step(*where).get(subject, {}).get("segments")
    return segments["cpu_jvm_s"]["median"] + segments["cpu_children_s"]["median"] if segments else None


def _cpu(results: Results) -> list[Outcome]:
    where = ("storage", "batches of 20k", "uniform 20k")
    own, theirs = (cpu_seconds(results, where, subject) for subject in (OURS, CHANGELOG[0]))
    ratio = own / theirs if own and theirs else None
    return [
        _at_most("CPU seconds of executor and agent per batch of 20k", "RocksDB + changelog", ratio, 0.5, "x")
    ]


def store_share(results: Results, query: str, subject: str) -> float | None:
    """Return the store's part of a micro-batch.

    It is the time of commits as the query reports them, plus for each written key the time of get and put at
    store level, divided by the time of the tasks: the batch's time on each partition.
    """
    measured = results.scenarios.get("queries", {}).get("queries", {}).get(query, {}).get(subject, {})
    rows_us = _any_median(results, subject, "row_us")
    open_ms = _any_median(results, subject, "open_ms")
    if "operators" not in measured or rows_us is None or open_ms is None:
        return None
    operators, partitions = measured["operators"], 2
    store_ms = (
        operators["commitTimeMs"]["median"]
        + operators["numRowsUpdated"]["median"] * rows_us / 1000
        + operators.get("numStateStoreInstances", {"median": partitions})["median"] * open_ms
    )
    return float(store_ms / (measured["durations_ms"]["addBatch"]["median"] * partitions))


def _any_median(results: Results, subject: str, name: str) -> float | None:
    """Return a median of the smallest batches at store level, whose figures per key are the highest."""
    labels = ("uniform 1k", "uniform 2k")
    found = (results.median("store", "base", label, subject, "batch", name) for label in labels)
    return next((value for value in found if value is not None), None)


def _share(results: Results) -> list[Outcome]:
    share = store_share(results, "applyInPandasWithState", OURS)
    percent = None if share is None else share * 100
    return [
        _at_most(
            "applyInPandasWithState: store's share of a micro-batch", "the micro-batch", percent, 2, " %"
        )
    ]


def _executors(results: Results) -> list[Outcome]:
    return [
        outcome
        for count in executors.counts(results)[1:] or [executors.USUAL, executors.MANY]
        for outcome in _executor(results, count)
    ]


def _executor(results: Results, count: int) -> list[Outcome]:
    setting, where = f"{count} stores in an executor", executors.where(count)
    costs, share = executors.floor(results, OURS, count), executors.agent_share(results, OURS, count)
    floor_mb = costs.total_bytes / _MB if costs else None
    threads, descriptors = (costs.threads, costs.descriptors) if costs else (None, None)
    return [
        _speed(
            results,
            f"{setting}, a batch of {executors.BATCH}",
            where,
            "batch",
            CHANGELOG,
            "RocksDB + changelog",
            5,
            OURS,
        ),
        _at_most(f"{setting}, memory of each", "itself", floor_mb, 0.5, " MB"),
        _at_most(f"{setting}, threads of each", "itself", threads, 0.05, "", "none (<= 0.05)"),
        _at_most(f"{setting}, descriptors of each", "itself", descriptors, 0.05, "", "none (<= 0.05)"),
        _at_most(f"{setting}, the agent during a batch", "a core", share, 0.5, ""),
    ]


def _size(results: Results) -> list[Outcome]:
    found = large_store.labels(results)
    where = (large_store.SCENARIO, large_store.SCENARIO, found[-1] if found else large_store.AFTER)
    setting = f"batch of 20k, all keys in {large_store.BUDGET}"
    return [
        _at_most(setting, "a tenth of the keys", large_store.growth(results), 2, "x"),
        _speed(results, setting, where, "batch", CHANGELOG, "RocksDB + changelog", 5, OURS),
    ]


_CHECKS: tuple[Callable[[Results], list[Outcome]], ...] = (
    _copy,
    _recovery,
    _services,
    _ages,
    _predicted,
    _heap,
    _native,
    _stored,
    _uploaded,
    _cpu,
    _share,
    _executors,
    _size,
)
