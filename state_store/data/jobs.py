"""Work on many stores: in threads of this process, or as tasks of a Spark job. One interface for both.

`workers(spark)` chooses: without a session the threads of this process, with one its executors. So a tool has
one code path. Work on executors is pickled: what it captures has to be a value, or must say how it is made
again there, as `Query` does.

As a Spark job there is a task an item. The executors' Python needs this package, of the same version; the job
ships none of it. A task reports its progress and its failure through an accumulator, which Spark applies once
for each item, however often the task is repeated or run twice. An error that another attempt may not meet, of
the storage or of a local disk, fails the task, so that Spark tries again elsewhere; any other ends the job.
"""

from __future__ import annotations

import bisect
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, cast

from state_store import __version__
from state_store.core.files.transfer import parallel
from state_store.core.files.workspace import task_directory
from state_store.core.runtime import SYSTEM, Runtime, interruptible
from state_store.core.storage import Storage
from state_store.data.query import LISTED_AT_ONCE, Query, StoreKey
from state_store.data.query.arguments import shown
from state_store.data.query.progress import MeteredStorage, Progress
from state_store.data.rows.batches import gathered, of_bytes, parts
from state_store.errors import BusyError, ErrorFields, OptionError, StateStoreError, as_store_error, from_json

if TYPE_CHECKING:
    import pyarrow
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame

T = TypeVar("T")
R = TypeVar("R")

Otherwise = Callable[[T, StateStoreError], R]
"""Makes the result of an item on which work failed."""

_RETRIED = ("storage", "busy", "unknown")
"""Kinds of errors that another attempt may not meet."""

_PACKAGES = ("state_store", "rocksdict", "pyarrow", "numpy")
_ENDED_S = 30.0
"""Seconds for which the end of tasks that Spark has given up is waited for."""

_POLL_S = 0.05

_DESCRIPTION, _INTERRUPTS = "spark.job.description", "spark.job.interruptOnCancel"


Encode = Callable[["pyarrow.RecordBatch"], "Iterable[tuple[pyarrow.RecordBatch, Any]]"]
"""Makes rows of those of an Arrow batch, each with a numpy array of their partitions."""


class FrameRows(NamedTuple):
    """Rows that are made of those of a DataFrame: the columns that they have, and who makes them."""

    frame: DataFrame
    schema: pyarrow.Schema
    encode: Encode


class Workers(Protocol):
    """Threads or executors that do work on items. One run at a time."""

    @property
    def are_elsewhere(self) -> bool:
        """True if work is done in other processes, so that it must not share objects with its caller."""

    @property
    def parallelism(self) -> int:
        """The number of items from which on nobody is idle."""

    def run(
        self,
        work: Callable[[T, Progress | None], R],
        items: Sequence[T],
        *,
        at_once: int,
        meter: Progress | None = None,
        otherwise: Otherwise[T, R] | None = None,
    ) -> list[R]:
        """Do `work` on each item, and return the results in the order of the items.

        The first failure is raised, after the work that was begun has ended.

        Args:
            work: gets an item and a receiver of its progress; called by several threads or processes, and
                for an item perhaps more than once.
            items: the items.
            at_once: items that are worked on at a time in a process.
            meter: receives the progress.
            otherwise: returns the result of an item on which work fails in the end, or raises its failure.
                Without it every failure is raised.
        """


class Threads:
    """Threads of this process."""

    are_elsewhere = False
    parallelism = 1

    def __init__(self, runtime: Runtime = SYSTEM) -> None:
        self._runtime = runtime

    def run(
        self,
        work: Callable[[T, Progress | None], R],
        items: Sequence[T],
        *,
        at_once: int,
        meter: Progress | None = None,
        otherwise: Otherwise[T, R] | None = None,
    ) -> list[R]:
        """Do as `Workers.run` says. After a failure no further item is begun."""

        def of_item(item: T) -> R:
            try:
                return work(item, meter)
            except (StateStoreError, OSError) as error:
                if otherwise is None:
                    raise
                return otherwise(item, as_store_error(error))

        return parallel(at_once, of_item, items, runtime=self._runtime)


def workers(spark: Any, runtime: Runtime = SYSTEM) -> Workers:
    """Return the executors of a Spark session, or the threads of this process if `spark` is None.

    Raises:
        OptionError: `spark` is not a session of the classic API.
    """
    return Threads(runtime) if spark is None else SparkTasks.of(spark, runtime)


def on_stores(
    query: Query,
    keys: Sequence[StoreKey],
    work: Callable[[StoreKey, Storage, Progress | None], R],
    *,
    at_once: int = LISTED_AT_ONCE,
    meter: Progress | None = None,
    workers: Workers | None = None,
    otherwise: Otherwise[StoreKey, R] | None = None,
) -> list[R]:
    """Call `work` for every store and return the results in the order of `keys`.

    Args:
        query: the query.
        keys: the stores.
        work: gets a store, its storage, which is closed afterwards, and a receiver of its progress.
        at_once: stores that are worked on at a time in a process.
        meter: receives the bytes that `work` moves, and each store that is done.
        workers: who works; None: threads of this process.
        otherwise: as for `Workers.run`.
    """

    def of_store(key: StoreKey, meter: Progress | None) -> R:
        storage = query.storage(key)
        try:
            return work(key, storage if meter is None else meter.metered(storage), meter)
        finally:
            storage.close()
            if meter is not None:
                meter.store_done()

    return (workers or Threads()).run(of_store, keys, at_once=at_once, meter=meter, otherwise=otherwise)


class SparkTasks:
    """The executors of a Spark session."""

    are_elsewhere = True

    def __init__(self, context: SparkContext, runtime: Runtime) -> None:
        self._context = context
        self._runtime = runtime

    @classmethod
    def of(cls, spark: Any, runtime: Runtime) -> SparkTasks:
        """Return the executors of a session.

        Raises:
            OptionError: the object is not a session, or one of Spark Connect.
        """
        try:
            from pyspark import SparkContext

            context = spark.sparkContext
        except ImportError as error:
            raise OptionError("spark= needs the Python package pyspark", option="spark") from error
        except Exception as error:
            raise OptionError(
                f"spark is {shown(spark)}: a SparkSession of the classic API is needed, since Spark Connect "
                "runs no function for each store. Start the program by spark-submit",
                option="spark",
            ) from error
        if not isinstance(context, SparkContext):
            raise OptionError(f"spark is a SparkSession, not {shown(spark)}", option="spark")
        return cls(context, runtime)

    @property
    def parallelism(self) -> int:
        """The number of cores of the executors."""
        return int(self._context.defaultParallelism)

    def run(
        self,
        work: Callable[[T, Progress | None], R],
        items: Sequence[T],
        *,
        at_once: int,
        meter: Progress | None = None,
        otherwise: Otherwise[T, R] | None = None,
    ) -> list[R]:
        """Do as `Workers.run` says; Spark decides how many items are worked on at a time.

        Raises:
            OptionError: the executors' Python lacks this package, or has another version.
            BusyError: Spark gave the job up.
            StateStoreError: as `work` raises it.
        """
        if not items:
            return []
        context = self._context
        return self._run(
            lambda task: context.parallelize(items, len(items)).map(task), work, meter, otherwise
        )

    def run_on_rows(
        self,
        work: Callable[[tuple[int, Iterator[tuple[int, pyarrow.RecordBatch]]], Progress | None], R],
        tables: Sequence[FrameRows],
        partitions: int,
        meter: Progress | None = None,
    ) -> list[R]:
        """Do `work` on each partition of the rows of DataFrames, which Spark's shuffle brings there.

        Spark's JVM hands out the rows as Arrow batches. A Python worker makes other rows of them, and sends
        those of a partition as the bytes of a batch, which the JVM does not look into.

        Args:
            work: gets the number of a partition with an iterator over its rows, batches of them with the
                number of the table that they are of; and a receiver of its progress.
            tables: the DataFrames.
            partitions: the number of partitions.
            meter: receives the progress.

        Raises:
            OptionError: the DataFrames come from sessions with different options.
            StateStoreError: as `run`.
        """
        sessions = [copied_session(table.frame.sparkSession) for table in tables]
        options = _options_of(sessions)

        def of_task(task: Any) -> Any:
            batches = [
                _arrow_batches(table.frame, session) for table, session in zip(tables, sessions, strict=True)
            ]
            before = list(accumulate(rdd.getNumPartitions() for rdd, _ in batches))
            schemas = [schema for _, schema in batches]
            encoders = [table.encode for table in tables]
            row_schemas = [table.schema for table in tables]
            sources = before[-1]

            def to_pairs(source: int, blobs: Iterator[bytes]) -> Iterator[bytes]:
                table = bisect.bisect_right(before, source)
                frames_rows = (_batch_of(blob, schemas[table]) for blob in blobs)
                sent = _counted(partitions, source, _encoded(table, frames_rows, encoders[table]))
                for partition, rows in sent:
                    yield partition.to_bytes(_NUMBER_BYTES, "big")
                    yield _packed(*rows)

            def of_partition(number: int, blobs: Iterator[bytes]) -> Iterator[Any]:
                payloads = (_unpacked(blob, row_schemas) for blob in blobs)
                return iter([task((number, all_rows(payloads, number, sources)))])

            rows = self._context.union([rdd for rdd, _ in batches])
            return _shuffled(rows, to_pairs, partitions).mapPartitionsWithIndex(of_partition)

        return self._run(of_task, work, meter, options=options)

    def _run(
        self,
        of_task: Callable[[Any], Any],
        work: Callable[[Any, Progress | None], R],
        meter: Progress | None,
        otherwise: Otherwise[Any, R] | None = None,
        options: Mapping[str, str] = MappingProxyType({}),
    ) -> list[R]:
        """Return the results of a job: of the RDD that a function makes of what its tasks call.

        The job has the properties of the caller's thread, so it belongs to its group of jobs and its pool.
        `options` are further properties, in which Spark's expressions look for options of SQL.
        """
        context = self._context
        tag = f"state-store-{self._runtime.unique(4)}"
        reports = _Reports()
        reports.follow(meter, lambda: context.cancelJobsWithTag(tag))
        counted = context.accumulator([], reports)
        task = _Task(work, otherwise, counted, __version__, _attempts(context))

        of_thread = context._jsc.sc()
        callers = of_thread.getLocalProperties()

        def job() -> list[R | StateStoreError]:
            before, properties = of_thread.getLocalProperties(), callers.clone()
            for name, value in options.items():
                properties.setProperty(name, value)
            properties.setProperty(_INTERRUPTS, "true")
            if properties.getProperty(_DESCRIPTION) is None:
                properties.setProperty(_DESCRIPTION, "state-store")
            of_thread.setLocalProperties(properties)
            try:
                context.addJobTag(tag)
                return cast("list[R | StateStoreError]", of_task(task).collect())
            finally:
                of_thread.setLocalProperties(before)

        try:
            results = interruptible(job, lambda: context.cancelJobsWithTag(tag), runtime=self._runtime)
        except Exception as error:
            if reports.failure is None:
                raise _of_job(error) from error
        finally:
            self._wait(tag)
        if reports.failure is not None:
            raise from_json(reports.failure)
        done: list[R] = []
        for result in results:
            if isinstance(result, StateStoreError):  # the driver lost the report of its task
                raise result
            done.append(result)
        return done

    def _wait(self, tag: str) -> None:
        """Wait until no task of the job runs: a second copy of a task may still be at work."""
        tracker, by_tag = self._context.statusTracker(), self._context._jsc.sc().statusTracker()

        def is_at_work() -> bool:
            jobs = filter(None, map(tracker.getJobInfo, by_tag.getJobIdsForTag(tag)))
            stages = filter(None, (tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds))
            return any(stage.numActiveTasks for stage in stages)

        deadline_s = self._runtime.monotonic_s() + _ENDED_S
        while is_at_work() and self._runtime.monotonic_s() < deadline_s:
            self._runtime.sleep(_POLL_S)


_FAILED, _SENT = -1, -2
"""In the place of the number of a table: the rows are an error, or what a task has sent."""

_NUMBER_BYTES = 8
"""Bytes of a number before rows: so their columns begin at multiples of 8."""

_BATCH_ROWS_NAME = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BATCH_ROWS = 1024
"""Rows that Spark hands out at once: rows may be large, and its heap small."""

_FILE_PARTITIONS_NAME = "spark.sql.files.minPartitionNum"
_READING_TASKS = 4
"""Tasks for each core that read files: with one for each, the others wait for a core that others use.

A task still reads at least `spark.sql.files.openCostInBytes`, 4 MiB.
"""

_ENCODED_BYTES, _SENT_BYTES = 4 << 20, 16 << 20
"""Bytes of rows that are encoded at once, and that are put to their partitions at once."""


def reading_session(spark: Any) -> Any:
    """Return a copy of a session in which several tasks a core read files, unless an option says how many."""
    session = copied_session(spark)
    if session.conf.get(_FILE_PARTITIONS_NAME, None) is None:
        tasks = _READING_TASKS * session.sparkContext.defaultParallelism
        session.conf.set(_FILE_PARTITIONS_NAME, str(tasks))
    return session


def copied_session(spark: Any) -> Any:
    """Return a copy of a session, with its options, views and functions, for options of our own.

    A session belongs to its caller, whose other threads use it meanwhile. So does `RDD.toDF`, to which the
    constructor of PySpark's session would give the copy.
    """
    session = object.__new__(type(spark))
    vars(session).update({name: value for name, value in vars(spark).items() if name.startswith("_")})
    session._jsparkSession = spark._jsparkSession.cloneSession()
    return session


def _arrow_batches(frame: DataFrame, session: Any) -> tuple[RDD[bytes], pyarrow.Schema]:
    """Return the rows of a DataFrame as the bytes of Arrow batches of few rows, and their columns.

    PySpark has no public method for that: its own `mapInArrow` would start one more Python worker for a task,
    and give its rows back as objects of Java. A shuffle that the DataFrame has is run here.

    Args:
        frame: the DataFrame.
        session: a copy of its session, which gets options.
    """
    from pyspark.core.rdd import RDD
    from pyspark.serializers import NoOpSerializer

    bound = int(session.conf.get(_BATCH_ROWS_NAME))
    session.conf.set(_BATCH_ROWS_NAME, str(_BATCH_ROWS if bound <= 0 else min(bound, _BATCH_ROWS)))
    context: Any = session.sparkContext
    of_plan = context._jvm.org.apache.spark.sql.classic.Dataset.ofRows
    rows = type(frame)(of_plan(session._jsparkSession, frame._jdf.logicalPlan()), session)
    schema = rows.limit(0).toArrow().schema
    return RDD(rows._jdf.toArrowBatchRdd().toJavaRDD(), context, NoOpSerializer()), schema


def _options_of(sessions: Sequence[Any]) -> dict[str, str]:
    """Return the options of sessions, which must be the same: those of where rows are made.

    Spark's own jobs of SQL have them as properties, too: some functions and readers of files look for options
    where they run, such as for that of parsers of dates, and would take Spark's defaults.

    Raises:
        OptionError: an option differs.
    """
    first, *others = [
        {name: value for name, value in session.conf.getAll.items() if _is_of_tasks(name)}
        for session in sessions
    ]
    differing = sorted({name for other in others for name, _ in first.items() ^ other.items()})
    if differing:
        more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
        raise OptionError(
            f"the DataFrames come from sessions with different options ({differing[0]}{more}), and all tasks "
            "of a job have the same: set them alike, or make the DataFrames in one session",
            option="rows",
        )
    return first


def _is_of_tasks(name: str) -> bool:
    return name.startswith("spark.") and name not in (_BATCH_ROWS_NAME, _FILE_PARTITIONS_NAME)


def _shuffled(rdd: RDD[bytes], to_pairs: Any, partitions: int) -> RDD[bytes]:
    """Return the bytes that a function yields, in their partitions, as `RDD.partitionBy` does.

    That would hold hundreds of megabytes of rows before it sends them.

    Args:
        rdd: the items.
        to_pairs: gets the number of a partition and its items, and yields the number of the new partition,
            8 bytes, and the bytes that belong there, in turns.
        partitions: the number of new partitions.
    """
    from pyspark.core.rdd import RDD, portable_hash
    from pyspark.serializers import NoOpSerializer

    context = rdd.context
    sent = rdd.mapPartitionsWithIndex(to_pairs, preservesPartitioning=True)
    sent._bypass_serializer = True
    jvm: Any = context._jvm
    in_pairs = jvm.PairwiseRDD(sent._jrdd.rdd()).asJavaPairRDD()
    placed = in_pairs.partitionBy(jvm.PythonPartitioner(partitions, id(portable_hash)))
    return RDD(jvm.PythonRDD.valueOfPair(placed), context, NoOpSerializer())


def _batch_of(blob: bytes, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    import pyarrow

    return pyarrow.ipc.read_record_batch(pyarrow.py_buffer(blob), schema)


def _packed(table: int, rows: Any) -> bytes:
    """Return the rows of a table, or what comes in their place, as bytes."""
    content = json.dumps(rows).encode() if table < 0 else rows.serialize()
    return b"".join((table.to_bytes(_NUMBER_BYTES, "big", signed=True), content))


def _unpacked(blob: bytes, schemas: Sequence[pyarrow.Schema]) -> tuple[int, Any]:
    import pyarrow

    table = int.from_bytes(blob[:_NUMBER_BYTES], "big", signed=True)
    if table < 0:
        return table, json.loads(blob[_NUMBER_BYTES:])
    return table, pyarrow.ipc.read_record_batch(pyarrow.py_buffer(blob)[_NUMBER_BYTES:], schemas[table])


def _encoded(
    table: int, batches: Iterable[pyarrow.RecordBatch], encode: Encode
) -> Iterator[tuple[int, tuple[int, Any]]]:
    """Yield the encoded rows of batches by the number of their partition, with that of the table.

    A row that cannot be encoded travels as its error to the first task, which reports it: Spark would only
    say that it gave the job up.
    """
    import numpy

    waiting: list[tuple[pyarrow.RecordBatch, Any]] = []
    waiting_bytes = 0

    def sent() -> Iterator[tuple[int, tuple[int, Any]]]:
        if waiting:
            rows = gathered([rows for rows, _ in waiting])
            places = numpy.concatenate([places for _, places in waiting])
            waiting.clear()
            for partition, part in parts(rows, places):
                yield partition, (table, part)

    try:
        for batch in of_bytes(batches, _ENCODED_BYTES):
            for rows, places in encode(batch):
                waiting.append((rows, places))
                waiting_bytes += rows.nbytes
            if waiting_bytes >= _SENT_BYTES:
                yield from sent()
                waiting_bytes = 0
        yield from sent()
    except StateStoreError as error:
        yield 0, (_FAILED, [error.to_json()])


def _counted(
    partitions: int, source: int, pairs: Iterator[tuple[int, tuple[int, Any]]]
) -> Iterator[tuple[int, tuple[int, Any]]]:
    """Yield the rows of a task, and at the end to each partition how many it has sent there."""
    sent: Counter[int] = Counter()
    for partition, (table, rows) in pairs:
        sent[partition] += len(rows)
        yield partition, (table, rows)
    for partition in range(partitions):
        yield partition, (_SENT, [source, sent[partition]])


def all_rows(pairs: Iterator[tuple[int, Any]], partition: int, sources: int) -> Iterator[tuple[int, Any]]:
    """Yield the rows that came to a partition. Raises the error that came in their place.

    If the shuffle fails, Spark ends the rows as if there were no more, and fails the task when it has ended:
    what the task has written by then would be of a part of the rows.

    Raises:
        BusyError: not all rows came.
    """
    received, sent = 0, {}
    for table, rows in pairs:
        if table == _SENT:
            sent[rows[0]] = rows[1]
            continue
        if table == _FAILED:
            raise from_json(rows[0])
        received += len(rows)
        yield table, rows
    if len(sent) != sources or sum(sent.values()) != received:
        raise BusyError(
            f"{received} rows came to partition {partition} from {len(sent)} of {sources} tasks: Spark lost "
            "an executor that had rows of the others"
        )


class TaskProgress:
    """The progress of a task, which it reports when it ends."""

    def __init__(self) -> None:
        self.expected = self.done = self.stores = 0

    def expect(self, amount: int) -> None:
        """Note that work on a store begins and is going to move `amount` bytes or rows."""
        self.expected += amount

    def moved(self, amount: int) -> None:
        """Add to the bytes or rows that were moved."""
        self.done += amount

    def metered(self, storage: Storage) -> Storage:
        """Return `storage` with its transfers counted here."""
        return MeteredStorage(storage, self.moved)

    def store_done(self) -> None:
        """Note that one more store is done."""
        self.stores += 1


class _Task(Generic[T, R]):
    """The work of a task: pickled on the driver, called by a Python worker."""

    def __init__(
        self,
        work: Callable[[T, Progress | None], R],
        otherwise: Otherwise[T, R] | None,
        reports: Any,
        version: str,
        attempts: int,
    ) -> None:
        self._work = work
        self._otherwise = otherwise
        self._reports = reports
        self._version = version
        self._attempts = attempts

    def __call__(self, item: T) -> R | StateStoreError:
        """Do the work on an item; return a failure that no other attempt would undo."""
        progress = TaskProgress()
        try:
            if __version__ != self._version:
                raise OptionError(
                    f"an executor's Python has incremental-state-store {__version__}, the driver's has "
                    f"{self._version}: install the same on all machines",
                    option="spark",
                )
            with task_directory():
                result = self._done(item, progress)
        except (StateStoreError, OSError) as error:
            failure = as_store_error(error)
            if self._is_repeated(failure):
                raise
            self._reports.add([failure.to_json()])
            return failure
        self._reports.add([(progress.expected, progress.done, progress.stores)])
        return result

    def _done(self, item: T, progress: TaskProgress) -> R:
        try:
            return self._work(item, progress)
        except (StateStoreError, OSError) as error:
            failure = as_store_error(error)
            if self._otherwise is None or self._is_repeated(failure):
                raise
            return self._otherwise(item, failure)

    def _is_repeated(self, failure: StateStoreError) -> bool:
        """Return True if Spark is to try the task again."""
        return failure.kind in _RETRIED and _attempt() + 1 < self._attempts


class _Reports:
    """The accumulator's sum: on the driver it passes on what tasks add. Pickled without that."""

    def __init__(self) -> None:
        self.failure: ErrorFields | None = None
        """The first failure of a task."""
        self._meter: Any = None
        self._cancel: Callable[[], object] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()

    def follow(self, meter: Progress | None, cancel: Callable[[], object]) -> None:
        """Pass progress on to `meter` from now on, and call `cancel` after the first failure."""
        self._meter, self._cancel = meter, cancel

    def zero(self, _value: object) -> list[Any]:
        """Return the sum of nothing."""
        return []

    def addInPlace(self, total: list[Any], added: list[Any]) -> list[Any]:
        """Return the sum of two."""
        if self._cancel is None:  # in a task
            return total + added
        for report in added:
            if isinstance(report, dict):
                self._fail(report)
            elif self._meter is not None:
                self._report(*report)
        return total

    def _fail(self, failure: Any) -> None:
        if self.failure is None:
            self.failure = failure
            assert self._cancel is not None
            self._cancel()

    def _report(self, expected: int, done: int, stores: int) -> None:
        if expected:
            self._meter.expect(expected)
        if done and hasattr(self._meter, "moved"):
            self._meter.moved(done)
        for _ in range(stores):
            self._meter.store_done()


def _attempt() -> int:
    """Return how often Spark has tried this task before."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


def _attempts(context: SparkContext) -> int:
    """Return how often Spark tries a task before it gives the job up; a local master says it itself."""
    master = context.master or ""
    if master.startswith("local") and not master.startswith("local-cluster"):
        _, comma, failures = master.rstrip("]").partition(",")
        return int(failures) if comma else 1
    return int(context.getConf().get("spark.task.maxFailures", "4"))


def _of_job(error: Exception) -> StateStoreError:
    """Return what a failure of the job means."""
    text = str(error)
    lacking = next((name for name in _PACKAGES if f"No module named '{name}" in text), None)
    if lacking is not None:
        return OptionError(
            f"the Python of Spark's executors lacks the package '{lacking}': install "
            "incremental-state-store there as on the driver, or name another Python (spark.pyspark.python)",
            option="spark",
        )
    first = next((line for line in text.splitlines() if "Exception" in line or "Error" in line), text[:200])
    return BusyError(f"Spark gave the job up: {first.strip(': ')}")
