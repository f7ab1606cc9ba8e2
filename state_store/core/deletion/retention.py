"""Clean-up of a store: deletes the files that no retained checkpoint needs.

The cleaner's half of the protocol of docs/deletion.md:

1. Read the store (snapshots, *then* tombstones, *then* files); find the files that no checkpoint needs.
2. Write a tombstone that names them: from now on no writer begins to refer to them.
3. *Then* read the leases; *then* list the snapshots again: files that a live lease or a snapshot names stay.
4. Delete the others, archives of snapshots first, and then the tombstones whose files are all gone. A file
   that the storage refuses to delete keeps no other one, but for the files of an archive.

A tombstone is never deleted while a file of it exists: another cleaner may have relied on it already.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from state_store.core.checkpoint.names import (
    SNAPSHOT_DIRECTORY,
    TOMBSTONE_DIRECTORY,
    SnapshotName,
    VersionId,
    is_refused_path,
    is_snapshot_path,
    is_sst_path,
    tombstone_path,
)
from state_store.core.checkpoint.registry import Registry
from state_store.core.checkpoint.stored_documents import pack_tombstone
from state_store.core.deletion.contents import (
    ReadSnapshot,
    StoreContents,
    read_snapshots,
    refuse_newer_formats,
)
from state_store.core.deletion.deletion_plan import DeletionPlan
from state_store.core.deletion.deletions import Deletions
from state_store.core.deletion.markers import (
    FUTURE_LEASE_FACTOR,
    Leases,
    ReadLease,
    Tombstones,
    has_run_out,
)
from state_store.core.deletion.retention_policy import LEAST_CHECKPOINTS, Cleanup, RetentionPolicy
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage.contract import Entry, Storage
from state_store.errors import DamagedError, InternalError


class Retention:
    """Clean-up of one store.

    One clean-up at a time per process; concurrent ones in other processes are safe even on old listings. The
    wall clock tells the age of checkpoints. A lease runs out, and a left-over file is swept, only if the
    wall clock and the storage's clock agree.

    Args:
        storage: the storage of the store.
        policy: the checkpoints that stay.
        threads: files that are deleted at a time.
        runtime: clocks, random names and threads.
    """

    def __init__(
        self,
        storage: Storage,
        policy: RetentionPolicy,
        *,
        threads: int = 1,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self._storage = storage
        self._policy = policy
        self._runtime = runtime
        self._deletions = Deletions(storage, threads, runtime)
        self._known: Mapping[SnapshotName, ReadSnapshot] = {}
        self._committed_ms: Mapping[int, int] | None = None

    def is_due(self, registry: Registry, newest: VersionId) -> bool:
        """Return True if a clean-up would delete something, without a storage call."""
        if self._policy.age_ms and self._committed_ms is None:
            return newest.number > LEAST_CHECKPOINTS
        return bool(registry.freed_below(self._floor(newest, registry, self._committed_ms or {})))

    def cleanup(self, newest: VersionId) -> Cleanup:
        """Retire the versions that the policy does not keep, and delete the files that only they need.

        Nothing is deleted if `newest` cannot be restored, if a retained version needs a snapshot in doubt, or
        if a tombstone is damaged whose cleaner may be at work. A damaged lease holds all files while its
        writer may be at work.

        Args:
            newest: the newest committed version.

        Raises:
            FormatError: If files are of a newer program.
            StorageError: If the storage fails, but for deletions: `Cleanup.refused` has those that failed.
        """
        if newest.number <= self._policy.least_decided:
            return Cleanup(floor=1)
        contents = self._read()
        floor = self._floor(newest, contents.registry(), contents.committed_ms)
        return self._clean(contents, DeletionPlan(contents, newest, floor))

    def sweep(self, newest: VersionId, older_than_ms: int, discarded: Collection[str] = ()) -> Cleanup:
        """Delete old files that no restorable version needs; retire no version.

        Those are also leases and tombstones of dead processes, and unfinished writes. Unlike a clean-up it
        reads the storage's time by a write, so that it works if nothing has been written for long.

        Args:
            newest: the newest committed version.
            older_than_ms: files that were modified later stay.
            discarded: damaged files; they count as absent and are deleted at any age, unless a live lease or
                a snapshot names them.

        Raises:
            FormatError: If files are of a newer program.
            StorageError: If the storage fails, but for deletions: `Cleanup.refused` has those that failed.
        """
        contents = self._read()
        before_ms = min(self._storage_ms(None), self._runtime.wall_ms()) - older_than_ms
        plan = DeletionPlan.of_all(contents.without(discarded), newest)
        return self._clean(contents, plan, before_ms, contents.entries.keys() & set(discarded))

    def _read(self) -> StoreContents:
        contents = StoreContents.read(self._storage, self._known)
        refuse_newer_formats(contents.snapshots)
        self._known, self._committed_ms = contents.snapshots, contents.committed_ms
        return contents

    def _clean(
        self,
        contents: StoreContents,
        plan: DeletionPlan,
        before_ms: float | None = None,
        discarded: Collection[str] = (),
    ) -> Cleanup:
        """Delete the files of the plan; with `before_ms` only those modified before it, and `discarded`."""
        self._deletions.begin()
        warnings = tuple(plan.warnings())
        skipped = self._blocking_tombstone(contents.tombstones) or plan.why_blocked()
        if skipped is not None:
            return Cleanup(floor=0, registry=contents.registry(), skipped=skipped, warnings=warnings)
        deleted, marks, lease_warnings = self._delete(contents, plan, before_ms, discarded)
        refused = self._deletions.refused
        swept = {**contents.tombstones.damaged, **marks}
        return Cleanup(
            floor=plan.floor,
            deleted=tuple(deleted),
            deleted_bytes=sum(contents.entries[path].size_bytes for path in deleted),
            swept={path: entry for path, entry in swept.items() if path not in refused},
            refused=refused,
            retained=tuple(plan.registry.checkpoints()),
            registry=plan.registry,
            warnings=(*warnings, *lease_warnings, *self._deletions.warnings()),
        )

    def _floor(self, newest: VersionId, registry: Registry, committed_ms: Mapping[int, int]) -> int:
        """Return the lowest version that stays."""
        too_old = 0
        if self._policy.age_ms:
            limit_ms = self._runtime.wall_ms() - self._policy.age_ms
            too_old = max((version for version, at_ms in committed_ms.items() if at_ms < limit_ms), default=0)
        return self._policy.floor(newest.number, registry, too_old)

    def _blocking_tombstone(self, tombstones: Tombstones) -> str | None:
        """Return the message about a young damaged tombstone, or None; delete those that ran out."""
        if not tombstones.damaged:
            return None
        now_ms = self._storage_ms(None)
        for path, entry in tombstones.damaged.items():
            if not has_run_out(now_ms - entry.modified_ms, self._policy.lease_expiry_ms):
                return (
                    f"'{path}' is damaged, so it is not known which files another clean-up is deleting; it "
                    f"counts until it is {self._policy.lease_expiry_ms} ms old"
                )
            self._deletions.delete([path])
        return None

    def _delete(
        self,
        contents: StoreContents,
        plan: DeletionPlan,
        before_ms: float | None,
        discarded: Collection[str],
    ) -> tuple[list[str], dict[str, Entry], list[str]]:
        """Delete; return the deleted files, the deleted marks and unfinished writes, and warnings."""
        if before_ms is None:
            # The newest file tells the storage's time, or an earlier one, unless its clock was ahead.
            newest_ms = max((entry.modified_ms for entry in contents.entries.values()), default=0)
            now_ms = min(newest_ms, self._runtime.wall_ms())
            unfinished_ms, marks_ms = float(now_ms - self._policy.temporary_expiry_ms), math.inf
            candidates = plan.candidates(unfinished_ms)
            if not candidates and not contents.tombstones.files:
                return [], {}, []
        else:
            candidates = plan.old_candidates(before_ms) | set(discarded)
            unfinished_ms, marks_ms = before_ms, before_ms
        written = self._write_tombstone(candidates - plan.condemned)
        leases = Leases.read(self._storage)
        expired = self._expired(leases.leases, written)
        live = {path: lease for path, lease in leases.leases.items() if path not in expired}
        in_use = self._referenced_files(contents, candidates).union(
            *(candidates if lease.terms is None else lease.terms.files for lease in live.values())
        )
        deletable = candidates - in_use
        _check(deletable, plan)
        archives = {path for path in deletable if path.startswith(SNAPSHOT_DIRECTORY)}
        left = self._deletions.delete(archives)
        left |= deletable & _files_of(left, contents)
        left |= self._deletions.delete(deletable - archives - left)
        deleted = deletable - left
        finished = self._delete_finished_tombstones(contents, plan, written, candidates, deleted)
        unfinished = {**contents.unfinished, **contents.tombstones.unfinished, **leases.unfinished}
        dead = {path: lease.entry for path, lease in leases.leases.items() if path in expired}
        dead = {path: entry for path, entry in dead.items() if entry.modified_ms < marks_ms}
        swept = self._sweep(dead, unfinished, unfinished_ms)
        return sorted(deleted), {**finished, **swept}, self._lease_warnings(live)

    def _lease_warnings(self, leases: Mapping[str, ReadLease]) -> list[str]:
        """Return warnings about live leases that hold files for longer than they were meant to."""
        now_ms = self._runtime.wall_ms()
        warnings = []
        for path, lease in leases.items():
            if lease.terms is None:
                warnings.append(
                    f"'{path}' is damaged, so it is not known which files its writer refers to: none is "
                    f"deleted until it is {self._policy.lease_expiry_ms} ms old"
                )
            elif lease.is_from_the_future(now_ms):
                warnings.append(
                    f"'{path}' was written {lease.terms.written_ms - now_ms:.0f} ms in the future by the "
                    "clock of its writer's machine: its files stay until it is "
                    f"{FUTURE_LEASE_FACTOR * lease.terms.expiry_ms} ms old. Set that clock"
                )
        return warnings

    def _write_tombstone(self, paths: set[str]) -> str | None:
        """Write a tombstone and return its path; return None if there is nothing to write."""
        if not paths:
            return None
        path = tombstone_path(self._runtime.unique())
        self._storage.write(path, pack_tombstone(paths))
        return path

    def _expired(self, leases: Mapping[str, ReadLease], written: str | None) -> set[str]:
        """Return the paths of the leases of dead writers."""
        if not leases:
            return set()
        storage_ms, wall_ms = self._storage_ms(written), self._runtime.wall_ms()
        expiry_ms = self._policy.lease_expiry_ms
        return {path for path, lease in leases.items() if lease.is_expired(storage_ms, wall_ms, expiry_ms)}

    def _storage_ms(self, written: str | None) -> int:
        """Return the storage's time when the tombstone `written`, or an empty one, appeared.

        Times of other files may come from a machine whose clock was ahead. Return 0, so that nothing counts
        as old, if another cleaner has deleted the tombstone already.
        """
        path = written
        if path is None:
            path = tombstone_path(self._runtime.unique())
            self._storage.write(path, pack_tombstone([]))
        entries = self._storage.list_files(TOMBSTONE_DIRECTORY)
        if written is None:
            self._deletions.delete([path])
        return next((entry.modified_ms for entry in entries if path.endswith(f"/{entry.name}")), 0)

    def _referenced_files(self, contents: StoreContents, candidates: set[str]) -> set[str]:
        """Return the present snapshots and the files that they name, except snapshots to be deleted.

        A snapshot that was replaced since it was read is another one, and stays.
        """
        files: set[str] = set()
        snapshots = read_snapshots(self._storage, contents.snapshots)
        refuse_newer_formats(snapshots)
        for name, read in snapshots.items():
            is_known = name in contents.snapshots and contents.snapshots[name].entry == read.entry
            if name.path in candidates and is_known:
                continue
            if read.manifest is not None:
                files |= {name.path, *(entry.path for entry in read.manifest.files)}
            elif not is_known:
                raise DamagedError(
                    f"'{name.path}', which has just appeared, is damaged, so it is not known which files it "
                    "needs, and none is deleted this time",
                    file=name.path,
                )
        return files

    def _delete_finished_tombstones(
        self,
        contents: StoreContents,
        plan: DeletionPlan,
        written: str | None,
        condemned: set[str],
        deleted: set[str],
    ) -> dict[str, Entry]:
        """Delete finished tombstones, ours and those read before the files; return the latter."""
        remaining = contents.entries.keys() - deleted
        finished: dict[str, Entry] = {}
        for path, files in contents.tombstones.files.items():
            if not files & remaining:
                self._deletions.delete([path])
                finished[path] = contents.tombstones.entries[path]
        if written and condemned - plan.condemned <= deleted:
            self._deletions.delete([written])
        return finished

    def _sweep(
        self, expired: dict[str, Entry], unfinished: Mapping[str, Entry], before_ms: float
    ) -> dict[str, Entry]:
        """Delete leases of dead writers and old unfinished writes; return both."""
        dead = {path: entry for path, entry in unfinished.items() if entry.modified_ms < before_ms}
        self._deletions.delete(expired | dead)
        return expired | dead


def _files_of(archives: set[str], contents: StoreContents) -> set[str]:
    """Return the files of snapshots whose archives could not be deleted: what is visible stays whole.

    A damaged archive may name any file that no other one names.
    """
    manifests = {name.path: manifest for name, manifest in contents.manifests.items()}
    files = {entry.path for path in archives & manifests.keys() for entry in manifests[path].files}
    if archives - manifests.keys():
        named = {entry.path for manifest in manifests.values() for entry in manifest.files}
        files |= {name.path for name in contents.listing.shared} - named
    return files


def _check(deletable: set[str], plan: DeletionPlan) -> None:
    """Check the plan in a second way before files are deleted. Raises InternalError."""
    needed = {file.path for file in plan.registry.entries()} & deletable
    kinds = (is_sst_path, is_snapshot_path, is_refused_path)
    foreign = {path for path in deletable if not any(is_of(path) for is_of in kinds)}
    if needed or foreign:
        raise InternalError(
            f"a clean-up was about to delete '{min(needed | foreign)}', which "
            f"{'a retained version needs' if needed else 'is not of this store'}: nothing was deleted. "
            "Please report this with the agent's log",
            file=min(needed | foreign),
        )
