"""Runs of a stateful query over given batches, with results to compare: output, state, progress."""

from __future__ import annotations

import dataclasses
import os
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import late_workers
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
PATIENCE_S = 900
_FIRST_FILE_S = 1_700_000_000
FIGURES = ("numRowsTotal", "numRowsUpdated", "numRowsRemoved", "numRowsDroppedByWatermark")


@dataclasses.dataclass
class Outcome:
    """Results of a query: rows by batch, changed state bytes by (partition, version), figures by batch."""

    rows: dict[int, list[Any]]
    deltas: dict[tuple[str, int], dict[bytes, bytes | None]]
    figures: list[tuple[Any, ...]]


@dataclasses.dataclass
class Stream:
    """A query over files, one batch a file.

    `query` makes the stateful data frame of a streaming one. `files` may grow between runs; `plan` is
    that of the newest batch.
    """

    spark: SparkSession
    directory: Path
    schema: str
    watermark: str | None = None
    files: int = 0
    rows: dict[int, list[Any]] = dataclasses.field(default_factory=dict)
    figures: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    progress: list[Any] = dataclasses.field(default_factory=list)
    plan: str = ""

    def add(self, table: pa.Table) -> None:
        """Add a batch of input."""
        source = self.directory / "source"
        source.mkdir(parents=True, exist_ok=True)
        path = source / f"{self.files:05d}.parquet"
        pq.write_table(table, path, use_deprecated_int96_timestamps=False)
        # Spark reads files in the order of these times: two files of one millisecond would come in any order.
        os.utime(path, (_FIRST_FILE_S + self.files,) * 2)
        self.files += 1

    def start(
        self,
        query: Callable[[DataFrame], DataFrame],
        mode: str = "update",
        no_data_batches: bool = True,
        **options: Any,
    ) -> StreamingQuery:
        """Start the query over all batches that it has not seen, and return it while it runs.

        A query with ProcessingTimeTimeout always wants another batch and would never
        end: start it without `no_data_batches`.
        """
        self.spark.conf.set(NO_DATA, str(no_data_batches).lower())
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        frame = reader.parquet(str(self.directory / "source"))
        if self.watermark is not None:
            frame = frame.withWatermark(*self.watermark.split(" ", 1))

        def keep(batch: DataFrame, batch_id: int) -> None:
            self.rows[batch_id] = [tuple(row) for row in batch.collect()]

        return (
            query(frame)
            .writeStream.outputMode(mode)
            .option("checkpointLocation", str(self.directory / "checkpoint"))
            .foreachBatch(keep)
            .options(**options)
            .trigger(availableNow=True)
            .start()
        )

    def run(self, query: Callable[[DataFrame], DataFrame], *options: Any, **named: Any) -> None:
        """Run the query to its end, with the options of `start`."""
        started = late_workers.run(lambda: self.start(query, *options, **named), _ended)
        self.spark.conf.unset(NO_DATA)
        self.plan = started._jsq.explainInternal(False)
        self.progress += started.recentProgress
        for report in started.recentProgress:
            if report.stateOperators:
                state = report.stateOperators[0]
                self.figures.append((report.batchId, *(getattr(state, name) for name in FIGURES)))

    def outcome(self) -> Outcome:
        return Outcome(
            {batch: sorted(rows, key=repr) for batch, rows in self.rows.items()}, self.deltas(), self.figures
        )

    def deltas(self) -> dict[tuple[str, int], dict[bytes, bytes | None]]:
        """Return the changes that every batch wrote, as bytes; for Spark's HDFS-backed store."""
        found = {}
        for file in sorted((self.directory / "checkpoint" / "state" / "0").glob("*/*.delta")):
            found[file.parent.name, int(file.stem)] = _changes(self._decompressed(file))
        return found

    def _decompressed(self, file: Path) -> bytes:
        jvm = self.spark._jvm
        codec = jvm.org.apache.spark.io.CompressionCodec.createCodec(self.spark._jsc.sc().conf(), "lz4")
        stream = codec.compressedInputStream(jvm.java.io.FileInputStream(str(file)))
        try:
            return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def stored(self) -> list[Any]:
        """Return the rows of the newest state, through Spark's reader, for any store."""
        path = str(self.directory / "checkpoint")
        return sorted(
            map(tuple, self.spark.read.format("statestore").load(path).drop("partition_id").collect()),
            key=repr,
        )

    def fork(self, directory: Path) -> Stream:
        """Return a copy of this stream, input and checkpoint, to go on differently."""
        shutil.copytree(self.directory, directory)
        return dataclasses.replace(
            self, directory=directory, rows=dict(self.rows), figures=list(self.figures)
        )


def _ended(query: StreamingQuery) -> None:
    if not query.awaitTermination(PATIENCE_S):
        query.stop()
        raise TimeoutError(f"the query was still running after {PATIENCE_S} s")


def _changes(delta: bytes) -> dict[bytes, bytes | None]:
    changes: dict[bytes, bytes | None] = {}
    at = 0
    while True:
        (length,) = struct.unpack_from(">i", delta, at)
        if length == -1:
            return changes
        key = delta[at + 4 : at + 4 + length]
        at += 4 + length
        (length,) = struct.unpack_from(">i", delta, at)
        changes[key] = None if length == -1 else delta[at + 4 : at + 4 + length]
        at += 4 + max(length, 0)


def tables(batches: Sequence[Sequence[tuple[Any, ...]]], schema: pa.Schema) -> list[pa.Table]:
    """Return batches of row tuples as tables."""
    return [
        pa.table([pa.array([row[i] for row in rows], f.type) for i, f in enumerate(schema)], schema=schema)
        for rows in batches
    ]
