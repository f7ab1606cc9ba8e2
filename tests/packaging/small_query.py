"""Run by the Python of a clean environment: a small stateful query, twice on one checkpoint, checked.

    python small_query.py WORK_DIRECTORY

Prints a line of JSON: the version of Spark, the counts, the files in the first store's directories.
"""

import collections
import json
import os
import sys
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout

import state_store

WORDS = ["state", "store", "state", "batch", "state", "store"]


def count(key, frames, state):
    seen = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
    state.update((seen,))
    yield pd.DataFrame({"word": [key[0]], "seen": [seen]})


def run(spark, work, words):
    source = work / "words"
    source.mkdir(exist_ok=True)
    for number, word in enumerate(words, start=len(list(source.iterdir()))):
        (source / f"{number:03}.txt").write_text(f"{word}\n")
    seen = {}

    def collect(frame, batch):
        seen.update({row["word"]: row["seen"] for row in frame.collect()})

    words_read = (
        spark.readStream.option("maxFilesPerTrigger", 1).text(str(source)).withColumnRenamed("value", "word")
    )
    counts = words_read.groupBy("word").applyInPandasWithState(
        count, "word string, seen long", "seen long", "update", GroupStateTimeout.NoTimeout
    )
    query = counts.writeStream.outputMode("update").foreachBatch(collect)
    query.option("checkpointLocation", str(work / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    return seen


def main(work):
    conf = {"spark.sql.shuffle.partitions": "1", "spark.ui.enabled": "false", "spark.driver.memory": "1g"}
    builder = SparkSession.builder.master("local[1]").config(map={**conf, **state_store.spark_conf()})
    spark = builder.getOrCreate()
    run(spark, work, WORDS[:4])
    counted = run(spark, work, WORDS[4:])
    version = spark.version
    spark.stop()
    expected = collections.Counter(WORDS)
    assert counted == {word: expected[word] for word in WORDS[4:]}, counted
    store = work / "checkpoint/state/0/0"
    files = {name: sorted(path.name for path in (store / name).glob("*")) for name in ("delta", "snapshot")}
    print(json.dumps({"spark": version, "package": state_store.__file__, "counted": counted, "files": files}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
