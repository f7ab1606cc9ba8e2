"""Writes the checkpoints of a real query as a release makes them: run once for each release, with that one.

    cd CHECKOUT_OF_THE_RELEASE
    PYTHONPATH=. python TESTS/golden/write_query.py TESTS/golden/release-0.2.0

Two checkpoint directories, `ids` and `no-ids` (Spark's checkpoint formats 2 and 1), of the same inner join
with watermarks: one partition of four stores, in which rows are removed, and keys are changed more than once
by a batch; incremental and full snapshots; a lease and a tombstone whose writers died, each on a file that no
version needs. `expected.json` says how many rows of input the query has read, and what each version of each
store holds, as hexadecimal digits. Never run it again over files that a release wrote.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_BATCH = 6
SECONDS_PER_BATCH = 10
KEYS = 5
REACH_S = 20
"""Longest time between the left row of a pair and the right one."""

BATCHES = 6
PARTITION = "state/0/0"
FORMATS = {"ids": 2, "no-ids": 1}
HELD = "shared/00000000000000000001-0badcafe-1.sst"
CONDEMNED = "shared/00000000000000000001-0badcafe-2.sst"
_STORE_OPTIONS = {"maxDeltas": 2, "minPauseBetweenMerges": "0s", "fullAfterMerges": 2}
_STATE = "spark.sql.streaming.stateStore."


def joined(spark: SparkSession) -> DataFrame:
    """Pairs of input rows that have a key in common, the right one `REACH_S` seconds later at most."""
    left, right = (
        spark.readStream.format("rate-micro-batch")
        .options(
            rowsPerBatch=ROWS_PER_BATCH,
            numPartitions=1,
            startTimestamp=SECONDS_PER_BATCH * 1000,  # at 0 rows would be late at once
            advanceMillisPerBatch=SECONDS_PER_BATCH * 1000,
        )
        .load()
        .selectExpr("value", f"value % {KEYS} as key", "timestamp as ts")
        .withWatermark("ts", "0 seconds")
        .alias(name)
        for name in ("l", "r")
    )
    reach = f"r.ts >= l.ts and r.ts <= l.ts + interval {REACH_S} seconds"
    pair = left.join(right, _expression(f"l.key = r.key and {reach}"))
    return pair.selectExpr("l.value", "r.value as later")


def pairs(rows: int) -> set[tuple[int, int]]:
    """Return the pairs among the first `rows` rows of both inputs."""
    time_of = {value: value // ROWS_PER_BATCH * SECONDS_PER_BATCH for value in range(rows)}
    return {
        (left, right)
        for left in range(rows)
        for right in range(left % KEYS, rows, KEYS)
        if 0 <= time_of[right] - time_of[left] <= REACH_S
    }


def session_options(checkpoint_format: int) -> dict[str, str]:
    """Options of the query, all but those that `state_store.spark_conf` gives."""
    return {
        _STATE + "checkpointFormatVersion": str(checkpoint_format),
        _STATE + "maintenanceInterval": "300ms",
        "spark.sql.streaming.minBatchesToRetain": "100",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
    }


def rows_read(checkpoint: Path) -> int:
    """Rows of either input in the batches that Spark has committed."""
    newest = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    offsets = [json.loads(line) for line in (checkpoint / f"offsets/{newest}").read_text().splitlines()[2:]]
    assert offsets[0] == offsets[1]
    return offsets[0]["offset"]


def _expression(text: str) -> Any:
    from pyspark.sql import functions as F

    return F.expr(text)


def _session(checkpoint_format: int) -> SparkSession:
    from pyspark.sql import SparkSession

    import state_store

    session = (
        SparkSession.builder.master("local[2]")
        .config(map=state_store.spark_conf(_STORE_OPTIONS))
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    for key, value in session_options(checkpoint_format).items():
        session.conf.set(key, value)
    return session


def _run(checkpoint: Path, checkpoint_format: int) -> None:
    """The query until it has made enough batches and snapshots."""
    spark = _session(checkpoint_format)
    found: dict[int, list[tuple[int, int]]] = {}

    def collect(frame: DataFrame, batch: int) -> None:
        found[batch] = [tuple(row) for row in frame.collect()]

    query = (
        joined(spark)
        .writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="1500 milliseconds")
        .start()
    )
    while query.isActive and not _is_rich(checkpoint):
        time.sleep(0.1)
    query.stop()
    spark.stop()
    committed = {int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")}
    rows = {row for batch in committed for row in found[batch]}
    wrong = rows ^ pairs(rows_read(checkpoint))
    assert not wrong, f"the release joined wrongly: {sorted(wrong)}"


def _is_rich(checkpoint: Path) -> bool:
    commits = list((checkpoint / "commits").glob("[0-9]*"))
    snapshots = [len(list(store.glob("snapshot/*.zip"))) for store in stores(checkpoint)]
    return len(commits) >= BATCHES and len(snapshots) == 4 and min(snapshots) >= 2


def stores(checkpoint: Path) -> list[Path]:
    """Return the directories of its stores."""
    return sorted(path.parent for path in (checkpoint / PARTITION).glob("*/delta"))


def _drop_uncommitted(checkpoint: Path) -> None:
    """Remove the deltas of a batch that was stopped, and the marks on them."""
    newest = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    for store in stores(checkpoint):
        for path in (store / "delta").iterdir():
            if int(path.name[:20]) > newest + 1:
                path.unlink()


def _leave_marks(store: Path) -> None:
    """Leave the files of a writer and a cleaner of the release that died half way."""
    from state_store.core.checkpoint.stored_documents import LeaseTerms, pack_tombstone

    table = min((store / "shared").glob("*.sst"), key=lambda path: path.stat().st_size)
    marks = {
        HELD: ("lease", LeaseTerms(frozenset([HELD]), 3_600_000, 1_700_000_000_000).pack()),
        CONDEMNED: ("tombstone", pack_tombstone([CONDEMNED])),
    }
    for path, (directory, data) in marks.items():
        shutil.copy(table, store / path)
        (store / directory).mkdir(exist_ok=True)
        (store / directory / "0123456789abcdef.json").write_bytes(data)


def _versions(store: Path) -> list[dict[str, object]]:
    """Return the rows of each version, by the reader of the document, which knows nothing of the release."""
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from golden.reader import DELTA, read_version

    versions = []
    for path in sorted((store / "delta").glob("*.sst")):
        match = DELTA.fullmatch(path.name)
        assert match is not None
        number, id_ = int(match[1]), match[2]
        with tempfile.TemporaryDirectory() as scratch:
            rows = read_version(store, number, id_, Path(scratch))
        texts = {key.hex(): value.hex() for key, value in sorted(rows.items())}
        versions.append({"version": number, "id": id_, "rows": texts})
    return versions


def main(target: Path) -> None:
    target.mkdir(parents=True)
    expected = {}
    for name, checkpoint_format in FORMATS.items():
        checkpoint = target / name
        _run(checkpoint, checkpoint_format)
        for left_over in (*checkpoint.rglob(".*.crc"), *checkpoint.rglob("*.tmp")):
            left_over.unlink()
        _drop_uncommitted(checkpoint)
        versions = {store.name: _versions(store) for store in stores(checkpoint)}
        expected[name] = {"rows_read": rows_read(checkpoint), "stores": versions}
        _leave_marks(stores(checkpoint)[0])
    text = re.sub(r"\n {5,}", " ", json.dumps(expected, indent=1))
    (target / "expected.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
