"""The checkpoint of a stopped query, written anew with another number of partitions.

The target gets Spark's logs with the new number of partitions, and the state of the version that Spark
committed last, each row in the partition in which Spark looks for its key. Older versions are not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from state_store.core.compat import zip
from state_store.core.runtime import SYSTEM, Runtime, ScratchDirectory
from state_store.core.storage import Storage, open_storage
from state_store.data.dataset.rewriting import copying
from state_store.data.dataset.rewriting.replacing import Replaced, Replacement
from state_store.data.dataset.rewriting.store_writer import (
    NoReceipts,
    Piece,
    Receipts,
    StoreWriter,
    WrittenStore,
    check_room,
    needed_bytes,
    pieces,
)
from state_store.data.jobs import SparkTasks, Workers, workers
from state_store.data.query import Operator, Progress, ProgressOption, Query, StoreKey, reporting
from state_store.data.query.arguments import Location, check_number, require_arrow
from state_store.data.query.targets import Stopped, new_checkpoint

if TYPE_CHECKING:
    import pyarrow

MAX_PARTITIONS = 100_000


@dataclass(frozen=True)
class Rewritten:
    """The result of writing a checkpoint.

    Attributes:
        version: the version of the state.
        rows: the number of Spark's rows in all stores.
        size_bytes: bytes of all files of the state.
    """

    version: int
    rows: int
    size_bytes: int


def repartition(
    checkpoint: Location,
    target: Location,
    partitions: int,
    *,
    spark: Any = None,
    progress: ProgressOption = None,
    runtime: Runtime = SYSTEM,
) -> Rewritten:
    """Write the checkpoint of a stopped query to another directory, with another number of partitions.

    Start the query with the new checkpoint directory, and never again with the old one. A batch that had
    begun is run again. Needs local disk in the directory of temporary files (`TMPDIR`) for the old and the
    new partitions of a group: with g, the greatest common divisor of both numbers, old partitions p, p + g,
    p + 2g, ... and the new ones of the same numbers. If it fails, nothing is left in the target; with `spark`
    the same call goes on with what is there.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        target: an empty directory, a path or a URI; with `spark` one that all machines share, or with a part
            of the same work.
        partitions: the new number, 1 to 100,000. An operator without grouping keys stays in one partition.
        spark: a SparkSession, whose executors then do the work, a task a group; None: this process.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.
        runtime: clocks and threads.

    Raises:
        MissingError: there is no state.
        ConflictError: the target is not empty, or the query has gone on meanwhile.
        OptionError: the number is below 1, or the target is inside of the checkpoint, or around it.
        FormatError: the partition of a key is not known.
        LocalDiskError: the disk of temporary files has too little room.
    """
    check_number("partitions", partitions, minimum=1, maximum=MAX_PARTITIONS)
    require_arrow()
    tasks = workers(spark, runtime)
    query = Query.open(checkpoint)
    operation = "repartition"
    if tasks.are_elsewhere:
        version = (query.committed_batch() or 0) + 1
        operation = f"repartition of version {version} into {partitions} partitions by Spark"
    with new_checkpoint(operation, query.location, target, goes_on=tasks.are_elsewhere) as (
        storage,
        location,
    ):
        return rewrite(
            query, storage, location, partitions, workers=tasks, progress=progress, runtime=runtime
        )


def rewrite(
    query: Query,
    storage: Storage,
    location: str,
    partitions: int | None,
    replacements: Sequence[Replacement] = (),
    *,
    workers: Workers,
    progress: ProgressOption = None,
    runtime: Runtime = SYSTEM,
) -> Rewritten:
    """Write the state of a stopped query, and Spark's logs, into the directory of a new checkpoint.

    Args:
        query: the query.
        storage: the directory, as `new_checkpoint` gives it.
        location: its path or URI.
        partitions: the number of partitions; None: as before.
        replacements: rows that take the place of rows of the query: DataFrames for executors, others for this
            process.
        workers: who write the stores, one piece at a time in a process.
        progress: as for `repartition`.
        runtime: clocks and threads.

    Raises:
        MissingError: there is no state.
        ConflictError: the query has gone on meanwhile.
        StateStoreError: as the files and the rows are.
    """
    batch = query.newest_batch()
    stopped = Stopped(query)
    source = open_storage(query.location)
    has_ids = any(version.checkpoint_id for version in query.committed().values())
    counts = {
        operator.id: operator.partitions if partitions is None or operator.is_in_one_partition else partitions
        for operator in query.operators
    }
    stores = sum(counts[operator.id] * len(operator.stores) for operator in query.operators)
    receipts = Receipts(location) if workers.are_elsewhere else NoReceipts(location)
    writing = _Writing(query, location, batch + 1, has_ids, receipts, workers, runtime)
    with stopped.during(), reporting(progress, "written", stores) as meter:
        stores_written = writing.all_stores(counts, replacements, meter)
        receipts.settle(stores_written.items())
    for operator in query.operators:
        count = None if operator.is_in_one_partition else partitions
        copying.copy_operator(source, storage, operator, count)
    conf = None if partitions is None else {copying.SHUFFLE_PARTITIONS: str(partitions)}
    ids = {
        str(operator.id): [
            [stores_written[StoreKey(operator.id, number, store)].checkpoint_id for store in operator.stores]
            for number in range(counts[operator.id])
        ]
        for operator in query.operators
    }
    copying.copy_logs(source, storage, batch, conf=conf, ids=ids if has_ids else None)
    return Rewritten(
        batch + 1,
        sum(store.rows for store in stores_written.values()),
        sum(store.size_bytes for store in stores_written.values()),
    )


@dataclass(frozen=True)
class _Writing:
    """The writing of all stores of a query into a new checkpoint."""

    query: Query
    location: str
    version: int
    has_ids: bool
    receipts: Receipts
    workers: Workers
    runtime: Runtime

    def all_stores(
        self, counts: Mapping[int, int], replacements: Sequence[Replacement], meter: Progress | None
    ) -> dict[StoreKey, WrittenStore]:
        """Write all stores, in `counts` partitions by operator."""
        stores: dict[StoreKey, WrittenStore] = {}
        if not replacements and not self.workers.are_elsewhere:
            self._check_room(counts)
        for operator in self.query.operators:
            of_operator = [new for new in replacements if new.view.operator.id == operator.id]
            writing = (
                self._of_frames if any(new.frame is not None for new in of_operator) else self._of_tables
            )
            stores.update(writing(operator, counts[operator.id], of_operator, meter))
        return stores

    def _of_tables(
        self, operator: Operator, count: int, given: Sequence[Replacement], meter: Progress | None
    ) -> dict[StoreKey, WrittenStore]:
        """Write the stores of an operator, a task a piece."""
        replaced: list[Replaced] = []
        write = self._writer(operator)
        with ScratchDirectory("state-store-") as root, ExitStack() as opened:
            for number, replacement in enumerate(given):
                directory = Path(root) / str(number)
                directory.mkdir()
                replaced.append(Replaced.of_all(replacement, count, directory))
                opened.callback(replaced[-1].close)
            results = self.workers.run(
                lambda piece, meter: write(piece, replaced, meter),
                self._pieces(operator, count),
                at_once=1,
                meter=meter,
            )
        return {key: store for stores in results for key, store in stores.items()}

    def _of_frames(
        self, operator: Operator, count: int, given: Sequence[Replacement], meter: Progress | None
    ) -> dict[StoreKey, WrittenStore]:
        """Write the stores of an operator with the rows of DataFrames, a task a partition."""
        assert isinstance(self.workers, SparkTasks)
        todo = [pieces(operator.id, store, count, count) for store in operator.stores]
        write = self._writer(operator)
        values = [replace(new, frame=None) for new in given]

        def write_all(
            partition: tuple[int, Iterator[tuple[int, list[Any]]]], meter: Progress | None
        ) -> dict[StoreKey, WrittenStore]:
            number, rows = partition
            done: dict[StoreKey, WrittenStore] = {}
            with ScratchDirectory("state-store-") as root, ExitStack() as opened:
                replaced = []
                for table, value in enumerate(values):
                    directory = Path(root) / str(table)
                    directory.mkdir()
                    replaced.append(Replaced(value, [number], directory))
                    opened.callback(replaced[-1].close)
                for table, pairs in rows:
                    replaced[table].add(number, pairs)
                for of_store in todo:
                    done.update(write(of_store[number], replaced, meter))
            return done

        tables = [
            (new.frame, partial(_encoded, value, count)) for new, value in zip(given, values, strict=True)
        ]
        results = self.workers.run_on_rows(write_all, tables, count, meter)
        return {key: store for pairs in results for key, store in pairs.items()}

    def _check_room(self, counts: Mapping[int, int]) -> None:
        """Raise LocalDiskError before anything is written if this machine's disk has too little room."""
        check_room(
            max(
                needed_bytes(self.query, operator, self._pieces(operator, counts[operator.id]), self.version)
                for operator in self.query.operators
            )
        )

    def _pieces(self, operator: Operator, count: int) -> list[Piece]:
        at_least = self.workers.parallelism
        return [
            piece
            for store, before in operator.stores.items()
            for piece in pieces(operator.id, store, before, count, at_least)
        ]

    def _writer(
        self, operator: Operator
    ) -> Callable[[Piece, Sequence[Replaced], Progress | None], dict[StoreKey, WrittenStore]]:
        """Return a function that writes a piece of an operator's store."""
        query, location, version, has_ids = self.query, self.location, self.version, self.has_ids
        receipts, runtime = self.receipts, self.runtime

        def write(
            piece: Piece, replaced: Sequence[Replaced], meter: Progress | None
        ) -> dict[StoreKey, WrittenStore]:
            writer = StoreWriter(query, operator, piece, location, version, has_ids, receipts, meter, runtime)
            stores = writer.write(replaced)
            return {StoreKey(operator.id, number, piece.store): store for number, store in stores.items()}

        return write


def _encoded(
    replacement: Replacement, partitions: int, batch: pyarrow.RecordBatch
) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
    return replacement.encoded(batch, partitions)
