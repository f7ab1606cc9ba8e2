"""Attempts above the version that Spark committed last, which starts of a query left that ended in a failure.

While the sink is down, each start of the query commits the same batch to its stores again, and Spark commits
none of these versions. The clean-ups of a query that goes on delete them; those of one that stands still do
not.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from state_store.core.checkpoint.lineage import AttemptId
from state_store.core.checkpoint.names import DeltaName, VersionId
from state_store.core.deletion.contents import StoreContents

LAST_RUN_MS = 3_600_000
"""Attempts stay that are older by this or less than the newest one of their version: it is of their run."""


def abandoned_attempts(contents: StoreContents, committed: VersionId, before_ms: float) -> dict[str, int]:
    """Return the deltas of attempts that no run of the query commits any more, with their versions.

    A delta is one if its version is above the committed one, it was written before `before_ms` and more than
    `LAST_RUN_MS` before the newest attempt at its version, and no attempt that stays builds on it. Under
    checkpoint format 1, where the highest attempt counts, that one stays, too. There are none if a snapshot
    is above the committed version: Spark's log is then older than the state.

    Args:
        contents: the store.
        committed: the version that Spark committed last, read after the store.
        before_ms: the time before which an attempt was written that goes, by the clock of the storage.
    """
    if any(name.version > committed.number for name in contents.listing.snapshots):
        return {}
    above = [delta for delta in contents.listing.deltas if delta.version > committed.number]
    above.sort(key=lambda delta: delta.version, reverse=True)
    parents: set[VersionId | None] = set()
    gone: dict[str, int] = {}
    for version, attempts in groupby(above, key=lambda delta: delta.version):
        of_version = list(attempts)
        stays = _staying(contents, of_version, before_ms)
        stays |= {delta for delta in of_version if delta.version_id in parents}
        parents = {delta.builds_on for delta in stays}
        gone.update((delta.path, version) for delta in of_version if delta not in stays)
    return gone


def _staying(contents: StoreContents, attempts: Iterable[DeltaName], before_ms: float) -> set[DeltaName]:
    """Return the attempts at one version that stay for their age or as the one that counts."""
    times_ms = {delta: contents.entries[delta.path].modified_ms for delta in attempts}
    limit_ms = min(before_ms, max(times_ms.values()) - LAST_RUN_MS)
    own = {delta: AttemptId.parse(delta.checkpoint_id or "") for delta in times_ms}
    highest = max((attempt.ordinal for attempt in own.values() if attempt is not None), default=None)
    return {
        delta
        for delta, at_ms in times_ms.items()
        if at_ms >= limit_ms or ((attempt := own[delta]) is not None and attempt.ordinal == highest)
    }
