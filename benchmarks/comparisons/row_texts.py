"""Seconds in which `state-store show` writes a state of 400,000 rows as JSON, CSV and Parquet, side by side.

    python -m benchmarks.comparisons.row_texts [--rows N]

The rows are like those of a query of flights: a text as the key, two long numbers, a decimal, a moment and a
struct. They are in memory, so that writing alone is measured; CPU time counts, since other work may share the
machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from state_store.cli.formats import DOCUMENT, print_rows

BATCH_ROWS = 1 << 16
FORMS = ("parquet", "csv", "json", DOCUMENT)


def table(rows: int) -> pa.Table:
    """Return the rows."""
    numbers = np.arange(rows)
    flights = pa.array(numbers % 977)
    moments = pa.array(1_700_000_000_000_000 + numbers * 1_000_003, pa.timestamp("us", "UTC"))
    return pa.table({
        "carrier": pa.array([f"carrier {number:07}" for number in range(rows)]),
        "flights": flights,
        "delay": pa.array(numbers * 7 % 1013),
        "cost": pa.array(numbers).cast(pa.decimal128(24, 2)),
        "last": moments,
        "worst": pa.StructArray.from_arrays([flights, moments], names=["delay", "at"]),
        "partition_id": pa.array((numbers % 4).astype("int32")),
    })  # fmt: skip


def main() -> None:
    """Write the rows in each form, and print the seconds."""
    parser = argparse.ArgumentParser(description="Write rows of a state as JSON, CSV and Parquet.")
    parser.add_argument("--rows", type=int, default=400_000, help="rows of the state")
    rows = table(parser.parse_args().rows)
    print(f"{'form':10}{'CPU s':>8}{'wall s':>8}{'MB':>8}")
    with tempfile.TemporaryDirectory() as directory:
        for form in FORMS:
            target = Path(directory) / form
            cpu_s, wall_s = time.process_time(), time.monotonic()
            print_rows(batches(rows), rows.schema, form, str(target))
            cpu_s, wall_s = time.process_time() - cpu_s, time.monotonic() - wall_s
            print(f"{form:10}{cpu_s:8.2f}{wall_s:8.2f}{target.stat().st_size / 1e6:8.1f}")


def batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the rows as a reader of state does."""
    yield from rows.to_batches(max_chunksize=BATCH_ROWS)


if __name__ == "__main__":
    main()
