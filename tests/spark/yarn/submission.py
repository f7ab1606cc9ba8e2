"""Applications that `spark-submit` starts on the YARN of the tests, as docs/deployment.md says."""

from __future__ import annotations

import collections
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import quick_java
import scala_jars
from miniyarn import YarnCluster

from state_store.session.releases import jar_name

PATIENCE_S = 600
WORDS = ("state", "store", "batch", "delta", "merge", "chain")
_JOB = Path(__file__).with_name("words_job.py")
_CONF = Path(__file__).resolve().parents[3] / "conf" / "yarn" / "spark.conf"


def java_home() -> Path:
    """Return the directory of the Java that `java` starts."""
    if "JAVA_HOME" in os.environ:
        return Path(os.environ["JAVA_HOME"])
    return Path(str(shutil.which("java"))).resolve().parents[1]


@dataclass(frozen=True)
class Installation:
    """A Spark on the machines: the Python that has it, its directory, and the store's jar for it."""

    python: Path
    spark_home: Path
    jar: Path


def newest() -> Installation:
    """Return the Spark that runs the tests."""
    return Installation(Path(sys.executable), quick_java.SPARK_HOME, scala_jars.state_store_jar())


def older(checkout: Path, minor: str) -> Installation:
    """Return the Spark in the checkout's environment for an older release."""
    python = checkout / f".venv-{minor}" / "bin" / "python"
    subprocess.run([python, "-m", "state_store.session.build"], cwd=checkout, check=True)
    find = "import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)"
    home = subprocess.run([python, "-c", find], cwd=checkout, check=True, stdout=subprocess.PIPE, text=True)
    jar = checkout / "state_store" / "jars" / jar_name(minor)
    return Installation(python, Path(home.stdout.strip()), jar)


class Application:
    """A run of words_job.py; use it as a context, which kills the process of the submission at its end."""

    def __init__(
        self,
        yarn: YarnCluster,
        room: Path,
        mode: str,
        archive: str,
        *,
        conf: Mapping[str, str] | None = None,
        installation: Installation | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            yarn: the cluster.
            room: a local directory, which is made, and of which HDFS gets one with the same name.
            mode: the deploy mode: client or cluster.
            archive: the path or URI of the environment.
            conf: more configuration.
            installation: the Spark; by default that of the tests.
        """
        self.yarn, self.room, self.mode, self.archive = yarn, room, mode, archive
        self.conf = dict(conf or {})
        self._spark = installation or newest()
        self.directory = f"{yarn.hdfs.uri}/{room.name}"
        self.log = room / "log"
        self.batches = 0
        self._rows: list[tuple[str, int]] = []
        self._seen: collections.Counter[str] = collections.Counter()
        self._process: subprocess.Popen[bytes] | None = None
        room.mkdir()
        yarn.hdfs.files.mkdirs(yarn.hdfs.path(f"{self.directory}/in"))

    def feed(self, batches: int) -> None:
        """Add texts of few words, each for a batch."""
        for number in range(self.batches, self.batches + batches):
            self.feed_words(itertools.islice(itertools.cycle(WORDS), number % 4, number % 4 + 40 + number))

    def feed_words(self, of_text: Iterable[str]) -> None:
        """Add a text, for a batch."""
        words = list(of_text)
        self._seen.update(words)
        self._rows += [(word, self._seen[word]) for word in set(words)]
        local = self.room / f"{self.batches:03}.txt"
        local.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
        path = self.yarn.hdfs.path
        self.yarn.hdfs.files.copyFromLocalFile(path(str(local)), path(f"{self.directory}/in/{local.name}"))
        self.batches += 1

    def submit(self, until: int) -> None:
        """Start the application, which ends after that many batches."""
        arguments = [self.directory, str(until), str(self.room / "attempts")]
        command = [self._spark.spark_home / "bin" / "spark-submit", *self._options(), _JOB, *arguments]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                cwd=self.room,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Application:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait_until(self, condition: Callable[[], Any], purpose: str) -> Any:
        """Wait for a condition and return its value; fail if the application ends before."""
        end_s = time.monotonic() + PATIENCE_S
        assert self._process is not None
        while not (found := condition()):
            if self._process.poll() is not None and not (found := condition()):
                raise AssertionError(f"the application ended before {purpose}: {self.last_lines()}")
            assert time.monotonic() < end_s, f"{purpose} did not come: {self.last_lines()}"
            time.sleep(0.2)
        return found

    def is_committed(self, batch: int) -> bool:
        """Return True if a batch is committed."""
        path = self.yarn.hdfs.path(f"{self.directory}/checkpoint/commits/{batch}")
        return bool(self.yarn.hdfs.files.exists(path))

    def exit_code(self) -> int:
        """Wait for the end of the submission, and return its exit code."""
        assert self._process is not None
        return self._process.wait(PATIENCE_S)

    def finish(self) -> None:
        """Wait for the end, and compare the output with what must come of the texts."""
        assert self.exit_code() == 0, self.last_lines()
        files = self.yarn.hdfs.files
        (part,) = files.globStatus(self.yarn.hdfs.path(f"{self.directory}/result/part-*"))
        stream = files.open(part.getPath())
        text = bytes(self.yarn.hdfs.jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        stream.close()
        assert [tuple(row) for row in json.loads(text)] == sorted(self._rows)

    def attempts(self) -> list[dict[str, Any]]:
        """Return what each attempt of the driver wrote about itself."""
        path = self.room / "attempts"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def id(self) -> str:
        """Return YARN's name of the application, when the submission has printed it."""

        def printed() -> str:
            match = re.search(r"application_\d+_\d+", self.lines())
            return match[0] if match else ""

        return str(self.wait_until(printed, "the id of the application"))

    def lines(self) -> str:
        """Return the submission's log."""
        return self.log.read_text(errors="replace")

    def last_lines(self) -> str:
        """Return the end of the submission's log."""
        return self.lines()[-6000:]

    def _options(self) -> list[str]:
        java = {"JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
        conf = {
            "spark.yarn.jars": f"local:{self._spark.spark_home}/jars/*",
            "spark.executor.instances": "2",
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.driver.memoryOverhead": "700m",
            "spark.yarn.am.memory": "256m",
            "spark.executor.memoryOverhead": "900m",
            "spark.sql.streaming.stateStore.incremental.memoryBudget": "128m",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.yarn.submit.waitAppCompletion": "true",
            "spark.driver.extraJavaOptions": quick_java.QUICK_START,
            "spark.executor.extraJavaOptions": quick_java.QUICK_START,
            **{f"spark.executorEnv.{name}": value for name, value in java.items()},
            **{f"spark.yarn.appMasterEnv.{name}": value for name, value in java.items()},
            **self.conf,
        }
        if self.mode == "client":
            conf |= {"spark.pyspark.driver.python": str(self._spark.python), "spark.driver.host": "127.0.0.1"}
        options = ["--master", "yarn", "--deploy-mode", self.mode]
        options += ["--properties-file", str(_CONF), "--jars", str(self._spark.jar)]
        options += ["--archives", f"{self.archive}#environment"]
        return options + [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]

    def _environment(self) -> dict[str, str]:
        clean = {
            name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK_", "PYTHON"))
        }
        return {
            **clean,
            "SPARK_HOME": str(self._spark.spark_home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "HADOOP_CONF_DIR": str(self.yarn.configuration),
        }
