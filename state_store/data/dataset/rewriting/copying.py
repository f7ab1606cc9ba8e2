"""A checkpoint copied to other storage while its query runs: one version of all stores, and Spark's logs.

The files of the version are held by leases while they are copied, as they are when it is read. What is in the
target already is not copied again, so that a copy that broke off goes on where it was.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from state_store.core.files.transfer import parallel
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage import open_storage
from state_store.data.dataset.pinned import PinnedVersion
from state_store.data.dataset.rewriting import logs
from state_store.data.query import LISTED_AT_ONCE, Progress, Query, StoreKey
from state_store.errors import ConflictError, MissingError

_THREADS = 8


@dataclass(frozen=True)
class Copied:
    """The version; files and bytes of the state that were copied, and files that were there already."""

    version: int
    files: int
    size_bytes: int
    present: int


def copy_checkpoint(
    checkpoint: str,
    target: str,
    *,
    progress: Progress | None = None,
    runtime: Runtime = SYSTEM,
) -> Copied:
    """Copies the version that Spark committed last to the directory `target`. The query may run meanwhile.

    A query that is started on the copy goes on from that version. `progress` hears of the files that are
    moved and of the stores that are done. Raises MissingError where there is no state, ConflictError where
    the target is a query's checkpoint already, StorageError as the storages do.
    """
    query = Query.open(checkpoint)
    batch = query.committed_batch()
    if batch is None:
        raise MissingError(f"{query.location} has no state yet: Spark has committed no batch of the query")
    source, location = open_storage(query.location), target.rstrip("/")
    storage = open_storage(location)
    if storage.list_files("commits"):
        raise ConflictError(
            f"'{location}' is the checkpoint of a query: it is not written over", file=location
        )
    versions = query.committed()
    keys = query.stores()

    def pin(key: StoreKey) -> PinnedVersion:
        return PinnedVersion(key, query.storage(key), batch + 1, versions[key], runtime=runtime)

    with ExitStack() as held:
        pins = parallel(LISTED_AT_ONCE, pin, keys, runtime=runtime)
        for one in pins:
            held.callback(one.release)
        done = []
        for one in pins:
            done.append(_copy_store(one, f"{location}/{one.key.path}", progress, runtime))
            if progress is not None:
                progress.store_done()
    for operator in query.operators:
        logs.copy_operator(source, storage, operator)
    logs.copy_logs(source, storage, batch)
    return Copied(
        batch + 1,
        sum(one.files for one in done),
        sum(one.size_bytes for one in done),
        sum(one.present for one in done),
    )


def _copy_store(pin: PinnedVersion, location: str, progress: Progress | None, runtime: Runtime) -> Copied:
    """The files that a restore of the version needs; the archive of the snapshot last."""
    target = open_storage(location)
    source = pin.storage if progress is None else progress.metered(pin.storage)
    try:
        with tempfile.TemporaryDirectory(prefix="state-store-") as scratch:

            def copy(path: str) -> int | None:
                if target.exists(path):
                    return None
                local = Path(scratch) / path.replace("/", "@")
                source.download(path, local)
                size_bytes = local.stat().st_size
                target.upload(local, path)
                local.unlink(missing_ok=True)
                return size_bytes

            sizes = parallel(_THREADS, copy, sorted(pin.paths), runtime=runtime)
            for path, archive in pin.archives.items():
                if not target.exists(path):
                    target.write(path, archive)
    finally:
        target.close()
    new = [size for size in sizes if size is not None]
    return Copied(pin.version.number, len(new), sum(new), len(sizes) - len(new))
