"""Figures of one store, from its files: as a restore sees them, and over its history. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from state_store.core.checkpoint.names import DeltaName, SnapshotName, VersionId, origin_of
from state_store.core.checkpoint.stored_documents import FULL, Manifest
from state_store.core.planning.cost import CostModel, RestoreWork
from state_store.data.dataset.checkpoints import FoundStore
from state_store.data.query import CommitTimes
from state_store.observe.rest_answers import AgeBytes, Failure, File, Store, StoreFiles

AGES = ((10, "0-9"), (100, "10-99"), (1000, "100-999"))


OLDEST = "1000+"


_OVERDUE_MS = 2 * 3_600_000
"""Time of commits after which a file that a clean-up condemned is taken to stay; leases hold for an hour."""


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
        new_bytes: bytes of the files that a restore of it reads and no older version needs.
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
    figures: list[VersionFigures] = []
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
        figures.append(
            VersionFigures(
                version.number,
                store.made_ms(version, times),
                wrote,
                deltas,
                deltas + (base.deltas_since_full if base else 0),
                files,
                size,
                store.new_bytes(version),
                base.older[1] if base else 0,
                cost.predict_restore_ms(RestoreWork(files, size, deltas)) if files else 0.0,
                None if own is None else own.reason,
            )
        )
    return figures


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
    needed_paths = {file.path for file in store.registry.entries()}
    unneeded = [size for path, size in stored.items() if path not in needed_paths]
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
        undeletable_files=len(_overdue(store) - needed_paths),
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


def version_of(store: FoundStore, number: int, newest: VersionId | None) -> VersionId | None:
    """Return the version that can be restored and has a number; None without one.

    Other attempts at it, which Spark did not commit, may be there, too.

    Args:
        store: the store.
        number: the number.
        newest: the version that Spark committed last, if it is known.
    """
    same = [version for version in store.registry.checkpoints() if version.number == number]
    line = () if newest is None else store.contents.lineages.history(newest)
    return next((version for version in line if version in same), same[0] if len(same) == 1 else None)


def store_files(store: FoundStore, *, version: VersionId | None = None, limit: int) -> StoreFiles:
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
    paths_of_version = None if version is None else {needed.path for needed in store.registry.files(version)}
    listing = store.contents.listing
    sizes = listing.sst_bytes()
    archives = {name.path: name.version for name in listing.snapshots}
    sizes.update({name.path: size for name, size in listing.snapshots.items()})
    files = []
    for path, size in sizes.items():
        numbers = holders.get(path, [])
        if paths_of_version is not None and path not in paths_of_version:
            continue
        origin = archives[path] if path in archives else origin_of(path)
        kind = "snapshot" if path in archives else path.partition("/")[0]
        files.append(
            File(
                path, kind, size, origin, len(numbers), min(numbers, default=None), max(numbers, default=None)
            )
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
        version=None if version is None else version.number,
        versions=sorted({held.number for held in restorable}),
        snapshots=kinds,
        files=files[-limit:],
        omitted=max(0, len(files) - limit),
    )
