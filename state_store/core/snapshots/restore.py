"""Restore: make a local database (a base) of the files of a version.

It takes the newest snapshot on the version's lineage and the deltas after it. Files that this machine still
has are linked, the others downloaded in parallel. If a snapshot is missing or damaged, an older one with
more deltas takes its place, with a warning that names the file. The result is exactly the requested version,
or an error that names the file and the versions that can still be restored: never another version.

A thorough restore verifies each file as a whole. Any other takes a time by the number of files, not of bytes:
it only makes sure that each is the right file, and the reader of a block verifies its checksum. A reader that
finds a damaged block restores again, thoroughly. That fetches the file from storage again or does without it.

Functions keep no state; any thread may call them, with a `StoreContext` of its own store.
"""

from __future__ import annotations

from dataclasses import replace

from state_store.core.checkpoint.lineage import Lineages, Listing, Plan, describe_restorable
from state_store.core.checkpoint.names import SnapshotName, VersionId
from state_store.core.deletion.contents import read_listing
from state_store.core.snapshots.assembly import IsLazy, LinkPages, OnTail, Restored, RestoreRun, assemble
from state_store.core.snapshots.context import StoreContext
from state_store.core.storage.local_disk import local_disk_errors
from state_store.errors import ConflictError, DamagedError, MissingError, StateStoreError

_TRIES = 3
_PAUSE_S = 0.2


@local_disk_errors()
def restore(
    context: StoreContext,
    version: VersionId,
    *,
    start: VersionId | None = None,
    thorough: bool = True,
    ingest: bool = True,
    is_lazy: IsLazy | None = None,
    on_tail: OnTail | None = None,
    link_pages: LinkPages | None = None,
) -> Restored:
    """Make a base of a version.

    Args:
        context: The store.
        version: The version. Without an id its number stands for the attempt that counts
            (`Attempts.resolve`).
        start: The version of the snapshot to start from; None lets the restore choose. Without an id it is
            the version on the lineage of `version`.
        thorough: Verify every file as a whole. Those of which only the tails are fetched are read from
            storage for that, and not kept.
        ingest: Make the deltas part of the database. Otherwise they stay loose beside it, and their reader
            checks each one's reserved record.
        is_lazy: Decides for the remote files whether only their tails are fetched, but small deltas as a
            whole. A restore that ingests ignores it.
        link_pages: Links sparse files of other bases, which a thorough restore does not take. A lazy restore
            takes no complete local copy then.
        on_tail: Observes each tail as it becomes local. The directory is removed again if the restore fails,
            or goes on in another.

    Raises:
        MissingError: A file is gone, and the version cannot be made without it.
        DamagedError: A file is damaged, and the version cannot be made without it.
        FormatError: A file is of a newer format.
        ConflictError: Two deltas claim to be one version.
        StorageError: The storage or the local disk failed.
    """
    run = RestoreRun(context.runtime.monotonic_s, thorough, ingest, is_lazy, on_tail, link_pages)
    for attempt in range(_TRIES):
        try:
            return _restore_listed(context, version, start, run)
        except MissingError:
            # A cleanup may have removed what this listing still showed, with a newer snapshot in its place.
            if attempt == _TRIES - 1 or start is not None:
                raise
        except ConflictError:
            # An attempt may be at work that is about to be refused.
            if attempt == _TRIES - 1:
                raise
            context.runtime.sleep(_PAUSE_S)
    raise AssertionError("unreachable")


def _restore_listed(
    context: StoreContext, version: VersionId, start: VersionId | None, run: RestoreRun
) -> Restored:
    with run.phase("choose_ms"):
        listing = read_listing(context.storage)
        version, start = _named(listing, version, start)
    snapshots = set(listing.snapshots)
    failure: StateStoreError | None = None
    while True:
        with run.phase("choose_ms"):
            plan = _plan(listing, snapshots, version, start, failure)
        try:
            restored = assemble(context, plan, listing, run)
            return replace(restored, seen=listing.attempts.after(version.number))
        except (DamagedError, MissingError) as error:
            if plan.snapshot is None or start is not None or _is_delta_at_fault(error, plan):
                raise _unrestorable(error, listing, snapshots, plan) from error
            run.warnings.append(f"snapshot '{plan.snapshot.path}' is not used: {error.message}")
            snapshots.discard(plan.snapshot)
            failure = failure or error


def _named(
    listing: Listing, version: VersionId, start: VersionId | None
) -> tuple[VersionId, VersionId | None]:
    """Return both versions with their ids, as far as they have any."""
    if version.checkpoint_id is None:
        version = listing.attempts.resolve(version.number) or version
    if start is not None and start.checkpoint_id is None:
        lineage = Lineages(listing.deltas, listing.snapshots).history(version)
        start = next((ancestor for ancestor in lineage if ancestor.number == start.number), start)
    return version, start


def _plan(
    listing: Listing,
    snapshots: set[SnapshotName],
    version: VersionId,
    start: VersionId | None,
    failure: StateStoreError | None,
) -> Plan:
    try:
        return Lineages(listing.deltas, snapshots).plan(version, start=start)
    except MissingError as error:
        if failure is None:
            raise
        message = f"{failure.message}; without that snapshot, {error.message}"
        raise type(failure)(message, file=failure.file) from error  # type: ignore[call-arg]


def _is_delta_at_fault(error: StateStoreError, plan: Plan) -> bool:
    return any(error.file and error.file.endswith(delta.path) for delta in plan.deltas)


def _unrestorable(
    error: DamagedError | MissingError, listing: Listing, snapshots: set[SnapshotName], plan: Plan
) -> StateStoreError:
    """Return the same error, with the versions that can be restored without the file that it names."""
    bad = {delta for delta in plan.deltas if error.file and error.file.endswith(delta.path)}
    bad_snapshots = {plan.snapshot} if plan.snapshot and not bad else set()
    left = Lineages(set(listing.deltas) - bad, snapshots - bad_snapshots).restorable()
    message = f"version {plan.version} cannot be restored: {error.message}; {describe_restorable(left)}"
    return type(error)(message, file=error.file)
