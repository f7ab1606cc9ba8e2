"""The time from a row's arrival to its result, at a pace of so many rows a second.

A process of its own sends the rows (`paced_rows`): to a socket that Spark, Flink and Bytewax read each with a
source of sockets, or to Kafka for Quix Streams. It notes when each row went out, and the job when each
result had left the engine: in Spark's driver, in a sink of Bytewax, behind Flink's JVM on a socket, in the
operator after the stateful one in Quix Streams. The first row's result is waited for before others are
sent, and the first quarter of the others does not count.
"""

from __future__ import annotations

import socket
import statistics
from array import array
from pathlib import Path
from typing import Any

from benchmarks.engines import engine_job
from benchmarks.engines.engine_job import Broker, kill
from benchmarks.engines.workloads import COUNTER, LATENCY, MOMENTS

_PATIENCE_S = 60
"""Seconds beyond those in which rows arrive after which an engine counts as one that falls behind."""


def latency(name: str, size: tuple[int, int, int], broker: Broker | None = None) -> dict[str, Any]:
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


def figures(waits: list[float]) -> dict[str, Any]:
    """Return the figures of waits in milliseconds: an engine falls behind if they grow to the end."""
    counted = waits[len(waits) // 4 :]
    percentiles = statistics.quantiles(counted, n=100)
    median, last = percentiles[49], statistics.median(counted[-len(counted) // 20 :])
    numbers = {"median_ms": median, "p99_ms": percentiles[98], "last_ms": last}
    keeps_up = last < max(1000, 1.2 * median)
    return {"keeps_up": keeps_up, **{name: round(value, 1) for name, value in numbers.items()}}
