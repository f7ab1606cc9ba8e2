"""Which checkpoints stay, and the deletion of the files that none of them needs.

The cleaner's half of the protocol of docs/deletion.md:

1. Take the inventory (snapshots, *then* tombstones, *then* files) and decide what no retained checkpoint
   needs.
2. Write a tombstone that names these files: from now on no writer begins to refer to them.
3. *Then* read the leases; *then* list the snapshots again: what a live lease or a snapshot names stays.
4. Delete the others, archives of snapshots first, and then the tombstones whose files are all gone.

A tombstone is never taken back while a file of it exists: another cleaner may have decided upon it already.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from state_store.checkpoint.file_list import pack_file_list, unpack_file_list
from state_store.checkpoint.names import (
    DELTA_DIRECTORY,
    LEASE_DIRECTORY,
    SHARED_DIRECTORY,
    SNAPSHOT_DIRECTORY,
    TEMPORARY_SUFFIX,
    TOMBSTONE_DIRECTORY,
    SnapshotName,
    VersionId,
    is_file_list_name,
    tombstone_path,
)
from state_store.checkpoint.registry import Registry
from state_store.deletion.inventory import Inventory, ReadSnapshot, read_snapshots
from state_store.errors import DamagedError, MissingError
from state_store.files.transfer import parallel
from state_store.storage.contract import Entry, Storage

LEAST_CHECKPOINTS = 2
"""The newest version may belong to a batch that Spark has not committed; a restart then needs the one before.
"""

_DIRECTORIES = (DELTA_DIRECTORY, SHARED_DIRECTORY, SNAPSHOT_DIRECTORY, LEASE_DIRECTORY, TOMBSTONE_DIRECTORY)


@dataclass(frozen=True)
class RetentionPolicy:
    """What to keep. `batches` is Spark's `minBatchesToRetain`;
    `checkpoints` and `age_ms` narrow it (0: do not).

    A lease older than `lease_expiry_ms` is that of a dead writer. An unfinished file, or one that no snapshot
    ever named, is swept when older than `temporary_expiry_ms`.
    """

    batches: int
    checkpoints: int = 0
    age_ms: int = 0
    lease_expiry_ms: int = 3_600_000
    temporary_expiry_ms: int = 86_400_000

    @property
    def keep(self) -> int:
        """How many versions stay, the newest counted."""
        asked = min(self.batches, self.checkpoints) if self.checkpoints else self.batches
        return max(asked, LEAST_CHECKPOINTS)


@dataclass(frozen=True)
class Cleanup:
    """What a clean-up did: versions below `floor` are retired, those in `retained` can be restored.

    `skipped` says why nothing was decided, when it was not; `floor` is 0 then.
    """

    floor: int
    deleted: tuple[str, ...] = ()
    deleted_bytes: int = 0
    retained: tuple[VersionId, ...] = ()
    skipped: str | None = None


class Retention:
    """Cleans one store. One clean-up at a time here; others in other
    processes, on stale knowledge, do no harm.

    `clock_ms` (wall clock) serves the age of checkpoints alone; leases and temporary files are judged by the
    storage's clock. `threads` delete at once.
    """

    def __init__(
        self,
        storage: Storage,
        policy: RetentionPolicy,
        *,
        clock_ms: Callable[[], float] = lambda: time.time() * 1000,
        unique: Callable[[], str] = lambda: secrets.token_hex(8),
        threads: int = 1,
    ) -> None:
        self._storage = storage
        self._policy = policy
        self._clock_ms = clock_ms
        self._unique = unique
        self._threads = threads
        self._known: Mapping[SnapshotName, ReadSnapshot] = {}
        self._committed_ms: Mapping[int, int] | None = None

    def is_due(self, registry: Registry, newest: VersionId) -> bool:
        """Whether a clean-up would find something, by what this process knows; makes no storage call."""
        if self._policy.age_ms and self._committed_ms is None:
            return newest.number > LEAST_CHECKPOINTS
        return bool(registry.freed_below(self._floor(newest, self._committed_ms or {})))

    def cleanup(self, newest: VersionId) -> Cleanup:
        """Retires what is older than the policy keeps, seen from `newest`, the newest committed version.

        Deletes nothing when `newest` itself cannot be restored or a retained snapshot cannot be read. Raises
        FormatError on files of a newer program, and as the storage does; what was not deleted is found again
        the next time. The caller then retires the versions below `floor` in its own registry.
        """
        if newest.number <= (LEAST_CHECKPOINTS if self._policy.age_ms else self._policy.keep):
            return Cleanup(floor=1)
        inventory = Inventory.read(self._storage, self._known)
        self._known, self._committed_ms = inventory.snapshots, inventory.committed_ms
        floor = self._floor(newest, self._committed_ms)
        skipped = inventory.obstacle(newest, floor)
        if skipped is not None:
            return Cleanup(floor=0, skipped=skipped)
        deleted = self._delete(inventory, floor)
        return Cleanup(
            floor=floor,
            deleted=tuple(deleted),
            deleted_bytes=sum(inventory.entries[path].size_bytes for path in deleted),
            retained=tuple(inventory.registry(floor).checkpoints()),
        )

    def _floor(self, newest: VersionId, committed_ms: Mapping[int, int]) -> int:
        """The lowest version that stays."""
        floor = newest.number - self._policy.keep + 1
        if self._policy.age_ms:
            limit_ms = self._clock_ms() - self._policy.age_ms
            floor = max(
                [floor, *(version + 1 for version, at_ms in committed_ms.items() if at_ms < limit_ms)]
            )
        return max(1, min(floor, newest.number - LEAST_CHECKPOINTS + 1))

    def _delete(self, inventory: Inventory, floor: int) -> list[str]:
        # The newest file tells the storage's time, or an earlier one: what looks expired then, is.
        newest_ms = max((entry.modified_ms for entry in inventory.entries.values()), default=0)
        candidates = inventory.candidates(floor, newest_ms - self._policy.temporary_expiry_ms)
        if not candidates and not inventory.tombstones:
            return []
        written = self._write_tombstone(candidates - inventory.condemned)
        now_ms = max(newest_ms, written.modified_ms if written else 0)
        held = self._leased_files(now_ms)
        held |= self._referenced_files(inventory, candidates)
        doomed = candidates - held
        self._delete_all(path for path in doomed if path.startswith(SNAPSHOT_DIRECTORY))
        self._delete_all(path for path in doomed if not path.startswith(SNAPSHOT_DIRECTORY))
        self._delete_finished_tombstones(inventory, written, candidates, doomed)
        self._sweep(now_ms)
        return sorted(doomed)

    def _write_tombstone(self, paths: set[str]) -> Entry | None:
        """Writes a tombstone, and returns it as the storage has it.

        None when there was nothing to write, or another cleaner has deleted all its files and it already.
        """
        if not paths:
            return None
        path = tombstone_path(self._unique())
        self._storage.write(path, pack_file_list(paths))
        entries = self._storage.list_files(TOMBSTONE_DIRECTORY)
        return next((entry for entry in entries if path.endswith(f"/{entry.name}")), None)

    def _leased_files(self, now_ms: int) -> set[str]:
        """The files that live leases name."""
        files: set[str] = set()
        for entry in self._storage.list_files(LEASE_DIRECTORY):
            path = f"{LEASE_DIRECTORY}/{entry.name}"
            if not is_file_list_name(entry.name) or self._is_expired(entry, now_ms):
                continue
            try:
                files |= unpack_file_list(self._storage.read(path), file=path)
            except MissingError:
                continue  # given back: if it came to a snapshot, the next listing has it
        return files

    def _is_expired(self, entry: Entry, now_ms: int) -> bool:
        return entry.modified_ms < now_ms - self._policy.lease_expiry_ms

    def _referenced_files(self, inventory: Inventory, candidates: set[str]) -> set[str]:
        """The files that the snapshots there are now name, but for those that are going themselves."""
        files: set[str] = set()
        for name, read in read_snapshots(self._storage, inventory.snapshots).items():
            if name.path in candidates:
                continue
            if read.manifest is None:
                raise DamagedError(
                    f"'{name.path}' is damaged, so it is not known which files it needs, and none is "
                    "deleted; take it away if it is of no use",
                    file=name.path,
                )
            files |= {entry.path for entry in read.manifest.files}
        return files

    def _delete_all(self, paths: Iterable[str]) -> None:
        parallel(self._threads, self._storage.delete, sorted(paths))

    def _delete_finished_tombstones(
        self, inventory: Inventory, written: Entry | None, condemned: set[str], deleted: set[str]
    ) -> None:
        """Removes the tombstones, ours and those seen before the files were, none of whose files is left."""
        left = inventory.entries.keys() - deleted
        for path, files in inventory.tombstones.items():
            if not files & left:
                self._storage.delete(path)
        if written and condemned - inventory.condemned <= deleted:
            self._storage.delete(f"{TOMBSTONE_DIRECTORY}/{written.name}")

    def _sweep(self, now_ms: int) -> None:
        """Removes unfinished writes, and leases of writers that died."""
        limit_ms = now_ms - self._policy.temporary_expiry_ms
        for directory in _DIRECTORIES:
            for entry in self._storage.list_files(directory):
                unfinished = entry.name.endswith(TEMPORARY_SUFFIX) and entry.modified_ms < limit_ms
                abandoned = directory == LEASE_DIRECTORY and self._is_expired(entry, now_ms)
                if unfinished or (abandoned and is_file_list_name(entry.name)):
                    self._storage.delete(f"{directory}/{entry.name}")
