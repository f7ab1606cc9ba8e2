"""Run the same keyed counter in Python on several engines, in turns on one machine, and compare them.

    python -m benchmarks.engines.side_by_side --json OUT [--quick] [--engines FORM,...] [--keys 20000]
        [--rows-per-key 2,20] [--batches 4] [--turns 1]

Each engine runs in an environment of its own: `python scripts/environment.py flink bytewax` makes those of
PyFlink and Bytewax. `--quick` only compares outputs, of the forms on Spark. First each form runs a
small job whose outputs have to have the same checksum. Then each is measured between the end of its first
batch and that of its last, so that starting does not count: rows a second, CPU seconds of all its processes,
the most memory that they had together (resident, so that shared pages count in each), and bytes that they
gave the system to write. An engine without batches leaves a mark after as many rows. There is one partition.
Slow forms get fewer rows: the same number a key and batch, of fewer keys.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
TIMEOUT_S = 900
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclasses.dataclass(frozen=True)
class Form:
    """A way to run the counter: its program, its environment, and the most rows of one of its batches."""

    program: str
    environment: str | None = None
    max_rows: int = 10**9

    def python(self) -> str:
        return str(CHECKOUT / self.environment / "bin/python") if self.environment else sys.executable


FORMS = {
    "processor": Form("on_spark"),
    "per_group": Form("on_spark"),
    "vectorized": Form("on_spark"),
    "accelerate": Form("on_spark", max_rows=40_000),
    "spark-worker": Form("on_spark", max_rows=40_000),
    "spark-frames": Form("on_spark", max_rows=20_000),
    "bytewax": Form("on_bytewax", ".venv-bytewax"),
    "thread-rocksdb": Form("on_flink", ".venv-flink", max_rows=100_000),
    "thread-hashmap": Form("on_flink", ".venv-flink", max_rows=100_000),
    "process-rocksdb": Form("on_flink", ".venv-flink", max_rows=5_000),
}


@dataclasses.dataclass
class Usage:
    """Resources of a process and its descendants."""

    cpu_s: float = 0.0
    resident_bytes: int = 0
    written_bytes: int = 0


def usage(root: int) -> Usage:
    """Return what a process and its descendants use, with the CPU time of their children that ended."""
    parents, found = {}, {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(fields[1])
            found[int(entry.name)] = fields
        except OSError:
            continue  # it has ended
    total = Usage()
    for pid in [pid for pid in found if root in _ancestors(pid, parents)]:
        total.cpu_s += sum(map(int, found[pid][11:15])) / _TICKS
        total.resident_bytes += int(found[pid][21]) * _PAGE
        total.written_bytes += _written(pid)
    return total


def _ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid:
        yield pid
        pid = parents.get(pid, 0)


def _written(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    return int(next(line.split()[1] for line in lines if line.startswith("write_bytes")))


def run(name: str, keys: int, rows: int, batches: int, *, collect: bool = False) -> dict[str, Any]:
    """Run a job; return its figures, and the checksum of its outputs if they are collected."""
    form = FORMS[name]
    with tempfile.TemporaryDirectory(prefix="engines-") as temporary:
        root = Path(temporary, "job")
        command = [form.python(), str(HERE / f"{form.program}.py"), "--form", name, "--root", str(root)]
        command += ["--keys", str(keys), "--rows", str(rows), "--batches", str(batches)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(HERE)])}
        if form.program == "on_flink":  # its thread mode has an interpreter that knows no environment
            (packages,) = (CHECKOUT / str(form.environment)).glob("lib/python*/site-packages")
            environment["PYTHONPATH"] = os.pathsep.join([str(HERE), str(packages)])
        log = Path(temporary, "log")
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [*command, *(["--collect"] if collect else [])],
                cwd=temporary,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        ends, peak = _watch(process, root / "marks")
        if process.returncode or len(ends) < batches:
            tail = log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{name} ended with {process.returncode} after {len(ends)} batches: {tail}")
        outputs = {"outputs": json.loads((root / "outputs.json").read_text())} if collect else {}
    (begin, before), (end, after) = ends[0], ends[batches - 1]
    counted = rows * (batches - 1)
    return {
        "form": name,
        "keys": keys,
        "rows": rows,
        "rows_a_second": round(counted / (end - begin)),
        "cpu_us_a_row": round((after.cpu_s - before.cpu_s) * 1e6 / counted, 2),
        "written_bytes_a_row": round((after.written_bytes - before.written_bytes) / counted, 1),
        "peak_mb": round(peak / 1e6),
        **outputs,
    }


def _watch(process: subprocess.Popen[bytes], marks: Path) -> tuple[list[tuple[float, Usage]], int]:
    """Return the time and usage at the end of each batch of a process, and its greatest memory."""
    ends: list[tuple[float, Usage]] = []
    latest, peak, looked = Usage(), 0, 0.0
    deadline = time.monotonic() + TIMEOUT_S
    has_ended = False
    while not has_ended:
        has_ended = process.poll() is not None  # asked first, so that the last marks are seen
        if time.monotonic() > deadline:
            process.kill()
        while (marks / str(len(ends))).exists():
            if not has_ended:
                latest = usage(process.pid)
            ends.append((time.monotonic(), latest))
        if time.monotonic() - looked > 0.5 and not has_ended:
            latest, looked = usage(process.pid), time.monotonic()
            peak = max(peak, latest.resident_bytes)
        time.sleep(0.003)
    return ends, peak


def measure(names: list[str], keys: int, per_key: list[int], batches: int, turns: int) -> dict[str, Any]:
    """Compare the outputs of the forms in a small job, and measure each in turns.

    Args:
        names: forms, as `FORMS` names them.
        keys: the number of keys; slow forms get fewer.
        per_key: rows of a key in a batch; each number is measured by itself.
        batches: the number of batches of a job, of which the first does not count.
        turns: how often each is measured; 0 compares outputs alone.
    """
    outputs, failed, runs = {}, {}, []

    def attempted(name: str, *size: int, collect: bool = False) -> dict[str, Any] | None:
        """Return the figures of a job, or keep the reason for which it failed: the others go on."""
        try:
            return run(name, *size, collect=collect)
        except RuntimeError as error:
            failed[name] = str(error)
            print(error, file=sys.stderr, flush=True)
            return None

    for name in names:
        if (found := attempted(name, 100, 500, 2, collect=True)) is not None:
            outputs[name] = found["outputs"]
    for turn in range(turns):
        for each in per_key:
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                used = min(keys, FORMS[name].max_rows // each)
                if name in failed or (found := attempted(name, used, used * each, batches)) is None:
                    continue
                runs.append({**found, "rows_a_key": each})
                print(json.dumps(runs[-1]), flush=True)
    return {
        "load": os.getloadavg(),
        "outputs": outputs,
        "failed": failed,
        "outputs_equal": len({tuple(found.values()) for found in outputs.values()}) == 1,
        "runs": medians(runs),
    }


def medians(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a form's runs of one size as one, with the median of each figure."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for found in runs:
        groups.setdefault((found["form"], found["rows_a_key"]), []).append(found)
    return [
        {
            name: statistics.median(found[name] for found in group) if name != "form" else group[0][name]
            for name in group[0]
        }
        | {"turns": len(group)}
        for group in groups.values()
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if outputs differ or a job failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines.side_by_side")
    parser.add_argument("--json", type=Path, required=True, metavar="OUT", help="file for the result")
    parser.add_argument("--quick", action="store_true", help="compare outputs alone, on Spark")
    parser.add_argument("--engines", help="forms to run, with commas (default: all that are installed)")
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--rows-per-key", default="2,20", help="several with commas")
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--turns", type=int, default=1)
    asked = parser.parse_args(arguments)
    present = [name for name, form in FORMS.items() if Path(form.python()).exists()]
    names = asked.engines.split(",") if asked.engines else present
    if asked.quick:
        names = [name for name in names if FORMS[name].environment is None]
        result = measure(names, 100, [5], 2, 0)
    else:
        per_key = [int(number) for number in asked.rows_per_key.split(",")]
        result = measure(names, asked.keys, per_key, asked.batches, asked.turns)
    asked.json.write_text(json.dumps(result, indent=1))
    if not result["outputs_equal"]:
        print(f"outputs differ: {result['outputs']}", file=sys.stderr)
    return 0 if result["outputs_equal"] and not result["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
