"""A local session with the extension and Spark's HDFS-backed store, whose files can be compared byte by byte.

STATE_STORE_TEST_JAR names another jar than that of the package.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import quick_java

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
PREFIX = "spark.sql.streaming.stateStore.incremental.vectorized."


def session_options() -> dict[str, str]:
    from state_store.core.settings.session import EXTENSION_CLASS
    from state_store.session.jar import jar_path

    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": quick_java.spark_options(),
        "spark.sql.session.timeZone": "America/Los_Angeles",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.files.minPartitionNum": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.streaming.minBatchesToRetain": "100",
        "spark.sql.extensions": EXTENSION_CLASS,
        **quick_java.CHECKPOINT_FILES,
        **quick_java.WORKERS,
    }
    jar = os.environ.get("STATE_STORE_TEST_JAR")
    options["spark.jars"] = jar or str(jar_path())
    return options


@pytest.fixture(scope="session")
def spark() -> Iterator:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["TZ"] = "UTC"  # of the workers: another one than the session's
    os.environ["PYTHONPATH"] = os.pathsep.join(
        map(str, [ROOT, HERE, HERE / "processors", HERE / "frames", HERE.parent])
    )
    session = SparkSession.builder.master("local[2]").config(map=session_options()).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def conf(spark) -> Iterator[Callable[[str, object], None]]:
    """Set options for a test."""
    before: dict[str, str | None] = {}

    def set_option(name: str, value: object) -> None:
        before.setdefault(name, spark.conf.get(name, None))
        spark.conf.set(name, str(value))

    yield set_option
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


@pytest.fixture
def stream(spark, tmp_path) -> Callable:
    """Make streams with given batches, each in a directory of its own."""
    from streams import Stream

    made = 0

    def make(schema: str, batches: list[pa.Table], watermark: str | None = None) -> Stream:
        nonlocal made
        made += 1
        created = Stream(spark, tmp_path / f"stream{made}", schema, watermark)
        for table in batches:
            created.add(table)
        return created

    return make
