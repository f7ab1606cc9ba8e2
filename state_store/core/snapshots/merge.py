"""Merge: make a newer base of a base and the deltas after it, a pure function of files.

It works in a new directory of hard links: open, ingest the deltas as they are, compact as the kind asks.
`ingest` compacts only if reads would suffer from the number of files, and is never published. `incremental`
lets RocksDB compact young files with each other, so that the snapshot shares most files with the one before;
it rewrites everything when the young files have grown to about the size of the old ones. `full` rewrites
everything: no file of it is older than the merge.

Any thread may call, one at a time for a store; the directories of the inputs are only read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from state_store.core.checkpoint.names import VersionId
from state_store.core.checkpoint.stored_documents import FULL, INCREMENTAL, INGEST
from state_store.core.engine.database import Database, TableFile, small_files, tidy
from state_store.core.files.workspace import discard
from state_store.core.planning.chain import ChainDelta
from state_store.core.snapshots.context import (
    LocalDatabase,
    StoreContext,
    check_files,
    check_rows,
    check_version,
    describe,
    ingest_deltas,
    wanted_deltas,
)
from state_store.core.storage.local_disk import link_or_copy, local_disk_errors
from state_store.errors import DamagedError, InternalError

KINDS = (INGEST, INCREMENTAL, FULL)

MAX_RUNS = 16
"""Sorted runs of a base above which even an `ingest` compacts: every look-up asks each of them."""


@dataclass(frozen=True)
class Merged:
    """The new base, and the milliseconds by phase: link, fetch (remote deltas), ingest, compact.

    Only the tails of the files with a name in `sparse` are local.
    """

    base: LocalDatabase
    phases: dict[str, float]
    sparse: frozenset[str] = frozenset()


@local_disk_errors()
def merge(
    context: StoreContext,
    base: LocalDatabase,
    deltas: Sequence[ChainDelta],
    version: VersionId,
    kind: str,
) -> Merged:
    """Make the base of `version`. On failure nothing is left behind.

    Args:
        context: The store.
        base: The base to start from.
        deltas: The deltas from there to `version`.
        version: The version.
        kind: A member of KINDS.

    Raises:
        DamagedError: A delta is damaged.
        MissingError: A delta does not exist.
        BusyError: The deadline of the context passed.
        StorageError: The disk fails.
    """
    directory = context.workspace.new_base(version.number)
    try:
        return _merge(context, base, list(deltas), version, kind, directory)
    except BaseException:
        discard(directory)
        raise


def _merge(
    context: StoreContext,
    base: LocalDatabase,
    deltas: list[ChainDelta],
    version: VersionId,
    kind: str,
    directory: Path,
) -> Merged:
    clock = _Laps(context.runtime.monotonic_s)
    link_database(base, directory)
    clock.lap("link_ms")
    with context.workspace.scratch() as scratch:
        wanted_files = wanted_deltas(deltas, scratch)
        context.fetch(wanted_files)
        context.deadline.check()
        context.verify(wanted_files)
        clock.lap("fetch_ms")
        size_bytes = base.size_bytes + sum(delta.size_bytes for delta in deltas)
        with Database(directory, context.settings.for_store(size_bytes)) as database:
            check_files(database, base.files)
            known_files = {**base.files, **ingest_deltas(database, deltas, scratch)}
            clock.lap("ingest_ms")
            _compact(database, kind, lambda: context.deadline.passed)
            files = describe(database, known_files, version)
            keys, families = check_version(
                database, version, deltas[-1].name if deltas else None, context.storage
            )
            if kind == FULL:
                check_rows(database, version, keys, context.storage)
    if kind == FULL and not files.keys().isdisjoint(known_files):
        raise InternalError(
            f"a full merge of version {version} kept older files: {sorted(files.keys() & known_files)}"
        )
    tidy(directory, set(files))
    clock.lap("compact_ms")
    return Merged(LocalDatabase(directory, version, files, keys, families, base.snapshot), clock.phases)


def link_database(base: LocalDatabase, directory: Path) -> None:
    """Make a database in `directory` that may be changed, of hard links to the SSTs and copies of the rest.

    On a file system without hard links the SSTs are copied, too.
    """
    for name in base.files:
        try:
            link_or_copy(base.directory / name, directory / name)
        except FileNotFoundError as error:
            file = f"{base.directory}/{name}"
            raise DamagedError(f"the database lost '{file}'", file=file) from error
    for name, data in small_files(base.directory).items():
        (directory / name).write_bytes(data)


def _compact(database: Database, kind: str, deadline: Callable[[], bool]) -> None:
    if kind == FULL:
        database.compact_all(deadline=deadline)
    elif kind == INCREMENTAL or sorted_runs(database.files()) > MAX_RUNS:
        database.compact_runs(deadline=deadline)


def sorted_runs(files: Sequence[TableFile]) -> int:
    """Return the number of sorted runs: the files of level 0, and the other levels that have files."""
    return sum(file.level == 0 for file in files) + len({file.level for file in files if file.level})


class _Laps:
    """A stop watch by phase, in milliseconds."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self.phases: dict[str, float] = {}
        self._clock_s = clock_s
        self._last = clock_s()

    def lap(self, name: str) -> None:
        now = self._clock_s()
        self.phases[name] = (now - self._last) * 1000
        self._last = now
