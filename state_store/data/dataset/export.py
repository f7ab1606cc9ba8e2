"""A state as Parquet files, one for each partition, that say of which query and version they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from state_store.data.dataset.places import local_path, new_directory
from state_store.errors import ConflictError, OptionError

if TYPE_CHECKING:
    import pyarrow

METADATA = b"state_store"
"""Key of the metadata of each file's schema: JSON with checkpoint, operator, store, version, batch."""


def export(
    target: str | Path,
    schema: pyarrow.Schema,
    described: Mapping[str, Any],
    partitions: Iterable[tuple[int, Iterable[pyarrow.RecordBatch]]],
) -> int:
    """Writes the batches of each partition to `part-<number>.parquet` in a new directory; gives the number of
    rows. `described` is what the files say of themselves.

    `target` is a path or a URI that `open_storage` knows; files for another storage are made in the directory
    of temporary files. Raises ConflictError where the directory exists, OptionError for a type that Parquet
    has not, StorageError as the storage does. What was written stays when it fails half way, without the file
    `_SUCCESS`.
    """
    schema = schema.with_metadata({METADATA: json.dumps(described).encode()})
    directory = local_path(target)
    if directory is None:
        with new_directory(str(target)) as remote:
            return _write_all(partitions, schema, remote.scratch, remote.move)
    if directory.exists():
        raise ConflictError(f"'{directory}' exists already; it is not replaced", file=str(directory))
    directory.mkdir(parents=True)
    return _write_all(partitions, schema, directory, lambda _: None)


def _write_all(
    partitions: Iterable[tuple[int, Iterable[pyarrow.RecordBatch]]],
    schema: pyarrow.Schema,
    directory: Path,
    written: Callable[[Path], None],
) -> int:
    """Writes the files of all partitions and calls `written` for each."""
    rows = 0
    for number, batches in partitions:
        path = directory / f"part-{number:05}.parquet"
        rows += _write(batches, schema, path)
        written(path)
    success = directory / "_SUCCESS"
    success.touch()
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
