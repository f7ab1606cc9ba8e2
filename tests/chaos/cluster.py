"""A standalone cluster of Spark on one machine: a master and workers, each a process that can be lost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import pyspark
import quick_java

from chaos import processes
from chaos.processes import MARK, Process

_HOST = "127.0.0.1"
WORKERS = 2
CORES = 2
QUICK_S, PATIENT_S = 8, 60
"""The bounds of `Cluster.noticed_after_s`."""

_SPARK = Path(pyspark.__file__).resolve().parent
_TESTS = Path(__file__).resolve().parents[1]
_START_S = 600


def quick_start() -> str:
    """Java options of all JVMs of the cluster."""
    return f"{quick_java.spark_options()} -XX:ActiveProcessorCount=2"


class Cluster:
    """A context manager: at its end, no process of it is left. Its files are below `room`.

    `noticed_after_s` is the time after which a silent process counts as lost: longer where the master took
    long to start, because a machine is busy, or else executors that only start would be taken for lost.
    `workers` is the number of those that it begins with.
    """

    def __init__(self, room: Path, workers: int = WORKERS) -> None:
        self.room = room
        self._workers = workers
        self.url = ""
        self.noticed_after_s = QUICK_S
        self._daemons: dict[str, subprocess.Popen] = {}

    def __enter__(self) -> Cluster:
        self.room.mkdir(parents=True)
        began = time.monotonic()
        self._start("master", "master.Master", _HOST, timeout_s=PATIENT_S)
        self.url = _awaited(self._master_url, _START_S, "the master does not answer")
        self.noticed_after_s = min(max(QUICK_S, round(4 * (time.monotonic() - began))), PATIENT_S)
        for number in range(self._workers):
            self.start_worker(number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while left := self.processes():
            for process in left:
                process.kill()
            time.sleep(0.05)
        for daemon in self._daemons.values():
            daemon.wait()

    def environment(self) -> dict[str, str]:
        """Return the variables of every process of the cluster, drivers too."""
        path = os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH")]))
        return {
            **os.environ,
            MARK: str(self.room),
            "SPARK_HOME": str(_SPARK),
            "SPARK_LOCAL_IP": _HOST,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": path,
        }

    def processes(self) -> list[Process]:
        """All that live, drivers too."""
        return processes.marked(str(self.room))

    def machines(self) -> list[list[Process]]:
        """For each worker that lives, it and all that it has started."""
        alive = self.processes()
        return [list(processes.family(alive, process.pid)) for process in alive if process.role == "worker"]

    def replace_workers(self) -> None:
        """Start a worker in place of each that was killed."""
        for number in range(self._workers):
            if self._daemons[_worker(number)].poll() is not None:
                self.start_worker(number)

    def local_directory(self, number: int) -> Path:
        """Return the local disk of a worker."""
        return self.room / f"local-{number}"

    def start_worker(self, number: int) -> None:
        """Start a worker on a host name of its own."""
        self.local_directory(number).mkdir(exist_ok=True)
        self._start(
            _worker(number),
            "worker.Worker",
            f"127.0.0.{number + 1}",  # Spark runs no second attempt of a task on the host of the first
            *("--cores", str(CORES), "--memory", "4g"),
            *("--work-dir", str(self.room / f"work-{number}"), self.url),
            timeout_s=self.noticed_after_s,
            SPARK_LOCAL_DIRS=str(self.local_directory(number)),
        )

    def _start(
        self, name: str, program: str, host: str, *arguments: str, timeout_s: int, **more: str
    ) -> None:
        environment = {
            **self.environment(),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_DAEMON_JAVA_OPTS": (
                f"{quick_start()} -Dspark.worker.timeout={timeout_s} -Dspark.deploy.maxExecutorRetries=-1"
            ),
            **more,
        }
        command = [_SPARK / "bin" / "spark-class", f"org.apache.spark.deploy.{program}"]
        with (self.room / f"{name}.log").open("a") as log:
            self._daemons[name] = subprocess.Popen(
                [*map(str, command), "--host", host, "--port", "0", "--webui-port", "0", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.room,
                start_new_session=True,
            )

    def _master_url(self) -> str:
        match = re.search(r"spark://[\d.]+:\d+", (self.room / "master.log").read_text(errors="replace"))
        return match[0] if match else ""


def _worker(number: int) -> str:
    return f"worker-{number}"


def _awaited(condition: Callable[[], str], within_s: float, complaint: str) -> str:
    until = time.monotonic() + within_s
    while not (found := condition()):
        if time.monotonic() > until:
            raise TimeoutError(complaint)
        time.sleep(0.05)
    return found
