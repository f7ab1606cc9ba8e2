"""A state as Parquet files, one for each partition, whose metadata name the query and the version."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from state_store.core.interruption import removed_at_end
from state_store.core.runtime import SYSTEM, Runtime
from state_store.data.dataset.table_files import SUCCESS, local_path, new_directory, writing_file
from state_store.data.query.arguments import Location, checked_location
from state_store.data.query.targets import refuse_nested, refuse_no_directory
from state_store.errors import ConflictError, Interrupted, OptionError, as_store_error

if TYPE_CHECKING:
    import pyarrow

METADATA = b"state_store"
"""Key of the metadata of each file's schema: JSON.

The metadata have the checkpoint, operator, store, version, batch and watermark, and the numbers of all
partitions.
"""


def write_export(
    target: Location,
    schema: pyarrow.Schema,
    described: Mapping[str, Any],
    partitions: Iterable[tuple[int, Iterable[pyarrow.RecordBatch]]],
    lost: Callable[[], Iterable[int]] = tuple,
    *,
    runtime: Runtime = SYSTEM,
) -> int:
    """Write the rows of each partition to `part-<number>.parquet` in a new directory.

    A directory of this machine is written beside its place, under a name that begins with a dot, and renamed
    when it is whole. Files for another storage are made in the directory of temporary files (`TMPDIR`).
    `_SUCCESS` comes last: JSON with the number of rows and the partitions that were skipped. If the export
    fails or is interrupted, nothing is left; if it is killed, `_SUCCESS` is missing.

    Args:
        target: a path, or a URI that `open_storage` knows; it must not exist.
        schema: the schema of all batches.
        described: the metadata of the files, as values for JSON; `checkpoint` is a directory that the target
            must be neither inside of nor around.
        partitions: the number and the batches of each partition.
        lost: returns the partitions that were skipped because they are damaged, after all were read.
        runtime: randomness.

    Returns:
        The number of rows.

    Raises:
        ConflictError: the directory exists.
        OptionError: Parquet does not have a type, or the target is no name of a directory.
        StorageError: as the storage raises it.
    """
    location = checked_location(target, "target")
    refuse_nested(str(described["checkpoint"]), location)
    schema = schema.with_metadata({METADATA: json.dumps(described).encode()})
    directory = local_path(target)
    try:
        if directory is None:
            with new_directory(location) as remote, writing_file(remote.scratch) as reading:
                read = _each_read(partitions, reading)
                return _write_all(read, schema, remote.scratch, remote.move, lost)
        if directory.is_dir():
            raise ConflictError(f"'{directory}' exists already; it is not replaced", file=str(directory))
        refuse_no_directory(directory)
        aside = directory.with_name(f".{directory.name}.{runtime.unique(4)}.incomplete")
        try:
            aside.mkdir(parents=True)
            remove = partial(shutil.rmtree, aside, ignore_errors=True)
            with removed_at_end(remove), writing_file(directory) as reading:
                rows = _write_all(_each_read(partitions, reading), schema, aside, lambda _: None, lost)
            _publish(aside, directory)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        return rows
    except KeyboardInterrupt as error:
        raise Interrupted(f"nothing is left of '{location}'") from error
    except OSError as error:
        raise as_store_error(error) from error


def _publish(aside: Path, directory: Path) -> None:
    """Rename a directory. Raise ConflictError if another export has made its target meanwhile."""
    try:
        aside.rename(directory)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise ConflictError(
            f"'{directory}' exists already; it is not replaced", file=str(directory)
        ) from error


def _each_read(
    partitions: Iterable[tuple[int, Iterable[pyarrow.RecordBatch]]],
    reading: Callable[[Iterable[Any]], Iterator[Any]],
) -> Iterator[tuple[int, Iterable[pyarrow.RecordBatch]]]:
    """Yield the partitions, whose batches are read through `reading`."""
    for number, batches in reading(partitions):
        yield number, reading(batches)


def _write_all(
    partitions: Iterable[tuple[int, Iterable[pyarrow.RecordBatch]]],
    schema: pyarrow.Schema,
    directory: Path,
    written: Callable[[Path], None],
    lost: Callable[[], Iterable[int]],
) -> int:
    """Write the files of all partitions, call `written` for each, and return the number of rows."""
    rows = 0
    for number, batches in partitions:
        path = directory / f"part-{number:05}.parquet"
        rows += _write(batches, schema, path)
        written(path)
    success = directory / SUCCESS
    success.write_text(json.dumps({"rows": rows, "lost": sorted(lost())}) + "\n", encoding="utf-8")
    written(success)
    return rows


def _write(batches: Iterable[pyarrow.RecordBatch], schema: pyarrow.Schema, path: Path) -> int:
    import pyarrow
    import pyarrow.parquet

    rows = 0
    try:
        with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
            for batch in batches:
                rows += batch.num_rows
                writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    except pyarrow.ArrowNotImplementedError as error:
        raise OptionError(f"Parquet has no such type: {error}") from error
    return rows
