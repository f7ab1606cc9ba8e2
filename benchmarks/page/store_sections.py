"""The sections at the level of a store: batches, growth, storage, memory, many stores, HDFS, merges."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.page import goals
from benchmarks.page.layout import MB, comparison, costs, images, spread, table
from benchmarks.page.plots import NAMES
from benchmarks.results import CHANGELOG, OURS, Results
from benchmarks.scenarios import executors, large_store
from benchmarks.scenarios.store_level import BUDGET_MB, short

_PROJECTION = """
### Projection: a billion keys

{partitions} partitions of {keys} each. A partition's batch of {batch} rows ({all_rows} over all)
takes {own:.0f} ms here ({others}), and its checkpoints {stored:.1f} GiB. Over {partitions} partitions on
{executors} executors of two cores that is two rounds of tasks, {twice:.0f} ms of store a batch, and {all:.0f}
GiB of checkpoints. Assumptions: keys spread evenly over partitions; batches uniform over keys; four stores
share the memory of an executor, so its budget is four times the one measured; checkpoint storage takes the
uploads of all executors at once; nothing but the store is counted.
"""


_EXECUTORS = """\
## Executors with many stores

Each store has {keys} keys, and a batch touches {touched} of them in every store; two tasks at a time. Memory
a store is what the process grew by from the fewest stores to these, for each store more. Threads and
descriptors are those of the JVM and of the agent. CPU of a JVM's processes is the agent's, or of those that
Hadoop's file system starts for a file. Batches are without maintenance.

"""


_SIZE = """\
## A store larger than its memory

Memory is a sixth of the bytes of all keys; a tenth of them about fits into it. Of each look-up that memory
did not answer: files whose filters it asked, and blocks that it read. Bytes in checkpoint storage are per
byte of change, and per live byte. Between a load and the batches that count come others, until nobody writes
much more than it changes: what the load left to merge is merged. The *many batches* in the end are so many
that merges have their share of them.

"""


def store(results: Results, titles: Mapping[str, str]) -> str:
    text = "## Store level\n\n" + images(titles, "speed", "phases", "own-phases")
    for case in results.scenarios.get("store", {}).get("cases", {}):
        text += f"### {case}\n\n" + comparison(results, "store", case) + "\n" + costs(results, "store", case)
    return text


def age(results: Results, titles: Mapping[str, str]) -> str:
    text = (
        "## Age\n\nConstant live state, one batch after another; a restore on a new machine now and then.\n\n"
    )
    text += images(titles, "restore-over-age", "batch-over-age", "storage-over-age")
    return text + comparison(results, "age", "age")


def growth(results: Results, titles: Mapping[str, str]) -> str:
    text = "## Growth\n\n" + images(titles, "growth")
    for case in results.scenarios.get("growth", {}).get("cases", {}):
        budget = "" if case.endswith("GB") else f", {BUDGET_MB} MB"
        text += f"### {case[0].upper()}{case[1:]}{budget}\n\n" + comparison(results, "growth", case) + "\n"
    return text


def storage(results: Results, titles: Mapping[str, str]) -> str:
    text = "## Storage, uploads, latency\n\n" + images(titles, "latency")
    rows = []
    for case, labels in results.scenarios.get("storage", {}).get("cases", {}).items():
        size = case.removeprefix("batches of ")
        for subject, stats in labels.get("storage", {}).items():
            segments = labels.get(f"uniform {size}", {}).get(subject, {}).get("segments")
            written = goals.written_per_changed_byte(results, subject, size)
            if "storage" in stats and segments and written:
                held, live = stats["storage"]["bytes"]["median"], stats["storage"]["live_bytes"]["median"]
                files = stats["storage"]["files"]["median"]
                cpu = goals.cpu_seconds(results, ("storage", case, f"uniform {size}"), subject) or 0
                rows.append(
                    (
                        case,
                        NAMES[subject],
                        f"{held / MB:.0f}",
                        f"{held / live:.2f}",
                        f"{files:.0f}",
                        f"{written:.2f}",
                        f"{cpu * 1000:.0f}",
                    )
                )
    header = (
        "",
        "provider",
        "MB held",
        "per live byte",
        "files",
        "written per changed byte",
        "CPU ms a batch",
    )
    return (
        text
        + table(header, rows)
        + "\n"
        + "".join(
            f"### {case[0].upper()}{case[1:]}\n\n" + comparison(results, "storage", case) + "\n"
            for case in results.scenarios.get("storage", {}).get("cases", {})
        )
    )


def memory(results: Results, titles: Mapping[str, str]) -> str:
    rows = []
    for label, subjects in results.scenarios.get("memory", {}).get("cases", {}).get("memory", {}).items():
        for subject, stats in subjects.items():
            if "memory" in stats and label != "empty":
                memory = stats["memory"]
                native = goals.native_megabytes(results, subject, label)
                rows.append(
                    (
                        label,
                        NAMES[subject],
                        *(f"{memory[name]['median'] / MB:.0f}" for name in ("heap_bytes", "reported_bytes")),
                        "" if native is None else f"{native:.0f}",
                        *(
                            f"{memory[name]['median'] / MB:.0f}"
                            for name in ("children_pss_bytes", "jvm_file_bytes")
                        ),
                    )
                )
    header = (
        "",
        "provider",
        "heap MB",
        "store says MB",
        "native and agent MB",
        "of it agent MB",
        "mapped files MB",
    )
    return "## Memory\n\n" + images(titles, "memory") + table(header, rows) if rows else ""


def many_stores(results: Results, titles: Mapping[str, str]) -> str:
    rows = []
    for count in executors.counts(results):
        subjects = results.step(*executors.where(count))
        for subject in (name for name in NAMES if name in subjects):
            cells = executors.row(results, subject, count)
            if cells is not None:
                rows.append((executors.name(count), NAMES[subject], *cells))
    text = _EXECUTORS.format(keys=executors.KEYS_EACH, touched=executors.TOUCHED_EACH)
    return text + table(("", "provider", *executors.HEADER), rows) if rows else ""


def large_store_section(results: Results, titles: Mapping[str, str]) -> str:
    found = {step: large_store.amplification(results, step) for step in large_store.labels(results)}
    rows = [
        (
            step,
            *(
                f"{value:.2f}"
                for value in (work.misses_share, work.filters, work.blocks, work.written, work.held)
            ),
        )
        for step, work in found.items()
        if work is not None
    ]
    header = ("this store", "look-ups that memory did not answer", "filters", "blocks", "written", "held")
    if not rows:
        return ""
    compared = comparison(results, large_store.SCENARIO, large_store.SCENARIO)
    return _SIZE + compared + "\n" + table(header, rows) + _projection(results)


def _projection(results: Results) -> str:
    """Return a sentence about a billion keys, in stores of the largest measured size."""
    where, steps = (large_store.SCENARIO, large_store.SCENARIO), large_store.labels(results)
    found = results.step(*where, f"{steps[-1]}, storage").get(OURS, {}).get("storage")
    own = results.median(*where, steps[-1], OURS, "batch", "wall_ms")
    if found is None or own is None:
        return ""
    keys, stored = found["keys"]["median"], found["bytes"]["median"] / 2**30
    rows = results.median(*where, steps[-1], OURS, "batch", "operations") or 0
    theirs = {name: results.median(*where, steps[-1], name, "batch", "wall_ms") for name in CHANGELOG}
    partitions = round(1e9 / keys)
    return _PROJECTION.format(
        partitions=partitions,
        keys=large_store.label(int(keys)),
        batch=short(int(rows)),
        all_rows=short(int(rows * partitions)),
        own=own,
        others=", ".join(f"{NAMES[name]} {value:.0f} ms" for name, value in theirs.items() if value),
        stored=stored,
        executors=max(1, partitions // 4),
        twice=2 * own,
        all=partitions * stored,
    )


def hdfs(results: Results, titles: Mapping[str, str]) -> str:
    if "hdfs" not in results.scenarios:
        return ""
    text = "## On HDFS\n\nCheckpoints in a NameNode and a DataNode on the same machine.\n\n"
    return text + comparison(results, "hdfs", "hdfs") + "\n" + costs(results, "hdfs", "hdfs")


def merges(results: Results, titles: Mapping[str, str]) -> str:
    kinds = results.scenarios.get("merges", {}).get("kinds", {})
    rows = [
        (
            kind,
            group,
            spread(stats["merge_ms"]),
            f"{stats['records_per_s'] / 1e6:.2f}",
            f"{stats['bytes_per_s'] / 1e6:.0f}",
            f"{stats['cpu_us_per_record']:.2f}",
            f"{stats['rewritten_per_changed_byte']:.2f}",
            str(stats["files"]),
            f"{stats['space_amplification']:.2f}",
        )
        for kind, groups in kinds.items()
        for group, stats in groups.items()
    ]
    header = (
        "kind",
        "deltas a merge",
        "ms a merge",
        "M records/s",
        "MB/s",
        "CPU us a record",
        "rewritten per changed byte",
        "files",
        "size / live",
    )
    return "## The merge alone\n\n" + images(titles, "merges") + table(header, rows) if rows else ""
