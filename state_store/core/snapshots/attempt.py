"""Attempts at a version without Spark's ids: each is written, and then looks whether it may count."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from state_store.core.checkpoint.lineage import Attempts, Listing, ObservedAttempts
from state_store.core.checkpoint.names import DELTA_DIRECTORY, DeltaName, RefusedName, VersionId
from state_store.core.checkpoint.stored_documents import encode
from state_store.core.storage.contract import Storage
from state_store.errors import ConflictError


def look(storage: Storage, first: int) -> Attempts:
    """Return the attempts at versions from `first` on, from one listing."""
    least = f"{first:020d}"
    entries = storage.list_files(DELTA_DIRECTORY)
    return Listing.from_files(
        (f"{DELTA_DIRECTORY}/{entry.name}", entry.size_bytes) for entry in entries if entry.name >= least
    ).attempts


def store_attempt(
    storage: Storage, delta: DeltaName, seen: ObservedAttempts, store: Callable[[], object]
) -> ObservedAttempts:
    """Store an attempt, and find out whether it counts.

    Args:
        storage: Checkpoint storage.
        delta: The attempt.
        seen: The attempts above the version that it builds on, when it began.
        store: Writes the delta.

    Returns:
        The attempts above its version now.

    Raises:
        ConflictError: The attempt does not count, because another one was at work. It is marked as refused.
        StateStoreError: The storage failed. The next attempt finds out whether this one counts.
    """
    overtaken = Attempts(()).superseded_by(delta.version_id, seen)
    if overtaken is not None:
        raise _refused(storage, delta, overtaken)
    store()
    attempts = look(storage, delta.version - 1)
    objection = attempts.why_refused(delta, seen)
    if objection is not None:
        refuse(storage, delta.version_id, objection)
        raise _refused(storage, delta, objection)
    return attempts.after(delta.version)


def refuse(storage: Storage, attempt: VersionId, why: str) -> None:
    """Mark an attempt as one that does not count; a second time is fine.

    Its delta stays: another task may have taken it for the version, and committed the next version on it.
    """
    assert attempt.checkpoint_id is not None
    mark = RefusedName(attempt.number, attempt.checkpoint_id)
    with contextlib.suppress(ConflictError):
        storage.write(mark.path, encode({"why": why}))


def touch(local: Path) -> None:
    """Set the time of a local file that is about to be stored to now.

    Storage that links or renames keeps the time, which decides between attempts that meet. A file that is
    stored already keeps its time.
    """
    with contextlib.suppress(OSError):
        if local.stat().st_nlink == 1:
            os.utime(local)


def _refused(storage: Storage, delta: DeltaName, why: str) -> ConflictError:
    return ConflictError(
        f"this attempt at version {delta.version} is refused: {why}. Nothing is lost; Spark runs the task "
        "again if it needs it",
        file=f"{storage.location}/{delta.path}",
    )
