"""The chain of a version as checkpoint storage has it, for a process that has not made it itself."""

from __future__ import annotations

from state_store.core.checkpoint.lineage import Lineages, Listing
from state_store.core.checkpoint.names import SnapshotName, VersionId
from state_store.core.checkpoint.stored_documents import FULL, Manifest
from state_store.core.deletion.contents import read_archive, read_listing
from state_store.core.planning.chain import Chain, ChainDelta
from state_store.core.storage.contract import Storage
from state_store.errors import DamagedError, FormatError, MissingError


def read_chain(storage: Storage, version: VersionId) -> tuple[Chain, list[str]]:
    """Return the chain of a version, and a warning for each damaged archive, which counts as absent.

    If the version cannot be made without the archive, the chain has only the deltas after it. That is enough
    to go on from a state in memory.

    Raises:
        MissingError: The files of the version do not exist.
        FormatError: A file is of a newer format.
        StateStoreError: The storage failed.
    """
    listing = read_listing(storage)
    snapshots = set(listing.snapshots)
    plan = Lineages(listing.deltas, snapshots).plan(version)
    warnings: list[str] = []
    manifest = None
    while plan.snapshot is not None:
        try:
            manifest = read_archive(storage, plan.snapshot).manifest
            break
        except (DamagedError, MissingError) as error:
            warnings.append(f"snapshot '{plan.snapshot.path}' counts as absent: {error.message}")
            snapshots.discard(plan.snapshot)
        try:
            plan = Lineages(listing.deltas, snapshots).plan(version)
        except MissingError:
            break
    deltas = [ChainDelta.from_listing(name, listing.deltas[name]) for name in plan.deltas]
    full = read_full_manifest(storage, listing, manifest)
    return Chain.from_listing(version, manifest, deltas, full), warnings


def read_full_manifest(storage: Storage, listing: Listing, snapshot: Manifest | None) -> Manifest | None:
    """Return the manifest of the full snapshot that `snapshot` names, which may be itself.

    It only has sizes and times. So it is None if its archive is gone, as those of versions that are not
    retained are, or cannot be read.

    Raises:
        StorageError: The storage failed.
    """
    if snapshot is None or snapshot.kind == FULL or snapshot.full is None:
        return snapshot if snapshot is not None and snapshot.kind == FULL else None
    name = SnapshotName(*snapshot.full)
    if name not in listing.snapshots:
        return None
    try:
        return read_archive(storage, name).manifest
    except (DamagedError, FormatError, MissingError):
        return None
