"""A state as Parquet files, one for each partition, whose metadata name the query and the version."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Protocol

from state_store.core.compat import zip
from state_store.core.interruption import ScratchDirectory, removed_at_end
from state_store.core.runtime import SYSTEM, Runtime
from state_store.data.dataset.table_files import (
    SUCCESS,
    local_path,
    new_directory,
    store_in_directory,
    writing_file,
)
from state_store.data.jobs.workers import Workers
from state_store.data.query import Progress
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


class OnePartition(Protocol):
    """The rows of a partition, such as those of a `State`."""

    @property
    def lost(self) -> Mapping[int, object]:
        """The partitions that were skipped because they are damaged, after they were read."""

    def of_partition(self, partition: int) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of one partition in batches."""


Opened = Callable[[int, Optional[Progress]], AbstractContextManager[OnePartition]]
"""Opens a partition: its number, and a receiver of progress."""


def write_export(
    target: Location,
    schema: pyarrow.Schema,
    described: Mapping[str, Any],
    numbers: Sequence[int],
    opened: Opened,
    workers: Workers,
    meter: Progress | None = None,
    *,
    runtime: Runtime = SYSTEM,
) -> int:
    """Write the rows of each partition to `part-<number>.parquet` in a new directory.

    A directory of this machine is written beside its place, under a name that begins with a dot, and renamed
    when it is whole. Files for another storage are made in the directory of temporary files (`TMPDIR`).
    `_SUCCESS` comes last: JSON with the number of rows and the partitions that were skipped. If the export
    fails or is interrupted, nothing is left; if it is killed, `_SUCCESS` is missing.

    Args:
        target: a path, or a URI that `open_storage` knows; it must not exist. If the workers are on other
            machines, a path is of a directory that all of them share.
        schema: the schema of all batches.
        described: the metadata of the files, as values for JSON; `checkpoint` is a directory that the target
            must be neither inside of nor around.
        numbers: the numbers of the partitions.
        opened: opens a partition; pickled if the workers are elsewhere.
        workers: who write the files, one partition at a time in a process.
        meter: receives the progress.
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

    def write_all(aside: Path | None) -> tuple[int, bytes]:
        """Write all files; return the number of rows, and the contents of the file that comes last."""

        def write(number: int, meter: Progress | None) -> tuple[int, bool]:
            with opened(number, meter) as partition:
                batches = partition.of_partition(number)
                rows = _write_part(batches, schema, _part(number), aside, location, runtime)
                return rows, number in partition.lost

        written = workers.run(write, numbers, at_once=1, meter=meter)
        rows = sum(count for count, _ in written)
        lost = [number for number, (_, is_lost) in zip(numbers, written, strict=True) if is_lost]
        return rows, f"{json.dumps({'rows': rows, 'lost': sorted(lost)})}\n".encode()

    try:
        if directory is None:
            with new_directory(location, map(_part, numbers)) as remote:
                rows, success = write_all(None)
                remote.finish(success)
                return rows
        if directory.is_dir():
            raise ConflictError(f"'{directory}' exists already; it is not replaced", file=str(directory))
        refuse_no_directory(directory)
        aside = directory.with_name(f".{directory.name}.{runtime.unique(4)}.incomplete").absolute()
        try:
            aside.mkdir(parents=True)
            remove = partial(shutil.rmtree, aside, ignore_errors=True)
            with removed_at_end(remove):
                rows, success = write_all(aside)
                (aside / SUCCESS).write_bytes(success)
            _publish(aside, directory)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        return rows
    except KeyboardInterrupt as error:
        raise Interrupted(f"nothing is left of '{location}'") from error
    except OSError as error:
        raise as_store_error(error) from error


def _part(number: int) -> str:
    return f"part-{number:05}.parquet"


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


def _write_part(
    batches: Iterable[pyarrow.RecordBatch],
    schema: pyarrow.Schema,
    name: str,
    aside: Path | None,
    location: str,
    runtime: Runtime,
) -> int:
    """Write a file into a directory and return the number of its rows; the last of several writers wins.

    Args:
        batches: the rows.
        schema: their schema.
        name: the file's name.
        aside: the directory, if it is of this machine.
        location: the directory's later place, or the directory, if it is in another storage.
        runtime: randomness.
    """
    if aside is not None:
        path = aside / f".{name}.{runtime.unique(4)}"
        with writing_file(Path(location)) as reading:
            rows = _write(reading(batches), schema, path)
        path.rename(aside / name)
        return rows
    with ScratchDirectory("state-store-") as scratch:
        path = Path(scratch) / name
        with writing_file(path) as reading:
            rows = _write(reading(batches), schema, path)
        store_in_directory(location, path)
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
