"""A Spark application with a UI, in a process of its own: it does what standard input says.

    python application.py '{"master": "local[2]", "options": {...}, "settings": {...}}'

It reads JSON, a line for each command, and answers with a line. `start` starts a query over files in a
directory, `feed` gives it batches and waits for their end, `stop` stops a query, `end` ends the application.
The first line that it prints says where the UI is.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import late_workers
import pandas as pd
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

import state_store


class Sums(StatefulProcessor):
    """Processor that sums the values of each key, in a variable of that name."""

    def init(self, handle: Any) -> None:
        self._sums = handle.getValueState("sums", "total long")
        self._last = handle.getListState("last", "value long")

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Any:
        values = [int(value) for frame in rows for value in frame["value"]]
        total = sum(values) + (self._sums.get()[0] if self._sums.exists() else 0)
        self._sums.update((total,))
        self._last.put([(value,) for value in values])
        yield pd.DataFrame({"key": [key[0]], "total": [total]})

    def close(self) -> None:
        pass


def totals(records: DataFrame) -> DataFrame:
    return records.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))


def processed(records: DataFrame) -> DataFrame:
    return records.groupBy("key").transformWithStateInPandas(
        Sums(), outputStructType="key string, total long", outputMode="Update", timeMode="None"
    )


def joined(records: DataFrame) -> DataFrame:
    left = records.select(F.col("key").alias("l"), F.col("value").alias("left"))
    right = records.select(F.col("key").alias("r"), F.col("value").alias("right"))
    return left.join(right, F.expr("l = r and left = right"))


def stateless(records: DataFrame) -> DataFrame:
    return records.where("value > 0")


QUERIES = {
    "totals": (totals, "update"),
    "processed": (processed, "update"),
    "joined": (joined, "append"),
    "stateless": (stateless, "append"),
}


class Application:
    """The queries of one session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.running: dict[str, Any] = {}
        self.starts: dict[str, Any] = {}
        self.directories: dict[str, Path] = {}
        self.fed: dict[str, int] = {}

    def start(self, name: str, directory: str, query: str = "totals", named: bool = True) -> dict[str, Any]:
        """Start a query over the files in `directory`/input."""
        plan, mode = QUERIES[query]
        home = Path(directory)
        (home / "input").mkdir(parents=True, exist_ok=True)
        stream = self.spark.readStream.schema("key string, value long").option("maxFilesPerTrigger", "1")
        writer = plan(stream.json(str(home / "input"))).writeStream.outputMode(mode).format("noop")
        writer = writer.option("checkpointLocation", str(home / "checkpoint"))
        if named:
            writer = writer.queryName(name)
        self.starts[name] = writer.start
        started = self.running[name] = writer.start()
        self.directories[name] = home
        self.fed[name] = len(list((home / "input").iterdir()))
        return {"id": str(started.id), "run": str(started.runId)}

    def set(self, key: str, value: str) -> dict[str, Any]:
        """Set an option of the session."""
        self.spark.conf.set(key, value)
        return {}

    def feed(self, name: str, batches: int = 1, rows: int = 20) -> dict[str, Any]:
        """Give a query some batches, and wait until they have ended."""
        for _ in range(batches):
            number = self.fed[name]
            lines = [{"key": f"k{row % 7}", "value": number * rows + row} for row in range(rows)]
            place = self.directories[name] / "input"
            unfinished = place.parent / f"{number}.unfinished"
            unfinished.write_text("".join(json.dumps(line) + "\n" for line in lines))
            unfinished.rename(place / f"{number:05}.json")
            self.fed[name] += 1
            self._process(name)
        progress = self.running[name].lastProgress
        return {"batch": progress.batchId, "durations": dict(progress.durationMs)}

    def _process(self, name: str) -> None:
        """Wait until all files are read. Starts the query again if its worker on the driver was late."""
        for _ in range(late_workers.MOST):
            try:
                return self.running[name].processAllAvailable()
            except StreamingQueryException as error:
                with contextlib.redirect_stdout(sys.stderr):  # standard output has the answers
                    if not late_workers.was_late(error):
                        raise
                self.running[name] = self.starts[name]()
        return self.running[name].processAllAvailable()

    def progress(self, name: str) -> dict[str, Any]:
        """Return the custom metrics of each operator in each batch of a query's run."""
        batches = self.running[name].recentProgress
        metrics = [[dict(operator.customMetrics) for operator in batch.stateOperators] for batch in batches]
        return {"batches": metrics}

    def decommission(self, executor: str) -> dict[str, Any]:
        """Give an executor no more tasks, and ask it to go."""
        context = self.spark.sparkContext
        scheduler = context._jvm.org.apache.spark.scheduler
        info = scheduler.ExecutorDecommissionInfo("for a test", context._jvm.scala.Option.empty())
        backend = context._jsc.sc().schedulerBackend()
        return {"accepted": backend.decommissionExecutor(executor, info, False, False)}

    def stop(self, name: str) -> dict[str, Any]:
        """Stop a query."""
        self.running.pop(name).stop()
        return {}


def main() -> None:
    asked = json.loads(sys.argv[1])
    conf = state_store.spark_conf(asked.get("settings", {}))
    conf.update(asked.get("options", {}))
    builder = SparkSession.builder.master(asked.get("master", "local[2]")).config(map=conf)
    spark = builder.getOrCreate()
    context = spark.sparkContext
    context.setLogLevel("OFF")  # Spark ignores a level that its root logger has, while a shell shows WARN
    context.setLogLevel(conf["spark.log.level"])
    print(json.dumps({"ui": context.uiWebUrl, "application": context.applicationId}), flush=True)
    application = Application(spark)
    for line in sys.stdin:
        command = json.loads(line)
        name = command.pop("do")
        if name == "end":
            break
        print(json.dumps(getattr(application, name)(**command)), flush=True)
    for query in application.running.values():
        query.stop()  # a query whose context stops first may log an exception
    spark.stop()


if __name__ == "__main__":
    main()
