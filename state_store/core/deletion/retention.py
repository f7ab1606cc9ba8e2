"""Which checkpoints stay, and the deletion of the files that none of them needs.

The cleaner's half of the protocol of docs/deletion.md:

1. Read the store (snapshots, *then* tombstones, *then* files) and decide what no retained checkpoint needs.
2. Write a tombstone that names these files: from now on no writer begins to refer to them.
3. *Then* read the leases; *then* list the snapshots again: what a live lease or a snapshot names stays.
4. Delete the others, archives of snapshots first, and then the tombstones whose files are all gone.

A tombstone is never taken back while a file of it exists: another cleaner may have decided upon it already.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from state_store.core.checkpoint.file_list import pack_tombstone
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
from state_store.core.deletion.contents import (
    ReadSnapshot,
    StoreContents,
    read_snapshots,
    refuse_newer_formats,
)
from state_store.core.deletion.deletion_plan import DeletionPlan
from state_store.core.deletion.markers import (
    FUTURE_LEASE_FACTOR,
    Leases,
    ReadLease,
    Tombstones,
    has_run_out,
)
from state_store.core.deletion.policy import LEAST_CHECKPOINTS, Cleanup, RetentionPolicy
from state_store.core.files.transfer import parallel
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage.contract import Entry, Storage
from state_store.errors import DamagedError, InternalError


class Retention:
    """Cleans one store. One clean-up at a time here; others in other processes, on stale knowledge, do no
    harm.

    The wall clock tells the age of checkpoints; a lease runs out only when it and the storage's clock agree,
    and a left-over file is swept only when both call it old. `threads` delete at once.
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
        self._threads = threads
        self._runtime = runtime
        self._known: Mapping[SnapshotName, ReadSnapshot] = {}
        self._committed_ms: Mapping[int, int] | None = None

    def is_due(self, registry: Registry, newest: VersionId) -> bool:
        """Whether a clean-up would find something, by what this process knows; makes no storage call."""
        if self._policy.age_ms and self._committed_ms is None:
            return newest.number > LEAST_CHECKPOINTS
        return bool(registry.freed_below(self._floor(newest, self._committed_ms or {})))

    def cleanup(self, newest: VersionId) -> Cleanup:
        """Retires what is older than the policy keeps, seen from `newest`, the newest committed version.

        Deletes nothing when `newest` itself cannot be restored, when a retained version hangs on a snapshot
        that may be about to break, or when a tombstone cannot be read that a cleaner may be at work on.
        While a lease that cannot be read may be that of a writer at work, it counts as one on all files.
        Raises FormatError on files of a newer program, and as the storage does; what was not deleted is found
        again the next time.
        """
        if newest.number <= (LEAST_CHECKPOINTS if self._policy.age_ms else self._policy.keep):
            return Cleanup(floor=1)
        contents = self._read()
        return self._clean(
            contents, DeletionPlan(contents, newest, self._floor(newest, contents.committed_ms))
        )

    def sweep(self, newest: VersionId, older_than_ms: int, discarded: Collection[str] = ()) -> Cleanup:
        """Takes away what no version needs that can be restored, the leases and tombstones of the dead, and
        unfinished writes: all that was last modified more than `older_than_ms` ago. Retires no version.

        `discarded` are damaged files: they count as absent, and go however old they are, but for those that a
        live lease or a snapshot names. Unlike a clean-up it asks the storage for its time, so that it works
        where nothing has been written for long. Deletes nothing, and raises, as `cleanup` does.
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
        """Deletes what the plan lets go; with `before_ms` only files last modified before that time, and
        those that are discarded.
        """
        warnings = tuple(plan.warnings())
        skipped = self._blocking_tombstone(contents.tombstones) or plan.why_blocked()
        if skipped is not None:
            return Cleanup(floor=0, registry=contents.registry(), skipped=skipped, warnings=warnings)
        deleted, marks, lease_warnings = self._delete(contents, plan, before_ms, discarded)
        return Cleanup(
            floor=plan.floor,
            deleted=tuple(deleted),
            deleted_bytes=sum(contents.entries[path].size_bytes for path in deleted),
            swept={**contents.tombstones.damaged, **marks},
            retained=tuple(plan.registry.checkpoints()),
            registry=plan.registry,
            warnings=(*warnings, *lease_warnings),
        )

    def _floor(self, newest: VersionId, committed_ms: Mapping[int, int]) -> int:
        """The lowest version that stays."""
        floor = newest.number - self._policy.keep + 1
        if self._policy.age_ms:
            limit_ms = self._runtime.wall_ms() - self._policy.age_ms
            floor = max(
                [floor, *(version + 1 for version, at_ms in committed_ms.items() if at_ms < limit_ms)]
            )
        return max(1, min(floor, newest.number - LEAST_CHECKPOINTS + 1))

    def _blocking_tombstone(self, tombstones: Tombstones) -> str | None:
        """The damaged tombstone for which nothing can be decided yet; those that ran out are deleted."""
        if not tombstones.damaged:
            return None
        now_ms = self._storage_ms(None)
        for path, entry in tombstones.damaged.items():
            if not has_run_out(now_ms - entry.modified_ms, self._policy.lease_expiry_ms):
                return (
                    f"'{path}' is damaged, so it is not known which files another clean-up is deleting; it "
                    f"counts until it is {self._policy.lease_expiry_ms} ms old"
                )
            self._storage.delete(path)
        return None

    def _delete(
        self,
        contents: StoreContents,
        plan: DeletionPlan,
        before_ms: float | None,
        discarded: Collection[str],
    ) -> tuple[list[str], dict[str, Entry], list[str]]:
        """The files that it deleted, the leases, tombstones and unfinished writes that it did,
        and warnings.
        """
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
        self._delete_all(path for path in deletable if path.startswith(SNAPSHOT_DIRECTORY))
        self._delete_all(path for path in deletable if not path.startswith(SNAPSHOT_DIRECTORY))
        finished = self._delete_finished_tombstones(contents, plan, written, candidates, deletable)
        unfinished = {**contents.unfinished, **contents.tombstones.unfinished, **leases.unfinished}
        dead = {path: lease.entry for path, lease in leases.leases.items() if path in expired}
        dead = {path: entry for path, entry in dead.items() if entry.modified_ms < marks_ms}
        swept = self._sweep(dead, unfinished, unfinished_ms)
        return sorted(deletable), {**finished, **swept}, self._lease_warnings(live)

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
        """Writes a tombstone, and returns its path; None when there is nothing to write."""
        if not paths:
            return None
        path = tombstone_path(self._runtime.unique())
        self._storage.write(path, pack_tombstone(paths))
        return path

    def _expired(self, leases: Mapping[str, ReadLease], written: str | None) -> set[str]:
        """The paths of the leases of dead writers."""
        if not leases:
            return set()
        storage_ms, wall_ms = self._storage_ms(written), self._runtime.wall_ms()
        expiry_ms = self._policy.lease_expiry_ms
        return {path for path, lease in leases.items() if lease.is_expired(storage_ms, wall_ms, expiry_ms)}

    def _storage_ms(self, written: str | None) -> int:
        """The storage's time when the tombstone `written`, or one that is made for that, appeared there.

        No other file tells it: their times may come from a machine whose clock was ahead. 0, so that nothing
        counts as old, when another cleaner has buried the tombstone already.
        """
        path = written
        if path is None:
            path = tombstone_path(self._runtime.unique())
            self._storage.write(path, pack_tombstone([]))
        entries = self._storage.list_files(TOMBSTONE_DIRECTORY)
        if written is None:
            self._storage.delete(path)
        return next((entry.modified_ms for entry in entries if path.endswith(f"/{entry.name}")), 0)

    def _referenced_files(self, contents: StoreContents, candidates: set[str]) -> set[str]:
        """The snapshots there are now and the files that they name, but for those that are going themselves.

        One that was replaced since it was read is another snapshot, and stays.
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

    def _delete_all(self, paths: Iterable[str]) -> None:
        parallel(self._threads, self._storage.delete, sorted(paths), runtime=self._runtime)

    def _delete_finished_tombstones(
        self,
        contents: StoreContents,
        plan: DeletionPlan,
        written: str | None,
        condemned: set[str],
        deleted: set[str],
    ) -> dict[str, Entry]:
        """Removes the tombstones, ours and those seen before the files were, none of whose files is left;
        gives the latter.
        """
        left = contents.entries.keys() - deleted
        finished: dict[str, Entry] = {}
        for path, files in contents.tombstones.files.items():
            if not files & left:
                self._storage.delete(path)
                finished[path] = contents.tombstones.entries[path]
        if written and condemned - plan.condemned <= deleted:
            self._storage.delete(written)
        return finished

    def _sweep(
        self, expired: dict[str, Entry], unfinished: Mapping[str, Entry], before_ms: float
    ) -> dict[str, Entry]:
        """Removes the leases of dead writers, and unfinished writes that were last modified before that
        time; gives both.
        """
        dead = {path: entry for path, entry in unfinished.items() if entry.modified_ms < before_ms}
        self._delete_all(expired | dead)
        return expired | dead


def _check(deletable: set[str], plan: DeletionPlan) -> None:
    """What has to be so before files may be deleted, asked in another way than it was decided. Raises
    InternalError, and none is deleted.
    """
    needed = {file.path for file in plan.registry.entries()} & deletable
    kinds = (is_sst_path, is_snapshot_path, is_refused_path)
    foreign = {path for path in deletable if not any(is_one(path) for is_one in kinds)}
    if needed or foreign:
        raise InternalError(
            f"a clean-up was about to delete '{min(needed | foreign)}', which "
            f"{'a retained version needs' if needed else 'is not of this store'}: nothing was deleted. "
            "Please report this with the agent's log",
            file=min(needed | foreign),
        )
