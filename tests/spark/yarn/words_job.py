"""An application for `spark-submit`: counts words with a marked function until some batches are committed.

    words_job.py DIRECTORY BATCHES [ATTEMPTS]

DIRECTORY is the URI of one with the texts in `in`, a batch for each. The output and the checkpoint are beside
them. Each attempt writes a line of JSON about itself to the local file ATTEMPTS, if that is given.

If the variable TAKE_MEMORY of a Python worker names a file that does not exist, the worker makes it, takes as
many MiB as the variable TAKE_MIB says, and waits to be killed. It does so for a word that has state.
"""

from __future__ import annotations

import json
import os
import sys
import time

import pandas as pd
from pyspark.sql import SparkSession

import state_store


def count(key, frames, state):
    """Return the number of rows of a word so far, once a batch."""
    if state.exists:
        take_memory()
    seen = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
    state.update((seen,))
    yield pd.DataFrame({"word": [key[0]], "seen": [seen]})


def take_memory():
    """Exceed the limit of the container once, if the variables say so."""
    mark = os.environ.get("TAKE_MEMORY")
    if not mark:
        return
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    taken = bytearray(int(os.environ["TAKE_MIB"]) << 20)
    taken[:: 1 << 12] = b"x" * len(taken[:: 1 << 12])  # each page is resident
    time.sleep(600)


def main(directory: str, batches: int, attempts: str = "") -> None:
    """Run the query until batch `batches - 1` is committed."""
    spark = SparkSession.builder.getOrCreate()
    context = spark.sparkContext
    if attempts:
        about = {"application": context.applicationId, "python": sys.executable, "pid": os.getpid()}
        with open(attempts, "a", encoding="utf-8") as file:
            file.write(json.dumps({**about, "package": state_store.__file__}) + "\n")
    words = spark.readStream.option("maxFilesPerTrigger", 1).text(f"{directory}/in")
    counts = (
        words.withColumnRenamed("value", "word")
        .groupBy("word")
        .applyInPandasWithState(
            state_store.accelerate(count), "word string, seen long", "seen long", "append", "NoTimeout"
        )
    )
    query = (
        counts.writeStream.outputMode("append")
        .format("json")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .start(f"{directory}/out")
    )
    last = context._jvm.org.apache.hadoop.fs.Path(f"{directory}/checkpoint/commits/{batches - 1}")
    files = last.getFileSystem(context._jsc.hadoopConfiguration())
    while not files.exists(last):
        if query.exception() is not None or not query.isActive:
            raise RuntimeError(f"the query has ended: {query.exception()}")
        time.sleep(0.2)
    plan = query._jsq.explainInternal(False)
    if "VectorizedFlatMapGroupsInPandasWithState" not in plan:
        raise RuntimeError(f"the session extension is not used: {plan}")
    query.stop()
    rows = spark.read.json(f"{directory}/out").collect()
    result = json.dumps(sorted((row["word"], row["seen"]) for row in rows))
    spark.createDataFrame([(result,)], "value string").coalesce(1).write.text(f"{directory}/result")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
