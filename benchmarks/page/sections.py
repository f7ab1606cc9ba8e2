"""The sections of `benchmarks/RESULTS.md`: the tables of each scenario, and how they were measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from benchmarks.environment import s3_service
from benchmarks.page import goals
from benchmarks.page.plots import NAMES
from benchmarks.results import CHANGELOG, HDFS, MEASURES, OURS, ROCKSDB, Results
from benchmarks.scenarios import executors, large_store, services
from benchmarks.scenarios.store_level import BUDGET_MB, REMOTE_CASES, short

MB = 1 << 20
Row = TypeVar("Row")


def table(rows: Iterable[Row], *columns: tuple[str, Callable[[Row], object]]) -> str:
    """Return a Markdown table of columns: a heading, and the cell of a row; empty if there are no rows."""
    lines = ["| " + " | ".join(str(cell(row)) for _, cell in columns) + " |" for row in rows]
    if not lines:
        return ""
    head = ["| " + " | ".join(heading for heading, _ in columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join([*head, *lines]) + "\n"


def spread(stats: Mapping[str, float] | None) -> str:
    """Return a median with its quartiles in brackets, if there are several values."""
    if not stats:
        return ""
    if stats["n"] < 2:
        return _digits(stats["median"])
    return f"{_digits(stats['median'])} ({_digits(stats['q1'])}-{_digits(stats['q3'])})"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def images(titles: Mapping[str, str], *names: str) -> str:
    """Return the pictures among these that were drawn."""
    return "".join(f"![{titles[name]}](images/{name}.svg)\n\n" for name in names if name in titles)


# Rows are a label, a provider and its statistics, or what the scenario's result file lists.
Measured = tuple[str, str, Mapping[str, Any]]
_LABEL: tuple[str, Callable[[Measured], str]] = ("", lambda row: row[0])
_PROVIDER: tuple[str, Callable[[Measured], str]] = ("provider", lambda row: NAMES[row[1]])


def _measured(by_label: Mapping[str, Mapping[str, Any]], *figures: str) -> Iterator[Measured]:
    """Yield label, provider and statistics of each measurement that has all of these figures."""
    for label, subjects in by_label.items():
        for subject, stats in subjects.items():
            if all(name in stats for name in figures):
                yield label, subject, stats


def _spread_of(kind: str, name: str) -> Callable[[Measured], str]:
    return lambda row: spread(row[2][kind][name])


def _cases(results: Results, scenario: str) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    return results.scenarios.get(scenario, {}).get("cases", {})


def comparison(results: Results, scenario: str, case: str) -> str:
    """Return a table with a row a step: each provider's median, and its multiple of this store's."""
    labels = _cases(results, scenario).get(case, {})
    rows = []
    for label, subjects in labels.items():
        kind = next((kind for kind in MEASURES if any(kind in stats for stats in subjects.values())), None)
        if kind is not None:
            rows.append((label, kind, subjects))

    def median(subject: str) -> Callable[[tuple[str, str, Any]], str]:
        return lambda row: spread(row[2].get(subject, {}).get(row[1], {}).get(MEASURES[row[1]][0]))

    def ratio(*peers: str) -> Callable[[tuple[str, str, Any]], str]:
        def cell(row: tuple[str, str, Any]) -> str:
            label, kind, subjects = row
            variants = (OURS, "incremental-full", "incremental-1g")
            own = next((subject for subject in variants if kind in subjects.get(subject, {})), OURS)
            return str(results.ratio((scenario, case, label), peers, kind, own) or "")

        return cell

    return table(
        rows,
        ("ms", lambda row: row[0]),
        *((NAMES[name], median(name)) for name in NAMES if any(name in steps for steps in labels.values())),
        ("HDFS-backed / ours", ratio(HDFS)),
        ("RocksDB + changelog / ours", ratio(*CHANGELOG)),
    )


def costs(results: Results, scenario: str, case: str) -> str:
    """Return a table of batches by phase, with CPU, written bytes, and the bytes in storage after."""

    def segments(row: Measured) -> Mapping[str, Any]:
        found: Mapping[str, Any] = row[2]["segments"]
        return found

    text = table(
        _measured(results.scenarios[scenario]["cases"][case], "batch", "segments"),
        _LABEL,
        _PROVIDER,
        ("open ms", _spread_of("batch", "open_ms")),
        ("get + put us a key", _spread_of("batch", "row_us")),
        ("commit ms", _spread_of("batch", "commit_ms")),
        ("CPU ms", lambda row: f"{goals.cpu_of(segments(row)) * 1000:.0f}"),
        ("MB written", lambda row: f"{segments(row)['written_bytes']['median'] / MB:.2f}"),
        ("MB in storage", lambda row: f"{segments(row)['last']['storage_bytes'] / MB:.0f}"),
        ("files", lambda row: segments(row)["last"]["storage_files"]),
    )
    return (
        f"<details><summary>A batch by phase, CPU, bytes</summary>\n\n{text}\n</details>\n\n" if text else ""
    )


def _store(results: Results) -> str:
    return "".join(
        f"### {case}\n\n{comparison(results, 'store', case)}\n{costs(results, 'store', case)}"
        for case in _cases(results, "store")
    )


def _growth(results: Results) -> str:
    text = ""
    for case in _cases(results, "growth"):
        budget = "" if case.endswith("GB") else f", {BUDGET_MB} MB"
        text += f"### {case[0].upper()}{case[1:]}{budget}\n\n" + comparison(results, "growth", case) + "\n"
    return text


def _storage(results: Results) -> str:
    rows = []
    for case, labels in _cases(results, "storage").items():
        size = case.removeprefix("batches of ")
        for subject, stats in labels.get("storage", {}).items():
            segments = labels.get(f"uniform {size}", {}).get(subject, {}).get("segments")
            written = goals.written_per_changed_byte(results, subject, size)
            if "storage" in stats and segments and written:
                held = {
                    name: figure["median"] for name, figure in stats["storage"].items() if "median" in figure
                }
                rows.append((case, subject, {**held, "written": written, "cpu": goals.cpu_of(segments)}))
    text = table(
        rows,
        _LABEL,
        _PROVIDER,
        ("MB held", lambda row: f"{row[2]['bytes'] / MB:.0f}"),
        ("per live byte", lambda row: f"{row[2]['bytes'] / row[2]['live_bytes']:.2f}"),
        ("files", lambda row: f"{row[2]['files']:.0f}"),
        ("written per changed byte", lambda row: f"{row[2]['written']:.2f}"),
        ("CPU ms a batch", lambda row: f"{row[2]['cpu'] * 1000:.0f}"),
    )
    compared = (
        f"### {case[0].upper()}{case[1:]}\n\n" + comparison(results, "storage", case) + "\n"
        for case in _cases(results, "storage")
    )
    return text + "\n" + "".join(compared)


def _memory(results: Results) -> str:
    rows = [
        row for row in _measured(_cases(results, "memory").get("memory", {}), "memory") if row[0] != "empty"
    ]

    def megabytes(name: str) -> Callable[[Measured], str]:
        return lambda row: f"{row[2]['memory'][name]['median'] / MB:.0f}"

    def native(row: Measured) -> str:
        found = goals.native_megabytes(results, row[1], row[0])
        return "" if found is None else f"{found:.0f}"

    return table(
        rows,
        _LABEL,
        _PROVIDER,
        ("heap MB", megabytes("heap_bytes")),
        ("store says MB", megabytes("reported_bytes")),
        ("native and agent MB", native),
        ("of it agent MB", megabytes("children_pss_bytes")),
        ("mapped files MB", megabytes("jvm_file_bytes")),
    )


_EXECUTORS = f"""\
Each store has {executors.KEYS_EACH} keys, and a batch touches {executors.TOUCHED_EACH} of them in every \
store; two tasks at a time. Memory
a store is what the process grew by from the fewest stores to these, for each store more. Threads and
descriptors are those of the JVM and of the agent. CPU of a JVM's processes is the agent's, or of those that
Hadoop's file system starts for a file. Batches are without maintenance."""


def _many_stores(results: Results) -> str:
    rows = []
    for count in executors.counts(results):
        subjects = results.step(*executors.where(count))
        for subject in (name for name in NAMES if name in subjects):
            cells = executors.row(results, subject, count)
            if cells is not None:
                rows.append((executors.name(count), NAMES[subject], *cells))
    headings = ("", "provider", *executors.HEADER)
    return table(rows, *((heading, _cell(number)) for number, heading in enumerate(headings)))


def _cell(number: int) -> Callable[[tuple[Any, ...]], object]:
    return lambda row: row[number]


_SIZE = """\
Memory is a sixth of the bytes of all keys; a tenth of them about fits into it. Of each look-up that memory
did not answer: files whose filters it asked, and blocks that it read. Bytes in checkpoint storage are per
byte of change, and per live byte. Between a load and the batches that count come others, until nobody writes
much more than it changes: what the load left to merge is merged. The *many batches* in the end are so many
that merges have their share of them.
"""


def large_store_tables(results: Results) -> str:
    """Return the tables on a store that is larger than its memory, and the projection to a billion keys."""
    found = ((step, large_store.amplification(results, step)) for step in large_store.labels(results))

    text = table(
        [row for row in found if row[1] is not None],
        ("this store", lambda row: row[0]),
        ("look-ups that memory did not answer", lambda row: f"{row[1].misses_share:.2f}"),
        ("filters", lambda row: f"{row[1].filters:.2f}"),
        ("blocks", lambda row: f"{row[1].blocks:.2f}"),
        ("written", lambda row: f"{row[1].written:.2f}"),
        ("held", lambda row: f"{row[1].held:.2f}"),
    )
    compared = comparison(results, large_store.SCENARIO, large_store.SCENARIO)
    return f"{compared}\n{text}{_projection(results)}" if text else ""


_PROJECTION = """
### Projection: a billion keys

{partitions} partitions of {keys} each. A partition's batch of {batch} rows ({all_rows} over all)
takes {own:.0f} ms here ({others}), and its checkpoints {stored:.1f} GiB. Over {partitions} partitions on
{executors} executors of two cores that is two rounds of tasks, {twice:.0f} ms of store a batch, and {all:.0f}
GiB of checkpoints. Assumptions: keys spread evenly over partitions; batches uniform over keys; four stores
share the memory of an executor, so its budget is four times the one measured; checkpoint storage takes the
uploads of all executors at once; nothing but the store is counted.
"""


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


def _restore(results: Results) -> str:
    labels = _cases(results, "restore").get("restore", {})
    phases = table(
        _measured(labels, "restore"),
        _LABEL,
        _PROVIDER,
        *((f"{phase} ms", _spread_of("restore", name)) for phase, name in _RESTORE_PHASES.items()),
    )
    own = (
        (label, {name: value for name, value in custom.items() if "estore" in name and value})
        for label, subjects in labels.items()
        if (custom := subjects.get(OURS, {}).get("restore", {}).get("custom"))
    )
    metrics = table(
        [row for row in own if row[1]],
        ("", lambda row: row[0]),
        ("metrics", lambda row: ", ".join(f"{name} {value:g}" for name, value in row[1].items())),
    )
    text = comparison(results, "restore", "restore") + "\nBy phase:\n\n" + phases
    return text + ("\nThis store's own account of it:\n\n" + metrics if metrics else "")


_RESTORE_PHASES = {
    "init": "init_ms",
    "open": "open_ms",
    "first row": "first_row_ms",
    "total": "total_ms",
    "copy of live bytes": "copy_ms",
}
_REMOTE_STATES = (
    "A young state, as one large change leaves it (64 MB at most), and a few small ones after it:",
    "A state that came in changes of 8 MB, and was merged:",
)
_REMOTE = """
### From remote storage

Storage is a directory behind a Hadoop file system of the benchmark \
(`benchmarks/scala/driver/DelayedFileSystem.scala`): each request (status, listing, open, create, \
rename, delete, the first read of a stream and each after a seek) waits 20 ms, each stream carries \
100 MB a second. All stores are behind it alike.
"""


def _recovery(results: Results) -> str:
    cases = _cases(results, "recovery")
    text = comparison(results, "recovery", "recovery")
    if any(cases.get(case) for case in REMOTE_CASES):
        text += _REMOTE
    for case, state in zip(REMOTE_CASES, _REMOTE_STATES, strict=True):
        if cases.get(case):
            text += f"\n{state}\n\n" + comparison(results, "recovery", case)
            text += "\n" + _against_lazy(results, "recovery", case)
    return text


def on_services(results: Results) -> str:
    """Return the tables on recovery from HDFS and S3, with the way in which requests waited."""
    known = (services.HDFS_CASE, services.S3_CASE, services.LOCAL_CASE)
    cases = [case for case in known if _cases(results, services.SCENARIO).get(case)]
    if not cases:
        return ""
    text = (
        "From the start of a task on a fresh provider to its first row, and "
        "to the end of its first batch, with checkpoints on a service of the loopback whose requests are "
        f"{services.REQUEST_MS} ms late: {_waits(results)}; a stream carries 100 MB a second. "
        "`python -m benchmarks --scenario services`; `--largest 10000000` adds the larger sizes, of which "
        "the HDFS-backed store does not hold the largest in its heap of 4 GB, and the largest on the local "
        "disk. Stores of the largest size are measured one after the other, each on a service of its own.\n"
    )
    for case in cases:
        text += f"\n### {case}\n\n" + comparison(results, services.SCENARIO, case)
        text += "\n" + _against_lazy(results, services.SCENARIO, case)
    return text


def _waits(results: Results) -> str:
    """Return the places where requests waited. Results without delayed clients of S3 are from `moto`."""
    case = results.scenarios[services.SCENARIO].get("specs", {}).get(services.S3_CASE, {})
    if s3_service.DELAYED_REQUESTS in case.get("hadoop_conf", {}).values():
        return "before the clients of Hadoop's own mini cluster and of S3Proxy ask"
    of_hdfs = "before the client of Hadoop's own mini cluster asks"
    return f"{of_hdfs}, and in the S3 service of `moto` before it answers"


def _against_lazy(results: Results, scenario: str, case: str) -> str:
    """Return the times of others as multiples of a lazy restore's, or of an eager one's if none is lazy."""
    labels, lazy = _cases(results, scenario)[case], "incremental-lazy"
    is_lazy = any(lazy in subjects for subjects in labels.values())
    ours, eager = (lazy, [("eager", (OURS,))]) if is_lazy else (OURS, [])
    against = [*eager, ("HDFS-backed", (HDFS,)), ("RocksDB", (ROCKSDB,)), ("RocksDB + changelog", CHANGELOG)]
    known = {peer for subjects in labels.values() for peer in subjects}
    rows = []
    for label, subjects in labels.items():
        kind = next((name for name in ("restore", "recover") if name in subjects.get(ours, {})), None)
        if kind is not None:
            rows.append((label, kind))

    def ratio(peers: tuple[str, ...]) -> Callable[[tuple[str, str]], str]:
        return lambda row: str(results.ratio((scenario, case, row[0]), peers, row[1], ours) or "")

    return table(
        rows,
        ("against lazy" if is_lazy else "against ours", lambda row: row[0]),
        *((title, ratio(peers)) for title, peers in against if known.intersection(peers)),
    )


_SHARE = """
The store's share is its commits, as the query reports them, and the get and put of each key at what they
take at store level, over the time of the batch on both cores. With `applyInPandasWithState` the rest is the
Python worker: about a millisecond for each group.
"""


def _queries(results: Results) -> str:
    def share(row: Measured) -> str:
        found = goals.store_share(results, row[0], row[1])
        return "" if found is None else f"{found:.1%}"

    text = table(
        _measured(results.scenarios.get("queries", {}).get("queries", {}), "durations_ms"),
        ("query", _LABEL[1]),
        _PROVIDER,
        ("batch ms", _spread_of("durations_ms", "triggerExecution")),
        ("addBatch ms", _spread_of("durations_ms", "addBatch")),
        ("commits ms (all tasks)", _spread_of("operators", "commitTimeMs")),
        ("keys written", lambda row: f"{row[2]['operators']['numRowsUpdated']['median']:.0f}"),
        ("store's share", share),
    )
    return text + _SHARE if text else ""


_FORMS = {
    "stock": "a call for each group (Spark's)",
    "vectorized": "vectorised",
    "loop": "vectorised, with a loop over rows in Python",
    "per_group": "a call for each group with plain rows",
    "accelerate": "accelerated (the function unchanged)",
}


def _vectorized(results: Results) -> str:
    rows = [
        (size, form, {(ratio["store"], ratio["form"]): ratio for ratio in size["ratios"]})
        for size in results.scenarios.get("vectorized", {}).get("functions", [])
        for form in size["measurements"]
    ]

    def times(figure: str) -> Callable[[tuple[Any, Any, Any]], str]:
        def cell(row: tuple[Any, Any, Any]) -> str:
            ratio = row[2].get((row[1]["store"], row[1]["form"]))
            return f"{ratio[figure]:.1f}x" if ratio else ""

        return cell

    return table(
        rows,
        ("a batch", lambda row: f"{row[0]['groups']:,} groups of {row[0]['rows']} rows"),
        ("store", lambda row: NAMES.get(row[1]["store"], row[1]["store"])),
        ("function", lambda row: _FORMS[row[1]["form"]]),
        ("batch ms", lambda row: f"{row[1]['median_ms']:,.0f}"),
        ("CPU s", lambda row: f"{row[1]['median_cpu_s']:.2f}"),
        ("faster", times("times_stock")),
        ("less CPU", times("times_stock_cpu")),
    )


PROCESSORS = {
    "none": "no state",
    "value": "a value",
    "ttl": "a value with a time to live",
    "list": "a list that grows and is read",
    "map": "a map, two entries read and written",
    "timers": "a timer that is moved",
    "pandas": "a value, pandas frames",
    "vectorized": "a value, `@state_store.vectorized` (Spark's worker: frames)",
}
"""Names on pages for the cases of `comparisons/processor_forms.py`."""


def _processors(results: Results) -> str:
    return table(
        results.scenarios.get("processors", {}).get("processors", []),
        ("a batch", lambda case: f"{case['groups']:,} groups of 2 rows"),
        ("store", lambda case: NAMES.get(case["store"], case["store"])),
        ("a processor with", lambda case: PROCESSORS[case["case"]]),
        ("batch ms in Spark's worker", lambda case: f"{case['stock']['median_ms']:,.0f}"),
        ("in batches", lambda case: f"{case['batched']['median_ms']:,.0f}"),
        ("CPU s in Spark's worker", lambda case: f"{case['stock']['median_cpu_s']:.2f}"),
        ("in batches", lambda case: f"{case['batched']['median_cpu_s']:.2f}"),
        ("faster", lambda case: f"{case['times_stock']:.1f}x"),
        ("less CPU", lambda case: f"{case['times_stock_cpu']:.1f}x"),
    )


ENGINES = {
    "processor": "this project, an unchanged processor",
    "per_group": "this project, `per_group`",
    "vectorized": "this project, vectorised",
    "accelerate": "this project, a function on frames, accelerated",
    "spark-worker": "Spark's worker, the same processor, RocksDB + changelog",
    "spark-frames": "Spark's operator, the same function on frames, RocksDB + changelog",
    "bytewax": "Bytewax, `stateful_map`",
    "thread-rocksdb": "PyFlink, thread mode, RocksDB",
    "thread-hashmap": "PyFlink, thread mode, heap",
    "process-rocksdb": "PyFlink, process mode, RocksDB",
}
"""Names on pages for the forms of `engines/side_by_side.py`."""


def _engines(results: Results) -> str:
    found = results.scenarios.get("engines", {}).get("engines", {})
    text = table(
        found.get("runs", []),
        ("engine", lambda run: ENGINES[run["form"]]),
        ("rows a key", lambda run: f"{run['rows_a_key']:.0f}"),
        ("keys", lambda run: f"{run['keys']:,.0f}"),
        ("rows a second", lambda run: f"{run['rows_a_second']:,.0f}"),
        ("CPU us a row", lambda run: f"{run['cpu_us_a_row']:.1f}"),
        ("bytes written a row", lambda run: f"{run['written_bytes_a_row']:.0f}"),
        ("peak MB", lambda run: f"{run['peak_mb']:,.0f}"),
    )
    load = f"The load of the machine at the end was {found.get('load', [0])[0]:.1f}.\n\n"
    return load + text if text else ""


def _hdfs(results: Results) -> str:
    return comparison(results, "hdfs", "hdfs") + "\n" + costs(results, "hdfs", "hdfs")


def _merges(results: Results) -> str:
    kinds = results.scenarios.get("merges", {}).get("kinds", {})
    return table(
        [(kind, group, stats) for kind, groups in kinds.items() for group, stats in groups.items()],
        ("kind", lambda row: row[0]),
        ("deltas a merge", lambda row: row[1]),
        ("ms a merge", lambda row: spread(row[2]["merge_ms"])),
        ("M records/s", lambda row: f"{row[2]['records_per_s'] / 1e6:.2f}"),
        ("MB/s", lambda row: f"{row[2]['bytes_per_s'] / 1e6:.0f}"),
        ("CPU us a record", lambda row: f"{row[2]['cpu_us_per_record']:.2f}"),
        ("rewritten per changed byte", lambda row: f"{row[2]['rewritten_per_changed_byte']:.2f}"),
        ("files", lambda row: row[2]["files"]),
        ("size / live", lambda row: f"{row[2]['space_amplification']:.2f}"),
    )


@dataclass(frozen=True)
class Section:
    """A section of the page.

    Attributes:
        scenario: the scenario whose results it shows.
        heading: its heading.
        body: returns its tables; empty if the results have none, and then there is no section.
        introduction: how it was measured.
        pictures: pictures before the tables.
    """

    scenario: str
    heading: str
    body: Callable[[Results], str]
    introduction: str = ""
    pictures: tuple[str, ...] = ()

    def text(self, results: Results, titles: Mapping[str, str]) -> str:
        """Return the section as Markdown.

        Args:
            results: the results of all scenarios.
            titles: the titles of the pictures that were drawn, by name.
        """
        body = self.body(results)
        if not body:
            return ""
        before = f"{self.introduction}\n\n" if self.introduction else ""
        return f"## {self.heading}\n\n{before}{images(titles, *self.pictures)}{body}"


_FIRST_ROW = "From the start of a task on a fresh provider to its first row"
SECTIONS = (
    Section("store", "Store level", _store, pictures=("speed",)),
    Section(
        "age",
        "Age",
        lambda results: comparison(results, "age", "age"),
        "Constant live state, one batch after another; a restore on a new machine now and then.",
        ("restore-over-age", "storage-over-age"),
    ),
    Section("growth", "Growth", _growth),
    Section("size", "A store larger than its memory", large_store_tables, _SIZE.rstrip()),
    Section("restore", "Restore and fail-over", _restore, f"{_FIRST_ROW}."),
    Section(
        "recovery",
        "Recovery by size of the state",
        _recovery,
        f"{_FIRST_ROW}, and to the end of its first batch.",
    ),
    Section("services", "Recovery from HDFS and S3", on_services),
    Section("storage", "Storage, uploads, latency", _storage),
    Section("queries", "Real queries", _queries),
    Section("memory", "Memory", _memory),
    Section("executors", "Executors with many stores", _many_stores, _EXECUTORS),
    Section(
        "vectorized",
        "Vectorised functions",
        _vectorized,
        "The median of the whole time of a trigger, of queries that keep running, and of the CPU time of "
        "driver, executor and workers in it; outputs and states are compared.",
    ),
    Section(
        "processors",
        "Processors of transformWithState",
        _processors,
        "The median of the whole time of a trigger, after small batches for the JVM's compiler, and of the "
        "CPU time of driver, executor and workers in it; outputs and states are compared.",
    ),
    Section(
        "engines",
        "A counter on other engines",
        _engines,
        "The same keyed counter in Python, one partition, each row with a row out; outputs of a small job "
        "are compared by checksum. Resident memory counts shared pages in each process.",
    ),
    Section(
        "hdfs",
        "On HDFS",
        _hdfs,
        "Checkpoints in a NameNode and a DataNode on the same machine.",
    ),
    Section("merges", "The merge alone", _merges),
)
