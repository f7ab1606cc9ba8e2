"""A copy of a checkpoint on other storage: one version of all stores, and Spark's logs.

The query may be running. Leases hold the files of the version while they are copied. Each file is compared
with its checksum on the way. A file that the target already has is not copied again, so an interrupted copy
can be continued.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from state_store.core.checkpoint.names import DELTA_DIRECTORY, SHARED_DIRECTORY
from state_store.core.checkpoint.stored_documents import COPY
from state_store.core.compat import zip
from state_store.core.files.transfer import parallel
from state_store.core.interruption import ScratchDirectory
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage import Storage, open_storage
from state_store.data.dataset.reading.pinned import PinnedVersion
from state_store.data.dataset.rewriting import spark_files
from state_store.data.jobs.workers import workers
from state_store.data.query import LISTED_AT_ONCE, Progress, ProgressOption, Query, StoreKey, reporting
from state_store.data.query.arguments import Location
from state_store.data.query.targets import new_checkpoint
from state_store.errors import ConflictError, DamagedError

_THREADS = 8


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

    def pin(key: StoreKey) -> PinnedVersion:
        return PinnedVersion(key, query.storage(key), batch + 1, versions[key], runtime=runtime)

    with (
        reporting(progress, "copied", len(keys)) as meter,
        new_checkpoint(COPY, query.location, target, goes_on=True) as (storage, location),
        ExitStack() as held,
    ):
        pins = dict(zip(keys, parallel(LISTED_AT_ONCE, pin, keys, runtime=runtime), strict=True))
        for pinned in pins.values():
            held.callback(pinned.release)
        shared = None if tasks.are_elsewhere else pins

        def copy_one(key: StoreKey, meter: Progress | None) -> Copied:
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
        source = open_storage(query.location)
        for operator in query.operators:
            spark_files.copy_operator(source, storage, operator)
        spark_files.copy_logs(source, storage, batch)
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


def _compare(pin: PinnedVersion, found: Mapping[str, int], location: str) -> None:
    """Raise DamagedError if a copy lacks a file, or has one of another size."""
    for path in sorted(pin.paths):
        if found.get(path) != pin.file_bytes(path):
            file = f"{location}/{path}"
            raise DamagedError(
                f"'{file}' has {found.get(path, 0)} bytes, and what it is a copy of {pin.file_bytes(path)}: "
                "remove it, and copy again",
                file=file,
            )
