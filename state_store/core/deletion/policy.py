"""What a store keeps, and what a clean-up has done about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from state_store.core.checkpoint.names import VersionId
from state_store.core.checkpoint.registry import Registry
from state_store.core.deletion.lease import DEFAULT_EXPIRY_MS
from state_store.core.storage.contract import Entry

# The newest version may belong to a batch that Spark has not committed; a restart then needs the one before.
LEAST_CHECKPOINTS = 2


@dataclass(frozen=True)
class RetentionPolicy:
    """What to keep. `batches` is Spark's `minBatchesToRetain`; `checkpoints` and `age_ms` narrow it (0: do
    not).

    `lease_expiry_ms` is for damaged leases, which do not say when they run out. An unfinished file, or one
    that no snapshot ever named, is swept when it is older than `temporary_expiry_ms`.
    """

    batches: int
    checkpoints: int = 0
    age_ms: int = 0
    lease_expiry_ms: int = DEFAULT_EXPIRY_MS
    temporary_expiry_ms: int = 86_400_000

    @property
    def keep(self) -> int:
        """How many versions stay, the newest counted."""
        asked = min(self.batches, self.checkpoints) if self.checkpoints else self.batches
        return max(asked, LEAST_CHECKPOINTS)


@dataclass(frozen=True)
class Cleanup:
    """What a clean-up did: versions below `floor` are retired, those in `retained` can be restored.

    `registry` says who needs which file, of the versions from `floor` up, where it was read. `skipped` says
    why nothing was decided, when it was not; `floor` is 0 then. `swept` are the leases, tombstones and
    unfinished writes that it took away; `warnings` name damaged files that counted as absent.
    """

    floor: int
    deleted: tuple[str, ...] = ()
    deleted_bytes: int = 0
    retained: tuple[VersionId, ...] = ()
    registry: Registry | None = None
    swept: Mapping[str, Entry] = field(default_factory=dict)
    skipped: str | None = None
    warnings: tuple[str, ...] = ()
