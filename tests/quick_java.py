"""Options of the tests' JVMs with Spark: their lives are short, so that starting is most of what they do.

`spark_options()` adds an archive of Spark's classes, loaded and verified, to those (class data sharing of the
JVM). It is made once for each pyspark and Java, by a small query, and kept in the user's cache; a start of
Spark and a first batch need half the processor time with it. STATE_STORE_TEST_ARCHIVE=no does without.
`CHECKPOINT_FILES` has sessions write their checkpoints without a process for each file.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
import scala_jars

from state_store.jvm import releases

VARIABLE = "STATE_STORE_TEST_ARCHIVE"
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_STREAMING = "org.apache.spark.sql.execution.streaming."
CHECKPOINTING = _STREAMING if pyspark.__version__.startswith("4.0.") else _STREAMING + "checkpointing."
CHECKPOINT_FILES = {
    "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTING + "FileSystemBasedCheckpointFileManager"
}
"""The default manager starts a process for each file that it writes to a local disk."""

SPARK_HOME = Path(pyspark.__file__).resolve().parent
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_WARM_UP = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.range(100).selectExpr("id % 5 as k", "id as v").write.parquet(sys.argv[1] + "/in")
events = spark.readStream.schema("k long, v long").parquet(sys.argv[1] + "/in")
query = (
    events.groupBy("k").count().writeStream.outputMode("update").format("noop")
    .option("checkpointLocation", sys.argv[1] + "/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination()
"""


@functools.cache
def spark_options() -> str:
    """Java options for a driver or an executor of this pyspark."""
    if os.environ.get(VARIABLE) == "no":
        return QUICK_START
    if releases.minor_of(pyspark.__version__) != releases.SUPPORTED_SPARKS[-1]:
        return QUICK_START  # too few of them start to pay for an archive
    archive = scala_jars.CACHE / "class-data" / f"spark-{pyspark.__version__}-{_digest()}.jsa"
    with scala_jars.locked(f"class-data-{pyspark.__version__}"):
        if not archive.exists():
            _make(archive)
    return f"{QUICK_START} -XX:SharedArchiveFile={archive} {_QUIET}"


def _digest() -> str:
    """Of what an archive is for: this Java, and Spark's jars at this place."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    return hashlib.sha256(f"{java}{SPARK_HOME}".encode()).hexdigest()[:16]


def _make(archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as room:
        program, fresh = Path(room) / "warm_up.py", Path(room) / archive.name
        program.write_text(_WARM_UP)
        command = [SPARK_HOME / "bin" / "spark-submit", "--master", "local[2]"]
        for setting in ("ui.enabled=false", "driver.host=127.0.0.1", "driver.bindAddress=127.0.0.1"):
            command += ["--conf", f"spark.{setting}"]
        command += ["--driver-java-options", f"{QUICK_START} -XX:ArchiveClassesAtExit={fresh} {_QUIET}"]
        clean = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK_")}
        done = subprocess.run(
            [*map(str, command), str(program), room],
            env={**clean, "SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            check=False,
        )
        if not fresh.exists():
            raise RuntimeError(f"{shlex.join(map(str, command))} made no archive: {done.stderr[-4000:]}")
        fresh.replace(archive)
