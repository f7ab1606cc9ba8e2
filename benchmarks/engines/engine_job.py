"""The forms of all engines, and their jobs: processes that are started, watched and killed with their own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.engines.workloads import COUNTER, FIRST, FRAMES, MARKS, SESSIONS, SUMMARY

CHECKOUT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BOTH = (COUNTER, SESSIONS)


@dataclasses.dataclass(frozen=True)
class Form:
    """A way to run workloads.

    Attributes:
        program: the module of this package that is the job.
        environment: the directory of its environment; None for that of this process.
        max_rows: the most rows of one of its batches, because it is slow.
        max_batches: the most batches, for the same reason.
        workloads: those that it can run.
        needs_broker: its rows come from Kafka.
    """

    program: str
    environment: str | None = None
    max_rows: int = 10**9
    max_batches: int = 10**9
    workloads: tuple[str, ...] = BOTH
    needs_broker: bool = False

    def python(self) -> str:
        """Return the interpreter of the environment."""
        return str(CHECKOUT / self.environment / "bin/python") if self.environment else sys.executable

    def fitting(self, keys: int, per_key: float, max_rows: int | None = None) -> tuple[int, int]:
        """Return keys and rows of a batch: fewer keys if the form is slow, with as many rows each.

        `max_rows` takes the place of the form's own bound.
        """
        used = int(min(keys, (self.max_rows if max_rows is None else max_rows) / per_key))
        return used, round(used * per_key)


FORMS = {
    "processor": Form("on_spark"),
    "per_group": Form("on_spark"),
    "vectorized": Form("on_spark"),
    "accelerate": Form("on_spark", max_rows=40_000, max_batches=8, workloads=(FRAMES,)),
    "spark-worker": Form("on_spark", max_rows=20_000, max_batches=6),
    "spark-frames": Form("on_spark", max_rows=20_000, max_batches=4, workloads=(FRAMES,)),
    "bytewax": Form("on_bytewax", ".venv-bytewax"),
    "bytewax-windows": Form("on_bytewax", ".venv-bytewax", max_rows=100_000, workloads=(SESSIONS,)),
    "thread-rocksdb": Form("on_flink", ".venv-flink", max_rows=100_000, max_batches=10),
    "thread-hashmap": Form("on_flink", ".venv-flink", max_rows=100_000, max_batches=10),
    "process-rocksdb": Form("on_flink", ".venv-flink", max_rows=5_000, max_batches=8),
    "quix": Form("on_quix", ".venv-quix", max_rows=40_000, max_batches=10, needs_broker=True),
    "quix-partition": Form(
        "on_quix", ".venv-quix", max_rows=5_000, max_batches=10, workloads=(SESSIONS,), needs_broker=True
    ),
}


def installed() -> list[str]:
    """Return the names of the forms whose environments exist."""
    return [name for name, form in FORMS.items() if Path(form.python()).exists()]


TIMEOUT_S = 900
PROGRAMS = HERE
"""The directory of the programs."""

_KAFKAS_OPTIONS = ("-Xmx1g", "-Xms1g", "-XX:+UseG1GC")
"""Options of the JVM, as Kafka's own script sets them."""

_LOOK_S = 0.003
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class TimedOutError(RuntimeError):
    """A job did not end in its time."""


@dataclasses.dataclass
class Usage:
    """Resources of a process and its descendants."""

    cpu_s: float = 0.0
    resident_bytes: int = 0
    written_bytes: int = 0


def _tree(root: int) -> dict[int, list[str]]:
    """Return a process and its descendants, each with the fields of its `stat` behind the name."""
    parents, fields = {}, {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended
                stat = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)], fields[int(entry.name)] = int(stat[1]), stat
    return {pid: stat for pid, stat in fields.items() if root in _ancestors(pid, parents)}


def _ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid:
        yield pid
        pid = parents.get(pid, 0)


class Watched:
    """A process whose descendants come and go."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._written: dict[int, int] = {}

    def usage(self) -> Usage:
        """Return what the process and its descendants use, with those that have ended.

        Parents have the CPU time of children that ended; of written bytes the last that were seen count.
        """
        total = Usage()
        for pid, stat in _tree(self._pid).items():
            total.cpu_s += sum(map(int, stat[11:15])) / _TICKS
            total.resident_bytes += int(stat[21]) * _PAGE
            self._written[pid] = max(_written(pid), self._written.get(pid, 0))
        total.written_bytes = sum(self._written.values())
        return total


def _written(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    return int(next(line.split()[1] for line in lines if line.startswith("write_bytes")))


@dataclasses.dataclass(frozen=True)
class Broker:
    """A Kafka beside the jobs."""

    address: str
    pid: int


@contextlib.contextmanager
def broker_for(names: list[str]) -> Iterator[Broker | None]:
    """Run a real Kafka for the `with` block if one of these forms needs it: a process on the loopback."""
    if not any(FORMS[name].needs_broker for name in names):
        yield None
        return
    from benchmarks.environment.s3_service import of_tests

    with of_tests("minikafka").running(_KAFKAS_OPTIONS) as kafka:
        yield Broker(kafka.address, kafka.jvm.java.lang.ProcessHandle.current().pid())


class Job:
    """A job of a form over rows of a workload. Its files are in `root`; a second start finds them there."""

    def __init__(
        self, name: str, workload: str, size: tuple[int, int, int], directory: Path, broker: Broker | None
    ) -> None:
        """Prepare a job.

        Args:
            name: the form.
            workload: one that the form can run.
            size: keys, rows of a batch, batches.
            directory: an empty directory.
            broker: Kafka, if the form needs it.
        """
        self.name = name
        self.form = FORMS[name]
        self.keys, self.rows, self.batches = size
        self.root = directory / "job"
        self.broker = broker if self.form.needs_broker else None
        self._rows = ["--workload", workload, "--keys", str(self.keys)]
        self._kafka: list[str] = []
        if self.broker is not None:
            self._kafka = ["--broker", self.broker.address, "--topic", f"rows-{uuid.uuid4().hex}"]
        self._directory = directory
        self._log = directory / "log"
        self.sent = directory / "sent"

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start the job with more words on its command line."""
        command = [self.form.python(), str(PROGRAMS / f"{self.form.program}.py"), *self._rows]
        command += ["--form", self.name, "--root", str(self.root), *self._kafka]
        command += ["--rows", str(self.rows), "--batches", str(self.batches), *words]
        paths = [str(CHECKOUT), str(HERE)]
        if self.form.program == "on_flink":  # its thread mode has an interpreter that knows no environment
            environment = CHECKOUT / str(self.form.environment)
            paths = [str(HERE), *map(str, environment.glob("lib/python*/site-packages"))]
        with open(self._log, "ab") as log:
            return subprocess.Popen(
                command,
                cwd=self._directory,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def feeder(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start what sends the job's rows to a socket or to Kafka."""
        python = self.form.python() if self.broker is not None else sys.executable
        command = [python, str(HERE / "paced_rows.py"), *self._rows, *self._kafka, *words]
        command += ["--rows", str(self.rows * self.batches)]
        with open(self._log, "ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **options)

    def paced(self, rate: int, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start what sends the rows at a pace, after the first output, and notes the moments in `sent`."""
        pace = ["--rate", str(rate), "--after", str(self.first), "--sent", str(self.sent)]
        feeder = self.feeder(*pace, *words, **options)
        if self.broker is not None:
            self.wait_for(self.sent, feeder)  # then the topic is there
        return feeder

    def load(self) -> None:
        """Send all rows to Kafka, if they come from there."""
        if self.broker is not None and self.feeder().wait(TIMEOUT_S):
            raise self.failure("its rows could not be sent to Kafka")

    def summary(self) -> dict[str, Any]:
        """Return the summary of the outputs."""
        summary: dict[str, Any] = json.loads((self.root / SUMMARY).read_text())
        return summary

    def mark(self, batch: int) -> Path:
        """Return the file that says that a batch is done."""
        return self.root / MARKS / str(batch)

    @property
    def first(self) -> Path:
        """Return the file that says that an output is there."""
        return self.root / FIRST

    def failure(self, reason: str) -> RuntimeError:
        """Return an error with the end of the job's log."""
        return RuntimeError(f"{self.name}: {reason}: {self._log.read_text(errors='replace')[-2000:]}")

    def wait_for(self, path: Path, process: subprocess.Popen[bytes]) -> float:
        """Return the moment at which a file of a running job is there, in seconds."""
        deadline = time.monotonic() + TIMEOUT_S
        while not path.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                kill(process)
                raise self.failure(f"ended with {process.returncode} before {path.name}")
            time.sleep(_LOOK_S)
        return time.monotonic()

    def wait(self, process: subprocess.Popen[bytes], timeout_s: float = TIMEOUT_S) -> None:
        """Wait until a job has ended."""
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            kill(process)
            raise TimedOutError(str(self.failure(f"did not end within {timeout_s:.0f} s"))) from None
        if code:
            raise self.failure(f"ended with {code}")


@contextlib.contextmanager
def job(name: str, workload: str, size: tuple[int, int, int], broker: Broker | None = None) -> Iterator[Job]:
    """Prepare a job in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="engines-", ignore_cleanup_errors=True) as directory:
        yield Job(name, workload, size, Path(directory), broker)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its descendants at once, and return when none is left."""
    pids = list(_tree(process.pid))
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    while any(_is_running(pid) for pid in pids):
        time.sleep(_LOOK_S)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
