"""Preview of `Retention.sweep`, which writes nothing to the storage."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from state_store.core.checkpoint.names import VersionId
from state_store.core.deletion.contents import StoreContents, refuse_newer_formats
from state_store.core.deletion.deletion_plan import DeletionPlan
from state_store.core.deletion.markers import Leases, has_run_out
from state_store.core.deletion.retention_policy import Cleanup
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage.contract import Entry, Storage


def preview(
    storage: Storage,
    newest: VersionId,
    older_than_ms: int,
    lease_expiry_ms: int,
    discarded: Collection[str] = (),
    *,
    runtime: Runtime = SYSTEM,
) -> Cleanup:
    """Return the result that a sweep would have now.

    This machine's clock stands for the storage's, which a sweep reads by a write.

    Args:
        storage: the storage of the store.
        newest: the newest committed version.
        older_than_ms: files that are younger stay.
        lease_expiry_ms: time for which a damaged lease or tombstone counts.
        discarded: damaged files that count as absent and would be deleted, too.
        runtime: the clock.

    Raises:
        FormatError: If files are of a newer program.
        StorageError: If the storage fails.
    """
    now_ms = runtime.wall_ms()
    contents = StoreContents.read(storage)
    refuse_newer_formats(contents.snapshots)
    before_ms = now_ms - older_than_ms
    plan = DeletionPlan.of_all(contents.without(discarded), newest)
    tombstones, leases = contents.tombstones, Leases.read(storage)
    young = [
        path
        for path, entry in tombstones.damaged.items()
        if not has_run_out(now_ms - entry.modified_ms, lease_expiry_ms)
    ]
    skipped = f"'{young[0]}' is damaged, and young" if young else plan.why_blocked()
    if skipped is not None:
        return Cleanup(floor=0, skipped=skipped, warnings=tuple(plan.warnings()))
    expired = {
        path
        for path, lease in leases.leases.items()
        if lease.is_expired(int(now_ms), now_ms, lease_expiry_ms)
    }
    candidates = plan.old_candidates(before_ms) | (contents.entries.keys() & set(discarded))
    live = [lease.terms for path, lease in leases.leases.items() if path not in expired]
    in_use = frozenset().union(*(candidates if terms is None else terms.files for terms in live))
    named = {
        entry.path
        for name, manifest in contents.manifests.items()
        if name.path not in candidates
        for entry in manifest.files
    }
    deletable = candidates - in_use - named
    left = contents.entries.keys() - deletable
    finished = {path for path, files in tombstones.files.items() if not files & left}
    unfinished: Mapping[str, Entry] = {
        **contents.unfinished,
        **tombstones.unfinished,
        **leases.unfinished,
        **{path: leases.leases[path].entry for path in expired},
    }
    return Cleanup(
        floor=plan.floor,
        deleted=tuple(sorted(deletable)),
        deleted_bytes=sum(contents.entries[path].size_bytes for path in deletable),
        swept={
            **{path: tombstones.entries[path] for path in finished},
            **{path: entry for path, entry in unfinished.items() if entry.modified_ms < before_ms},
            **tombstones.damaged,
        },
        retained=tuple(plan.registry.checkpoints()),
        registry=plan.registry,
        warnings=tuple(plan.warnings()),
    )
