"""The sections on restores: by age, by size of the state, from remote storage, from HDFS and S3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.environment import s3_service
from benchmarks.page.layout import comparison, images, spread, table
from benchmarks.page.plots import NAMES
from benchmarks.results import CHANGELOG, HDFS, OURS, ROCKSDB, Results
from benchmarks.scenarios import services
from benchmarks.scenarios.store_level import REMOTE_CASES

_LAZY = "incremental-lazy"


_REMOTE_STATES = (
    "A young state, as one large change leaves it (64 MB at most), and a few small ones after it:",
    "A state that came in changes of 8 MB, and was merged:",
)


def restore(results: Results, titles: Mapping[str, str]) -> str:
    text = (
        "## Restore and fail-over\n\nFrom the start of a task on a fresh provider to its first row.\n\n"
        + images(titles, "restore")
    )
    text += comparison(results, "restore", "restore")
    rows = []
    for label, subjects in results.scenarios.get("restore", {}).get("cases", {}).get("restore", {}).items():
        for subject, stats in subjects.items():
            if "restore" in stats:
                times = [
                    spread(stats["restore"][name])
                    for name in ("init_ms", "open_ms", "first_row_ms", "total_ms", "copy_ms")
                ]
                rows.append((label, NAMES[subject], *times))
    header = ("", "provider", "init ms", "open ms", "first row ms", "total ms", "copy of live bytes ms")
    return text + "\nBy phase:\n\n" + table(header, rows) + _own_restores(results)


def recovery(results: Results, titles: Mapping[str, str]) -> str:
    text = (
        "## Recovery by size of the state\n\nFrom the start of a task on a fresh provider to its first row, "
        "and to the end of its first batch.\n\n"
    )
    return text + comparison(results, "recovery", "recovery") + _far_recovery(results)


def _far_recovery(results: Results) -> str:
    cases = results.scenarios.get("recovery", {}).get("cases", {})
    found = [
        (case, state) for case, state in zip(REMOTE_CASES, _REMOTE_STATES, strict=True) if cases.get(case)
    ]
    if not found:
        return ""
    text = (
        "\n### From remote storage\n\nStorage is a directory behind a Hadoop file system of the benchmark "
        "(`benchmarks/scala/driver/DelayedFileSystem.scala`): each request (status, listing, open, create, "
        "rename, delete, the first read of a stream and each after a seek) waits 20 ms, each stream carries "
        "100 MB a second. All stores are behind it alike.\n"
    )
    for case, state in found:
        text += f"\n{state}\n\n" + comparison(results, "recovery", case)
        text += "\n" + _lazy(results, "recovery", case, cases[case])
    return text


def on_services(results: Results, titles: Mapping[str, str]) -> str:
    found = results.scenarios.get(services.SCENARIO, {}).get("cases", {})
    known = (services.HDFS_CASE, services.S3_CASE, services.LOCAL_CASE)
    cases = [case for case in known if found.get(case)]
    if not cases:
        return ""
    text = (
        "## Recovery from HDFS and S3\n\nFrom the start of a task on a fresh provider to its first row, and "
        "to the end of its first batch, with checkpoints on a service of the loopback whose requests are "
        f"{services.REQUEST_MS} ms late: {_waits(results)}; a stream carries 100 MB a second. "
        "`python -m benchmarks --scenario services`; `--largest 10000000` adds the larger sizes, of which "
        "the HDFS-backed store does not hold the largest in its heap of 4 GB, and the largest on the local "
        "disk. Stores of the largest size are measured one after the other, each on a service of its own.\n"
    )
    for case in cases:
        text += f"\n### {case}\n\n" + comparison(results, services.SCENARIO, case)
        text += "\n" + _lazy(results, services.SCENARIO, case, found[case])
    return text


def _waits(results: Results) -> str:
    """Return the places where requests waited. Results without delayed clients of S3 are from `moto`."""
    case = results.scenarios[services.SCENARIO].get("specs", {}).get(services.S3_CASE, {})
    if s3_service.DELAYED_REQUESTS in case.get("hadoop_conf", {}).values():
        return "before the clients of Hadoop's own mini cluster and of S3Proxy ask"
    of_hdfs = "before the client of Hadoop's own mini cluster asks"
    return f"{of_hdfs}, and in the S3 service of `moto` before it answers"


def _lazy(results: Results, scenario: str, case: str, labels: Mapping[str, Any]) -> str:
    """Return the times of others as multiples of a lazy restore's, or of an eager one's if none is lazy."""
    is_lazy = any(_LAZY in subjects for subjects in labels.values())
    ours, eager = (_LAZY, [("eager", (OURS,))]) if is_lazy else (OURS, [])
    against = [*eager, ("HDFS-backed", (HDFS,)), ("RocksDB", (ROCKSDB,)), ("RocksDB + changelog", CHANGELOG)]
    known = {peer for subjects in labels.values() for peer in subjects}
    against = [(title, peers) for title, peers in against if known.intersection(peers)]
    rows = []
    for label, subjects in labels.items():
        kind = next((name for name in ("restore", "recover") if name in subjects.get(ours, {})), None)
        if kind is not None:
            ratios = [results.ratio((scenario, case, label), peers, kind, ours) for _, peers in against]
            rows.append((label, *("" if ratio is None else str(ratio) for ratio in ratios)))
    return table(("against lazy" if is_lazy else "against ours", *(title for title, _ in against)), rows)


def _own_restores(results: Results) -> str:
    rows = []
    for label, subjects in results.scenarios.get("restore", {}).get("cases", {}).get("restore", {}).items():
        custom = subjects.get(OURS, {}).get("restore", {}).get("custom", {})
        metrics = {name: value for name, value in custom.items() if "estore" in name and value}
        if metrics:
            rows.append((label, ", ".join(f"{name} {value:g}" for name, value in metrics.items())))
    return "\nThis store's own account of it:\n\n" + table(("", "metrics"), rows) if rows else ""
