"""The tables of the pages: one renderer, and the columns of each scenario's table as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from benchmarks.environment import s3_service
from benchmarks.page import goals
from benchmarks.page.goals import MB
from benchmarks.results import CHANGELOG, HDFS, MEASURES, NAMES, OURS, ROCKSDB, Results
from benchmarks.scenarios import executors, large_store, services

Row = Mapping[str, Any]
Column = str | tuple[Any, ...]
"""A heading and a function of the row, with the form in which its value is written, if that is not plain.
Or a text of several columns: `MB written: segments.written_bytes.median .2f MB; files: files`. Each has the
path of a figure in the row, its form, and the unit by which it is divided first. Quartiles need no form."""

_UNITS = {"GiB": 1 << 30, "MB": MB, "M": 1e6, "ms": 1e-3}


def table(rows: Iterable[Row], *columns: Column) -> str:
    """Return a Markdown table of columns; empty if there are no rows."""
    cells = [
        cell for column in columns for cell in (_parsed(column) if isinstance(column, str) else [column])
    ]
    lines = ["| " + " | ".join(_cell(row, *cell[1:]) for cell in cells) + " |" for row in rows]
    if not lines:
        return ""
    head = "| " + " | ".join(cell[0] for cell in cells) + " |"
    return "\n".join([head, "|" + "---|" * len(cells), *lines]) + "\n"


def _parsed(text: str) -> Iterator[tuple[Any, ...]]:
    for column in text.split("; "):
        heading, _, figure = column.partition(": ")
        path, form, unit = [*figure.split(), "", ""][:3]
        yield heading, path, f"{{:{form}}}", _UNITS.get(unit)


def _cell(row: Row, figure: Any, form: str = "{}", unit: float | None = None) -> str:
    value = figure(row) if callable(figure) else _at(row, figure)
    if isinstance(value, Mapping):
        return spread(value)
    return "" if value is None else form.format(value / unit if unit else value)


def _at(row: Any, path: str) -> Any:
    for name in path.split("."):
        row = row.get(name) if row else None
    return row


def spread(stats: Mapping[str, float]) -> str:
    """Return a median with its quartiles in brackets, if there are several values."""
    median, low, high = (
        f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
        for value in (stats["median"], stats["q1"], stats["q3"])
    )
    return median if stats["n"] < 2 else f"{median} ({low}-{high})"


def _rows(by_label: Mapping[str, Mapping[str, Row]], *figures: str) -> Iterator[Row]:
    """Yield the statistics of each measurement that has all of these figures, with its label and store."""
    for label, subjects in by_label.items():
        for subject, stats in subjects.items():
            if all(name in stats for name in figures):
                yield {"label": label, "subject": subject, "store": NAMES[subject], **stats}


_OF_STORE = ": label; provider: store; "


def _cases(results: Results, scenario: str) -> Mapping[str, Mapping[str, Mapping[str, Row]]]:
    return results.scenarios.get(scenario, {}).get("cases", {})


def _compared(scenario: str, *, costs: bool = False) -> Callable[[Results], str]:
    """Return the function that compares all cases of a scenario, each below its name if there are several."""

    def text(results: Results) -> str:
        cases = _cases(results, scenario)
        heads = {case: f"### {case}\n\n" if len(cases) > 1 else "" for case in cases}
        return "\n".join(
            head + comparison(results, scenario, case) + (_costs(cases[case]) if costs else "")
            for case, head in heads.items()
        )

    return text


_PEERS = {"eager": (OURS,), "HDFS-backed": (HDFS,), "RocksDB": (ROCKSDB,), "RocksDB + changelog": CHANGELOG}


def comparison(results: Results, scenario: str, case: str) -> str:
    """Return a table with a row a step: each store's median, and its multiple of this store's.

    If stores restored lazily, a second table has the multiples of these.
    """
    steps = _cases(results, scenario).get(case, {})
    known = [name for name in NAMES if any(name in subjects for subjects in steps.values())]
    rows = [
        {"label": where[2], "kind": kind, "stats": steps[where[2]]}
        for where, kind in results.measured()
        if where[:2] == (scenario, case)
    ]

    def median(name: str) -> Callable[[Row], Any]:
        return lambda row: _at(row, f"stats.{name}.{row['kind']}.{MEASURES[row['kind']][0]}")

    def ratio(peers: tuple[str, ...], variants: tuple[str, ...]) -> Callable[[Row], Any]:
        def cell(row: Row) -> Any:
            own = next((name for name in variants if row["kind"] in row["stats"].get(name, {})), OURS)
            return results.ratio((scenario, case, row["label"]), peers, row["kind"], own)

        return cell

    def ratios(peers: Iterable[str], suffix: str, *variants: str) -> list[Column]:
        """Return the columns of those peers of which one was measured."""
        return [
            (f"{peer}{suffix}", ratio(_PEERS[peer], variants))
            for peer in peers
            if set(_PEERS[peer]) & set(known)
        ]

    medians = [(NAMES[name], median(name)) for name in known]
    multiples = ratios(list(_PEERS)[1:], " / ours", OURS, "incremental-full", "incremental-1g")
    text = table(rows, ("ms", "label"), *medians, *multiples)
    lazy = "incremental-lazy"
    lazy_rows = [row for row in rows if row["kind"] in ("restore", "recover") and lazy in row["stats"]]
    against = table(lazy_rows, ("against lazy", "label"), *ratios(_PEERS, "", lazy))
    return f"{text}\n{against}" if against else text


def _costs(steps: Mapping[str, Mapping[str, Row]]) -> str:
    """Return a table of batches by phase, with CPU, written bytes, and the bytes in storage after."""
    text = table(
        _rows(steps, "batch", "segments"),
        f"{_OF_STORE}open ms: batch.open_ms; get + put us a key: batch.row_us; commit ms: batch.commit_ms",
        ("CPU ms", lambda row: goals.cpu_of(row["segments"]) * 1e3, "{:.0f}"),
        "MB written: segments.written_bytes.median .2f MB; MB in storage: segments.last.storage_bytes .0f MB",
        "files: segments.last.storage_files",
    )
    summary = "<details><summary>A batch by phase, CPU, bytes</summary>"
    return f"\n{summary}\n\n{text}\n</details>\n" if text else ""


def _storage(results: Results) -> str:
    rows = []
    for case, labels in _cases(results, "storage").items():
        size = case.removeprefix("batches of ")
        for row in _rows({case: labels.get("storage", {})}, "storage"):
            segments = labels.get(f"uniform {size}", {}).get(row["subject"], {}).get("segments")
            written = goals.written_per_changed_byte(results, row["subject"], size)
            if segments and written:
                held, live = (row["storage"][name]["median"] for name in ("bytes", "live_bytes"))
                rows.append({**row, "written": written, "cpu": goals.cpu_of(segments), "held": held / live})
    text = table(
        rows,
        f"{_OF_STORE}MB held: storage.bytes.median .0f MB; per live byte: held .2f",
        "files: storage.files.median .0f; written per changed byte: written .2f; CPU ms a batch: cpu .0f ms",
    )
    return f"{text}\n{_compared('storage')(results)}"


def _restore(results: Results) -> str:
    steps = _cases(results, "restore").get("restore", {})
    by_phase = table(
        _rows(steps, "restore"),
        f"{_OF_STORE}init ms: restore.init_ms; open ms: restore.open_ms; first row ms: restore.first_row_ms",
        "total ms: restore.total_ms; copy of live bytes ms: restore.copy_ms",
    )
    own = [
        {"label": label, "metrics": ", ".join(f"{name} {value:g}" for name, value in metrics.items())}
        for label, subjects in steps.items()
        if (custom := _at(subjects, f"{OURS}.restore.custom"))
        if (metrics := {name: value for name, value in custom.items() if "estore" in name and value})
    ]
    account = table(own, ": label; metrics: metrics")
    text = f"{comparison(results, 'restore', 'restore')}\nBy phase:\n\n{by_phase}"
    return f"{text}\nThis store's own account of it:\n\n{account}" if account else text


def _size(results: Results) -> str:
    rows = [
        {"label": step, **asdict(work)}
        for step in large_store.labels(results)
        if (work := large_store.amplification(results, step)) is not None
    ]
    text = table(
        rows,
        "this store: label; look-ups that memory did not answer: misses_share .2f",
        "filters: filters .2f; blocks: blocks .2f; written: written .2f; held: held .2f",
    )
    return f"{comparison(results, large_store.SCENARIO, large_store.SCENARIO)}\n{text}" if text else ""


def _memory(results: Results) -> str:
    steps = _cases(results, "memory").get("memory", {})
    return table(
        [row for row in _rows(steps, "memory") if row["label"] != "empty"],
        f"{_OF_STORE}heap MB: memory.heap_bytes.median .0f MB",
        "store says MB: memory.reported_bytes.median .0f MB",
        (
            "native and agent MB",
            lambda row: goals.native_megabytes(results, row["subject"], row["label"]),
            "{:.0f}",
        ),
        "of it agent MB: memory.children_pss_bytes.median .0f MB",
        "mapped files MB: memory.jvm_file_bytes.median .0f MB",
    )


def _executors(results: Results) -> str:
    rows = [
        {
            "label": executors.name(count),
            "store": NAMES[subject],
            **dict(zip(executors.HEADER, cells, strict=True)),
        }
        for count in executors.counts(results)
        for subject in NAMES
        if (cells := executors.row(results, subject, count)) is not None
    ]
    return table(rows, ": label; provider: store", *((heading, heading) for heading in executors.HEADER))


def _queries(results: Results) -> str:
    return table(
        _rows(results.scenarios.get("queries", {}).get("queries", {}), "durations_ms"),
        "query: label; provider: store; batch ms: durations_ms.triggerExecution",
        "addBatch ms: durations_ms.addBatch; commits ms (all tasks): operators.commitTimeMs",
        "keys written: operators.numRowsUpdated.median .0f",
        ("store's share", lambda row: goals.store_share(results, row["label"], row["subject"]), "{:.1%}"),
    )


_FORMS = {
    "stock": "a call for each group (Spark's)",
    "vectorized": "vectorised",
    "loop": "vectorised, with a loop over rows in Python",
    "per_group": "a call for each group with plain rows",
    "accelerate": "accelerated (the function unchanged)",
}
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
_ENGINES = {
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
_STORE = ("store", lambda row: NAMES.get(row["store"], row["store"]))
_FASTER = (("faster", "times_stock", "{:.1f}x"), ("less CPU", "times_stock_cpu", "{:.1f}x"))


def _functions(results: Results) -> Iterator[Row]:
    """Yield the measurement of each form of a function, with its size and its multiples of Spark's form."""
    for size in results.scenarios.get("vectorized", {}).get("functions", []):
        ratios = {(ratio["store"], ratio["form"]): ratio for ratio in size["ratios"]}
        for form in size["measurements"]:
            yield {**size, **ratios.get((form["store"], form["form"]), {}), **form}


def _vectorized(results: Results) -> str:
    return table(
        _functions(results),
        ("a batch", lambda row: f"{row['groups']:,} groups of {row['rows']} rows"),
        _STORE,
        ("function", lambda row: _FORMS[row["form"]]),
        "batch ms: median_ms ,.0f; CPU s: median_cpu_s .2f",
        *_FASTER,
    )


def functions_in_short(results: Results) -> str:
    """Return the table of functions in Python over the largest batch that Spark's operator ran, too."""
    rows = [row for row in _functions(results) if row["store"] == OURS and "times_stock" in row]
    largest = max((row["groups"] for row in rows), default=0)
    if largest < 10_000:
        return ""
    by_form = {row["form"]: row for row in rows if row["groups"] == largest}
    return f"`applyInPandasWithState` over {largest:,} groups a batch, against Spark's operator:\n\n" + table(
        [by_form[form] for form in ("vectorized", "per_group", "accelerate") if form in by_form],
        ("", lambda row: _FORMS[row["form"]]),
        ("faster", "times_stock", "{:.2g}x"),
        ("less CPU", "times_stock_cpu", "{:.2g}x"),
    )


def _processors(results: Results) -> str:
    return table(
        results.scenarios.get("processors", {}).get("processors", []),
        ("a batch", "groups", "{:,} groups of 2 rows"),
        _STORE,
        ("a processor with", lambda row: PROCESSORS[row["case"]]),
        "batch ms in Spark's worker: stock.median_ms ,.0f; in batches: batched.median_ms ,.0f",
        "CPU s in Spark's worker: stock.median_cpu_s .2f; in batches: batched.median_cpu_s .2f",
        *_FASTER,
    )


def _engines(results: Results) -> str:
    found = results.scenarios.get("engines", {}).get("engines", {})
    text = table(
        found.get("runs", []),
        ("engine", lambda run: _ENGINES[run["form"]]),
        "rows a key: rows_a_key .0f; keys: keys ,.0f; rows a second: rows_a_second ,.0f",
        "CPU us a row: cpu_us_a_row .1f; bytes written a row: written_bytes_a_row .0f; peak MB: peak_mb ,.0f",
    )
    load = f"The load of the machine at the end was {found.get('load', [0])[0]:.1f}.\n\n"
    return load + text if text else ""


def _merges(results: Results) -> str:
    kinds = results.scenarios.get("merges", {}).get("kinds", {})
    return table(
        [{"kind": kind, "deltas": n, **stats} for kind, sizes in kinds.items() for n, stats in sizes.items()],
        "kind: kind; deltas a merge: deltas; ms a merge: merge_ms; M records/s: records_per_s .2f M",
        "MB/s: bytes_per_s .0f M; CPU us a record: cpu_us_per_record .2f",
        "rewritten per changed byte: rewritten_per_changed_byte .2f; files: files",
        "size / live: space_amplification .2f",
    )


def _waits(results: Results) -> str:
    """Return the places where requests waited. Results without delayed clients of S3 are from `moto`."""
    case = results.scenarios.get(services.SCENARIO, {}).get("specs", {}).get(services.S3_CASE, {})
    if s3_service.DELAYED_REQUESTS in case.get("hadoop_conf", {}).values():
        return "before the clients of Hadoop's own mini cluster and of S3Proxy ask"
    of_hdfs = "before the client of Hadoop's own mini cluster asks"
    return f"{of_hdfs}, and in the S3 service of `moto` before it answers"


def against(peers: tuple[str, ...]) -> Callable[[Results], str]:
    """Return the function that makes the table of the short page against some peers."""

    def text(results: Results) -> str:
        rows = []
        for setting, where, kind, *_, ours in goals.SPEEDS:
            if (ratio := results.ratio(where, peers, kind, ours)) is not None:
                step, figure = results.step(*where), f"{kind}.{MEASURES[kind][0]}"
                times = [time for name in peers if (time := _at(step.get(name), figure))]
                theirs = min(times, key=lambda time: float(time["median"]))
                own = _at(step, f"{ours}.{figure}")
                row = {"theirs": f"{spread(theirs)} ms", "own": f"{spread(own)} ms", "ratio": ratio}
                rows.append({"label": setting, **row})
        return table(rows, f": label; {NAMES[peers[0]]}: theirs; this store: own; ratio: ratio")

    return text


def _slower(results: Results) -> str:
    """Return a sentence that names every comparison in which a peer is quicker."""
    found = [
        f"{NAMES[peers[0]]} is quicker with {setting} ({ratio})"
        for setting, where, kind, *_, ours in goals.SPEEDS
        for peers in ((HDFS,), CHANGELOG)
        if (ratio := results.ratio(where, peers, kind, ours)) is not None and ratio.value < 1
    ]
    if found:
        return "Where another store is quicker: " + "; ".join(found) + "."
    return (
        "No row of these tables has a quicker peer. On HDFS, batches in a state of 5 million keys take as "
        "long as those of RocksDB with changelog: see `benchmarks/RESULTS.md`."
    )


TABLES: Mapping[str, Callable[[Results], str]] = {
    "store": _compared("store", costs=True),
    "age": _compared("age"),
    "growth": _compared("growth"),
    "size": _size,
    "restore": _restore,
    "recovery": _compared("recovery"),
    "services": _compared("services"),
    "waits": _waits,
    "storage": _storage,
    "queries": _queries,
    "memory": _memory,
    "executors": _executors,
    "vectorized": _vectorized,
    "processors": _processors,
    "engines": _engines,
    "hdfs": _compared("hdfs", costs=True),
    "merges": _merges,
    "against-hdfs": against((HDFS,)),
    "against-rocksdb": against(CHANGELOG),
    "slower": _slower,
    "functions": functions_in_short,
}
"""The tables and sentences of the pages by name, which is that of the scenario in `results_page.txt`."""
