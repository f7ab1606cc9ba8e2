"""A partition of the query's state: its checkpoint storage, its truth, and its invariants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulation.simulated_storage import Bucket
from simulation.truth import EMPTY, Truth, Version
from state_store.core.checkpoint.lineage import Lineages, Listing
from state_store.core.checkpoint.names import SnapshotName, VersionId
from state_store.core.checkpoint.registry import restorable_snapshots
from state_store.core.checkpoint.stored_documents import Manifest, unpack
from state_store.errors import DamagedError


@dataclass(frozen=True)
class Terms:
    """Promises of a history to each of its partitions.

    With `ids` Spark names attempts (checkpoint format 2); `retain` versions stay. Storage that `is_lying`
    loses files. If `is_prompt`, no process is slower than a lease allows.
    """

    ids: bool
    retain: int
    is_lying: bool
    is_prompt: bool


class Partition:
    """`committed` are the versions that Spark has committed, oldest first, `bucket` is its directory."""

    def __init__(self, number: int, terms: Terms, clock_ms: Callable[[], int]) -> None:
        self.number = number
        self.truth = Truth(any_attempt=terms.is_lying and not terms.ids)
        self.committed: list[Version] = [EMPTY]
        location = f"simulated:/store-{number}" if number else "simulated:/store"
        self.bucket: Bucket = _WatchedBucket(location, clock_ms, self._changed)
        self._terms = terms
        self._manifests: dict[bytes, Manifest | None] = {}

    def named(self, version: Version) -> VersionId:
        """As Spark names it."""
        return VersionId(version[0], version[1] if self._terms.ids else None)

    def _changed(self, path: str) -> None:
        """A file of the bucket came or went: what is retained can be restored by somebody who begins now, and
        where nobody was slow, every snapshot that is retained is whole.
        """
        if self._terms.is_lying or not path.startswith(("delta/", "shared/", "snapshot/")):
            return
        newest = max(number for number, _ in self.truth.rows)
        floor = max(1, newest - self._terms.retain + 1)
        wanted = {
            VersionId(*version)
            for version in self.committed
            if version[0] >= floor or version == self.committed[-1]
        } - {VersionId(*EMPTY)}
        listing = Listing.from_files((path, len(data)) for path, (data, _) in self.bucket.files.items())
        manifests = {}
        for name in listing.snapshots:
            manifest = self._manifest(name)
            if manifest is not None:
                manifests[name] = manifest
        complete = restorable_snapshots(listing, manifests)
        missing = wanted - set(Lineages(listing.deltas, complete).restorable())
        where = f"in partition {self.number}, since '{path}' came or went"
        assert not missing, f"{where}, {missing} cannot be restored"
        broken = [name.path for name in manifests.keys() - complete.keys() if name.version >= floor]
        assert not (broken and self._terms.is_prompt), f"{where}, {broken} lack files"

    def _manifest(self, name: SnapshotName) -> Manifest | None:
        data = self.bucket.files[name.path][0]
        if data not in self._manifests:
            try:
                self._manifests[data] = unpack(data, file=name.path).manifest
            except DamagedError:
                self._manifests[data] = None
        return self._manifests[data]


class _WatchedBucket(Bucket):
    """Says when a snapshot has come, or any file has gone."""

    def __init__(self, location: str, clock_ms: Callable[[], int], changed: Callable[[str], None]) -> None:
        super().__init__(location, clock_ms)
        self._changed = changed

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        super().write(path, data, overwrite=overwrite)
        if path.startswith("snapshot/"):
            self._changed(path)

    def delete(self, path: str) -> None:
        super().delete(path)
        self._changed(path)
