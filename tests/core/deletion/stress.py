"""A process of the stress test: `python -m deletion.stress ROLE NUMBER DIRECTORY`.

All processes share one store on a local directory. The committer commits versions; writers publish snapshots
by the lease protocol, sharing files of any snapshot or delta that they have seen, however old; cleaners
retire; the checker restores every version that must be restorable, by the files alone. They are killed at any
moment and started again. Each prints `at work` before its first round, and ends when the file `over` exists.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from deletion import made_up
from state_store.core.checkpoint.names import SnapshotName, VersionId, is_sst_path
from state_store.core.deletion.lease import Lease, StoreContents, read_snapshots
from state_store.core.deletion.retention import Retention, RetentionPolicy
from state_store.core.storage.local import LocalStorage
from state_store.errors import ConflictError, MissingError, StateStoreError

KEEP = 4
MERGE_EVERY = 3
EXPIRY_MS = 60_000


def newest(storage: LocalStorage) -> int:
    return max(
        (int(entry.name[:20]) for entry in storage.list_files("delta") if is_sst_path(f"delta/{entry.name}")),
        default=0,
    )


def commit(storage: LocalStorage, chance: random.Random) -> None:
    """The next version; no faster than snapshots follow, so that the chain stays short."""
    snapshots = storage.list_files("snapshot")
    last = max((int(entry.name[:20]) for entry in snapshots), default=0)
    version = newest(storage) + 1
    if version < last + 3 * MERGE_EVERY:
        path = made_up.delta(version).path
        storage.write(path, made_up.content(path))


def write(storage: LocalStorage, chance: random.Random) -> None:
    """A snapshot of a version not long ago, from the files of one not long before that."""
    top = newest(storage)
    version = made_up.version(max(1, top - chance.randrange(2 * KEEP)))
    if storage.exists(SnapshotName(*version).path):
        return
    paths = _some_files(storage, version, chance)
    fresh = (made_up.shared(version.number, chance.getrandbits(32)) for _ in count())
    time.sleep(chance.random() / 100)
    with Lease(storage, expiry_ms=EXPIRY_MS) as lease:
        lost = lease.hold(paths)
        added = [next(fresh) for _ in range(len(lost) + 1)]
        lease.announce(added)
        for path in added:
            storage.write(path, made_up.content(path))
            time.sleep(chance.random() / 200)
        files = sorted((paths - lost) | set(added))
        try:
            lost = lease.publish(SnapshotName(*version), made_up.archive(version, files))
        except ConflictError:
            return
        if lost:
            raise AssertionError(f"a lease that is young lost {lost}")


def _some_files(storage: LocalStorage, at: VersionId, chance: random.Random) -> set[str]:
    known = read_snapshots(storage, {})
    older = [read.manifest for name, read in known.items() if name.version <= at.number and read.manifest]
    base = chance.choice(older) if older else None
    start = base.version if base else 0
    paths = {entry.path for entry in base.files} if base else set()
    paths |= {made_up.delta(number).path for number in range(start + 1, at.number + 1)}
    return set(chance.sample(sorted(paths), min(len(paths), 6)))


def clean(storage: LocalStorage, chance: random.Random) -> None:
    top = newest(storage) - chance.choice([0, 0, 0, 1, 5])
    policy = RetentionPolicy(batches=KEEP, lease_expiry_ms=EXPIRY_MS, temporary_expiry_ms=EXPIRY_MS)
    if top > 0:
        Retention(storage, policy).cleanup(made_up.version(top))


def check(storage: LocalStorage, chance: random.Random) -> None:
    """Check that every retained version can be restored, and that its snapshots are complete.

    Like a restore it looks again if a version seems lost: between two listings a newer snapshot may have
    appeared, and the older files of that version may have been deleted.
    """
    for _ in range(3):
        before = newest(storage)
        contents = StoreContents.read(storage)
        floor = max(1, newest(storage) - KEEP + 1)
        broken = [
            name
            for name in contents.snapshots.keys() - contents.restorable_snapshots.keys()
            if name.version >= floor
            for name in contents.snapshots.keys() - contents.restorable_snapshots.keys()
            if name.version >= floor
        ]
        if broken:
            raise AssertionError(f"files are gone of {broken}")
        found = {version.number for version in contents.registry(0).checkpoints()}
        missing = set(range(floor, before + 1)) - found
        if not missing:
            return
    raise AssertionError(f"versions {sorted(missing)} of {before} cannot be restored")


ROLES: dict[str, Callable[[LocalStorage, random.Random], None]] = {
    "committer": commit,
    "writer": write,
    "cleaner": clean,
    "checker": check,
}


def over(directory: Path) -> Path:
    """Return the file that ends all processes."""
    return directory.with_suffix(".over")


def main(role: str, number: str, directory: str) -> None:
    storage = LocalStorage(Path(directory))
    chance = random.Random(f"{role}-{number}-{os.getpid()}")
    rounds = 0
    print("at work", flush=True)
    while not over(Path(directory)).exists():
        try:
            ROLES[role](storage, chance)
        except MissingError:
            pass  # a file of an old listing is gone
        except StateStoreError as error:
            raise SystemExit(f"{role} {number}: {error.kind}: {error}") from error
        rounds += 1
        time.sleep(chance.random() / 500)
    print(f"{role} {number}: {rounds} rounds")


if __name__ == "__main__":
    main(*sys.argv[1:])
