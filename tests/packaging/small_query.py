"""Run by the Python of a clean environment: a small stateful query, twice on one checkpoint, checked.

    python small_query.py WORK_DIRECTORY
    spark-submit --properties-file FILE small_query.py WORK_DIRECTORY submitted

The first form takes the configuration from the package, the second leaves it to the file
and needs no package. Prints a line of JSON: the version of Spark, the counts, the files of
the first store, where the package is.
"""

import collections
import importlib.util
import json
import os
import sys
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout

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


def store_conf(submitted):
    if submitted:
        return {}
    import state_store

    return state_store.spark_conf()


def main(work, submitted):
    conf = {"spark.sql.shuffle.partitions": "1", "spark.ui.enabled": "false", **store_conf(submitted)}
    spark = SparkSession.builder.master("local[1]").config(map=conf).getOrCreate()
    run(spark, work, WORDS[:4])
    counted = run(spark, work, WORDS[4:])
    version = spark.version
    spark.stop()
    expected = collections.Counter(WORDS)
    assert counted == {word: expected[word] for word in WORDS[4:]}, counted
    store = work / "checkpoint/state/0/0"
    files = {name: sorted(path.name for path in (store / name).glob("*")) for name in ("delta", "snapshot")}
    package = importlib.util.find_spec("state_store")
    origin = package.origin if package else None
    print(json.dumps({"spark": version, "package": origin, "counted": counted, "files": files}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] == ["submitted"])
