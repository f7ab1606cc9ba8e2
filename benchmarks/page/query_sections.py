"""The sections on whole queries: time, CPU, and the store's share of them."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.page import goals
from benchmarks.page.layout import images, measured, spread, table
from benchmarks.page.plots import NAMES
from benchmarks.results import Results

_SHARE = """
The store's share is its commits, as the query reports them, and the get and put of each key at what they
take at store level, over the time of the batch on both cores. With `applyInPandasWithState` the rest is the
Python worker: about a millisecond for each group.
"""


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


def queries(results: Results, titles: Mapping[str, str]) -> str:
    text = "## Real queries\n\n" + images(titles, "queries")
    rows = []
    by_query = results.scenarios.get("queries", {}).get("queries", {})
    for query, subject, stats in measured(by_query, "durations_ms"):
        share = goals.store_share(results, query, subject)
        durations, operators = stats["durations_ms"], stats["operators"]
        rows.append(
            (
                query,
                NAMES[subject],
                spread(durations["triggerExecution"]),
                spread(durations["addBatch"]),
                spread(operators["commitTimeMs"]),
                f"{operators['numRowsUpdated']['median']:.0f}",
                "" if share is None else f"{share:.1%}",
            )
        )
    header = (
        "query",
        "provider",
        "batch ms",
        "addBatch ms",
        "commits ms (all tasks)",
        "keys written",
        "store's share",
    )
    return text + table(header, rows) + _SHARE if rows else ""


def vectorized(results: Results, titles: Mapping[str, str]) -> str:
    rows = []
    for size in results.scenarios.get("vectorized", {}).get("functions", []):
        times = {(ratio["store"], ratio["form"]): ratio for ratio in size["ratios"]}
        for form in size["measurements"]:
            ratio = times.get((form["store"], form["form"]))
            rows.append(
                (
                    f"{size['groups']:,} groups of {size['rows']} rows",
                    NAMES.get(form["store"], form["store"]),
                    _FORMS[form["form"]],
                    f"{form['median_ms']:,.0f}",
                    f"{form['median_cpu_s']:.2f}",
                    f"{ratio['times_stock']:.1f}x" if ratio else "",
                    f"{ratio['times_stock_cpu']:.1f}x" if ratio else "",
                )
            )
    header = ("a batch", "store", "function", "batch ms", "CPU s", "faster", "less CPU")
    text = (
        "## Vectorised functions\n\nThe median of the whole time of a trigger, of queries that keep running, "
        "and of the CPU time of driver, executor and workers in it; outputs and states are compared.\n\n"
    )
    return text + table(header, rows) if rows else ""


def processors(results: Results, titles: Mapping[str, str]) -> str:
    rows = [
        (
            f"{found['groups']:,} groups of 2 rows",
            NAMES.get(found["store"], found["store"]),
            PROCESSORS[found["case"]],
            *(f"{found[form]['median_ms']:,.0f}" for form in ("stock", "batched")),
            *(f"{found[form]['median_cpu_s']:.2f}" for form in ("stock", "batched")),
            f"{found['times_stock']:.1f}x",
            f"{found['times_stock_cpu']:.1f}x",
        )
        for found in results.scenarios.get("processors", {}).get("processors", [])
    ]
    header = (
        "a batch",
        "store",
        "a processor with",
        "batch ms in Spark's worker",
        "in batches",
        "CPU s in Spark's worker",
        "in batches",
        "faster",
        "less CPU",
    )
    text = (
        "## Processors of transformWithState\n\nThe median of the whole time of a trigger, after small "
        "batches for the JVM's compiler, and of the CPU time of driver, executor and workers in it; outputs "
        "and states are compared.\n\n"
    )
    return text + table(header, rows) if rows else ""


def engines(results: Results, titles: Mapping[str, str]) -> str:
    found = results.scenarios.get("engines", {}).get("engines", {})
    header = (
        "engine",
        "rows a key",
        "keys",
        "rows a second",
        "CPU us a row",
        "bytes written a row",
        "peak MB",
    )
    rows = [
        (
            ENGINES[run["form"]],
            f"{run['rows_a_key']:.0f}",
            f"{run['keys']:,.0f}",
            f"{run['rows_a_second']:,.0f}",
            f"{run['cpu_us_a_row']:.1f}",
            f"{run['written_bytes_a_row']:.0f}",
            f"{run['peak_mb']:,.0f}",
        )
        for run in found.get("runs", [])
    ]
    text = (
        "## A counter on other engines\n\nThe same keyed counter in Python, one partition, each row with a "
        "row out; outputs of a small job are compared by checksum. Resident memory counts shared pages in "
        f"each process. The load of the machine at the end was {found.get('load', [0])[0]:.1f}.\n\n"
    )
    return text + table(header, rows) if rows else ""
