"""Measure batches on a state that is larger than the local disk, over storage that answers slowly.

    python -m benchmarks.comparisons.small_disks [--keys 800000] [--changed 20000] [--batches 4]
        [--request-ms 20] [--share 0.1] [--json OUT]

A query makes a state of `keys` keys with 200 bytes each, and stops after a full checkpoint. Then, in a
process of its own for each figure, a copy of its checkpoint goes on with batches of changed keys, uniform or
by Zipf's law (exponent 1.2): with all files local, with `localDiskLimit` above the state (three times as
large, so that a base fits into half of it), and with one of that share of the state.
Requests wait as `scala/driver/DelayedFileSystem.scala` says. The figures are the milliseconds of a batch,
medians of all but the first, and the bytes of local disk at the end. The rows of all batches are compared.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.environment import spark_sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MODULE = "benchmarks.comparisons.small_disks"
_LOADS = 4
_SCATTER = 1_000_003
"""Keys that are read often lie anywhere: their ranks times a prime."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--keys", type=int, default=800_000, help="keys of the state")
    parser.add_argument("--changed", type=int, default=20_000, help="rows of a batch")
    parser.add_argument("--batches", type=int, default=4, help="batches of each kind")
    parser.add_argument("--request-ms", type=int, default=20, help="milliseconds before a request begins")
    parser.add_argument("--share", type=float, default=0.1, help="local disk as a share of the state")
    parser.add_argument("--json", type=Path, metavar="OUT", help="file for the results")
    parser.add_argument("--part", help=argparse.SUPPRESS)  # in a process of its own: see `_run`
    options = parser.parse_args()
    if options.part:
        print(json.dumps(_part(**json.loads(options.part))))
        return
    figures = measure(options.keys, options.changed, options.batches, options.request_ms, options.share)
    print(table(figures))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def measure(
    keys: int, changed: int, batches: int, request_ms: int, share: float
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return by distribution and disk the milliseconds of the batches, the local bytes and the rows."""
    figures: dict[str, dict[str, dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for first in range(_LOADS):
            _write(root / "loaded", np.arange(first, keys, _LOADS))
        part = {"source": str(root / "loaded"), "request_ms": request_ms, "limit": 0, "full": True}
        load = spark_sessions.run_part(_MODULE, {**part, "root": str(root), "local": str(root / "local")})
        state_bytes = load["state_bytes"]
        for distribution in ("uniform", "zipf"):
            source, before = root / "loaded", set((root / "loaded").iterdir())
            rng = np.random.default_rng(1)
            for _ in range(batches):
                if distribution == "uniform":
                    changed_keys = rng.integers(0, keys, changed)
                else:
                    changed_keys = (rng.zipf(1.2, changed) % keys) * _SCATTER % keys
                _write(source, changed_keys)
            results = figures[distribution] = {}
            limits = {"local": 0, "above": 3 * state_bytes, "limited": int(state_bytes * share)}
            for disk, limit in limits.items():
                copy = root / f"{distribution}-{disk}"
                shutil.copytree(root / "checkpoint", copy / "checkpoint")
                again = {**part, "full": False, "limit": limit}
                result = spark_sessions.run_part(
                    _MODULE, {**again, "root": str(copy), "local": str(copy / "local")}
                )
                results[disk] = {**result, "state_bytes": state_bytes, "limit": limit}
                shutil.rmtree(copy)
            for path in set(source.iterdir()) - before:
                path.unlink()
            if any(result["rows"] != results["local"]["rows"] for result in results.values()):
                raise AssertionError(f"the batches differ: {results}")
    return figures


def table(figures: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return the figures as Markdown."""
    lines = [
        "| | limit | no limit, ms | limited, ms | ratio | state, MB | disk at the end, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for distribution, results in figures.items():
        local = statistics.median(results["local"]["ms"][1:])
        for kind in ("above", "limited"):
            limited = statistics.median(results[kind]["ms"][1:])
            state, disk = (results[kind][name] / 1e6 for name in ("state_bytes", "disk_bytes"))
            cells = [
                f"{local:.0f}",
                f"{limited:.0f}",
                f"{limited / local:.1f}",
                f"{state:.0f}",
                f"{disk:.0f}",
            ]
            limit = f"{results[kind]['limit'] / 1e6:.0f} MB"
            lines.append(f"| {distribution} | {limit} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _write(directory: Path, numbers: Any) -> None:
    """Add a file with a row for each key."""
    pad = np.random.default_rng(2).bytes(100 * len(numbers)).hex()
    columns = {
        "k": numbers.astype(np.int64),
        "pad": [pad[i * 200 : i * 200 + 200] for i in range(len(numbers))],
    }
    spark_sessions.add_file(directory, columns)


def _part(root: str, source: str, local: str, request_ms: int, limit: int, full: bool) -> dict[str, Any]:
    """Run the query over the input that it has not seen; return its batches, its disk and its rows."""
    from pyspark.sql import functions as F

    options = {"restoreMode": "eager", "localDir": local, "localDiskLimit": str(limit), "memoryBudget": "64m"}
    spark = spark_sessions.slow(request_ms, options, _LOADS // 2 if full else None)
    rows: list[Any] = []

    def keep(batch: DataFrame, _: int) -> None:
        total = batch.agg(F.count("*"), F.sum("n"), F.sum(F.crc32("pad"))).head()
        rows.append(list(total or []))

    frame = spark.readStream.schema("k long, pad string").option("maxFilesPerTrigger", 1).parquet(source)
    query = (
        frame.groupBy("k")
        .agg(F.count("*").alias("n"), F.max("pad").alias("pad"))
        .writeStream.outputMode("update")
        .option("checkpointLocation", f"delayed://{root}/checkpoint")
        .foreachBatch(keep)
        .start()
    )
    query.processAllAvailable()
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    if full:
        spark_sessions.wait_for_snapshot(Path(root))
    disk = {
        (path.stat().st_ino): path.stat().st_blocks * 512 for path in Path(local).rglob("*") if path.is_file()
    }
    query.stop()
    spark.stop()
    ms = [batch["durationMs"]["addBatch"] for batch in batches]
    state_bytes = batches[-1]["stateOperators"][0]["customMetrics"]["incrementalChainBytes"]
    return {"ms": ms, "disk_bytes": sum(disk.values()), "rows": rows, "state_bytes": state_bytes}


if __name__ == "__main__":
    main()
