"""Retention policy of a store, and the result of a clean-up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from state_store.core.checkpoint.names import VersionId
from state_store.core.checkpoint.registry import Registry
from state_store.core.deletion.lease import DEFAULT_EXPIRY_MS
from state_store.core.storage.contract import Entry

# The newest version may belong to a batch that Spark has not committed; a restart then needs the one before.
LEAST_CHECKPOINTS = 2

LEAST_WHERE_LARGE = 10
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

    @property
    def keep(self) -> int:
        """Number of versions that stay, the newest included."""
        asked = min(self.batches, self.checkpoints) if self.checkpoints else self.batches
        return max(asked, LEAST_CHECKPOINTS)

    @property
    def least_decided(self) -> int:
        """The newest version up to which every version stays, whatever the files."""
        if self.age_ms:
            return LEAST_CHECKPOINTS
        return min(self.keep, LEAST_WHERE_LARGE) if self.older_bytes else self.keep

    def floor(self, newest: int, registry: Registry, too_old: int = 0) -> int:
        """Return the lowest version that stays.

        Args:
            newest: the newest committed version.
            registry: the files that versions need.
            too_old: versions up to this one are older than `age_ms`.
        """
        floor = max(newest - self.keep, too_old) + 1
        if self.older_bytes:
            cut = registry.last_cut(newest - LEAST_WHERE_LARGE + 1) or 0
            if cut > floor:
                older_bytes = registry.bytes_freed_below(cut)
                if older_bytes > self.older_bytes:
                    floor = cut
        return max(1, min(floor, newest - LEAST_CHECKPOINTS + 1))


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
    retained: tuple[VersionId, ...] = ()
    registry: Registry | None = None
    swept: Mapping[str, Entry] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    skipped: str | None = None
    warnings: tuple[str, ...] = ()
