"""A look at a query: listings of its stores, and archives of snapshots that were not known before.

The storage can only be read, and counts its requests. The figures of a store follow from its files without
I/O: as a restore sees them, and over its history.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from state_store.core.checkpoint.lineage import describe_restorable
from state_store.core.checkpoint.names import DeltaName, SnapshotName, VersionId, origin_of
from state_store.core.checkpoint.stored_documents import FULL, Manifest
from state_store.core.compat import zip
from state_store.core.deletion.contents import ReadSnapshot, StoreContents
from state_store.core.files.transfer import parallel
from state_store.core.planning.cost import CostModel, RestoreWork
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.settings.options import Options, parse
from state_store.core.settings.session import check_pinned
from state_store.core.storage import Entry, Storage, open_storage
from state_store.core.storage.locations import without_secret
from state_store.data.dataset.checkpoints import FoundStore
from state_store.data.dataset.moments import latest
from state_store.data.maintenance.verified import NEVER_VERIFIED, KnownProblem, Verified, read_verified
from state_store.data.query import (
    LISTED_AT_ONCE,
    CommitTimes,
    Operator,
    Query,
    SparkFileProblem,
    StoreKey,
)
from state_store.data.query.operators import JavaTexts, schema_file
from state_store.errors import MissingError, OptionError, StateStoreError, StorageError, as_store_error
from state_store.observe.model.rest_answers import (
    AgeBytes,
    Checkpoint,
    Failure,
    File,
    OperatorNames,
    Store,
    StoreFiles,
)
from state_store.observe.model.rules import Totals, title_of
from state_store.observe.verdict import totals_of

LIST, READ = "list", "read"
"""Kinds of requests."""

AGES = ((10, "0-9"), (100, "10-99"), (1000, "100-999"))
OLDEST = "1000+"

_OVERDUE_MS = 2 * 3_600_000
"""Time of commits after which a file that a clean-up condemned is taken to stay; leases hold for an hour."""

_MADE_UP = re.compile(r"field\d+|index|__dummy__|sessionStartTime")
"""Names of key columns that Spark makes up, for joins and operators without grouping columns."""


class Requests:
    """Numbers of requests by kind. Safe for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter({LIST: 0, READ: 0})

    def add(self, kind: str) -> None:
        """Count one request."""
        with self._lock:
            self._counts[kind] += 1

    def counts(self) -> dict[str, int]:
        """Return the numbers so far."""
        with self._lock:
            return dict(self._counts)


class CountedStorage(Storage):
    """A storage whose listings and reads are counted, and which refuses every write.

    Attributes:
        storage: the storage behind it.
        requests: where requests are counted.
    """

    def __init__(self, storage: Storage, requests: Requests) -> None:
        self.location = storage.location
        self.is_local = storage.is_local
        self.storage = storage
        self.requests = requests

    def list_files(self, directory: str) -> list[Entry]:
        """List the files of a directory."""
        self.requests.add(LIST)
        return self.storage.list_files(directory)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read a file, or a part of it."""
        self.requests.add(READ)
        return self.storage.read(path, offset, length)

    def exists(self, path: str) -> bool:
        """Return True if a file exists."""
        self.requests.add(LIST)
        return self.storage.exists(path)

    def download(self, path: str, local: Path) -> None:
        """Refuse: nothing is downloaded in order to look."""
        raise self._refused(path)

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        """Refuse."""
        raise self._refused(path)

    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        """Refuse."""
        raise self._refused(path)

    def delete(self, path: str) -> None:
        """Refuse."""
        raise self._refused(path)

    def close(self) -> None:
        """Close the storage behind it."""
        self.storage.close()

    def _refused(self, path: str) -> StorageError:
        return StorageError(
            f"'{self.location}/{path}' is not written by a program that only looks", file=path
        )


@dataclass(frozen=True)
class VersionFigures:
    """Figures of one version of one store.

    Attributes:
        version: the version.
        made_ms: when it was committed, milliseconds since 1970 UTC; None: nothing says it but the time of a
            copied file.
        wrote: what was made at it: `delta`, `merge`, `full`.
        deltas: deltas that a restore reads after the snapshot.
        deltas_since_full: deltas since the newest full checkpoint.
        files: SST files that a restore needs.
        bytes: bytes of these.
        new_bytes: bytes that the version wrote.
        shared_bytes: bytes that were written before the snapshot that a restore starts from.
        restore_ms: predicted duration of a restore, milliseconds.
        reason: why a snapshot of the version was made; None: there is none, or an older release made it.
    """

    version: int
    made_ms: int | None
    wrote: tuple[str, ...]
    deltas: int
    deltas_since_full: int
    files: int
    bytes: int
    new_bytes: int
    shared_bytes: int
    restore_ms: float
    reason: str | None = None


def lineage_figures(
    store: FoundStore, newest: VersionId, times: CommitTimes, *, is_local: bool
) -> list[VersionFigures]:
    """Return the figures of all versions that `newest` came from and that can be restored, oldest first.

    Args:
        store: the store.
        newest: the version that Spark committed last.
        times: the times of the query's batches.
        is_local: storage is on this machine, which decides what a restore is expected to take.
    """
    contents = store.contents
    snapshots, sizes = contents.restorable_snapshots, contents.listing.deltas
    cost = CostModel(is_local=is_local)
    history = list(reversed(contents.lineages.history(newest)))
    found: list[VersionFigures] = []
    base: Manifest | None = None
    deltas = delta_bytes = 0
    is_complete = False
    for version in history:
        delta = contents.lineages.delta(version)
        own = snapshots.get(SnapshotName(*version))
        if own is not None:
            base, deltas, delta_bytes, is_complete = own, 0, 0, True
        elif delta is not None:
            is_complete = is_complete or delta.builds_on is None
            deltas, delta_bytes = deltas + 1, delta_bytes + sizes[delta]
        if not is_complete:
            continue
        files = deltas + (len(base.files) if base else 0)
        size = delta_bytes + (base.total_bytes if base else 0)
        wrote = (("delta",) if delta else ()) + (((FULL if own.kind == FULL else "merge"),) if own else ())
        merged = sum(entry.size_bytes for entry in own.files if entry.origin == own.version) if own else 0
        found.append(
            VersionFigures(
                version.number,
                store.made_ms(version, times),
                wrote,
                deltas,
                deltas + (base.deltas_since_full if base else 0),
                files,
                size,
                merged + (sizes[delta] if delta else 0),
                base.older[1] if base else 0,
                cost.predict_restore_ms(RestoreWork(files, size, deltas)) if files else 0.0,
                None if own is None else own.reason,
            )
        )
    return found


def store_figures(
    store: FoundStore,
    version: VersionId,
    history: list[VersionFigures],
    times: CommitTimes,
    *,
    operator_name: str,
) -> Store:
    """Return the figures of a store at a version that can be restored, without the objective.

    Args:
        store: the store.
        version: the version that Spark committed last.
        history: figures of its versions, oldest first; the last is that of `version`.
        times: the times of the query's batches.
        operator_name: Spark's name of the operator.
    """
    contents, last = store.contents, history[-1]
    manifest = store.manifest(version)
    plan = store.plan(version)
    sizes = [(entry.origin, entry.size_bytes) for entry in (manifest.files if manifest else ())]
    sizes += [(delta.version, contents.listing.deltas[delta]) for delta in plan.deltas]
    shared = [size for origin, size in sizes if manifest is not None and origin < manifest.version]
    stored = {**contents.listing.sst_bytes()}
    stored.update({name.path: size for name, size in contents.listing.snapshots.items()})
    needed = {file.path for file in store.registry.entries()}
    unneeded = [size for path, size in stored.items() if path not in needed]
    full = _newest_full(store, version, manifest)
    return Store(
        operator=store.key.operator,
        partition=store.key.partition,
        store=store.key.name,
        operator_name=operator_name,
        version=version.number,
        checkpoint_id=version.checkpoint_id,
        committed_ms=last.made_ms,
        deltas=last.deltas,
        deltas_since_full=last.deltas_since_full,
        merges_since_full=manifest.merges_since_full if manifest else 0,
        files=last.files,
        bytes=last.bytes,
        shared_files=len(shared),
        shared_bytes=sum(shared),
        own_files=last.files - len(shared),
        own_bytes=last.bytes - sum(shared),
        new_bytes=last.new_bytes,
        bytes_by_age=_by_age(version.number, sizes),
        snapshot_kind=None if manifest is None else (FULL if manifest.kind == FULL else "merge"),
        snapshot_version=manifest.version if manifest else None,
        snapshot_ms=manifest.created_ms if manifest else None,
        snapshot_reason=manifest.reason if manifest else None,
        snapshot_predicted_ms=manifest.cause.predicted_restore_ms if manifest and manifest.cause else None,
        full_ms=full.created_ms if full else None,
        full_version=full.version if full else None,
        chain_since_ms=full.created_ms if full else _oldest_ms(store, plan.deltas, manifest, times),
        restore_predicted_ms=round(last.restore_ms, 1),
        restore_basis="assumed",
        stored_files=len(stored),
        stored_bytes=sum(stored.values()),
        unneeded_files=len(unneeded),
        unneeded_bytes=sum(unneeded),
        undeletable_files=len(_overdue(store) - needed),
        restorable=len(store.registry.checkpoints()),
        keys=manifest.keys if manifest is not None and not plan.deltas else None,
    )


def _overdue(store: FoundStore) -> set[str]:
    """Return the files that a tombstone names which is much older than the newest delta."""
    contents = store.contents
    newest_ms = max(
        (contents.entries[delta.path].modified_ms for delta in contents.listing.deltas), default=0
    )
    tombstones = contents.tombstones
    return {
        path
        for tombstone, files in tombstones.files.items()
        if tombstones.entries[tombstone].modified_ms < newest_ms - _OVERDUE_MS
        for path in files & contents.entries.keys()
    }


def broken_store(store: FoundStore, operator_name: str, failure: Failure) -> Store:
    """Return a store that cannot be restored, with the reason instead of figures."""
    return Store(
        store.key.operator,
        store.key.partition,
        store.key.name,
        operator_name=operator_name,
        error=failure,
    )


def _newest_full(store: FoundStore, version: VersionId, manifest: Manifest | None) -> Manifest | None:
    if manifest is None:
        return None
    if manifest.kind == FULL:
        return manifest
    if manifest.full is not None:
        named = store.contents.manifests.get(SnapshotName(*manifest.full))
        if named is not None:
            return named
    older = [m for m in store.contents.manifests.values() if m.kind == FULL and m.version <= version.number]
    return max(older, key=lambda m: m.version, default=None)


def _oldest_ms(
    store: FoundStore, deltas: tuple[DeltaName, ...], manifest: Manifest | None, times: CommitTimes
) -> int | None:
    """Return the time of the oldest version of which a file is needed; None if it is not known."""
    origins = {delta.path: delta.version for delta in deltas}
    origins.update((entry.path, entry.origin) for entry in (manifest.files if manifest else ()))
    entries = store.contents.entries
    present = [(version, entries[path].modified_ms) for path, version in origins.items() if path in entries]
    return times.of(*min(present)) if present else None


def _by_age(version: int, sizes: list[tuple[int, int]]) -> list[AgeBytes]:
    totals: dict[str, int] = {}
    for origin, size in sizes:
        age = next((name for limit, name in AGES if version - origin < limit), OLDEST)
        totals[age] = totals.get(age, 0) + size
    return [AgeBytes(name, totals[name]) for name in (*(name for _, name in AGES), OLDEST) if name in totals]


def store_files(store: FoundStore, *, version: int | None = None, limit: int) -> StoreFiles:
    """Return the files of a store and the versions that need each.

    Args:
        store: the store.
        version: only files that this version needs; None: all files in storage.
        limit: files to return at most; the oldest are left out.
    """
    restorable = store.registry.checkpoints()
    holders: dict[str, list[int]] = {}
    for held in restorable:
        for needed in store.registry.files(held):
            holders.setdefault(needed.path, []).append(held.number)
    listing = store.contents.listing
    sizes = listing.sst_bytes()
    archives = {name.path: name.version for name in listing.snapshots}
    sizes.update({name.path: size for name, size in listing.snapshots.items()})
    files = []
    for path, size in sizes.items():
        found = holders.get(path, [])
        if version is not None and version not in found:
            continue
        origin = archives[path] if path in archives else origin_of(path)
        kind = "snapshot" if path in archives else path.partition("/")[0]
        files.append(
            File(path, kind, size, origin, len(found), min(found, default=None), max(found, default=None))
        )
    files.sort(key=lambda file: (file.origin, file.kind, file.path))
    kinds = {
        str(name.version): (FULL if manifest.kind == FULL else "merge")
        for name, manifest in store.contents.restorable_snapshots.items()
    }
    return StoreFiles(
        operator=store.key.operator,
        partition=store.key.partition,
        store=store.key.name,
        version=version,
        versions=sorted({held.number for held in restorable}),
        snapshots=kinds,
        files=files[-limit:],
        omitted=max(0, len(files) - limit),
    )


@dataclass(frozen=True)
class Look:
    """Everything that a look found. Immutable.

    Attributes:
        at_ms: when it began, milliseconds since 1970 UTC.
        took_ms: how long it took.
        id: Spark's id of the query, if it could be read.
        batch: the batch that Spark committed last; None before the first.
        committed_ms: when it was committed.
        operators: the stateful operators.
        stores: figures of the stores, in order.
        found: the files of each store that could be read.
        history: checkpoints, oldest first.
        objective_ms: the restore objective, milliseconds; 0: there is none.
        pinned: the configuration that Spark pinned.
        options: options of the query that differ from their defaults, by name, as its newest merge found
            them; None if no snapshot says.
        start_problems: files of Spark's that are lost or damaged, so that the query cannot start again.
        verified: everything that verifications have left, without problems whose files are other ones now.
        began_ms: when the query began, by the oldest description of its operators; None if nothing says it.
    """

    at_ms: int
    took_ms: float
    id: str | None
    batch: int | None
    committed_ms: int | None
    operators: tuple[OperatorNames, ...]
    stores: tuple[Store, ...]
    found: Mapping[StoreKey, FoundStore]
    history: tuple[Checkpoint, ...]
    objective_ms: int
    pinned: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] | None = None
    start_problems: tuple[SparkFileProblem, ...] = ()
    verified: Verified = NEVER_VERIFIED
    began_ms: int | None = None

    def totals(self, *, unreadable: bool = False) -> Totals:
        """Return the figures of the query; `unreadable` if a later look failed."""
        return totals_of(
            self.stores,
            unreadable=unreadable,
            committed_ms=self.committed_ms,
            start_problems=len(self.start_problems),
            verify_problems=len(self.verified.problems),
            verified_ms=self.verified.verified_ms,
            began_ms=self.began_ms,
        )

    @property
    def verify_failure(self) -> Failure | None:
        """The first problem that verifications have found; None if there is none."""
        if not self.verified.problems:
            return None
        return _failure(self.verified.problems[0])

    @property
    def start_failure(self) -> Failure | None:
        """Why a restart of the query would fail; None if nothing says so."""
        if not self.start_problems:
            return None
        first = self.start_problems[0]
        more = f" (and {len(self.start_problems) - 1} more files)" if len(self.start_problems) > 1 else ""
        return Failure(first.kind, first.sentence() + more)


class Looker:
    """Observer that looks at one query again and again, and remembers what cannot change.

    Archives of snapshots are immutable: each is read once. If Spark has committed nothing since the last
    look, only its commit log is listed, and the stores again at every `UNCHANGED_LOOKS`th look. One thread at
    a time.

    Args:
        location: the checkpoint directory, a path or URI.
        requests: where requests to storage are counted.
        objective_ms: the restore objective that predictions are compared with, milliseconds; 0: none; None:
            the query's own, as its newest merge found it, or the default.
        runtime: the clock.
    """

    UNCHANGED_LOOKS = 10

    def __init__(
        self,
        location: str,
        *,
        requests: Requests | None = None,
        objective_ms: int | None = None,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self.location = without_secret(location).rstrip("/") or "/"
        self.requests = requests or Requests()
        self.objective_ms = objective_ms
        self.is_local = False
        self._runtime = runtime
        self._known: dict[StoreKey, Mapping[SnapshotName, ReadSnapshot]] = {}
        self._storages: dict[StoreKey, CountedStorage] = {}
        self._root: CountedStorage | None = None
        self._query: Query | None = None
        self._id: str | None = None
        self._pinned: dict[str, str] = {}
        self._began_ms: int | None = None
        self._titles: dict[int, str] = {}
        self._last: Look | None = None
        self._skipped = 0
        self._looks = 0

    def look(self, *, fully: bool = False) -> Look:
        """Look at the query.

        Args:
            fully: list the stores even if Spark has committed nothing since the last look.

        Raises:
            StateStoreError: the checkpoint is not a query of this store, or storage fails. A store that is
                damaged does not raise: its figures are an error.
        """
        began_ms, began_s = self._runtime.wall_ms(), self._runtime.monotonic_s()
        query = self._opened()
        batch = query.logs.newest_committed()
        last = self._last
        if batch is None and last is not None and last.batch is not None:
            self._query = None
            query = self._opened()  # raises if the directory is gone
        if (
            last is not None
            and not fully
            and last.batch == batch
            and self._skipped < self.UNCHANGED_LOOKS - 1
        ):
            self._skipped += 1
            return last
        self._skipped = 0
        committed = query.committed(batch) if batch is not None else {}
        names = {operator.id: operator.name for operator in query.operators}
        keys = query.stores()
        times = query.logs.end_times()
        pairs = parallel(
            LISTED_AT_ONCE, lambda key: self._read(key, committed.get(key), names[key.operator], times), keys
        )
        found = {key: store for key, (store, _, _) in zip(keys, pairs, strict=True) if store is not None}
        options = _options(found.values())
        objective_ms = self.objective_ms
        if objective_ms is None:
            objective_ms = _objective_ms(options or {})
        verified = _still_true(self._verified(), found)
        problems = {problem.key: _failure(problem) for problem in reversed(verified.problems)}
        look = Look(
            began_ms,
            (self._runtime.monotonic_s() - began_s) * 1000,
            self._id,
            batch,
            None if batch is None else times.ends_ms.get(batch),
            tuple(_names(operator, found, self._titles.get(operator.id)) for operator in query.operators),
            tuple(
                replace(
                    figures,
                    restore_objective_ms=None if figures.version is None else objective_ms,
                    verify_problem=problems.get(key),
                )
                for key, (_, figures, _) in zip(keys, pairs, strict=True)
            ),
            found,
            tuple(_history([history for _, _, history in pairs], objective_ms, _batches_ms(query, times))),
            objective_ms,
            self._pinned,
            options,
            self._start_problems(query),
            verified,
            self._began_ms,
        )
        self._last = look
        return look

    def _verified(self) -> Verified:
        assert self._root is not None
        try:
            return read_verified(self._root)
        except (StateStoreError, OSError):  # the figures do not depend on it
            return self._last.verified if self._last is not None else NEVER_VERIFIED

    def _start_problems(self, query: Query) -> tuple[SparkFileProblem, ...]:
        """Return the problems of Spark's own files, read at the first look and at every tenth one."""
        self._looks += 1
        if self._last is not None and self._looks % self.UNCHANGED_LOOKS != 1:
            return self._last.start_problems
        return tuple(problem for problem in query.start_problems() if problem.stops_the_query)

    def close(self) -> None:
        """Close the connections to storage."""
        for storage in (*self._storages.values(), self._root):
            if storage is not None:
                storage.close()
        self._storages, self._root, self._query = {}, None, None

    def _opened(self) -> Query:
        if self._query is not None:
            return self._query
        if self._root is None:
            self._root = CountedStorage(open_storage(self.location), self.requests)
            self.is_local = self._root.is_local
        query = Query.described_in(self._root, self.location)
        if query is None:
            Query.open(self.location)  # raises, with the reason
            raise MissingError(f"{self.location} has no stateful operator", file=self.location)
        self._pinned = dict(query.logs.pinned_conf())
        check_pinned(self._pinned, self.location)
        try:
            self._id = str(json.loads(query.read("metadata"))["id"])
        except (StateStoreError, ValueError, KeyError, TypeError):
            self._id = None
        described = [*query.list_files("state/0/_metadata"), *query.list_files("state/0/_metadata/v2")]
        self._began_ms = min((entry.modified_ms for entry in described), default=None)
        if self._pinned and query.committed_batch() is not None:  # before, partitions may not be known
            self._query = query
            self._titles = {operator.id: _title(query, operator) for operator in query.operators}
        return query

    def _read(
        self, key: StoreKey, committed: VersionId | None, operator_name: str, times: CommitTimes
    ) -> tuple[FoundStore | None, Store, list[VersionFigures]]:
        place = Store(key.operator, key.partition, key.name, operator_name=operator_name)
        try:
            if key not in self._storages:
                storage = open_storage(f"{self.location}/{key.path}")
                self._storages[key] = CountedStorage(storage, self.requests)
            contents = StoreContents.read(self._storages[key], self._known.get(key))
            store = FoundStore(key, contents)
        except (StateStoreError, OSError) as error:
            failure = Failure(**as_store_error(error).to_json())
            if failure.kind == "storage":
                raise
            return None, broken_place(place, failure), []
        self._known[key] = contents.snapshots
        if committed is None:
            return store, place, []
        try:
            version = store.restorable(committed)
            if version is None:
                raise MissingError(
                    f"version {committed.number} of store {key} cannot be restored; "
                    f"{describe_restorable(store.registry.checkpoints())}",
                    file=key.path,
                )
            history = lineage_figures(store, version, times, is_local=self.is_local)
            figures = store_figures(store, version, history, times, operator_name=operator_name)
            return store, figures, history
        except StateStoreError as error:
            return store, broken_store(store, operator_name, Failure(**error.to_json())), []


def _failure(problem: KnownProblem) -> Failure:
    return Failure(problem.kind, problem.sentence(), problem.file)


def _still_true(verified: Verified, found: Mapping[StoreKey, FoundStore]) -> Verified:
    """Return what is known without the problems whose files were deleted or written anew since."""

    def is_there(problem: KnownProblem) -> bool:
        store = found.get(problem.key)
        if store is None:
            return True
        entry = store.contents.entries.get(problem.file)
        now = (None, None) if entry is None else (entry.size_bytes, entry.modified_ms)
        return now == (problem.bytes, problem.modified_ms)

    return replace(verified, problems=tuple(filter(is_there, verified.problems)))


def broken_place(place: Store, failure: Failure) -> Store:
    """Return a store whose files cannot be read, with the reason."""
    return Store(
        place.operator, place.partition, place.store, operator_name=place.operator_name, error=failure
    )


def _options(stores: Iterable[FoundStore]) -> Mapping[str, str] | None:
    """Return the options that the newest snapshot with options says, or None."""
    known = [
        (manifest.created_ms, manifest.cause.options)
        for store in stores
        for manifest in store.contents.manifests.values()
        if manifest.cause is not None and manifest.cause.options is not None
    ]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def _objective_ms(options: Mapping[str, str]) -> int:
    name = "restoreObjective"
    try:
        return parse({name: options[name]} if name in options else {}).restore_objective_ms
    except OptionError:  # a later release may write it in another way
        return Options().restore_objective_ms


def _names(operator: Operator, found: Mapping[StoreKey, FoundStore], title: str | None) -> OperatorNames:
    families: dict[str, bool] = {}
    for key, store in found.items():
        if key.operator == operator.id and store.contents.manifests:
            newest = max(store.contents.manifests.values(), key=lambda manifest: manifest.version)
            families.update({name: family.internal for name, family in newest.column_families.items()})
            break
    shown = sorted(families, key=lambda name: (families[name], name))
    return OperatorNames(
        operator.id,
        operator.name,
        list(operator.stores),
        title,
        [name for name in shown if name != "default"],
    )


def _title(query: Query, operator: Operator) -> str:
    """Return the name of an operator, with its grouping columns if Spark's schema tells them."""
    return title_of(operator.name, _grouping_columns(query, operator))


def _grouping_columns(query: Query, operator: Operator) -> list[str]:
    """Return the names of the columns by which an operator groups; empty if they cannot be read."""
    store = next(iter(operator.stores))
    if operator.schema_files.get(store):  # column families: each has keys of its own
        return []
    path = schema_file(operator, store)
    try:
        texts = JavaTexts(query.read(path), path)
        version = texts.text()
        key = json.loads(texts.text() if version == "v1" else texts.pieces())
        names = [str(field["name"]) for field in key["fields"]]
    except (StateStoreError, OSError, ValueError, KeyError, TypeError):  # a name for people can do without
        return []
    return [name for name in names if not _MADE_UP.fullmatch(name)]


def _batches_ms(query: Query, times: CommitTimes) -> dict[int, int]:
    """Return how long batches took, by the times of the files of Spark's logs."""
    if times.copied:
        return {}
    began = {
        int(entry.name): entry.modified_ms for entry in query.list_files("offsets") if entry.name.isdigit()
    }
    return {
        batch: end_ms - began[batch]
        for batch, end_ms in times.ends_ms.items()
        if batch in began and end_ms >= began[batch]
    }


def _history(
    of_stores: list[list[VersionFigures]], objective_ms: int, batches_ms: Mapping[int, int]
) -> list[Checkpoint]:
    rows: dict[int, list[VersionFigures]] = {}
    for figures in of_stores:
        for version in figures:
            rows.setdefault(version.version, []).append(version)
    found = []
    for number in sorted(rows):
        same = rows[number]
        wrote: dict[str, int] = {}
        for version in same:
            for kind in version.wrote:
                wrote[kind] = wrote.get(kind, 0) + 1
        found.append(
            Checkpoint(
                version=number,
                batch=number - 1,
                batch_ms=batches_ms.get(number - 1),
                made_ms=latest(version.made_ms for version in same),
                stores=len(same),
                wrote=wrote,
                deltas=max(version.deltas for version in same),
                files=sum(version.files for version in same),
                bytes=sum(version.bytes for version in same),
                new_bytes=sum(version.new_bytes for version in same),
                deltas_since_full=max(version.deltas_since_full for version in same),
                shared_bytes=sum(version.shared_bytes for version in same),
                restorable=len(same) == len(of_stores),
                restore_predicted_ms=round(max(version.restore_ms for version in same), 1),
                restore_objective_ms=objective_ms,
                reasons=sorted({version.reason for version in same if version.reason is not None}),
            )
        )
    return found
