"""A state as Parquet files, one for each partition, whose metadata name the query and the version.

Files and directories of tables may be on any storage: a path, or a URI that `open_storage` knows.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from state_store.core.runtime import SYSTEM, Runtime, ScratchDirectory, removed_at_end
from state_store.core.storage import Storage, open_storage
from state_store.core.storage.contract import with_remedy
from state_store.core.storage.local import LocalStorage
from state_store.core.storage.open import SCHEMES
from state_store.data.jobs import Workers
from state_store.data.query import Progress
from state_store.data.query.arguments import Location, checked_location
from state_store.data.query.targets import refuse_nested, refuse_no_directory
from state_store.errors import (
    ConflictError,
    Interrupted,
    MissingError,
    OptionError,
    StateStoreError,
    StorageError,
    as_store_error,
)

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")

SUCCESS = "_SUCCESS"
"""The file that is written last into a directory of tables."""

_STARTED = "_started"
"""The file that is there from the first to the last step of who writes a directory of tables."""

METADATA = b"state_store"
"""Key of the metadata of each file's schema: JSON.

The metadata have the checkpoint, operator, store, version, batch and watermark, and the numbers of all
partitions.
"""


def local_path(location: Location) -> Path | None:
    """Return the path of a location on this machine; None if it is in another storage.

    Raises:
        OptionError: the location is empty or the root, or its scheme is unknown.
        StorageError: as `open_storage` raises it.
    """
    text = checked_location(location, "location")
    scheme = text.partition(":")[0].lower()
    if isinstance(location, os.PathLike) or (":/" not in text and scheme not in SCHEMES):
        return Path(text)
    storage = open_storage(text)
    return storage.directory if isinstance(storage, LocalStorage) else None


@contextmanager
def writing_file(path: Path) -> Iterator[Callable[[Iterable[T]], Iterator[T]]]:
    """Let failures of the operating system in the body name the path, if they name none themselves.

    Yields:
        A function that passes on what the body reads meanwhile: failures of reading stay as they are.

    Raises:
        StorageError: in place of an OSError without a file name, such as PyArrow's.
    """
    failed: list[OSError] = []

    def reading(source: Iterable[T]) -> Iterator[T]:
        try:
            yield from source
        except OSError as error:
            failed.append(error)
            raise

    try:
        yield reading
    except OSError as error:
        if error.filename is not None or error in failed:
            raise
        reason = with_remedy(os.strerror(error.errno) if error.errno else str(error))
        raise StorageError(f"cannot write '{path}': {reason}", file=str(path)) from error


@contextmanager
def new_directory(location: str, names: Iterable[str]) -> Iterator[NewDirectory]:
    """Yield a new directory in another storage. If the body fails, its files are removed.

    Args:
        location: the directory.
        names: the names of the files that it is going to have.

    Raises:
        ConflictError: the directory has files already.
    """
    storage, name = _parted(location)
    try:
        files = [entry.name for entry in storage.list_files(name)]
        is_whole, started = SUCCESS in files, f"{name}/{_STARTED}"
        if not is_whole and (files or not _begins(storage, started)):
            raise ConflictError(
                f"'{location}' has files of a write that was interrupted, or still goes on: it has no "
                f"'{SUCCESS}'. If it was interrupted, remove the directory, or give another one",
                file=location,
            )
        if not is_whole and storage.exists(f"{name}/{SUCCESS}"):  # another has begun and ended meanwhile
            storage.delete(started)
            is_whole = True
        if is_whole:
            raise ConflictError(f"'{location}' exists already; it is not replaced", file=location)
        directory = NewDirectory(storage, name, names)
        try:
            with removed_at_end(directory.remove):
                yield directory
        except BaseException:
            directory.remove()
            raise
    finally:
        storage.close()


def _begins(storage: Storage, path: str) -> bool:
    """Write a file that says so; return False if another process has begun before."""
    run = SYSTEM.unique(8).encode()
    try:
        storage.write(path, run)
    except ConflictError:
        with suppress(MissingError):
            return storage.read(path) == run  # the answer to our own request was lost
        return False
    return True


class NewDirectory:
    """A directory to which `store_in_directory` adds files; `finish` says that it is whole."""

    def __init__(self, storage: Storage, name: str, names: Iterable[str]) -> None:
        self._storage = storage
        self._name = name
        self._paths = [f"{name}/{file}" for file in (*names, SUCCESS, _STARTED)]

    def finish(self, success: bytes) -> None:
        """Write the file that comes last."""
        self._storage.write(f"{self._name}/{SUCCESS}", success)
        with suppress(StateStoreError):  # nobody reads it
            self._storage.delete(f"{self._name}/{_STARTED}")

    def remove(self) -> None:
        """Remove the files that are there."""
        for path in self._paths:
            with suppress(StateStoreError):
                self._storage.delete(path)


def store_in_directory(location: str, local: Path) -> None:
    """Move a local file into a directory of another storage, in the place of one of the same name."""
    storage, name = _parted(location)
    try:
        storage.upload(local, f"{name}/{local.name}", overwrite=True)
        local.unlink(missing_ok=True)
    finally:
        storage.close()


@contextmanager
def new_file(location: str) -> Iterator[Path]:
    """Yield a local path; its bytes become a file in another storage when the body ends.

    Raises:
        ConflictError: the file exists.
    """
    storage, name = _parted(location)
    try:
        if storage.exists(name):
            raise ConflictError(f"'{location}' exists already; it is not replaced", file=location)
        with ScratchDirectory("state-store-") as scratch:
            local = Path(scratch) / name
            yield local
            storage.upload(local, name)
    finally:
        storage.close()


def listed_names(location: str) -> list[str]:
    """Return the paths of the files below a directory of another storage; none if it is a file.

    Raises:
        MissingError: neither a directory nor a file has the name.
        StorageError: the storage fails.
    """
    storage, name = _parted(location)
    try:
        try:
            names = sorted(_paths_below(storage, name))
        except StorageError:
            if not storage.exists(name):
                raise
            return []  # HDFS refuses to list a file
        if not names and not storage.exists(name):
            raise MissingError(f"there is no '{location}'", file=location)
        return names
    finally:
        storage.close()


def _paths_below(storage: Storage, directory: str) -> Iterator[str]:
    yield from (entry.name for entry in storage.list_files(directory))
    for name in storage.directories(directory):
        yield from (f"{name}/{path}" for path in _paths_below(storage, f"{directory}/{name}"))


def fetched_files(location: str, names: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Yield files of a directory in another storage, each with a local copy until the next is requested.

    Args:
        location: the directory, or, without names, one file.
        names: paths below the directory; if empty, the location is a file, and is yielded with an empty name.
    """
    storage, name = _parted(location)
    try:
        for file in names or [""]:
            with ScratchDirectory("state-store-") as scratch:
                local = Path(scratch) / "file"
                storage.download(f"{name}/{file}" if file else name, local)
                yield file, local
    finally:
        storage.close()


def _parted(location: str) -> tuple[Storage, str]:
    """Return the storage of the directory that a location is in, and its name there."""
    parent, _, name = location.rstrip("/").rpartition("/")
    return open_storage(parent), name


class OnePartition(Protocol):
    """The rows of a partition, such as those of a `State`."""

    @property
    def lost(self) -> Mapping[int, object]:
        """The partitions that were skipped because they are damaged, after they were read."""

    def of_partition(self, partition: int) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of one partition in batches."""


Opened = Callable[[int, Progress | None], AbstractContextManager[OnePartition]]
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
        OptionError: Parquet does not have a type, or the target is not a name of a directory.
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

        parts = workers.run(write, numbers, at_once=1, meter=meter)
        rows = sum(count for count, _ in parts)
        lost = [number for number, (_, is_lost) in zip(numbers, parts, strict=True) if is_lost]
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
                _remove_others(aside, {*map(_part, numbers)})
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


def _remove_others(directory: Path, names: Collection[str]) -> None:
    """Remove the files of tasks that were killed."""
    for path in directory.iterdir():
        if path.name not in names:
            path.unlink(missing_ok=True)


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
        with (
            open(path, "wb") as file,  # the name may have any bytes, and Arrow takes UTF-8
            pyarrow.parquet.ParquetWriter(
                file, schema, compression="zstd", write_page_checksum=True
            ) as writer,
        ):
            for batch in batches:
                rows += batch.num_rows
                writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    except pyarrow.ArrowNotImplementedError as error:
        raise OptionError(f"Parquet has no such type: {error}") from error
    return rows
