"""A checkpoint written anew: as a copy on other storage, or with another number of partitions.

**A copy** has one version of all stores, and Spark's logs. The query may be running. Leases hold the files of
the version while they are copied. Each file is compared with its checksum on the way. A file that the target
already has is not copied again, so an interrupted copy can be continued. Spark's own files, which make a
directory of stores a query's checkpoint, are copied last.

**Repartitioning** is for a stopped query; most of its work may be done before the query stops (`beside`). The
target gets Spark's logs with the new number of partitions, and the state of the version that Spark committed
last, each row in the partition in which Spark looks for its key. Older versions are not copied.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from state_store.core.checkpoint.names import DELTA_DIRECTORY, SHARED_DIRECTORY
from state_store.core.checkpoint.stored_documents import COPY
from state_store.core.files.transfer import parallel
from state_store.core.runtime import SYSTEM, Runtime, ScratchDirectory
from state_store.core.storage import Storage, open_storage
from state_store.data.dataset.partitions import PinnedVersion
from state_store.data.dataset.rewriting.beside import Beside, is_beside, operation_beside
from state_store.data.dataset.rewriting.replacing import ENCODED_BYTES, Replaced, Replacement
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
from state_store.data.jobs import FrameRows, SparkTasks, Workers, workers
from state_store.data.query import (
    LISTED_AT_ONCE,
    Operator,
    Progress,
    ProgressOption,
    Query,
    StoreKey,
    reporting,
)
from state_store.data.query.arguments import (
    Location,
    absolute,
    check_number,
    checked_location,
    require_arrow,
)
from state_store.data.query.operators import relative_schema_file
from state_store.data.query.targets import Owner, Stopped, new_checkpoint
from state_store.data.rows.batches import within_bytes
from state_store.errors import ConflictError, DamagedError, MissingError

if TYPE_CHECKING:
    import pyarrow


_THREADS = 8

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"

_IDS = "stateUniqueIds"

MAX_PARTITIONS = 100_000


@dataclass(frozen=True)
class Copied:
    """The result of a copy.

    Attributes:
        version: the version that was copied.
        files: files of the state that were copied.
        size_bytes: bytes of these files.
        present: files that were in the target already.
    """

    version: int
    files: int
    size_bytes: int
    present: int


def copy(
    checkpoint: Location,
    target: Location,
    *,
    spark: Any = None,
    progress: ProgressOption = None,
    runtime: Runtime = SYSTEM,
) -> Copied:
    """Copy the version that Spark committed last, with Spark's logs. The query may run meanwhile.

    A query that is started on the copy continues from that version. If the copy is interrupted, the target is
    marked as incomplete, and the same call continues it. Any thread may call it.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        target: a directory, a path or a URI: empty, or with a part of the same copy; with `spark` one that
            all machines share.
        spark: a SparkSession, whose executors then copy, a task a store; None: this process.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.
        runtime: clocks and threads.

    Raises:
        MissingError: there is no state.
        ConflictError: the target has other files.
        OptionError: the target is inside of the checkpoint, or around it.
        DamagedError: a file does not match its checksum; the target stays incomplete.
        StorageError: as the storages raise it.
    """
    tasks = workers(spark, runtime)
    query = Query.open(checkpoint)
    batch = query.newest_batch()
    versions = query.committed()
    keys = query.stores()
    source = open_storage(query.location)
    entries = log_entries(source, batch, runtime=runtime)
    owner = Owner()

    def pin(key: StoreKey) -> PinnedVersion:
        return PinnedVersion(key, query.storage(key), batch + 1, versions[key], runtime=runtime)

    with (
        reporting(progress, "copied", len(keys)) as meter,
        new_checkpoint(COPY, query.location, target, goes_on=True, owner=owner) as (storage, location),
        ExitStack() as held,
    ):
        pins = dict(zip(keys, parallel(LISTED_AT_ONCE, pin, keys, runtime=runtime), strict=True))
        for pinned in pins.values():
            held.callback(pinned.release)
        shared = None if tasks.are_elsewhere else pins

        def copy_one(key: StoreKey, meter: Progress | None) -> Copied:
            owner.check_at(location)
            pinned = pin(key) if shared is None else shared[key]
            try:
                copied = _copy_store(pinned, f"{location}/{key.path}", meter, runtime)
            finally:
                if shared is None:
                    pinned.release()
            if meter is not None:
                meter.store_done()
            return copied

        copies = tasks.run(copy_one, keys, at_once=1, meter=meter)
        owner.check(storage, location)
        for operator in query.operators:
            copy_operator(source, storage, operator)
        copy_logs(source, storage, batch, entries=entries, runtime=runtime)
    return Copied(
        batch + 1,
        sum(copied.files for copied in copies),
        sum(copied.size_bytes for copied in copies),
        sum(copied.present for copied in copies),
    )


def _copy_store(pin: PinnedVersion, location: str, meter: Progress | None, runtime: Runtime) -> Copied:
    """Copy the files that a restore of the version needs, the archive of the snapshot last."""
    if pin.archive_error is not None:
        raise pin.archive_error
    target = open_storage(location)
    source = pin.storage if meter is None else meter.metered(pin.storage)
    if meter is not None:
        meter.expect(pin.size_bytes)
    try:
        present = _sizes(target)
        with ScratchDirectory("state-store-") as scratch:

            def copy_file(path: str) -> int | None:
                if path in present:
                    return None
                local = Path(scratch) / path.replace("/", "@")
                source.download(path, local)
                pin.check(path, local)
                size_bytes = local.stat().st_size
                with suppress(ConflictError):  # another copy of this task has just stored the same file
                    target.upload(local, path)
                local.unlink(missing_ok=True)
                return size_bytes

            sizes = parallel(_THREADS, copy_file, sorted(pin.paths), runtime=runtime)
            _compare(pin, _sizes(target), location)
            for path, archive in pin.archives.items():
                with suppress(ConflictError):
                    target.write(path, archive)
    finally:
        target.close()
    new = [size for size in sizes if size is not None]
    return Copied(pin.version.number, len(new), sum(new), len(sizes) - len(new))


def _sizes(storage: Storage) -> dict[str, int]:
    """Return the bytes of the SST files of a store by their paths."""
    return {
        f"{directory}/{entry.name}": entry.size_bytes
        for directory in (DELTA_DIRECTORY, SHARED_DIRECTORY)
        for entry in storage.list_files(directory)
    }


def _compare(pin: PinnedVersion, counts: Mapping[str, int], location: str) -> None:
    """Raise DamagedError if a copy lacks a file, or has one of another size."""
    for path in sorted(pin.paths):
        if counts.get(path) != pin.file_bytes(path):
            file = f"{location}/{path}"
            raise DamagedError(
                f"'{file}' has {counts.get(path, 0)} bytes, and what it is a copy of {pin.file_bytes(path)}: "
                "remove it, and copy again",
                file=file,
            )


def hadoop_uri(location: str) -> str:
    """Return a directory as Spark writes it: a path gets `file:` before it, a URI stays."""
    name = absolute(location)
    return f"file:{name}" if name.startswith("/") else name


def copy_operator(
    source: Storage, target: Storage, operator: Operator, partitions: int | None = None
) -> None:
    """Copy Spark's description of an operator: its schemas and its metadata.

    The metadata name the schemas' files in the target. Files that exist already stay.

    Args:
        source: the checkpoint.
        target: the new checkpoint.
        operator: the operator.
        partitions: the new number of partitions; None keeps it.
    """

    def patch(document: dict[str, Any]) -> None:
        for store in document["stateStoreInfo"]:
            if partitions is not None:
                store["numPartitions"] = partitions
            if "stateSchemaFilePaths" in store:
                store["stateSchemaFilePaths"] = [
                    f"{hadoop_uri(target.location)}/{relative_schema_file(path)}"
                    for path in store["stateSchemaFilePaths"]
                ]

    def patched(text: bytes) -> bytes:
        return _patched(text, patch)

    directory = f"state/{operator.id}"
    for path in (*_files(source, f"{directory}/_metadata"), *_files(source, f"{directory}/_stateSchema")):
        _copy(source, target, path, patched if path.startswith(f"{directory}/_metadata") else _same)
    for store in operator.stores:
        for path in _files(source, f"{StoreKey(operator.id, 0, store).path}/_metadata"):
            _copy(source, target, path, _same)


def log_entries(source: Storage, batch: int, *, runtime: Runtime) -> dict[str, bytes]:
    """Return the entries of Spark's logs up to a committed batch by path, and the offsets of the next batch.

    A query that runs removes them: it keeps those of 100 batches, which may take less time than a copy.

    Args:
        source: the checkpoint.
        batch: the batch.
        runtime: threads: a log has as many entries as versions are retained.

    Raises:
        MissingError: the query has removed the entries of the batch.
    """

    def entry(path: str) -> bytes | None:
        try:
            return source.read(path)
        except MissingError as error:
            if path not in last:
                return None
            raise MissingError(
                f"'{source.location}/{path}' is missing, without which no query goes on from batch {batch}: "
                "if this one runs, it has removed it meanwhile; try again",
                file=f"{source.location}/{path}",
            ) from error

    last = (f"offsets/{batch}", f"commits/{batch}")
    numbers = [number for number in _batches(source, "offsets") if number <= batch + 1 and number != batch]
    paths = [
        *(f"offsets/{number}" for number in numbers),
        *(f"commits/{number}" for number in _batches(source, "commits") if number < batch),
        *last,
    ]
    texts = zip(paths, parallel(_THREADS, entry, paths, runtime=runtime), strict=True)
    return {path: text for path, text in texts if text is not None}


def copy_logs(
    source: Storage,
    target: Storage,
    batch: int,
    *,
    entries: Mapping[str, bytes] | None = None,
    conf: Mapping[str, str] | None = None,
    ids: Mapping[str, Any] | None = None,
    checkpoint_format: int | None = None,
    runtime: Runtime = SYSTEM,
) -> None:
    """Copy Spark's logs up to a committed batch, and the offsets of the next batch if it has begun.

    The commit of the batch comes last: before it the target is not a query's checkpoint. Files that exist
    already stay.

    Args:
        source: the checkpoint.
        target: the new checkpoint.
        batch: the batch.
        entries: what `log_entries` returned; None: they are read now, of a query that has stopped.
        conf: new values of the pinned configuration.
        ids: new ids of the batch's versions.
        checkpoint_format: the format of the commit log in the target. It has no ids of other versions, and
            without `ids` none at all. None keeps the format.
        runtime: threads: a log has as many entries as versions are retained.
    """

    def of_offsets(text: bytes) -> bytes:
        if not conf:
            return text
        return _patched(text, lambda entry: entry.setdefault("conf", {}).update(conf))

    def of_commit(number: int, text: bytes) -> bytes:
        if checkpoint_format is not None:
            _, _, rest = text.partition(b"\n")
            text = b"v%d\n" % checkpoint_format + rest
            text = _patched(text, lambda entry: entry.pop(_IDS, None))
        if ids is None or number != batch:
            return text
        return _patched(text, lambda entry: entry.update({_IDS: ids}))

    for path in _files(source, "sources"):
        _copy(source, target, path, _same)
    if not source.exists("metadata"):
        raise MissingError(
            f"'{source.location}/metadata' is missing, without which Spark starts no query, neither there "
            'nor in a copy. Put it back from a copy of the checkpoint: it is a line, {"id":"..."}, with the '
            "id of the query, which the driver's log has",
            file=f"{source.location}/metadata",
        )
    _copy(source, target, "metadata", _same)
    if entries is None:
        entries = log_entries(source, batch, runtime=runtime)
    *others, last = entries.items()

    def write(entry: tuple[str, bytes]) -> None:
        path, text = entry
        log, _, number = path.partition("/")
        with suppress(ConflictError):
            target.write(path, of_offsets(text) if log == "offsets" else of_commit(int(number), text))

    parallel(_THREADS, write, others, runtime=runtime)
    write(last)


def _batches(storage: Storage, log: str) -> list[int]:
    return sorted(int(entry.name) for entry in storage.list_files(log) if entry.name.isdigit())


def _files(storage: Storage, directory: str) -> Iterator[str]:
    """Yield the files below a directory, without Hadoop's checksums."""
    for entry in storage.list_files(directory):
        if not entry.name.startswith("."):
            yield f"{directory}/{entry.name}"
    for name in storage.directories(directory):
        yield from _files(storage, f"{directory}/{name}")


def _copy(source: Storage, target: Storage, path: str, change: Callable[[bytes], bytes]) -> None:
    """Copy a file, unless Spark has removed it meanwhile or the target has it."""
    try:
        target.write(path, change(source.read(path)))
    except (ConflictError, MissingError):
        return


def _same(text: bytes) -> bytes:
    return text


def _patched(text: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return an entry of a log after `change` of its second line, which is JSON."""
    lines = text.decode("utf-8").split("\n")
    if len(lines) > 1 and lines[1].startswith("{"):
        document = json.loads(lines[1])
        change(document)
        lines[1] = _compact(document)
    return "\n".join(lines).encode()


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


@dataclass(frozen=True)
class Rewritten:
    """The result of writing a checkpoint.

    Attributes:
        version: the version of the state.
        rows: the number of Spark's rows in all stores.
        size_bytes: bytes of all files of the state.
        is_complete: False if the query runs on: another call ends the work when it has stopped.
    """

    version: int
    rows: int
    size_bytes: int
    is_complete: bool = True


def repartition(
    checkpoint: Location,
    target: Location,
    partitions: int,
    *,
    running: bool = False,
    spark: Any = None,
    progress: ProgressOption = None,
    runtime: Runtime = SYSTEM,
) -> Rewritten:
    """Write the checkpoint of a stopped query to another directory, with another number of partitions.

    Start the query with the new checkpoint directory, and never again with the old one. A batch that had
    begun is run again. Needs local disk in the directory of temporary files (`TMPDIR`) for the old and the
    new partitions of a group: with g, the greatest common divisor of both numbers, old partitions p, p + g,
    p + 2g, ... and the new ones of the same numbers. If it fails, nothing is left in the target; with `spark`
    or `running` the same call goes on with what is there.

    With `running` most of the work is done while the query runs. The target is incomplete then. Call it
    again, without `running`, when the query has stopped: that moves what has changed since, in a time that
    does not depend on the size of the state. Other calls with `running` may come between.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        target: an empty directory, a path or a URI; with `spark` one that all machines share. It may have a
            part of the same work, of a call with `spark` or `running`.
        partitions: the new number, 1 to 100,000. An operator without grouping keys stays in one partition.
        running: True for a query that runs on.
        spark: a SparkSession, whose executors then do the work, a task a group; None: this process.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.
        runtime: clocks and threads.

    Raises:
        MissingError: there is no state, or the query has run on since the last call with `running` for longer
            than it retains versions.
        ConflictError: the target is not empty, or the query has gone on meanwhile.
        OptionError: the number is below 1, or the target is inside of the checkpoint, or around it.
        FormatError: the partition of a key is not known.
        LocalDiskError: the disk of temporary files has too little room.
    """
    check_number("partitions", partitions, minimum=1, maximum=MAX_PARTITIONS)
    require_arrow()
    tasks = workers(spark, runtime)
    query = Query.open(checkpoint)
    operation, goes_on, ends = "repartition", tasks.are_elsewhere, True
    if running or is_beside(checked_location(target, "target"), query.location, partitions):
        operation, goes_on, ends = operation_beside(partitions), True, not running
    elif tasks.are_elsewhere:
        version = (query.committed_batch() or 0) + 1
        operation = f"repartition of version {version} into {partitions} partitions by Spark"
    owner = Owner()
    with new_checkpoint(operation, query.location, target, goes_on=goes_on, ends=ends, owner=owner) as (
        storage,
        location,
    ):
        if operation != operation_beside(partitions):
            return rewrite(
                query, storage, location, partitions, workers=tasks, progress=progress, runtime=runtime
            )
        work = Beside(query.location, storage, location, partitions, tasks, progress, owner, runtime)
        if not running:
            return _complete(query, work, storage, partitions, runtime)
        stores = work.run().values()
        return Rewritten(
            min(store.version for store in stores),
            sum(store.rows for store in stores),
            sum(store.size_bytes for store in stores),
            is_complete=False,
        )


def _complete(query: Query, work: Beside, storage: Storage, partitions: int, runtime: Runtime) -> Rewritten:
    """Bring a repartition beside a query that has stopped meanwhile to its end."""
    stopped = Stopped(query)
    batch = query.newest_batch()
    has_ids = _has_ids(query)
    with stopped.during():
        stores = work.finish(query, has_ids=has_ids)
    return _with_logs(query, storage, partitions, batch, stores, has_ids=has_ids, runtime=runtime)


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
    stopped = Stopped(query)  # first: a batch that ends between the two is noticed
    batch = query.newest_batch()
    has_ids = _has_ids(query)
    counts = {
        operator.id: operator.partitions if partitions is None or operator.is_in_one_partition else partitions
        for operator in query.operators
    }
    stores = sum(counts[operator.id] * len(operator.stores) for operator in query.operators)
    run = runtime.unique(4) if replacements else None  # its rows are those of this call alone
    receipts = Receipts(location, run=run) if workers.are_elsewhere else NoReceipts(location)
    receipts.begin()
    writing = _Writing(query, location, batch + 1, has_ids, receipts, workers, runtime)
    with stopped.during(), reporting(progress, "written", stores) as meter:
        stores_written = writing.all_stores(counts, replacements, meter)
        receipts.remove_orphans(stores_written.items(), runtime=runtime)
    return _with_logs(query, storage, partitions, batch, stores_written, has_ids=has_ids, runtime=runtime)


def _has_ids(query: Query) -> bool:
    """Return True if the query's commit log has ids of versions: checkpoint format 2."""
    return any(version.checkpoint_id for version in query.committed().values())


def _with_logs(
    query: Query,
    storage: Storage,
    partitions: int | None,
    batch: int,
    stores: Mapping[StoreKey, WrittenStore],
    *,
    has_ids: bool,
    runtime: Runtime,
) -> Rewritten:
    """Write Spark's descriptions and logs into a new checkpoint, all of whose stores are written."""
    source = open_storage(query.location)
    for operator in query.operators:
        count = None if operator.is_in_one_partition else partitions
        copy_operator(source, storage, operator, count)
    conf = None if partitions is None else {SHUFFLE_PARTITIONS: str(partitions)}
    ids = {
        str(operator.id): [
            [stores[StoreKey(operator.id, number, store)].checkpoint_id for store in operator.stores]
            for number in range(
                operator.partitions if partitions is None or operator.is_in_one_partition else partitions
            )
        ]
        for operator in query.operators
    }
    copy_logs(source, storage, batch, conf=conf, ids=ids if has_ids else None, runtime=runtime)
    return Rewritten(
        batch + 1,
        sum(store.rows for store in stores.values()),
        sum(store.size_bytes for store in stores.values()),
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
        self, operator: Operator, count: int, replacements: Sequence[Replacement], meter: Progress | None
    ) -> dict[StoreKey, WrittenStore]:
        """Write the stores of an operator, a task a piece."""
        replaced: list[Replaced] = []
        write = self._writer(operator)
        with ScratchDirectory("state-store-") as root, ExitStack() as opened:
            for number, replacement in enumerate(replacements):
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
        self, operator: Operator, count: int, replacements: Sequence[Replacement], meter: Progress | None
    ) -> dict[StoreKey, WrittenStore]:
        """Write the stores of an operator with the rows of DataFrames, a task a partition."""
        assert isinstance(self.workers, SparkTasks)
        todo = [pieces(operator.id, store, count, count) for store in operator.stores]
        write = self._writer(operator)
        values = [replace(new, frame=None) for new in replacements]

        def write_all(
            partition: tuple[int, Iterator[tuple[int, pyarrow.RecordBatch]]], meter: Progress | None
        ) -> dict[StoreKey, WrittenStore]:
            number, rows = partition
            done: dict[StoreKey, WrittenStore] = {}
            with ScratchDirectory("state-store-") as root, ExitStack() as opened:
                replaced = []
                for table, value in enumerate(values):
                    directory = Path(root) / str(table)
                    directory.mkdir()
                    replaced.append(Replaced(value, directory))
                    opened.callback(replaced[-1].close)
                for table, batch in rows:
                    replaced[table].add(batch, number)
                for of_store in todo:
                    done.update(write(of_store[number], replaced, meter))
            return done

        tables = [
            FrameRows(new.frame, value.schema, partial(_encoded, value, count))
            for new, value in zip(replacements, values, strict=True)
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
) -> Iterator[tuple[pyarrow.RecordBatch, Any]]:
    for part in within_bytes(batch, ENCODED_BYTES):
        yield replacement.encoded(part, partitions)
