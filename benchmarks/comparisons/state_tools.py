"""Measure the tools on state: beside Spark's own repartition, alone, and as jobs of one and two executors.

    python -m benchmarks.comparisons.state_tools [--quick] [--rows N] [--row-bytes N] [--partitions N]
        [--turns N] [--tools ...] [--without-spark] [--json OUT]

A query makes the same state of eight partitions in this store and in Spark's RocksDB store. In turns each
tool then does its work in a process of its own, and Spark's `StreamingCheckpointManager.repartition` (Spark
4.3) does its in the JVM of the session, which is warm, into twice as many partitions. At last each tool
runs as a job on a cluster of one executor and of two: twice on the state of a thousand rows, so that Spark's
JVM and its Python workers are there, then on the large one. Numbers of rows are compared.

An executor of one core has one core: its JVM, its Python workers and all that these start are pinned to it,
and no other executor is, if the machine has as many. Without that the JVM of a single executor and its worker
run side by side on two cores, and a second executor finds half of the machine taken. The driver is not
pinned. So on two cores it has one for itself beside one executor, and none beside two.

Times are CPU times, with those of children, the least of the turns: other programs may be busy. From the time
of a tool that of the same tool on a state of a thousand rows is taken off (`million_s`), and what
`state_store.estimate` predicts is divided by it (`estimated`; of `import` that is meant for a job); both are
null if too much of the time is the start. The gain of a second executor is the CPU time of the only one over
that of the busier of two. An executor whose core others use takes fewer tasks, so that the other is busier
than if nothing else ran: `gain_if_even` takes half the CPU time of both in its place. `gain_in_time` is the
same of elapsed times, which count on a machine that does nothing else. So do `estimated_in_time`, the
predicted time of a job over the elapsed one, and `without_tasks_s`, the time in which the driver worked
alone. Memory is the peak of resident bytes, shared pages in parts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import state_store
from state_store.data.estimation.estimate import TOOLS, tool_times
from state_store.data.query import Query
from state_store.session.build import java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS, ROW_BYTES = 8, 32
QUICK_ROWS, ROWS, FEW_ROWS = 40_000, 1_000_000, 1_000
EXECUTORS = (1, 2)
_STATES = "org.apache.spark.sql.execution.streaming.state."
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_SPARKS = "Spark's repartition of RocksDB"
_SAMPLED_S = 0.2
_PAUSES = 20
"""Samples of memory take at most a part like this of the time: the kernel looks at each page for them."""

_MIN_NET_SHARE = 0.3
"""The share of a tool's CPU time, without its start, below which the rows are too few to tell their time."""

_TICKS = os.sysconf("SC_CLK_TCK")


def _migrated(checkpoint: str, target: str, spark: Any) -> int:
    return state_store.migrate(checkpoint, target, "incremental", threads=1, memory="512m", spark=spark).rows


def _filled(checkpoint: str, target: str, spark: Any) -> int:
    return state_store.import_state(checkpoint, f"{checkpoint}-exported", target, spark=spark).rows


def _partitions(checkpoint: str) -> int:
    return len(Query.open(checkpoint).stores())


WORK: dict[str, Callable[[str, str, Any], int]] = {
    "repartition": lambda own, target, spark: (
        state_store.repartition(own, target, 2 * _partitions(own), spark=spark).rows
    ),
    "import": _filled,
    "verify": lambda own, _, spark: sum(
        verdict.keys for verdict in state_store.verify(own, stores=1, spark=spark).verdicts
    ),
    "export": lambda own, target, spark: state_store.export(own, target, spark=spark),
    "full": lambda own, _, spark: sum(
        store.keys for store in state_store.full_checkpoint(own, stores=1, spark=spark).made
    ),
    "migrate": _migrated,
}
"""Each tool: does its work on a checkpoint, into a directory, and returns the number of rows."""

_IN_PLACE = ("full",)
"""Tools that write into the checkpoint: they get a copy of it, in place of the directory."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS} rows and one turn")
    parser.add_argument("--rows", type=int, help=f"rows of the state; default: {ROWS}")
    parser.add_argument(
        "--row-bytes", type=int, default=ROW_BYTES, help="text in each row; default: %(default)s"
    )
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="default: %(default)s")
    parser.add_argument("--turns", type=int, help="turns of each tool; default: 3")
    parser.add_argument("--tools", nargs="+", choices=list(WORK), default=list(WORK), help="only these tools")
    parser.add_argument("--without-spark", action="store_true", help="leave Spark's repartition out")
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--of", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.of:
        _work(*options.of)
        return
    rows = options.rows or (QUICK_ROWS if options.quick else ROWS)
    with tempfile.TemporaryDirectory(prefix="state-store-tools-") as root:
        state = State(Path(root), rows, options.row_bytes, options.partitions)
        turns = options.turns or (1 if options.quick else 3)
        result = {"tools": measured(state, turns, options.tools, beside_spark=not options.without_spark)}
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2), encoding="utf-8")


@dataclass(frozen=True)
class State:
    """The state that is measured, below `root`: rows with a text of that many bytes each."""

    root: Path
    rows: int
    row_bytes: int = ROW_BYTES
    partitions: int = PARTITIONS


def measured(state: State, turns: int, tools: Sequence[str], *, beside_spark: bool = True) -> dict[str, Any]:
    """Return what the tools take alone and as jobs, and their ratios to Spark's repartition."""
    beside_spark = beside_spark and "repartition" in tools
    root, rows = state.root, state.rows
    few, own, sparks = root / "few", root / "own", root / "rocksdb"
    spark = _session("local[2]", provider=True)
    spark.conf.set("spark.sql.shuffle.partitions", state.partitions)
    try:
        _make(spark, few, replace(state, rows=FEW_ROWS), spark.conf.get(_PROVIDER))
        _make(spark, own, state, spark.conf.get(_PROVIDER))
        if beside_spark:
            _make(spark, sparks, state, f"{_STATES}RocksDBStateStoreProvider")
        if "import" in tools:
            for checkpoint in (few, own):
                state_store.export(checkpoint, f"{checkpoint}-exported")
        alone: dict[str, list[tuple[float, int]]] = {name: [] for name in tools}
        starts: dict[str, list[float]] = {name: [] for name in tools}
        theirs: list[float] = []
        for turn in range(turns):
            for name in tools:
                starts[name].append(_in_process(name, few, FEW_ROWS)[0])
                alone[name].append(_in_process(name, own, rows))
            if beside_spark:
                copy = Path(shutil.copytree(sparks, root / f"sparks-{turn}"))
                theirs.append(_of_spark(spark, copy, 2 * state.partitions))
    finally:
        spark.stop()
    files = sum(path.stat().st_size for path in (own / "state").rglob("*.sst"))
    predicted = {tool.name: tool.cpu_s(rows, files / rows) for tool in TOOLS}
    jobs = {executors: _as_jobs(few, own, rows, executors, tools, turns) for executors in EXECUTORS}
    single, double = (jobs[executors] for executors in EXECUTORS)
    figures: dict[str, Any] = {
        "rows": rows,
        "bytes": files,
        "partitions": state.partitions,
        "cores_of_executors": [_core_of(executor) for executor in range(max(EXECUTORS))],
        "tools": {},
    }
    for name in tools:
        cpu_s = min(seconds for seconds, _ in alone[name])
        for executors in EXECUTORS:
            job = jobs[executors][name]
            job.update(_net(job["cpu_s"], job.pop("start_s"), rows, predicted[name]))
            times = tool_times(rows, files / rows, state.partitions, executors)
            time_s = next(tool.time_s for tool in times if tool.name == name)
            job["estimated_in_time"] = round(time_s / job["elapsed_s"], 2)
        figures["tools"][name] = {
            "cpu_s": round(cpu_s, 2),
            **_net(cpu_s, min(starts[name]), rows, predicted[name]),
            "peak_bytes": max(peak for _, peak in alone[name]),
            "one_executor": single[name],
            "two_executors": double[name],
            "gain_of_second": round(single[name]["busiest_cpu_s"] / double[name]["busiest_cpu_s"], 2),
            "gain_if_even": round(max(EXECUTORS) * single[name]["cpu_s"] / double[name]["cpu_s"], 2),
            "gain_in_time": round(single[name]["elapsed_s"] / double[name]["elapsed_s"], 2),
        }
    if theirs:
        figures[_SPARKS] = {
            "cpu_s": round(min(theirs), 2),
            "times_ours": round(min(theirs) / figures["tools"]["repartition"]["cpu_s"], 2),
        }
    return figures


def _net(cpu_s: float, start_s: float, rows: int, predicted_s: float) -> dict[str, float | None]:
    """Return the seconds of CPU for a million rows without the start, and the prediction as a multiple."""
    net_s = cpu_s - start_s
    if net_s <= _MIN_NET_SHARE * cpu_s:
        return {"million_s": None, "estimated": None}
    return {
        "million_s": round(net_s / (rows - FEW_ROWS) * 1e6, 2),
        "estimated": round(predicted_s / net_s, 2),
    }


def _in_process(name: str, checkpoint: Path, rows: int) -> tuple[float, int]:
    """Let a tool work in a process of its own; return its CPU seconds and its peak of resident bytes."""
    target = checkpoint.parent / "target"
    source = _source(name, checkpoint, target)
    command = [sys.executable, "-m", "benchmarks.comparisons.state_tools", "--of", name]
    process = subprocess.Popen([*command, str(source), str(target), str(rows)], cwd=_CHECKOUT)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{name} ended with {process.returncode}")
    shutil.rmtree(target, ignore_errors=True)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10


_CHECKOUT = Path(__file__).resolve().parents[2]


def _source(name: str, checkpoint: Path, target: Path) -> Path:
    """Return the checkpoint that a tool gets: its own, or a copy in the place of the directory."""
    return Path(shutil.copytree(checkpoint, target)) if name in _IN_PLACE else checkpoint


def _work(name: str, checkpoint: str, target: str, rows: str) -> None:
    count = WORK[name](checkpoint, target, None)
    if count != int(rows):
        raise SystemExit(f"{name} found {count} rows of {rows}")


def _of_spark(spark: SparkSession, checkpoint: Path, partitions: int) -> float:
    """Let Spark repartition its store; return the CPU seconds of the session's JVM."""
    process = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    began_s = _cpu_s(int(process))
    spark._jsparkSession.sessionState().streamingCheckpointManager().repartition(  # type: ignore[operator]
        str(checkpoint), partitions, False
    )
    taken_s = _cpu_s(int(process)) - began_s
    shutil.rmtree(checkpoint)
    return taken_s


def _as_jobs(
    few: Path, own: Path, rows: int, executors: int, tools: Sequence[str], turns: int
) -> dict[str, Any]:
    """Let tools work as jobs of a cluster; return the times and the memory of its executors.

    Times are the least of the turns, and so are those of the same job on few rows (`start_s`); of memory the
    most counts.
    """
    spark = _session(f"local-cluster[{executors},1,512]", provider=False, java_home=_pinned_java(few.parent))
    try:
        figures = {}
        for name in tools:
            _job(name, few, FEW_ROWS, executors, spark)
            starts = [_job(name, few, FEW_ROWS, executors, spark) for _ in range(turns)]
            jobs = [_job(name, own, rows, executors, spark) for _ in range(turns)]
            best = min(jobs, key=lambda job: job["elapsed_s"])
            figures[name] = {
                **best,
                **{key: min(job[key] for job in jobs) for key in best if key.endswith("cpu_s")},
                **{key: max(job[key] for job in jobs) for key in best if key.startswith("peak_")},
                "start_s": min(start["cpu_s"] for start in starts),
            }
        return figures
    finally:
        spark.stop()


def _job(name: str, checkpoint: Path, rows: int, executors: int, spark: SparkSession) -> dict[str, Any]:
    """Let a tool work as a job, and return its times, and the CPU seconds and the memory of the executors."""
    target = checkpoint.parent / f"job-{name}"
    source = _source(name, checkpoint, target)
    watched = _Executors(executors)
    before = {job.jobId() for job in _jobs(spark)}
    with watched.watched():
        began_s = time.time()
        counted = WORK[name](str(source), str(target), spark)
        elapsed_s = time.time() - began_s
    if counted != rows:
        raise SystemExit(f"{name} found {counted} rows of {rows}")
    shutil.rmtree(target, ignore_errors=True)
    tasks = _tasks(spark, before)
    return {
        "elapsed_s": round(elapsed_s, 2),
        "without_tasks_s": round(elapsed_s - _covered_s(tasks), 2),
        "tasks_by_executor": sorted(Counter(executor for executor, _, _ in tasks).values()),
        **watched.result(),
    }


def _jobs(spark: SparkSession) -> list[Any]:
    """Return the jobs of a session, as Spark's status store has them after all events so far."""
    context: Any = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()
    jobs = context._jsc.sc().statusStore().jobsList(None)
    return [jobs.apply(number) for number in range(jobs.size())]


def _tasks(spark: SparkSession, before: set[int]) -> list[tuple[str, float, float]]:
    """Return the tasks of a session's jobs but those before: executor, and when it began and ended, in s."""
    context: Any = spark.sparkContext
    store = context._jsc.sc().statusStore()
    tasks = []
    for job in _jobs(spark):
        stages = job.stageIds() if job.jobId() not in before else None
        for number in range(stages.size()) if stages is not None else ():
            of_stage = store.taskList(stages.apply(number), 0, 1 << 20)
            for task in map(of_stage.apply, range(of_stage.size())):
                began_s = task.launchTime().getTime() / 1000
                tasks.append((task.executorId(), began_s, began_s + task.duration().get() / 1000))
    return tasks


def _covered_s(tasks: Sequence[tuple[str, float, float]]) -> float:
    """Return the seconds in which a task ran."""
    covered_s = ended_s = 0.0
    for _, began_s, end_s in sorted(tasks, key=lambda task: task[1]):
        covered_s += max(0.0, end_s - max(began_s, ended_s))
        ended_s = max(ended_s, end_s)
    return covered_s


def _core_of(executor: int) -> int:
    """Return the core that an executor gets of those that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[executor % len(cores)]


def _pinned_java(root: Path) -> Path:
    """Return the home of a Java below a directory that pins an executor, by its number, to its core.

    What an executor starts has the home of the real Java, and its core.
    """
    home = root / "java-of-executors"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    real = Path(java()).resolve()
    cores = [_core_of(executor) for executor in range(max(EXECUTORS))]
    program.write_text(_PINNED.format(python=sys.executable, real=str(real), cores=cores), encoding="utf-8")
    program.chmod(0o755)
    return home


_PINNED = """\
#!/bin/sh
''':'
exec "{python}" "$0" "$@"
'''
import os, sys
real, cores, words = {real!r}, {cores}, sys.argv[1:]
if "--executor-id" in words:
    os.sched_setaffinity(0, [cores[int(words[words.index("--executor-id") + 1]) % len(cores)]])
os.environ["JAVA_HOME"] = os.path.dirname(os.path.dirname(real))
os.execv(real, [real, *words])
"""
"""A program of Python that the shell starts: the first line of a script cannot name a path with a blank."""


class _Executors:
    """The CPU time and the memory of the executors that this process has started, while a job runs."""

    def __init__(self, count: int) -> None:
        self._trees = [
            process
            for process in _descendants(os.getpid())
            if "CoarseGrainedExecutorBackend" in _words(process)
        ]
        if len(self._trees) != count:
            raise SystemExit(f"there are {len(self._trees)} executors in place of {count}")
        self._began_s = [_tree_cpu_s(process) for process in self._trees]
        self._taken_s: list[float] = []
        self._peaks: dict[str, int] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the executors during the body."""
        ended = threading.Event()

        def sample() -> None:
            pause_s = _SAMPLED_S
            while not ended.wait(pause_s):
                began_s = time.monotonic()
                for process in self._trees:
                    memory = [_memory(each) for each in (process, *_descendants(process))]
                    for kind in ("", "anonymous_"):
                        self._add(f"peak_{kind}bytes", sum(sizes[kind] for sizes in memory))
                        self._add(f"peak_python_{kind}bytes", sum(sizes[kind] for sizes in memory[1:]))
                pause_s = max(_SAMPLED_S, _PAUSES * (time.monotonic() - began_s))

        sampling = threading.Thread(target=sample)
        sampling.start()
        try:
            yield
        finally:
            ended.set()
            sampling.join()
        self._taken_s = [
            _tree_cpu_s(process) - began_s
            for process, began_s in zip(self._trees, self._began_s, strict=True)
        ]

    def _add(self, name: str, size_bytes: int) -> None:
        self._peaks[name] = max(self._peaks.get(name, 0), size_bytes)

    def result(self) -> dict[str, Any]:
        """Return the CPU seconds of all executors and of the busiest, and the largest peaks of memory."""
        return {
            "cpu_s": round(sum(self._taken_s), 2),
            "busiest_cpu_s": round(max(self._taken_s), 2),
            **self._peaks,
        }


def _descendants(process: int) -> list[int]:
    """Return the children of a process, and theirs."""
    descendants: list[int] = []
    todo = [process]
    while todo:
        for task in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            try:
                children = [int(word) for word in task.read_text().split()]
            except OSError:
                continue
            descendants += children
            todo += children
    return descendants


def _words(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def _tree_cpu_s(process: int) -> float:
    """Return the CPU seconds of a process and of its descendants, those included that have ended."""
    return sum(_cpu_s(each) for each in (process, *_descendants(process)))


def _cpu_s(process: int) -> float:
    """Return the CPU seconds of a process and of its children that have ended; 0 if it has itself."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS


def _memory(process: int) -> dict[str, int]:
    """Return the resident bytes of a process, and those that are not pages of files.

    Of a page that several processes have each has a part.
    """
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        lines = []
    sizes = {name: int(size) << 10 for name, size, _ in (line.split() for line in lines)}
    return {"": sizes.get("Pss:", 0), "anonymous_": sizes.get("Pss_Anon:", 0)}


def _session(master: str, *, provider: bool, java_home: Path | None = None) -> SparkSession:
    """Return a session; `java_home` is that of executors, None: as of the driver."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_CHECKOUT), os.environ.get("PYTHONPATH", "")])
    session = (
        SparkSession.builder.master(master)
        .config(map=state_store.spark_conf() if provider else {})
        .config(map={} if java_home is None else {"spark.executorEnv.JAVA_HOME": str(java_home)})
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.executor.memory", "512m")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    if not provider:  # the executors are there, and their Python workers
        list(session.sparkContext.parallelize(range(8), 8).map(abs).collect())
    return session


def _make(spark: SparkSession, checkpoint: Path, state: State, provider: str | None) -> None:
    """Run a batch with as many keys as the state has rows, kept by a provider."""
    assert provider is not None
    spark.conf.set(_PROVIDER, provider)
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=state.rows, numPartitions=2)
    query = (
        _aggregated(source.load(), state.row_bytes)
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .outputMode("update")
        .trigger(processingTime="1 hour")
        .start()
    )
    while query.isActive and not (checkpoint / "commits" / "0").exists():
        query.awaitTermination(1)
    query.stop()


def _aggregated(source: DataFrame, row_bytes: int) -> DataFrame:
    from pyspark.sql import functions as F

    keyed = source.selectExpr("format_string('customer-%010d', value) as id", "value * 3 as amount")
    text = F.repeat(F.md5("id"), max(1, row_bytes // ROW_BYTES))
    return keyed.groupBy("id").agg(F.count("*"), F.sum("amount"), F.max(text))


if __name__ == "__main__":
    main()
