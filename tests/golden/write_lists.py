"""Writes a checkpoint with lists of values as an older Spark makes it: run once, with that Spark.

    PYTHONPATH=.:tests .venv-4.1/bin/python tests/golden/write_lists.py tests/golden/lists-of-spark-4.1

`rocksdb` is a query of `transformWithState` on Spark's RocksDB store: each key keeps a list of its numbers.
The offset log of Spark 4.0 and 4.1 does not say how RocksDB joins the values of a list. `incremental` is the
same, migrated.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_BATCH = 9
KEYS = 3
BATCHES = 3
PREFIX = "spark.sql.streaming.stateStore."
PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def lists(spark: SparkSession) -> DataFrame:
    """Return a query whose keys keep all of their numbers, and tell them in each batch."""
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class Numbers(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.numbers = handle.getListState("numbers", "n long")

        def handleInputRows(
            self, key: Any, rows: Iterable[pd.DataFrame], timerValues: Any
        ) -> Iterator[pd.DataFrame]:
            for frame in rows:
                for number in sorted(frame["value"].tolist()):
                    self.numbers.appendValue((number,))
            listed = ",".join(str(row[0]) for row in self.numbers.get())
            yield pd.DataFrame({"key": [key[0]], "listed": [listed]})

        def close(self) -> None:
            pass

    events = (
        spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=ROWS_PER_BATCH, numPartitions=1, startTimestamp=0, advanceMillisPerBatch=1000)
        .load()
        .selectExpr(f"value % {KEYS} as key", "value")
    )
    grouped = events.groupBy("key")
    return grouped.transformWithStateInPandas(Numbers(), "key long, listed string", "update", "none")


def lists_after(batches: int) -> dict[int, str]:
    """Return the list of each key after so many batches."""
    numbers = range(batches * ROWS_PER_BATCH)
    return {key: ",".join(str(n) for n in numbers if n % KEYS == key) for key in range(KEYS)}


def run(spark: SparkSession, checkpoint: Path, batches: int) -> list[dict[int, str]]:
    """Run some batches of the query, and return the lists that each of them has given."""
    import late_workers

    found: list[dict[int, str]] = []

    def collect(frame: DataFrame, _: int) -> None:
        found.append({row["key"]: row["listed"] for row in frame.collect()})

    for _ in range(batches):
        writer = lists(spark).writeStream.foreachBatch(collect).outputMode("update")
        late_workers.run(writer.option("checkpointLocation", str(checkpoint)).trigger(once=True).start)
    return found


def _write(spark: SparkSession, checkpoint: Path) -> None:
    assert run(spark, checkpoint, BATCHES) == [lists_after(batch) for batch in range(1, BATCHES + 1)]
    for path in (*checkpoint.rglob(".*.crc"), *checkpoint.rglob("*.tmp")):
        path.unlink()
    for path in checkpoint.glob("state/0/0/*.zip*"):
        if not path.name.startswith(f"{BATCHES}."):
            path.unlink()
    for path in checkpoint.glob("state/0/_metadata/v2/*"):
        text = path.read_text()
        path.write_text(text.replace(json.dumps(f"file:{checkpoint}")[1:-1], "file:/checkpoint"))
    newest = (checkpoint / f"offsets/{BATCHES - 1}").read_text()
    assert not re.search("mergeOperatorVersion", newest), "this Spark is not an older one"


def main(target: Path) -> None:
    from pyspark.sql import SparkSession

    import state_store

    target = target.absolute()
    target.mkdir(parents=True)
    spark = (
        SparkSession.builder.master("local[1]")
        .config(map=state_store.spark_conf())
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config(PREFIX + "providerClass", PROVIDER)
        .config(PREFIX + "checkpointFormatVersion", "1")
        .config("spark.sql.streaming.minBatchesToRetain", "100")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    _write(spark, target / "rocksdb")
    spark.stop()
    state_store.migrate(target / "rocksdb", target / "incremental", "incremental")
    for path in (target / "incremental").glob("state/0/_metadata/v2/*"):
        path.write_text(path.read_text().replace(f"file:{target}/incremental/", "file:/checkpoint/"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
