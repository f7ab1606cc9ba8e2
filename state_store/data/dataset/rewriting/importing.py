"""Rows of tables as the state of a query that is stopped (`import_state`) or has never run (`bootstrap`).

For a query that has never run, Spark writes the parts that only Spark knows: the operators, their schemas,
the pinned configuration. It is given an offset log with a first batch that has no offset of any source, and
no commit of it. In format 1 of the log each source has a line (`-`), in format 2 none. A query that starts on
this log runs the batch over nothing, as it repeats a batch after a failure, and commits it: the state exists
and is empty, and no source has been read. The rows are then put in, and the next batch begins where the
sources begin.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage import Storage
from state_store.data.dataset.columns import Columns
from state_store.data.dataset.export import METADATA, SUCCESS, fetched_files, listed_names, local_path
from state_store.data.dataset.rewriting.copying import Rewritten, hadoop_uri, rewrite
from state_store.data.dataset.rewriting.replacing import ENCODED_BYTES, Replacement
from state_store.data.dataset.views import View, default_name, view, views
from state_store.data.jobs import reading_session, workers
from state_store.data.query import ProgressOption, Query
from state_store.data.query.arguments import Location, check_name, require_arrow
from state_store.data.query.targets import SCRATCH_PREFIX, new_checkpoint
from state_store.data.rows.batches import within_bytes
from state_store.errors import FormatError, MissingError, OptionError, StateStoreError, StorageError

if TYPE_CHECKING:
    import pyarrow

BATCH_ROWS = 1 << 16

_PARQUET = ".parquet"

_READING = {"mergeSchema": "true", "parquet.page.verify-checksum.enabled": "true"}
"""Options of Spark's reader of Parquet files."""

_TABLE_LOGS = {"_delta_log": "Delta table", ".hoodie": "Hudi table", "_spark_metadata": "file sink's output"}
"""Directories in a table that say which of its files count."""

_OTHER_NUMBER = re.compile(r"now there are \[(\d+)\] sources")
_NO_OFFSET = "-"
_NAMED_SOURCES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
_BY_NAME = "v2"
"""The format of an offset log that has the sources by their names, and says of each who reads it."""

Start = Callable[[Any], Any]


def import_state(
    checkpoint: Location,
    rows: Any,
    target: Location,
    operator: int = 0,
    store: str | None = None,
    *,
    spark: Any = None,
    progress: ProgressOption = None,
    runtime: Runtime = SYSTEM,
) -> Rewritten:
    """Write the checkpoint of a stopped query to another directory, with other rows as its state.

    Everything but the rows, such as the offsets of its sources, stays as it was. Start the query with the new
    checkpoint directory, and never again with the old one. Needs local disk for all rows in the directory of
    temporary files (`TMPDIR`). If it fails, nothing is left in the target. `bootstrap` makes the checkpoint
    of a query that has never run.

    Rows whose time to live was over when the last batch ran are left out. The columns `matched` of a join
    (default: false) and `timeoutTimestamp` (default: never) may be missing.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        rows: a Parquet file or a directory of such files (a path or a URI), or any object that gives Arrow
            batches (`__arrow_c_stream__`), with the columns of the state; `partition_id` does not count. Or a
            DataFrame of Spark, whose session's executors then write the stores, to a target that all machines
            share; not of lists, whose order it does not keep. Or a mapping from names of stores to such rows:
            several stores at once, such as both sides of a join. Stores without rows stay as they are.
        target: an empty directory, a path or a URI.
        operator: the number of the stateful operator in the query.
        store: the store that the rows are of. Default: as for `open`.
        spark: a SparkSession, whose executors then read Parquet files that all machines share, and write the
            stores as those of a DataFrame; None: this process. A column that some of the files lack is null
            there. Lists, whose order a DataFrame does not keep, are read by this process.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.
        runtime: clocks and threads.

    Raises:
        MissingError: there is no state, no such store, or a column is missing.
        ConflictError: the target is not empty, or the query has gone on meanwhile.
        OptionError: a column is unknown or has another type; a key comes twice (but in lists and in the sides
            of joins); a row with a time to live does not say when it expires; rows of a store follow from
            those of others; a file is not Parquet, or one of an export that is not whole.
    """
    require_arrow()
    query = Query.open(checkpoint)
    workers(spark)  # refuses what is not a session
    replacements = replacements_of(query, rows, operator, store, spark)
    with new_checkpoint("import", query.location, target) as (storage, location):
        return write_imported(query, replacements, storage, location, progress=progress, runtime=runtime)


def write_imported(
    query: Query,
    replacements: Sequence[Replacement],
    storage: Storage,
    location: str,
    *,
    progress: ProgressOption = None,
    runtime: Runtime = SYSTEM,
) -> Rewritten:
    """Write the query with other rows into the directory of a new checkpoint.

    The executors of the session that has the rows write them, if they are DataFrames; else this process.
    """
    frame = next((replacement.frame for replacement in replacements), None)
    writers = workers(None if frame is None else frame.sparkSession, runtime)
    return rewrite(
        query, storage, location, None, replacements, workers=writers, progress=progress, runtime=runtime
    )


def replacements_of(
    query: Query, rows: Any, operator: int, store: str | None, spark: Any = None
) -> list[Replacement]:
    """Return the new rows by store, before any row is read; Spark reads files if a session is given.

    Raises:
        MissingError: there is no such store or file.
        OptionError: the object has no rows, they are of a store whose rows follow from others, or `store` is
            no name.
    """
    check_name("store", store)
    batch = query.committed_batch()
    expired_ms = None if batch is None else query.logs.batch_ms(batch)
    if isinstance(rows, Mapping):
        if store is not None:
            raise OptionError(
                "rows by the names of stores and a store for them exclude each other", option="store"
            )
        rows_by_store = dict(rows)
    else:
        rows_by_store = {default_name(query, operator) if store is None else store: rows}
    chosen_views = {name: view(query, operator, name) for name in rows_by_store}
    if spark is not None and not any(target.is_list for target in chosen_views.values()):
        rows_by_store = {name: _by_spark(spark, table) for name, table in rows_by_store.items()}
    replacements = []
    for name, table in rows_by_store.items():
        target_view = chosen_views[name]
        others = views(query, target_view.operator)
        if is_data_frame(table):
            _check_columns(target_view, table.columns)
            replacements.append(Replacement(target_view, (), others, expired_ms, table))
        else:
            batches = _checked(target_view, _batches(table))
            replacements.append(Replacement(target_view, batches, others, expired_ms))
    if len({replacement.frame is None for replacement in replacements}) > 1:
        raise OptionError("rows are DataFrames of Spark or other tables, not both at once", option="rows")
    return replacements


def _by_spark(spark: Any, rows: Any) -> Any:
    """Return the DataFrame of Parquet files, checked as if this process read them; other rows as they are."""
    if not isinstance(rows, (str, os.PathLike)):
        return rows
    location = str(rows)
    path = local_path(location)
    if path is not None:
        _of_files(location)
        files = [str(file) for file in _local_tables(path)]
    else:
        names = listed_names(location)
        if names:
            _check_names(location, names)
        tables = _tables(names)
        looked_at = [*tables[:1], *(name for name in names if name == SUCCESS)]
        described, success = [], None
        for name, local in fetched_files(location, looked_at):  # each file of an export says what it has
            if name == SUCCESS:
                success = local.read_bytes()
            else:
                described.append(_read_metadata(local, f"{location}/{name}" if name else location))
        _check_whole(location, tables, described, success, is_directory=bool(names))
        files = [f"{location.rstrip('/')}/{name}" for name in tables] or [location]
    try:
        reader = reading_session(spark).read.options(**_READING)
        return reader.parquet(*map(hadoop_uri, files))
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise OptionError(f"Spark cannot read '{location}': {reason}", file=location) from error


def is_data_frame(rows: Any) -> bool:
    """Return True if an object is a DataFrame of Spark."""
    return hasattr(rows, "sparkSession") and hasattr(rows, "mapInArrow")


def _checked(view: View, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Yield the batches. Raises OptionError as `_check_columns`."""
    for batch in batches:
        _check_columns(view, batch.schema.names)
        yield batch


def _check_columns(view: View, names: Sequence[str]) -> None:
    """Raise OptionError for a column that is unknown or has a double."""
    column_names = [*Columns(view).schema.names]
    unknown = next((name for name in names if name not in column_names), None)
    if unknown is not None:
        close = difflib.get_close_matches(unknown.lower(), [name.lower() for name in column_names], 1, 0.6)
        similar = next((name for name in column_names if close and name.lower() == close[0]), None)
        hint = f"; is it '{similar}'?" if similar else "."
        raise OptionError(
            f"the rows have a column '{unknown}', which '{view.name}' does not have{hint} "
            f"Its columns are: {', '.join(column_names)}",
            option="rows",
        )
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise OptionError(f"the rows have two columns '{double}'", option="rows")


def _batches(rows: Any) -> Iterator[pyarrow.RecordBatch]:
    """Return the batches of a table. Raises OptionError or MissingError at once if it is not a table."""
    import pyarrow

    if isinstance(rows, (str, os.PathLike)):
        return _sliced(_of_files(str(rows)))
    if not hasattr(rows, "__arrow_c_stream__"):
        raise OptionError(
            "rows are a Parquet file, a directory of such files, or an Arrow table, not "
            f"{type(rows).__name__}",
            option="rows",
        )
    return _sliced(iter(pyarrow.RecordBatchReader.from_stream(rows)))


def _sliced(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    for batch in batches:
        yield from within_bytes(batch, ENCODED_BYTES)


def _of_files(location: str) -> Iterator[pyarrow.RecordBatch]:
    """Return the batches of Parquet files. Raises at once as `_checked_files`."""
    path = local_path(location)
    if path is None:
        names = listed_names(location)
        if names:
            _check_names(location, names)
        return _of_remote_files(location, names)
    if not path.exists():
        raise MissingError(f"there is no '{location}'", file=location)
    if path.is_dir():
        _check_names(location, _names_below(path))
    files = _local_tables(path)
    success = path / SUCCESS
    schema_metadata = [
        _read_metadata(file, f"{location}/{file.name}" if path.is_dir() else location) for file in files
    ]
    _check_whole(
        location,
        [file.name for file in files],
        schema_metadata,
        success.read_bytes() if success.is_file() else None,
        is_directory=path.is_dir(),
    )
    return _rows_of([(file, str(file)) for file in files])


def _names_below(path: Path) -> list[str]:
    """Return the names of all files below a directory.

    Raises:
        StorageError: A directory among them cannot be listed.
    """

    def refuse(error: OSError) -> None:
        raise StorageError(
            f"cannot list '{error.filename}', whose rows would be missing: {error.strerror}",
            file=str(error.filename),
        ) from error

    walked = os.walk(path, onerror=refuse, followlinks=True)  # Path.rglob leaves out what it cannot list
    return sorted(
        (Path(directory) / name).relative_to(path).as_posix()
        for directory, _, names in walked
        for name in names
    )


def _local_tables(path: Path) -> list[Path]:
    """Return the Parquet files of a directory, or the file itself."""
    return [path / name for name in _tables(_names_below(path))] if path.is_dir() else [path]


def _of_remote_files(location: str, names: list[str]) -> Iterator[pyarrow.RecordBatch]:
    descriptions = []
    success = None
    files = []
    for name, local in fetched_files(
        location, names and [*_tables(names), *(n for n in names if n == SUCCESS)]
    ):
        if name == SUCCESS:
            success = local.read_bytes()
            continue
        where = f"{location}/{name}" if name else location
        descriptions.append(_read_metadata(local, where))
        files.append(name)
        yield from _rows_of([(local, where)])
    _check_whole(location, files, descriptions, success, is_directory=bool(names))


def _tables(names: list[str]) -> list[str]:
    """Return the paths of Parquet files, without what Spark does not read either."""
    return [name for name in names if name.endswith(_PARQUET) and not _is_hidden(name)]


def _is_hidden(name: str) -> bool:
    """Return True for bookkeeping files and files in such directories (`_...` and `.`...), as to Spark."""
    return any(part[0] == "." or (part[0] == "_" and "=" not in part) for part in name.split("/"))


def _check_names(location: str, names: list[str]) -> None:
    """Raise an error for a directory without Parquet files, with other files, or with an unfinished write."""
    if any(name.startswith("_temporary/") for name in names):
        raise OptionError(f"'{location}' has a write that is not finished: '_temporary'", file=location)
    log = next((name for name in names if name.partition("/")[0] in _TABLE_LOGS), None)
    if log is not None:
        raise OptionError(
            f"'{location}' is a {_TABLE_LOGS[log.partition('/')[0]]}, and files in it may no longer count: "
            "write its rows as Parquet files, or give import_state a DataFrame of it",
            file=location,
        )
    others = [name for name in names if not _is_hidden(name) and not name.endswith(_PARQUET)]
    if others:
        raise OptionError(f"'{location}/{others[0]}' is not a Parquet file (*{_PARQUET})", file=others[0])
    if not _tables(names):
        raise MissingError(f"there is no file *{_PARQUET} in '{location}'", file=location)


def _read_metadata(file: Path, name: str) -> dict[str, Any] | None:
    """Return the metadata of an export in a file; None if the file is of no export.

    Raises OptionError if the file is not Parquet.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        with open(file, "rb") as opened:
            text = (pyarrow.parquet.read_schema(opened).metadata or {}).get(METADATA)
    except (pyarrow.ArrowException, OSError) as error:
        raise OptionError(f"'{name}' is not a Parquet file: {error}", file=name) from error
    try:
        metadata = None if text is None else json.loads(text)
        return metadata if isinstance(metadata, dict) else None
    except ValueError:
        return None


def _check_whole(
    location: str,
    names: list[str],
    described: list[dict[str, Any] | None],
    success: bytes | None,
    *,
    is_directory: bool,
) -> None:
    """Raise OptionError if the files are an incomplete export."""
    exported = next(
        (description for description in described if description is not None and "partitions" in description),
        None,
    )
    if exported is None:
        return
    expected = {f"part-{number:05}{_PARQUET}" for number in exported["partitions"]}
    if not is_directory:
        if len(expected) > 1:
            raise OptionError(
                f"'{location}' is one of the {len(expected)} files of an export: give their directory",
                file=location,
            )
        return
    lacking = sorted(expected - set(names))
    if success is None:
        raise OptionError(
            f"'{location}' is an export that was interrupted, or still goes on: it has no '{SUCCESS}'. "
            "If it was interrupted, remove the directory, and export again",
            file=location,
        )
    if lacking:
        raise OptionError(
            f"'{location}' lacks files of its export, such as '{lacking[0]}': export again", file=location
        )


def _rows_of(files: Iterable[tuple[Path, str]]) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of local files, each with its name for messages. Raises OptionError for damage."""
    import pyarrow
    import pyarrow.parquet

    for file, name in files:
        try:
            with (
                open(file, "rb") as opened,
                pyarrow.parquet.ParquetFile(opened, page_checksum_verification=True) as table,
            ):
                yield from table.iter_batches(_rows_at_once(table.metadata))
        except (pyarrow.ArrowException, OSError) as error:
            if getattr(error, "errno", None) is not None:  # the machine's, not Arrow's of a page
                raise
            raise OptionError(f"'{name}' is a damaged Parquet file: {error}", file=name) from error


def _rows_at_once(metadata: pyarrow.parquet.FileMetaData) -> int:
    """Return the number of rows of a file that are read at once: they may be large."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    size_bytes = sum(group.total_byte_size for group in groups)
    return max(1, min(BATCH_ROWS, ENCODED_BYTES * metadata.num_rows // max(1, size_bytes)))


def bootstrap(
    writer: Any,
    checkpoint: Location,
    rows: Any,
    operator: int = 0,
    store: str | None = None,
    *,
    start: Start = lambda writer: writer.start(),
    spark: Any = None,
    progress: ProgressOption = None,
    runtime: Runtime = SYSTEM,
) -> Rewritten:
    """Make the checkpoint of a query that has never run, with `rows` as its state.

        writer = counted.writeStream.outputMode("update").foreachBatch(store_batch)
        state_store.bootstrap(writer, "/data/checkpoint", "rows.parquet")
        query = writer.trigger(availableNow=True).start()

    Spark runs batch 0 of the query over nothing: the sink gets an empty batch, and the sources are not read.
    A function of `foreachBatch` has to read its batch. Afterwards the writer's `checkpointLocation` is
    `checkpoint`, and its trigger is Spark's default. If the call fails or is interrupted, its queries are
    stopped, and nothing is left in the directory. Start no query there before it returns.

    Args:
        writer: PySpark's `DataStreamWriter` of the query, with its sink; the session is one of this store.
        checkpoint: an empty directory; a path or URI that both Spark and `state_store.open` know.
        rows: as for `import_state`.
        operator: the number of the stateful operator in the query.
        store: the store that the rows are of. Default: as for `open`.
        start: starts the query and returns it, if not by `writer.start()`: for example `lambda writer:
            writer.toTable("t")`.
        spark: as for `import_state`; the session of the writer, for example.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.
        runtime: clocks, randomness and threads.

    Raises:
        ConflictError: the directory is not empty.
        OptionError: the query has no state, another store keeps it, its sink does not read its batch, or the
            rows do not fit.
        Exception: what Spark raises if the query cannot run.
    """
    if not hasattr(writer, "_df"):
        raise OptionError(
            "a DataStreamWriter of a session with a JVM of its own is needed, not of Spark Connect",
            option="writer",
        )
    require_arrow()
    workers(spark)  # refuses what is not a session
    with new_checkpoint("bootstrap", None, checkpoint) as (storage, location):
        scratch = f"{SCRATCH_PREFIX}{runtime.unique(4)}"
        try:
            _run_first_batch(writer, storage, f"{location}/{scratch}", scratch, start, runtime)
            query = Query.open(f"{location}/{scratch}/query")
            replacements = replacements_of(query, rows, operator, store, spark)
            return write_imported(query, replacements, storage, location, progress=progress, runtime=runtime)
        finally:
            writer.option("checkpointLocation", location).trigger(processingTime="0 seconds")
            with suppress(StateStoreError):  # nothing reads the remains
                storage.delete_directory(scratch)


def _run_first_batch(
    writer: Any, storage: Storage, location: str, scratch: str, start: Start, runtime: Runtime
) -> None:
    """Run batch 0 of the query over nothing, in `<location>/query`."""
    header = _pinned(writer, storage, location, scratch)
    metadata = json.dumps({"id": runtime.uuid()}, separators=(",", ":"))
    storage.write(f"{scratch}/query/metadata", metadata.encode())
    offsets = f"{scratch}/query/offsets/0"
    writer.option("checkpointLocation", f"{location}/query").trigger(once=True)
    sources = 0 if header[0] == _BY_NAME else 1
    while True:
        storage.write(offsets, "\n".join([*header, *[_NO_OFFSET] * sources]).encode(), overwrite=True)
        try:
            query = _run_to_end(writer, start)
            break
        except Exception as error:
            if "CheckpointInfo length: 0" in str(error):
                raise OptionError(
                    "the sink did not read its first batch, which is empty: let the function of foreachBatch "
                    "read its batch, for instance by batch.count()",
                    option="writer",
                ) from error
            other = _OTHER_NUMBER.search(str(error))
            if other is None or int(other[1]) == sources:
                raise
            sources = int(other[1])
    read = sum(progress["numInputRows"] or 0 for progress in query.recentProgress)
    if read or not storage.exists(f"{scratch}/query/commits/0"):
        raise FormatError(
            f"this Spark did not begin with an empty first batch: it has read {read} rows from the sources"
        )
    if not storage.directories(f"{scratch}/query/state"):
        raise OptionError("the query has no stateful operator")


def _run_to_end(writer: Any, start: Start) -> Any:
    """Start a query, wait for its end, and return it; stop it if that fails or is interrupted."""
    query = None
    try:
        with _interrupts_held_back():
            query = start(writer)
        query.awaitTermination()
    except BaseException:
        if query is not None:
            with suppress(Exception):
                query.stop()
        raise
    return query


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Raise an interrupt from the keyboard when the body has ended; the second one at once.

    A query that the JVM starts goes on after an interrupt of the call, and nobody could stop it.
    """
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    held: list[tuple[int, Any]] = []

    def hold(number: int, frame: Any) -> None:
        held.append((number, frame))
        if len(held) > 1:
            usual(number, frame)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if held:
        usual(*held[0])


def _pinned(writer: Any, storage: Storage, location: str, scratch: str) -> list[str]:
    """Return the first lines of an entry of the offset log: the configuration that Spark pins.

    The writer's session makes them for a query without state.
    """
    session = writer._df.sparkSession
    reader = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1)
    if session.conf.get(_NAMED_SOURCES, "false") == "true":
        reader = reader.name("probe")
    probe = reader.load().writeStream.format("noop").option("checkpointLocation", f"{location}/probe")
    _run_to_end(probe.trigger(once=True), lambda writer: writer.start())
    version, pinned, *_ = storage.read(f"{scratch}/probe/offsets/0").decode("utf-8").split("\n")
    if version == _BY_NAME:
        pinned = json.dumps({**json.loads(pinned), "sourceMetadataInfo": {}}, separators=(",", ":"))
    elif version != "v1":
        raise FormatError(
            f"the offset log of this session has format '{version}', which this release does not know"
        )
    return [version, pinned]
