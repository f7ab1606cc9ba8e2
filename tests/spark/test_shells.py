"""Programs start as the pages say: spark-shell and spark-submit with the lines of spark-defaults.conf."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

import state_store
from state_store.session.jar import jar_path

pytestmark = [pytest.mark.spark]

SPARK_HOME = Path(pyspark.__file__).parent
PYTHON = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", 2)
clicks = spark.readStream.schema("user string, v long").parquet("source").groupBy("user").count()
query = clicks.writeStream.outputMode("update").format("noop").option("checkpointLocation", "clicks")
query.trigger(availableNow=True).start().awaitTermination()
"""


@pytest.fixture
def directory(checkout: Path, tmp_path: Path) -> Path:
    """Make a directory with a blank in its name, rows below `source`, and a `spark-defaults.conf`."""
    work = tmp_path / "my work"
    (work / "source").mkdir(parents=True)
    pq.write_table(pa.table({"user": ["a", "b", "a"], "v": [1, 2, 3]}), work / "source/rows.parquet")
    template = (checkout / "conf/spark-defaults.conf").read_text(encoding="utf-8")
    lines = [line for line in template.splitlines() if re.match(r"spark\.", line)]
    assert len(lines) == 6
    (work / "conf").mkdir()
    text = re.sub(r"^spark\.jars .*$", f"spark.jars {jar_path()}", "\n".join(lines), flags=re.MULTILINE)
    (work / "conf/spark-defaults.conf").write_text(text + "\n", encoding="utf-8")
    return work


def run(directory: Path, *command: str, typed: str | None = None) -> str:
    """Return what a program of Spark's prints; it must succeed."""
    places = {
        "SPARK_HOME": SPARK_HOME,
        "SPARK_CONF_DIR": directory / "conf",
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [str(SPARK_HOME / "bin" / command[0]), "--master", "local[2]", *command[1:]],
        cwd=directory,
        env={**os.environ, **{name: str(place) for name, place in places.items()}},
        input=typed,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def counts(directory: Path) -> dict[str, int]:
    """Return the state of the query in `clicks`, which is this store's."""
    provider = (directory / "clicks/offsets/0").read_text(encoding="utf-8")
    assert "IncrementalStateStoreProvider" in provider
    with state_store.open(str(directory / "clicks")) as state:
        return {row["user"]: row["count"] for row in state.to_arrow().to_pylist()}


@pytest.mark.tier("more")
def test_spark_submit_takes_the_store_from_its_defaults(directory: Path) -> None:
    (directory / "job.py").write_text(PYTHON, encoding="utf-8")
    run(directory, "spark-submit", "job.py")
    assert counts(directory) == {"a": 2, "b": 1}


@pytest.mark.tier("long")
def test_the_example_in_scala_runs_in_spark_shell(checkout: Path, directory: Path) -> None:
    page = (checkout / "docs/scala.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```scala\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    query = example[: example.index("spark.read.format")]
    run(directory, "spark-shell", typed=query + "System.exit(0)\n")
    assert counts(directory) == {"a": 2, "b": 1}
