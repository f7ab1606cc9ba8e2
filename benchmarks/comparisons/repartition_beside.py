"""Measure how long a query stands still for another number of partitions: with and without a first call.

    python -m benchmarks.comparisons.repartition_beside [--rows N] [--changed PERCENT] [--json OUT]

A state of aggregated flights of eight partitions is made by `import`. `repartition(running=True)` writes it
with sixteen; then batches change some rows, add some and remove some, and `repartition` ends the work. That
is compared with a repartition of the stopped query in one go. Each is measured once, by the clock on the wall
and by CPU time of this process; the rows of both results are compared by a hash.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow

import state_store
from state_store.data.embedded import EmbeddedStore
from state_store.data.query import Query

SKELETON = Path(__file__).resolve().parents[2] / "tests" / "golden" / "states" / "flights"
"""A checkpoint with Spark's descriptions and logs."""

PARTITIONS = 8
BATCHES = 4
_A_BATCH = 1 << 18


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the state")
    parser.add_argument("--changed", type=float, default=1.0, help="percent of the rows that change")
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="state-store-beside-") as root:
        figures = measured(Path(root), options.rows, options.changed / 100)
    print(json.dumps(figures, indent=2))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2), encoding="utf-8")


def measured(root: Path, rows: int, changed: float) -> dict[str, Any]:
    """Return the seconds of each call, and the size of the state."""
    source, target, plain = str(root / "source"), str(root / "target"), str(root / "plain")
    _make(root, source, rows)
    figures: dict[str, Any] = {"rows": rows, "changed": changed}
    figures["bytes"] = sum(path.stat().st_size for path in Path(source, "state").rglob("*.sst"))
    figures["running"], _ = _timed(
        lambda: state_store.repartition(source, target, 2 * PARTITIONS, running=True)
    )
    for number in range(BATCHES):
        _run_batch(Path(source), number, round(rows * changed / BATCHES / PARTITIONS))
    figures["end"], ended = _timed(lambda: state_store.repartition(source, target, 2 * PARTITIONS))
    figures["plain"], done = _timed(lambda: state_store.repartition(source, plain, 2 * PARTITIONS))
    assert ended.rows == done.rows
    assert _hash(target) == _hash(plain)
    return figures


def _timed(call: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    began, cpu = time.monotonic(), time.process_time()
    result = call()
    seconds = {"seconds": time.monotonic() - began, "cpu_s": time.process_time() - cpu}
    return {name: round(value, 2) for name, value in seconds.items()}, result


def _make(root: Path, source: str, rows: int) -> None:
    """Make a state with that many carriers."""
    skeleton = shutil.copytree(SKELETON, root / "skeleton")
    with state_store.open(skeleton) as state:
        schema = pyarrow.schema([field for field in state.schema if field.name != "partition_id"])

    def batches() -> Iterator[pyarrow.RecordBatch]:
        for first in range(0, rows, _A_BATCH):
            numbers = range(first, min(rows, first + _A_BATCH))
            yield pyarrow.RecordBatch.from_pylist(
                [
                    {
                        "carrier": f"carrier-{number:012}",
                        "flights": number,
                        "delay": number / 7,
                        "worst": {"number": number % 1000, "delay": 1.5},
                        "day": "1970-01-01 00:00:40",
                        "timeoutTimestamp": 60_000,
                    }
                    for number in numbers
                ],
                schema,
            )

    few = root / "few"
    state_store.import_state(skeleton, pyarrow.RecordBatchReader.from_batches(schema, batches()), few)
    state_store.repartition(few, source, PARTITIONS)


def _run_batch(source: Path, seed: int, changes: int) -> None:
    """Run a batch without Spark: of each partition it puts rows in other places, and removes some."""
    draw = random.Random(seed)
    last = Query.open(source).newest_batch()
    ids = []
    for number in range(PARTITIONS):
        with EmbeddedStore.open(source / f"state/0/{number}") as store:
            pairs = [pair for pair in store.scan() if draw.random() < 0.2]
            for (key, _), (_, value) in zip(
                draw.sample(pairs, changes), draw.sample(pairs, changes), strict=True
            ):
                if draw.random() < 0.1:
                    store.remove(key)
                else:
                    store.put(key, value)
            ids.append([store.commit().checkpoint_id])
    for log, more in (("offsets", {}), ("commits", {"stateUniqueIds": {"0": ids}})):
        lines = (source / log / str(last)).read_text().split("\n")
        lines[1] = json.dumps({**json.loads(lines[1]), **more})
        (source / log / str(last + 1)).write_text("\n".join(lines))


def _hash(checkpoint: str) -> int:
    """Return a sum of hashes of all rows."""
    total = 0
    with state_store.open(checkpoint) as state:
        for batch in state.scan(["carrier", "flights"]):
            total += sum(map(hash, zip(*(column.to_pylist() for column in batch.columns), strict=True)))
    return total


if __name__ == "__main__":
    main()
