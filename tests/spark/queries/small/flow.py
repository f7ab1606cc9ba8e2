"""A small query in the tests' own session: each `feed` is one micro-batch of (key, value) records."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import late_workers
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Records = Iterable[tuple[str, int]]
Query = Callable[["DataFrame"], "DataFrame"]


def totals(records: DataFrame) -> DataFrame:
    """Count and sum by key, with a row of state for every key."""
    return records.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))


@contextmanager
def session_options(spark: SparkSession, options: Mapping[str, Any]) -> Iterator[None]:
    """Set options of the session for queries that start in the context."""
    before = {key: spark.conf.get(key, None) for key in options}
    for key, value in options.items():
        spark.conf.set(key, str(value))
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)


class Flow:
    """Query over files in `directory`; `checkpoint` is its checkpoint location."""

    def __init__(
        self,
        spark: SparkSession,
        directory: Path,
        query: Query = totals,
        mode: str = "update",
        **options: Any,
    ):
        self.spark, self.query, self.mode, self.options = spark, query, mode, options
        self.directory, self.input, self.checkpoint = directory, directory / "input", directory / "checkpoint"
        self.input.mkdir(parents=True)
        self.batches: list[list[dict]] = []
        self._files = 0

    def feed(self, records: Records) -> None:
        """Add a file, which becomes a micro-batch."""
        path = self.input / f"{self._files:05}.json"
        path.write_text("".join(json.dumps({"key": k, "value": v}) + "\n" for k, v in records))
        os.utime(path, (1_700_000_000 + self._files,) * 2)
        self._files += 1

    def start(self, sink: Callable[[DataFrame, int], None] | None = None) -> StreamingQuery:
        """Start the query on the unread batches; it ends by itself."""
        stream = self.spark.readStream.schema("key string, value long").option("maxFilesPerTrigger", "1")
        with session_options(self.spark, self.options):
            writer = self.query(stream.json(str(self.input))).writeStream.outputMode(self.mode)
            writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
            return writer.foreachBatch(sink or self._collect).start()

    def run(self, *batches: Records, sink: Callable[[DataFrame, int], None] | None = None) -> StreamingQuery:
        """Feed the batches and run the query to the end of its input. Raises the query's error."""
        for records in batches:
            self.feed(records)
        return late_workers.run(lambda: self.start(sink))

    def state(self, **options: Any) -> list[dict]:
        """Return the rows of the `statestore` source."""
        reader = self.spark.read.format("statestore").options(**{k: str(v) for k, v in options.items()})
        return [row.asDict(recursive=True) for row in reader.load(str(self.checkpoint)).collect()]

    def timeless_state(self, **options: Any) -> Counter[str]:
        """Return the rows of `state` as text, without the times at which they expire by the clock."""
        return Counter(map(repr, _without(self.state(**options), "ttlExpirationMs")))

    def placeless_state(self, **options: Any) -> Counter[str]:
        """Return the same rows without their partitions."""
        return Counter(map(repr, _without(self.state(**options), "ttlExpirationMs", "partition_id")))

    def state_of_keys(self, **options: Any) -> dict[str, dict]:
        """Return the value row of each key, from the `statestore` source."""
        return {row["key"]["key"]: row["value"] for row in self.state(**options)}

    def copied(self, directory: Path) -> Flow:
        """Return a copy of the query in another directory; the query must not run meanwhile."""
        copy = Flow(self.spark, directory, self.query, self.mode, **self.options)
        leases = shutil.ignore_patterns("lease")  # this process renews its leases
        shutil.copytree(self.directory, directory, dirs_exist_ok=True, ignore=leases)
        for log in (copy.checkpoint / "sources").glob("*/*"):
            if log.suffix == ".crc":
                log.unlink()  # of the log's earlier text
            else:
                log.write_text(log.read_text().replace(str(self.directory), str(directory)))
        copy._files = self._files
        return copy

    def _collect(self, frame: DataFrame, _batch_id: int) -> None:
        self.batches.append([row.asDict(recursive=True) for row in frame.collect()])


def _without(value: Any, *names: str) -> Any:
    if isinstance(value, list):
        return [_without(item, *names) for item in value]
    if isinstance(value, dict):
        return {key: _without(inner, *names) for key, inner in value.items() if key not in names}
    return value
