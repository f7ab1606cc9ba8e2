"""The time that a job needs after it was killed, with all its processes, to its first new output.

The job counts, with a checkpoint every second; an engine without batches gets the rows of a batch in two
seconds at least. After three of five batches everything is killed but the files, and Kafka if the form needs
it, and the job starts again. It has to end with the right count and sum of each key, and with fewer outputs
than there are rows. The time from the first start to the first output is subtracted: that of starting.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from benchmarks.engines import engine_job
from benchmarks.engines.engine_job import Broker, kill
from benchmarks.engines.workloads import COUNTER, OUTPUTS, last_of_counter

BATCHES, BEFORE, BATCH_S = 5, 3, 2
_WORDS = ("--purpose", OUTPUTS, "--checkpoint-s", "1", "--batch-s", str(BATCH_S))


def recovery(name: str, size: tuple[int, int], broker: Broker | None = None) -> dict[str, Any]:
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
        found = job.summary()
        rows = job.rows * job.batches
        if found["rows"] >= rows:
            raise job.failure(f"began anew: {found['rows']} outputs of {rows} rows")
        if found["last"] != last_of_counter(job.keys, rows):
            raise job.failure("counts or sums are wrong after the restart")
    figures = {"cold_s": cold_s, "again_s": again_s, "recovery_s": again_s - cold_s}
    return {name: round(seconds, 2) for name, seconds in figures.items()}
