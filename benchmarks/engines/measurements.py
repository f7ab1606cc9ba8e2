"""The measurements of a form: the checksum of its outputs, speed, a restart after a kill, waits for results.

**Speed** is that of the second half of a job, because a JVM compiles what it runs meanwhile and a streaming
job runs for days: rows a second, CPU seconds of all processes of the job, and bytes that they gave the
system to write; the same of Kafka; and CPU of the rest of the first half, without the first batch. Memory
is the most that they had together in the whole job (resident, so that shared pages count in each). An
engine without batches leaves a mark after as many rows.

**Recovery** is the time that a job needs after it was killed, with all its processes, to its first new
output. The job counts, with a checkpoint every second; an engine without batches gets the rows of a batch
in two seconds at least. After three of five batches everything is killed but the files, and Kafka if the
form needs it, and the job starts again. It has to end with the right count and sum of each key, and with
fewer outputs than there are rows. The time from the first start to the first output is subtracted: that of
starting.

**Latency** is the time from a row's arrival to its result, at a pace of so many rows a second. A process of
its own sends the rows (`paced_rows`): to a socket that Spark, Flink and Bytewax read each with a source of
sockets, or to Kafka for Quix Streams. It notes when each row went out, and the job when each result had
left the engine: in Spark's driver, in a sink of Bytewax, behind Flink's JVM on a socket, in the operator
after the stateful one in Quix Streams. The first row's result is waited for before others are sent, and the
first quarter of the others does not count.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import subprocess
import time
from array import array
from pathlib import Path
from typing import Any

from benchmarks.engines import engine_job
from benchmarks.engines.engine_job import Broker, Job, Usage, Watched, kill
from benchmarks.engines.workloads import (
    COUNTER,
    FRAMES,
    LATENCY,
    MOMENTS,
    OUTPUTS,
    SESSIONS,
    last_of_counter,
)

_CHECKED = {COUNTER: (100, 500, 2), FRAMES: (100, 500, 2), SESSIONS: (100, 500, 6)}
"""Keys, rows of a batch and batches of the jobs whose outputs are compared."""

BATCHES, BEFORE, BATCH_S = 5, 3, 2
_WORDS = ("--purpose", OUTPUTS, "--checkpoint-s", "1", "--batch-s", str(BATCH_S))


_PATIENCE_S = 60
"""Seconds beyond those in which rows arrive after which an engine counts as one that falls behind."""


Found = dict[str, Any]


def outputs(name: str, workload: str, broker: Broker | None = None) -> Found:
    """Run a small job and return the number and the checksum of its outputs."""
    with engine_job.job(name, workload, _CHECKED[workload], broker) as job:
        job.load()
        job.wait(job.start("--purpose", OUTPUTS))
        summary = job.summary()
    return {"rows": summary["rows"], "checksum": summary["checksum"]}


def speed(name: str, workload: str, size: tuple[int, int, int], broker: Broker | None = None) -> Found:
    """Run a job of that many keys, rows a batch and batches, and return its figures."""
    with engine_job.job(name, workload, size, broker) as job:
        job.load()
        process = job.start()
        ends, peaks = _watch(job, process)
        if process.returncode or len(ends) < job.batches:
            raise job.failure(f"ended with {process.returncode} after {len(ends)} batches")
    warm = job.batches // 2
    (_, cold, *_), (begin, *before), (end, *after) = ends[0], ends[warm - 1], ends[job.batches - 1]
    counted = job.rows * (job.batches - warm)
    figures = {"rows_a_second": round(counted / (end - begin))}
    for prefix, first, last, peak in zip(("", "broker_"), before, after, peaks, strict=False):
        figures[f"{prefix}cpu_us_a_row"] = round((last.cpu_s - first.cpu_s) * 1e6 / counted, 2)
        written = (last.written_bytes - first.written_bytes) / counted
        figures[f"{prefix}written_bytes_a_row"] = round(written, 1)
        figures[f"{prefix}peak_mb"] = round(peak / 1e6)
    if warm > 1:
        used_s = before[0].cpu_s - cold.cpu_s
        figures["first_cpu_us_a_row"] = round(used_s * 1e6 / job.rows / (warm - 1), 2)
    return figures


def _watch(job: Job, process: subprocess.Popen[bytes]) -> tuple[list[tuple[Any, ...]], list[int]]:
    """Return the time and usages at the end of each batch, and the greatest memory, of job and broker."""
    watched = [Watched(pid) for pid in (process.pid, *([job.broker.pid] if job.broker else []))]
    latest, peaks, looked = [Usage() for _ in watched], [0 for _ in watched], 0.0
    ends: list[tuple[Any, ...]] = []
    deadline = time.monotonic() + engine_job.TIMEOUT_S
    has_ended = False
    while not has_ended:
        has_ended = process.poll() is not None  # asked first, so that the last marks are seen
        if time.monotonic() > deadline:
            engine_job.kill(process)
        while job.mark(len(ends)).exists():
            if not has_ended:
                latest = [each.usage() for each in watched]
            ends.append((time.monotonic(), *latest))
        if time.monotonic() - looked > 0.5 and not has_ended:
            latest, looked = [each.usage() for each in watched], time.monotonic()
            peaks = [max(peak, now.resident_bytes) for peak, now in zip(peaks, latest, strict=True)]
        time.sleep(0.003)
    return ends, peaks


def recovery(name: str, size: tuple[int, int], broker: Broker | None = None) -> Found:
    """Return the seconds to the first output of a first and of a second life, and what the second adds.

    Args:
        name: the form.
        size: keys and rows of a batch.
        broker: Kafka, if the form needs it.
    """
    with engine_job.job(name, COUNTER, (*size, BATCHES), broker) as job, contextlib.ExitStack() as fed:
        if job.broker is not None:
            fed.callback(kill, job.paced(job.rows // BATCH_S))
        begin = time.monotonic()
        process = job.start(*_WORDS)
        cold_s = job.wait_for(job.first, process) - begin
        job.wait_for(job.mark(BEFORE - 1), process)
        kill(process)
        job.first.unlink()
        begin = time.monotonic()
        process = job.start(*_WORDS)
        again_s = job.wait_for(job.first, process) - begin
        job.wait(process)
        summary = job.summary()
        rows = job.rows * job.batches
        if summary["rows"] >= rows:
            raise job.failure(f"began anew: {summary['rows']} outputs of {rows} rows")
        if summary["last"] != last_of_counter(job.keys, rows):
            raise job.failure("counts or sums are wrong after the restart")
    figures = {"cold_s": cold_s, "again_s": again_s, "recovery_s": again_s - cold_s}
    return {name: round(seconds, 2) for name, seconds in figures.items()}


def latency(name: str, size: tuple[int, int, int], broker: Broker | None = None) -> Found:
    """Return the median and the 99th percentile in milliseconds, and the median of the last twentieth.

    An engine that has not all results a minute after the last row falls behind, and has no figures.

    Args:
        name: the form.
        size: keys, rows a second, seconds.
        broker: Kafka, if the form needs it.
    """
    with engine_job.job(name, COUNTER, size, broker) as job:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
            words = [] if job.broker else ["--listening", str(listening.fileno())]
            feeder = job.paced(job.rows, *words, pass_fds=[listening.fileno()])
        try:
            process = job.start("--purpose", LATENCY, "--port", str(port))
            job.wait_for(job.first, process)
            job.wait(process, job.batches + _PATIENCE_S)
        except engine_job.TimedOutError:
            return {"keeps_up": False}
        finally:
            kill(feeder)
        return figures(waits_ms(job.sent, job.root / MOMENTS))


def waits_ms(sent: Path, moments: Path) -> list[float]:
    """Return the time from arrival to result of each row, in the order of the rows."""
    begins, ends = array("d", sent.read_bytes()), array("d", moments.read_bytes())
    return [(end - begin) * 1000 for begin, end in zip(begins, ends, strict=True)]


def figures(waits: list[float]) -> Found:
    """Return the figures of waits in milliseconds: an engine falls behind if they grow to the end."""
    counted = waits[len(waits) // 4 :]
    percentiles = statistics.quantiles(counted, n=100)
    median, last = percentiles[49], statistics.median(counted[-len(counted) // 20 :])
    numbers = {"median_ms": median, "p99_ms": percentiles[98], "last_ms": last}
    keeps_up = last < max(1000, 1.2 * median)
    return {"keeps_up": keeps_up, **{name: round(value, 1) for name, value in numbers.items()}}
