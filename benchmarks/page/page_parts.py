"""The parts of the pages by name: rows, of which templates make tables, and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from benchmarks.environment import s3_service
from benchmarks.page import goals
from benchmarks.results import CHANGELOG, HDFS, MEASURES, NAMES, OURS, ROCKSDB, Results, errors
from benchmarks.scenarios import executors, large_store, services

Row = Mapping[str, Any]
_UNITS = {**goals.UNITS, "ms": 1e-3}
_STORES = {"HDFS-backed": (HDFS,), "RocksDB": (ROCKSDB,), "RocksDB + changelog": CHANGELOG}
_WHOLE, _LAZY = (OURS, "incremental-full", "incremental-1g"), "incremental-lazy"
_COSTS = """\
| | provider | open ms | get + put us a key | commit ms | CPU ms | MB written | MB in storage | files |
| label | store | batch.open_ms | batch.row_us | batch.commit_ms | cpu .0f ms \
| segments.written_bytes.median .2f MB | segments.last.storage_bytes .0f MB | segments.last.storage_files |"""
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
_ENGINES = {
    "processor": "this project, an unchanged processor",
    "per_group": "this project, `per_group`",
    "vectorized": "this project, vectorised",
    "accelerate": "this project, a function on frames, accelerated",
    "spark-worker": "Spark's worker, the same processor, RocksDB + changelog",
    "spark-frames": "Spark's operator, the same function on frames, RocksDB + changelog",
    "bytewax": "Bytewax, stateful operator",
    "bytewax-windows": "Bytewax, session windows",
    "thread-rocksdb": "PyFlink, thread mode, RocksDB",
    "thread-hashmap": "PyFlink, thread mode, heap",
    "process-rocksdb": "PyFlink, process mode, RocksDB",
    "quix": "Quix Streams",
    "quix-partition": "Quix Streams, windows closed by the stream's time",
}
ENGINE_COLUMNS = """\
| | rows a key | keys | rows a second | CPU us a row | in the first half | bytes written | peak MB | load |
| name | rows_a_key g | keys ,.0f | rows_a_second ,.0f | cpu_us_a_row .1f | first_cpu_us_a_row .1f \
| written_bytes_a_row ,.0f | peak_mb ,.0f | load .0f |"""


def table(rows: Iterable[Row], columns: str = "") -> str:
    """Return a Markdown table; empty if there are no rows.

    Args:
        rows: the rows, as nested mappings.
        columns: two lines of a table, the headings and the figures. A figure is a path in the row, the form
            of a number, and the unit by which it is divided; another unit is written behind it. A mapping is
            a median with its quartiles. Without columns the rows have their cells by heading.
    """
    rows = list(rows)
    if columns:
        heads, figures = (
            [cell.strip() for cell in line.strip("|").split("|")] for line in columns.splitlines()
        )
        cells = [[_cell(_at(row, path), *form) for path, *form in map(str.split, figures)] for row in rows]
    else:
        heads, cells = list(*rows[:1]), [list(map(_cell, row.values())) for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in (heads, *cells)]
    return "\n".join([lines[0], "|" + "---|" * len(heads), *lines[1:]]) + "\n" if rows else ""


def _at(row: Row, path: str) -> Any:
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if value else None
    return value


def _cell(value: Any, form: str = "", unit: str = "") -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return spread(value)
    return format(value / _UNITS[unit], form) if unit in _UNITS else format(value, form) + unit


def spread(stats: Mapping[str, float]) -> str:
    """Return a median with its quartiles in brackets, if there are several values."""
    median, low, high = (
        f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
        for value in (stats["median"], stats["q1"], stats["q3"])
    )
    return median if stats["n"] < 2 else f"{median} ({low}-{high})"


def _measured(results: Results, scenario: str, figure: str) -> Iterator[dict[str, Any]]:
    """Yield the statistics of each step and store, or of each query, that have this figure."""
    for case, labels in results.cases(scenario).items():
        for label, subjects in labels.items():
            for subject, stats in subjects.items() if label != "empty" else ():
                if figure in stats:
                    step = (scenario, case, label, subject)
                    row = {"case": case, "label": label, "subject": subject, "store": NAMES[subject], **stats}
                    computed = {
                        name: goals.measured(compute, results, *step)
                        for name, compute in goals.OF_STEPS.items()
                    }
                    yield {**row, **computed}


def _compared(results: Results, scenario: str, *costs: str) -> str:
    """Return the tables of each case, with `costs` those of its batches folded below them."""
    cases, rows = results.cases(scenario), list(_measured(results, scenario, "segments") if costs else ())
    texts = []
    for case in cases:
        if len(cases) > 1:
            texts.append(f"### {case}\n")
        texts.append(_medians(results, scenario, case))
        if phases := table((row for row in rows if row["case"] == case), _COSTS):
            texts.append(
                f"<details><summary>A batch by phase, CPU, bytes</summary>\n\n{phases}\n</details>\n"
            )
    return "\n".join(texts)


def _medians(results: Results, scenario: str, case: str) -> str:
    """Return each step's medians and their multiples of ours, and those against lazy restores in a table."""
    steps = results.cases(scenario).get(case, {})
    names = [name for name in NAMES if any(name in subjects for subjects in steps.values())]
    peers = {title: group for title, group in _STORES.items() if set(group) & set(names)}
    rows, lazy_rows = [], []
    for where, kind in results.measured():
        if where[:2] == (scenario, case):
            step = steps[where[2]]
            own = next((name for name in _WHOLE if kind in step.get(name, {})), OURS)
            times = {NAMES[name]: step.get(name, {}).get(kind, {}).get(MEASURES[kind][0]) for name in names}
            ratios = {f"{title} / ours": results.ratio(where, peers[title], kind, own) for title in peers}
            rows.append({"ms": where[2], **times, **ratios})
            if kind in ("restore", "recover") and _LAZY in step:
                eager = {"eager": (OURS,), **peers}
                ratios = {title: results.ratio(where, eager[title], kind, _LAZY) for title in eager}
                lazy_rows.append({"against lazy": where[2], **ratios})
    return "\n".join(filter(None, (table(rows), table(lazy_rows))))


def _storage(results: Results) -> Iterator[Row]:
    """Yield the bytes held after the batches of each case, beside the costs of these batches."""
    batches = {(row["case"], row["subject"]): row for row in _measured(results, "storage", "segments")}
    for row in _measured(results, "storage", "storage"):
        if (costs := batches.get((row["case"], row["subject"]))) is not None:
            held = row["storage"]["bytes"]["median"] / row["storage"]["live_bytes"]["median"]
            yield {**costs, "label": row["case"], "storage": row["storage"], "held": held}


def _own_account(results: Results) -> Iterator[Row]:
    for row in _measured(results, "restore", "restore"):
        metrics = row["restore"].get("custom", {}) if row["subject"] == OURS else {}
        texts = [f"{name} {value:g}" for name, value in metrics.items() if "estore" in name and value]
        if texts:
            yield {"": row["label"], "metrics": ", ".join(texts)}


def functions(results: Results) -> Iterator[dict[str, Any]]:
    """Yield the measurement of each form of a function, with its size and its multiples of Spark's form."""
    for size in results.scenarios.get("vectorized", {}).get("functions", []):
        ratios = {(ratio["store"], ratio["form"]): ratio for ratio in size["ratios"]}
        for form in size["measurements"]:
            batch, provider = f"{size['groups']:,} groups of {size['rows']} rows", NAMES[form["store"]]
            names = {"batch": batch, "name": _FORMS[form["form"]], "provider": provider}
            yield {**size, **ratios.get((form["store"], form["form"]), {}), **form, **names}


def _largest_functions(results: Results) -> list[dict[str, Any]]:
    """Return our forms of a function over the largest batch that Spark's operator ran, too."""
    rows = [row for row in functions(results) if row["store"] == OURS and "times_stock" in row]
    largest = max((row["groups"] for row in rows), default=0)
    by_form = {row["form"]: row for row in rows if row["groups"] == largest >= 10_000}
    return [by_form[form] for form in ("vectorized", "per_group", "accelerate") if form in by_form]


def processors(results: Results) -> Iterator[Row]:
    for row in results.scenarios.get("processors", {}).get("processors", []):
        batch, provider = f"{row['groups']:,} groups of 2 rows", NAMES[row["store"]]
        yield {**row, "batch": batch, "provider": provider, "name": PROCESSORS[row["case"]]}


def _waits(results: Results) -> str:
    """Return the places where requests waited. Results without delayed clients of S3 are from `moto`."""
    if services.SCENARIO not in results.scenarios:
        return ""
    case = results.scenarios[services.SCENARIO].get("specs", {}).get(services.S3_CASE, {})
    if s3_service.DELAYED_REQUESTS in case.get("hadoop_conf", {}).values():
        return "before the clients of Hadoop's own mini cluster and of S3Proxy ask"
    of_hdfs = "before the client of Hadoop's own mini cluster asks"
    return f"{of_hdfs}, and in the S3 service of `moto` before it answers"


def _against(results: Results, peer: str) -> Iterator[Row]:
    for setting, name, ratio in goals.speeds(results):
        if name == peer and ratio:
            theirs, own = f"{spread(ratio.theirs)} ms", f"{spread(ratio.own)} ms"
            yield {"": setting, NAMES[peer]: theirs, "this store": own, "ratio": ratio}


def _slower(results: Results) -> str:
    """Return a sentence that names every comparison in which a peer is quicker."""
    slower = [
        f"{NAMES[peer]} is quicker with {setting} ({ratio})"
        for setting, peer, ratio in goals.speeds(results)
        if ratio and ratio.value < 1
    ]
    text = f"Where another store is quicker: {'; '.join(slower)}."
    return text if slower else "No row of these tables has a quicker peer."


def _machines(results: Results) -> Iterator[Row]:
    """Yield a row for each scenario, and for each part that was measured later."""
    for name, result in results.scenarios.items():
        yield {**result, "name": name}
        for part in result.get("parts", []):
            for case, stores in part["stores"].items():
                yield {**part, "bench": result["bench"], "name": f"{name}: {case} ({', '.join(stores)})"}


def _versions(results: Results) -> str:
    texts = []
    for facts in (row["machine"] for row in _machines(results)):
        packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items() if version)
        texts.append(f"- {packages}; {', '.join(facts['jars'])}; Python {facts['python']}; {facts['java']}\n")
    return "".join(dict.fromkeys(texts))


def _options(results: Results) -> str:
    options: dict[str, str] = {}
    cases = (case for result in results.scenarios.values() for case in result.get("specs", {}).values())
    for subject in (subject for case in cases for subject in case["subjects"]):
        conf = (f"`{k.removeprefix('spark.sql.streaming.')}={v}`" for k, v in subject["conf"].items())
        options.setdefault(subject["title"], ", ".join(sorted(conf)))
    return "".join(f"- {title}: {text}\n" for title, text in options.items())


def _failures(results: Results) -> str:
    lines = []
    for name, result in results.scenarios.items():
        if "failed" in result:
            lines.append(f"- {name} did not finish: {result['failed'].splitlines()[0]}")
        lines += [f"- {name}: {problem}" for problem in errors(result)]
    return "\n".join(lines)


def _merges(results: Results) -> Iterator[Row]:
    for kind, sizes in results.scenarios.get("merges", {}).get("kinds", {}).items():
        for deltas, stats in sizes.items():
            yield {"kind": kind, "deltas": deltas, **stats}


def engines(results: Results, workload: str) -> Iterator[Row]:
    """Yield the runs of a workload by size, those of one size in the order of the forms."""
    runs = [run for run in _engine_entries(results, "runs") if run["workload"] == workload]
    for run in sorted(runs, key=lambda run: (run["asked_keys"], run["rows_a_key"])):
        yield run
        if "broker_cpu_us_a_row" in run:
            figures = {name.removeprefix("broker_"): run[name] for name in run if name.startswith("broker_")}
            yield {"name": "&nbsp; Kafka beside it", **figures}


def engine_restarts(results: Results) -> list[Row]:
    """Return the times of the forms from a start to the first output."""
    return _engine_entries(results, "recovery")


def engine_waits(results: Results) -> Iterator[Row]:
    """Yield the times from arrival to result of each form, a column for each rate."""
    entries = _engine_entries(results, "latency")
    rates = sorted({entry["rate"] for entry in entries})
    for name in dict.fromkeys(entry["name"] for entry in entries):
        own = {entry["rate"]: entry for entry in entries if entry["name"] == name}
        cells = {f"{rate:,.0f} rows a second: median, 99th, in ms": _wait(own.get(rate)) for rate in rates}
        yield {"": name, **cells}


def _wait(entry: Row | None) -> str:
    if entry is None:
        return ""
    return f"{entry['median_ms']:,.0f}, {entry['p99_ms']:,.0f}" if entry["keeps_up"] else "falls behind"


def _engine_entries(results: Results, kind: str) -> list[dict[str, Any]]:
    """Return what was measured of the forms, in their order."""
    entries, forms = results.scenarios.get("engines", {}).get("engines", {}).get(kind, []), list(_ENGINES)
    named = [{**entry, "name": _ENGINES[entry["form"]]} for entry in entries]
    return sorted(named, key=lambda entry: forms.index(entry["form"]))


PARTS: Mapping[str, Callable[..., str | Iterable[Row]]] = {
    "measured": _measured,
    "compared": _compared,
    "medians": _medians,
    "against": _against,
    "slower": _slower,
    "look-ups": large_store.amplifications,
    "own-account": _own_account,
    "waits": _waits,
    "storage-costs": _storage,
    "executors": executors.rows,
    "vectorized": functions,
    "functions": _largest_functions,
    "functions-size": lambda results: next((row["batch"] for row in _largest_functions(results)), ""),
    "processors": processors,
    "engines": engines,
    "engine-restarts": engine_restarts,
    "engine-waits": engine_waits,
    "merges": _merges,
    "machine": _machines,
    "versions": _versions,
    "options": _options,
    "failures": _failures,
}
"""The parts of the pages by name. Templates give some of them arguments, the first of which is a scenario."""
