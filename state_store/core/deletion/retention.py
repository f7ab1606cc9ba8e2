"""Clean-up of a store: deletes the files that no retained checkpoint needs.

A `RetentionPolicy` says which versions stay. A `DeletionPlan` says, from one reading of the store and without
a storage call, which files may go. `Retention` is the cleaner, with its half of the protocol of
docs/deletion.md:

1. Read the store (snapshots, *then* tombstones, *then* files); find the files that no checkpoint needs.
2. Write a tombstone that names them: from now on no writer begins to refer to them.
3. *Then* read the leases; *then* list the snapshots again: files that a live lease or a snapshot names stay.
4. Delete the others, archives of snapshots first, and then the tombstones whose files are all gone. A file
   that the storage refuses to delete keeps no other one, but for the files of an archive (`Deletions`).

A tombstone is never deleted while a file of it exists: another cleaner may have relied on it already.
`preview` says what a sweep would delete, and writes nothing to the storage.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

from state_store.core.checkpoint import names
from state_store.core.checkpoint.lineage import Lineages
from state_store.core.checkpoint.registry import Registry
from state_store.core.checkpoint.stored_documents import Manifest, pack_tombstone
from state_store.core.deletion.lease import (
    DEFAULT_EXPIRY_MS,
    FUTURE_LEASE_FACTOR,
    Leases,
    ReadLease,
    ReadSnapshot,
    StoreContents,
    Tombstones,
    has_run_out,
    read_snapshots,
    refuse_newer_formats,
)
from state_store.core.files.transfer import parallel
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.settings.options import Options
from state_store.core.storage.contract import Entry, Failures, Storage
from state_store.errors import DamagedError, InternalError, StorageError, UnknownOutcomeError

# The newest version may belong to a batch that Spark has not committed; a restart then needs the one before.
MIN_CHECKPOINTS = 2

MIN_CHECKPOINTS_WHERE_LARGE = 10
"""Newest versions that stay where those before a full checkpoint go for their size."""


@dataclass(frozen=True)
class RetentionPolicy:
    """The checkpoints that stay.

    Attributes:
        batches: versions that stay: Spark's `minBatchesToRetain`.
        checkpoints: fewer versions that stay; 0: as many as `batches`.
        age_ms: age from which versions are retired sooner; 0: never.
        lease_expiry_ms: time for which a damaged lease counts, which does not say when it runs out.
        temporary_expiry_ms: age from which unfinished writes and files that no snapshot names are swept.
        older_bytes: bytes of files which only versions before the newest full checkpoint need, above which
            these versions are retired sooner; 0: never.
    """

    batches: int
    checkpoints: int = 0
    age_ms: int = 0
    lease_expiry_ms: int = DEFAULT_EXPIRY_MS
    temporary_expiry_ms: int = 86_400_000
    older_bytes: int = 0

    @classmethod
    def of(cls, options: Options, batches: int) -> RetentionPolicy:
        """Return the policy of a query's options, with Spark's `minBatchesToRetain`."""
        return cls(
            batches,
            options.retained_checkpoints,
            options.retained_age_ms,
            options.lease_expiry_ms,
            options.temporary_expiry_ms,
            options.retained_older_bytes,
        )

    @property
    def keep(self) -> int:
        """Number of versions that stay, the newest included."""
        wanted_checkpoints = min(self.batches, self.checkpoints) if self.checkpoints else self.batches
        return max(wanted_checkpoints, MIN_CHECKPOINTS)

    @property
    def min_decided(self) -> int:
        """The newest version up to which every version stays, whatever the files."""
        if self.age_ms:
            return MIN_CHECKPOINTS
        return min(self.keep, MIN_CHECKPOINTS_WHERE_LARGE) if self.older_bytes else self.keep

    def floor(self, newest: int, registry: Registry, too_old: int = 0) -> int:
        """Return the lowest version that stays.

        Args:
            newest: the newest committed version.
            registry: the files that versions need.
            too_old: versions up to this one are older than `age_ms`.
        """
        floor = max(newest - self.keep, too_old) + 1
        if self.older_bytes:
            cut = registry.last_cut(newest - MIN_CHECKPOINTS_WHERE_LARGE + 1) or 0
            if cut > floor:
                older_bytes = registry.bytes_freed_below(cut)
                if older_bytes > self.older_bytes:
                    floor = cut
        return max(1, min(floor, newest - MIN_CHECKPOINTS + 1))


@dataclass(frozen=True)
class Cleanup:
    """Result of a clean-up.

    Attributes:
        floor: versions below it are retired; 0 if nothing was decided.
        deleted: paths of the deleted files.
        deleted_bytes: their bytes.
        retained: the versions that can be restored.
        registry: the files that the versions from `floor` up need, if it was read.
        swept: leases, tombstones and unfinished writes that were deleted, by path.
        refused: files that the storage did not let go, with its reasons; the next clean-up tries again.
        skipped: why nothing was decided, or None.
        warnings: damaged files that counted as absent.
    """

    floor: int
    deleted: tuple[str, ...] = ()
    deleted_bytes: int = 0
    retained: tuple[names.VersionId, ...] = ()
    registry: Registry | None = None
    swept: Mapping[str, Entry] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    skipped: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeletionPlan:
    """The files of a store that a clean-up may delete.

    A snapshot is *uncondemned* if all its files exist and neither it nor one of them is condemned: no cleaner
    can be about to break it. The others are in doubt. The plan is right whether they stay restorable or not.

    Attributes:
        contents: the files of the store.
        newest: the newest version.
        floor: the lowest version that stays.
    """

    contents: StoreContents
    newest: names.VersionId
    floor: int

    @classmethod
    def of_all(cls, contents: StoreContents, newest: names.VersionId) -> DeletionPlan:
        """Return the plan that retires no version.

        A version stays if it can be made without the files that a dead clean-up condemned, or if it could be
        made once a damaged archive has been put back from a copy.
        """
        everything = cls(contents, newest, 0)
        deltas = [delta for delta in contents.listing.deltas if delta.path not in everything.condemned]
        staying = Lineages(deltas, everything.uncondemned_snapshots).restorable()
        damaged = [name.version for name, read in contents.snapshots.items() if read.error is not None]
        return cls(contents, newest, min((*(version.number for version in staying), *damaged), default=0))

    @cached_property
    def registry(self) -> Registry:
        """The files that the versions that stay need."""
        return self.contents.registry(self.floor)

    @cached_property
    def condemned(self) -> frozenset[str]:
        return self.contents.tombstones.condemned()

    @cached_property
    def uncondemned_snapshots(self) -> dict[names.SnapshotName, Manifest]:
        return {
            name: manifest
            for name, manifest in self.contents.restorable_snapshots.items()
            if self.condemned.isdisjoint([name.path, *(entry.path for entry in manifest.files)])
        }

    def why_blocked(self) -> str | None:
        """Return why nothing may be deleted, or None.

        Either the newest version cannot be restored, or a version that stays needs a snapshot in doubt.
        """
        restorable = self.registry.checkpoints()
        if self.newest not in restorable:
            return f"version {self.newest} cannot be restored from the files that are there"
        certain = set(self._uncondemned_registry.checkpoints())
        doubtful = [version for version in restorable if version not in certain]
        if doubtful:
            return (
                f"version {doubtful[0]} needs a snapshot of which another clean-up has condemned a file; "
                "the next merge ends that"
            )
        return None

    def warnings(self) -> list[str]:
        """Return a warning for each damaged archive that stays and each damaged tombstone."""
        return [
            f"tombstone '{path}' is damaged: what it condemned may stay until it is condemned again"
            for path in self.contents.tombstones.damaged
        ] + [
            f"snapshot '{name.path}' counts as absent: {read.error}"
            for name, read in self.contents.snapshots.items()
            if read.error is not None and name not in self._going
        ]

    def candidates(self, orphaned_before_ms: float) -> set[str]:
        """Return the files that no staying version needs, with and without the snapshots in doubt.

        Args:
            orphaned_before_ms: shared files that no snapshot names, and that were modified later, stay: they
                may be on their way into a snapshot (see `_orphans`).
        """
        going = self._going
        needed_files = set(self._needed)
        for name, manifest in self.contents.manifests.items():
            if name not in going:
                needed_files |= {entry.path for entry in manifest.files}
        deltas = {delta.path for delta in self.contents.listing.deltas if delta.version < self.floor}
        deltas |= {mark.path for mark in self.contents.listing.refused if mark.version < self.floor}
        return ({name.path for name in going} | deltas | self._shared(orphaned_before_ms)) - needed_files

    def old_candidates(self, before_ms: float) -> set[str]:
        """Return the candidates that were modified before that time and that no staying snapshot names."""
        entries = self.contents.entries
        old = {path for path in self.candidates(before_ms) if entries[path].modified_ms < before_ms}
        manifests = self.contents.manifests.items()
        named_files = {
            entry.path for name, manifest in manifests if name.path not in old for entry in manifest.files
        }
        return old - named_files

    @cached_property
    def _uncondemned_registry(self) -> Registry:
        return Registry.rebuild(self.contents.listing, self.uncondemned_snapshots, floor=self.floor)

    @cached_property
    def _needed(self) -> frozenset[str]:
        registries = (self._uncondemned_registry, self.registry)
        return frozenset(file.path for registry in registries for file in registry.entries())

    @cached_property
    def _oldest_version(self) -> int:
        """Version of the oldest snapshot that is needed; 0 if none is."""
        listed = self.contents.listing.snapshots
        return min((name.version for name in listed if name.path in self._needed), default=0)

    @cached_property
    def _going(self) -> set[names.SnapshotName]:
        """Return the snapshots that no version needs.

        A damaged snapshot stays until it is below the floor and a newer one is needed: it may be put back
        from a copy.
        """
        return {
            name
            for name, read in self.contents.snapshots.items()
            if name.version < self.floor
            and (read.error is None or name.version < self._oldest_version)
            and name.path not in self._needed
        }

    def _shared(self, orphaned_before_ms: float) -> set[str]:
        """Return the shared files that a snapshot names, condemned ones, and orphans."""
        contents = self.contents
        named = {entry.path for manifest in contents.manifests.values() for entry in manifest.files}
        known_files = {name.path for name in contents.listing.shared if name.path in named | self.condemned}
        return known_files | (self._orphans(orphaned_before_ms) - named)

    def _orphans(self, orphaned_before_ms: float) -> set[str]:
        """Return the shared files of merges that died.

        They were last modified before that time and are older than every snapshot that is needed. There are
        none while an unreadable archive stays: it may name any of them. A full merge replaces a snapshot by
        name: if its files were deleted as orphans while its archive is written, a snapshot that others rely
        on would be replaced by a broken one.
        """
        snapshots = self.contents.snapshots
        if any(snapshots[name].manifest is None for name in snapshots.keys() - self._going):
            return set()
        return {
            name.path
            for name in self.contents.listing.shared
            if name.version < self._oldest_version
            and self.contents.entries[name.path].modified_ms < orphaned_before_ms
        }


class Retention:
    """Clean-up of one store.

    One clean-up at a time per process; concurrent ones in other processes are safe even on old listings. A
    checkpoint is retired for its age, a lease runs out, and a left-over file is swept, only if the wall clock
    and the storage's clock agree.

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
        self._known: Mapping[names.SnapshotName, ReadSnapshot] = {}
        self._committed_ms: Mapping[int, int] | None = None

    def is_due(self, registry: Registry, newest: names.VersionId) -> bool:
        """Return True if a clean-up would delete something, without a storage call."""
        if self._policy.age_ms and self._committed_ms is None:
            return newest.number > MIN_CHECKPOINTS
        floor = self._floor(newest, registry, self._committed_ms or {}, self._runtime.wall_ms())
        return bool(registry.freed_below(floor))

    def cleanup(self, newest: names.VersionId) -> Cleanup:
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
        if newest.number <= self._policy.min_decided:
            return Cleanup(floor=1)
        contents = self._read()
        now_ms = _agreed_ms(contents, self._runtime)
        floor = self._floor(newest, contents.registry(), contents.committed_ms, now_ms)
        return self._clean(contents, DeletionPlan(contents, newest, floor))

    def sweep(self, newest: names.VersionId, older_than_ms: int, discarded: Collection[str] = ()) -> Cleanup:
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
        before_ms = self.agreed_now_ms() - older_than_ms
        plan = DeletionPlan.of_all(contents.without(discarded), newest)
        return self._clean(contents, plan, before_ms, contents.entries.keys() & set(discarded))

    def agreed_now_ms(self) -> int:
        """Return the storage's time, which a write tells, or this machine's if that is earlier."""
        return min(self._storage_ms(None), self._runtime.wall_ms())

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

    def _floor(
        self, newest: names.VersionId, registry: Registry, committed_ms: Mapping[int, int], now_ms: int
    ) -> int:
        """Return the lowest version that stays at that time."""
        too_old = 0
        if self._policy.age_ms:
            limit_ms = now_ms - self._policy.age_ms
            # A version is older than those after it, whatever a clock that went back says of these.
            young = [version for version, at_ms in committed_ms.items() if at_ms >= limit_ms]
            too_old = min(young) - 1 if young else max(committed_ms, default=0)
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
            now_ms = _agreed_ms(contents, self._runtime)
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
        archives = {path for path in deletable if path.startswith(names.SNAPSHOT_DIRECTORY)}
        remaining_files = self._deletions.delete(archives)
        remaining_files |= deletable & _files_of(remaining_files, contents)
        remaining_files |= self._deletions.delete(deletable - archives - remaining_files)
        deleted = deletable - remaining_files
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
        path = names.tombstone_path(self._runtime.unique())
        self._storage.write(path, pack_tombstone(paths))
        return path

    def _expired(self, leases: Mapping[str, ReadLease], written: str | None) -> set[str]:
        """Return the paths of the leases of dead writers."""
        if not leases:
            return set()
        storage_ms, expiry_ms = self._storage_ms(written), self._policy.lease_expiry_ms
        return {
            path for path, lease in leases.items() if lease.is_expired(storage_ms, self._runtime, expiry_ms)
        }

    def _storage_ms(self, written: str | None) -> int:
        """Return the storage's time when the tombstone `written`, or an empty one, appeared.

        Times of other files may come from a machine whose clock was ahead. Return 0, so that nothing counts
        as old, if another cleaner has deleted the tombstone already.
        """
        path = written
        if path is None:
            path = names.tombstone_path(self._runtime.unique())
            self._storage.write(path, pack_tombstone([]))
        entries = self._storage.list_files(names.TOMBSTONE_DIRECTORY)
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


def _agreed_ms(contents: StoreContents, runtime: Runtime) -> int:
    """Return a time that neither the storage's clock nor this machine's says is still to come.

    The newest file tells the storage's time, or an earlier one, unless its clock was ahead.
    """
    newest_ms = max((entry.modified_ms for entry in contents.entries.values()), default=0)
    return min(newest_ms, runtime.wall_ms())


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
    kinds = (names.is_sst_path, names.is_snapshot_path, names.is_refused_path)
    foreign = {path for path in deletable if not any(is_of(path) for is_of in kinds)}
    if needed or foreign:
        raise InternalError(
            f"a clean-up was about to delete '{min(needed | foreign)}', which "
            f"{'a retained version needs' if needed else 'is not of this store'}: nothing was deleted. "
            "Please report this with the agent's log",
            file=min(needed | foreign),
        )


class Deletions:
    """Deleter of the files of a store, which remembers those that the storage refuses to delete.

    These are tried again, but after all others, and the one that was tried last comes last. So however many
    there are, each clean-up gets further than the one before it. One thread at a time.

    Args:
        storage: the storage of the store.
        threads: files that are deleted at a time.
        runtime: threads.
    """

    def __init__(self, storage: Storage, threads: int, runtime: Runtime) -> None:
        self._storage = storage
        self._threads = threads
        self._runtime = runtime
        self._refused: dict[str, None] = {}
        self._before: frozenset[str] = frozenset()
        self._now: dict[str, str] = {}
        self._left: set[str] = set()

    def begin(self) -> None:
        """Begin a clean-up: `refused` and `warnings` are about what follows."""
        for path in self._refused.keys() - self._left:
            del self._refused[path]
        self._before, self._now, self._left = frozenset(self._refused), {}, set()

    @property
    def refused(self) -> dict[str, str]:
        """The files that could not be deleted since `begin`, with the reasons."""
        return dict(self._now)

    def warnings(self) -> list[str]:
        """Return a warning about the files that are refused now and were not in the clean-up before."""
        new = sorted(self._now.keys() - self._before)
        if not new:
            return []
        more = f", and {len(new) - 1} more files" if len(new) > 1 else ""
        reason = self._now[new[0]]
        message = (
            f"'{new[0]}'{more} could not be deleted ({reason}): each clean-up tries again. Look for missing "
            "rights, an immutable flag, a retention lock, or a program that holds the file"
        )
        return [message]

    def delete(self, paths: Collection[str]) -> set[str]:
        """Delete files; a failure ends nothing, unless it is one of many in a row.

        Returns:
            The files that may still be there: their deletion failed, or was not tried.

        Raises:
            BusyError: The time for the clean-up is over.
        """
        remaining_files = set(paths)
        todo = [
            *sorted(remaining_files - self._refused.keys()),
            *(path for path in self._refused if path in remaining_files),
        ]
        failures = Failures()

        def delete(path: str) -> None:
            try:
                self._storage.delete(path)
            except (StorageError, UnknownOutcomeError) as error:
                self._refused.pop(path, None)
                self._refused[path] = None
                self._now[path] = error.message
                raise
            self._refused.pop(path, None)
            remaining_files.discard(path)

        parallel(self._threads, partial(failures.attempt, delete), todo, runtime=self._runtime)
        self._left |= remaining_files
        return remaining_files


def preview(
    storage: Storage,
    newest: names.VersionId,
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
        if lease.is_expired(int(now_ms), runtime, lease_expiry_ms)
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
    remaining_files = contents.entries.keys() - deletable
    finished = {path for path, files in tombstones.files.items() if not files & remaining_files}
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
