"""A year of flights: commits, merges, a full checkpoint, a killed process, a restart, an equal result.

    python examples/demo.py [--days N] [--store incremental|rocksdb|hdfs] [--keep DIRECTORY]

The query of flights.py runs in a process of its own, one file of flights a micro-batch. While it runs a full
checkpoint is forced from the command line. Then the process is killed with SIGKILL in the middle of a batch
and started again from its checkpoint. At the end the whole output is compared with flights_in_pandas.py.
It exits with 1 if they differ. Its files stay in build/demo until the next run.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import flights_in_pandas
import next_steps
import pandas as pd
import progress_lines

STORES = ("incremental", "rocksdb", "hdfs")
ROOT = Path(__file__).resolve().parent.parent / "build" / "demo"


@dataclass(frozen=True)
class Workplace:
    """The directories of one run of the demo."""

    root: Path

    @property
    def source(self) -> Path:
        return self.root / "flights"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def sink(self) -> Path:
        return self.root / "aircraft"

    @property
    def log(self) -> Path:
        return self.root / "spark.log"


def write_source(flights: pd.DataFrame, directory: Path, days: int) -> int:
    """Write `flights` as files of `days` days each, in the order of reading, and return their number."""
    directory.mkdir()
    part = (flights.departs.dt.normalize() - flights.departs.dt.normalize().min()).dt.days // days
    now = time.time()
    for number, (_, rows) in enumerate(flights.groupby(part)):
        file = directory / f"flights-{number:03}.parquet"
        rows.assign(departs=rows.departs.dt.tz_localize("UTC")).to_parquet(file, coerce_timestamps="us")
        os.utime(file, (now - 3600 + number, now - 3600 + number))
    return number + 1


class Job:
    """The query in a process group of its own; `lines` are what it reports, `kill` is SIGKILL to all."""

    def __init__(self, place: Workplace, store: str, *more: str) -> None:
        command = [sys.executable, str(Path(__file__).with_name("demo_job.py")), store]
        paths = [str(place.source), str(place.checkpoint), str(place.sink)]
        examples = str(Path(__file__).parent)
        python_path = os.pathsep.join(filter(None, [examples, os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": python_path}
        self._log = place.log.open("a", encoding="utf-8")
        self._process = subprocess.Popen(
            [*command, *paths, *more],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def lines(self) -> Iterator[dict]:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            if text.startswith("{"):
                line = json.loads(text)
                if "ui" in line:
                    print(f"The tab of checkpoints in Spark's UI, while it runs: {line['ui']}", flush=True)
                else:
                    yield line

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> int:
        code = self._process.wait()
        self._log.close()
        return code


def run_until_killed(place: Workplace, store: str, full_at: int, kill_at: int) -> int:
    """Run the query, force a full checkpoint after batch `full_at`, and kill it in a batch from `kill_at` on.

    Returns:
        The batch that was cut short: it is in the offset log and not in the commit log.
    """
    job = Job(place, store)
    try:
        for line in job.lines():
            print(progress_lines.batch(line), flush=True)
            if line["batchId"] == full_at and store == "incremental":
                force_full_checkpoint(place)
            if line["batchId"] >= kill_at - 1 and (cut := _kill_in_batch(job, place, line["batchId"] + 1)):
                return cut
    finally:
        job.kill()
        job.end()
    raise SystemExit(_failure(place, f"the query ended before batch {kill_at} could be interrupted"))


def _kill_in_batch(job: Job, place: Workplace, batch: int) -> int | None:
    started, committed = place.checkpoint / "offsets" / str(batch), place.checkpoint / "commits" / str(batch)
    deadline = time.monotonic() + 30
    while not started.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.25)
    if committed.exists():
        return None
    job.kill()
    return None if committed.exists() else batch


def run_to_the_end(place: Workplace, store: str) -> None:
    """Run the query from its checkpoint to the last file, then both functions side by side on the first."""
    job = Job(place, store, str(place.root / "side-by-side"))
    try:
        for line in job.lines():
            if "side_by_side" in line:
                print("\n" + progress_lines.side_by_side(line["side_by_side"]))
            else:
                print(progress_lines.batch(line), flush=True)
    except BaseException:
        job.kill()
        raise
    if code := job.end():
        raise SystemExit(_failure(place, f"the query failed with exit code {code}"))


def _failure(place: Workplace, message: str) -> str:
    lines = place.log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([*lines[-40:], f"{message}; above is the end of its log, {place.log}"])


def force_full_checkpoint(place: Workplace) -> None:
    print(f"\n$ state-store full {place.checkpoint}", flush=True)
    state_store_command("full", str(place.checkpoint))
    print()


def state_store_command(*arguments: str) -> None:
    """Run `state-store` as a user would; an error ends the demo."""
    code = subprocess.run([sys.executable, "-m", "state_store.cli", *arguments], check=False).returncode
    if code:
        raise SystemExit(f"state-store {' '.join(arguments)} failed with exit code {code}")


def written(sink: Path) -> pd.DataFrame:
    """Return the committed output: the files that the sink's log names, and no others of its directory."""
    files: set[str] = set()
    for entry in sorted((sink / "_spark_metadata").glob("[0-9]*")):
        actions = [json.loads(line) for line in entry.read_text(encoding="utf-8").splitlines()[1:]]
        files.update(action["path"] for action in actions if action["action"] == "add")
    parts = [pd.read_parquet(sink / Path(file).name) for file in sorted(files)]
    rows = pd.concat([part for part in parts if len(part)])
    return flights_in_pandas.in_order(rows.assign(at=rows["at"].dt.tz_localize(None)))


def compare(place: Workplace, flights: pd.DataFrame) -> None:
    """End the demo with 1 and the first differences if the output is not that of pandas."""
    expected, rows = flights_in_pandas.expected(flights), written(place.sink)
    if expected.equals(rows):
        print(f"\nequal: all {len(rows):,} rows are what plain pandas computes over the whole file")
        return
    print(f"\nDIFFERENT: {len(rows):,} rows written, {len(expected):,} expected; first differences:")
    both = rows.merge(expected, how="outer", indicator=True)
    print(both[both._merge != "both"].head(20).to_string())
    raise SystemExit(1)


def demo(place: Workplace, days: int, store: str, limit: int | None) -> None:
    began = time.monotonic()
    flights = flights_in_pandas.load()[:limit]
    batches = write_source(flights, place.source, days)
    print(f"{len(flights):,} flights in {batches} files of {days} days; all in {place.root}\n")
    print(progress_lines.HEAD)
    cut = run_until_killed(place, store, full_at=batches // 3, kill_at=batches // 2)
    print(f"\nkilled with SIGKILL in the middle of batch {cut}; starting again from {place.checkpoint}")
    print(f"{progress_lines.FIRST_IS_SLOW}\n")
    print(progress_lines.HEAD)
    run_to_the_end(place, store)
    compare(place, flights)
    if store == "incremental":
        print(f"\n$ state-store checkpoints {place.checkpoint}")
        state_store_command("checkpoints", str(place.checkpoint))
        print(f"\n{next_steps.text(place.checkpoint)}")
    print(f"\n{time.monotonic() - began:.0f} s in all. {progress_lines.WHERE_NEXT}")


@contextlib.contextmanager
def workplace(keep: Path | None) -> Iterator[Workplace]:
    """Return the given new directory, or an empty build/demo, which only one demo at a time may use."""
    if keep is not None:
        keep.mkdir(parents=True)
        yield Workplace(keep)
        return
    ROOT.parent.mkdir(exist_ok=True)
    with ROOT.with_name("demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"another demo runs in {ROOT}; --keep DIRECTORY takes another place") from None
        shutil.rmtree(ROOT, ignore_errors=True)
        ROOT.mkdir()
        yield Workplace(ROOT)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--days", type=int, default=24, help="days of flights in a micro-batch (default 24)")
    parser.add_argument("--store", choices=STORES, default="incremental", help="the state store to run on")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N flights of the year")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIRECTORY",
        help="work in this new directory (default: build/demo, emptied first)",
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    with workplace(arguments.keep) as place:
        demo(place, arguments.days, arguments.store, arguments.limit)


if __name__ == "__main__":
    main()
