"""Run the same stateful Python on several engines, in turns on one machine, and compare them.

    python -m benchmarks.engines.side_by_side --json OUT [--quick] [--keep] [--engines FORM,...]
        [--workloads counter,frames,sessions] [--keys 20000] [--rows-per-key 2,20] [--batches 16] [--turns 1]
        [--figures speed,recovery,latency] [--rates 1000,10000] [--seconds 20]

Each engine runs in an environment of its own: `python scripts/environment.py flink bytewax quix` makes those
of PyFlink, Bytewax and Quix Streams, beside which a Kafka runs. First each form runs small jobs whose outputs
have to have the same checksum; `--quick` does that alone, with the forms on Spark.

`speed` measures the second half of a job, because a JVM compiles what it runs meanwhile and a streaming job
runs for days: rows a second, CPU seconds of all processes of the job, and bytes that they gave the system to
write; the same of Kafka; and CPU of the rest of the first half, without the first batch. Memory is the most
that they had together in the whole job (resident, so that shared pages count in each). An engine without
batches leaves a mark after as many rows. There is one partition. Slow forms get fewer rows, the same number a
key and batch of fewer keys, and fewer batches, because each of theirs takes longer. `recovery` and `latency`
are described in modules of their own. `--keep` puts the figures among those that pages are made of
(`benchmarks/measured/engines.json`).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.engines import arrival_to_result, engine_job, kept_engines, kill_and_restart
from benchmarks.engines.engine_forms import FORMS, installed
from benchmarks.engines.engine_job import Broker, Job, Usage, Watched
from benchmarks.engines.workloads import COUNTER, FRAMES, OUTPUTS, SESSIONS

WORKLOADS = (COUNTER, FRAMES, SESSIONS)
FIGURES = ("speed", "recovery", "latency")
_CHECKED = {COUNTER: (100, 500, 2), FRAMES: (100, 500, 2), SESSIONS: (100, 500, 6)}
"""Keys, rows of a batch and batches of the jobs whose outputs are compared."""

Found = dict[str, Any]


def outputs(name: str, workload: str, broker: Broker | None = None) -> Found:
    """Run a small job and return the number and the checksum of its outputs."""
    with engine_job.job(name, workload, _CHECKED[workload], broker) as job:
        job.load()
        job.wait(job.start("--purpose", OUTPUTS))
        found = job.summary()
    return {"rows": found["rows"], "checksum": found["checksum"]}


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


@dataclasses.dataclass(frozen=True)
class Task:
    """A measurement of a form: what it is of, and what makes its figures."""

    kind: str
    facts: Found
    work: Callable[..., Found]
    words: tuple[Any, ...]

    @property
    def order(self) -> tuple[int, float]:
        """Return what puts the same size of all forms together."""
        return kept_engines.KINDS.index(self.kind), self.facts.get("rows_a_key", self.facts.get("rate", 0))


def tasks(asked: argparse.Namespace, workload: str, name: str) -> Iterator[Task]:
    """Yield all measurements of a form; those of restarts and waits are of the counter alone."""
    form, facts = FORMS[name], {"form": name, "workload": workload, "asked_keys": asked.keys}
    for each in asked.rows_per_key if "speed" in asked.figures else ():
        keys, rows = form.fitting(asked.keys, each)
        batches = min(asked.batches, form.max_batches)
        size = (keys, rows, batches)
        sizes = {"keys": keys, "rows": rows, "rows_a_key": each, "batches": batches}
        yield Task("runs", {**facts, **sizes}, speed, (workload, size))
    if workload == COUNTER and "recovery" in asked.figures:
        keys, rows = form.fitting(asked.keys, 2)
        yield Task(
            "recovery", {**facts, "keys": keys, "rows": rows}, kill_and_restart.recovery, ((keys, rows),)
        )
    for rate in asked.rates if workload == COUNTER and "latency" in asked.figures else ():
        size = (asked.keys, rate, asked.seconds)
        yield Task("latency", {**facts, "keys": asked.keys, "rate": rate}, arrival_to_result.latency, (size,))


def measure(asked: argparse.Namespace, names: list[str]) -> Found:
    """Compare the outputs of forms in small jobs, and measure each in turns.

    Args:
        asked: the options of the command line.
        names: forms, as `FORMS` names them.
    """
    checks: dict[str, dict[str, Found]] = {}
    failed: dict[str, str] = {}
    found: dict[str, list[Found]] = {kind: [] for kind in kept_engines.KINDS}

    def attempted(name: str, work: Callable[..., Found], *words: Any) -> Found | None:
        """Return the figures of a job, or keep the reason for which it failed: the others go on."""
        try:
            return work(name, *words)
        except RuntimeError as error:
            failed[name] = str(error)
            print(error, file=sys.stderr, flush=True)
            return None

    with engine_job.broker_for(names) as broker:
        pairs = [(load, name) for load in asked.workloads for name in names if load in FORMS[name].workloads]
        for workload, name in pairs:
            if (sums := attempted(name, outputs, workload, broker)) is not None:
                checks.setdefault(workload, {})[name] = sums
        for turn in range(asked.turns):
            first = turn * len(pairs) // asked.turns
            turned = [task for pair in pairs[first:] + pairs[:first] for task in tasks(asked, *pair)]
            for task in sorted(turned, key=lambda task: task.order):
                name = task.facts["form"]
                if name in failed or (figures := attempted(name, task.work, *task.words, broker)) is None:
                    continue
                found[task.kind].append({**task.facts, **figures, "load": round(os.getloadavg()[0], 1)})
                print(json.dumps(found[task.kind][-1]), flush=True)
    return {
        "load": os.getloadavg(),
        "outputs": checks,
        "failed": failed,
        "outputs_equal": kept_engines.are_equal(checks),
        **{kind: medians(entries) for kind, entries in found.items()},
    }


def medians(runs: list[Found]) -> list[Found]:
    """Return a form's runs of one size as one, with the median of each figure."""
    groups: dict[tuple[Any, ...], list[Found]] = {}
    for run in runs:
        groups.setdefault(kept_engines.identity(run), []).append(run)
    return [
        {
            name: statistics.median(run[name] for run in group if name in run)
            if isinstance(value, (int, float)) and not isinstance(value, bool)
            else min(run[name] for run in group)
            for name, value in group[0].items()
        }
        | {"turns": len(group)}
        for group in groups.values()
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if outputs differ or a job failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines.side_by_side")
    several = {"type": lambda text: text.split(",")}
    numbers = {
        "type": lambda text: [int(word) if word.isdigit() else float(word) for word in text.split(",")]
    }
    parser.add_argument("--json", type=Path, required=True, metavar="OUT", help="file for the result")
    parser.add_argument("--quick", action="store_true", help="compare outputs alone, on Spark")
    parser.add_argument("--keep", action="store_true", help="keep the figures for the pages")
    parser.add_argument("--engines", **several, help="forms to run (default: all that are installed)")
    parser.add_argument("--workloads", **several, default=list(WORKLOADS))
    parser.add_argument("--figures", **several, default=["speed"], help=", ".join(FIGURES))
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--rows-per-key", **numbers, default=[2, 20], help="in a batch; each by itself")
    parser.add_argument("--batches", type=int, default=16, help="batches; the first half does not count")
    parser.add_argument("--rates", **numbers, default=[1000, 10_000], help="rows a second, for latency")
    parser.add_argument("--seconds", type=int, default=20, help="time of the rows, for latency")
    parser.add_argument("--turns", type=int, default=1, help="measurements of each size")
    asked = parser.parse_args(arguments)
    names = asked.engines or installed()
    if asked.quick:
        names, asked.turns = [name for name in names if FORMS[name].environment is None], 0
    result = measure(asked, names)
    asked.json.write_text(json.dumps(result, indent=1))
    if not result["outputs_equal"]:
        print(f"outputs differ: {result['outputs']}", file=sys.stderr)
    elif asked.keep:
        kept_engines.keep(result, arguments or sys.argv[1:])
    return 0 if result["outputs_equal"] and not result["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
