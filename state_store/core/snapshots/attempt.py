"""Stores an attempt at a version without Spark's ids: it writes, then looks whether it may count."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from state_store.core.checkpoint.attempts import Attempts, ObservedAttempts
from state_store.core.checkpoint.document import encode
from state_store.core.checkpoint.listing import Listing
from state_store.core.checkpoint.names import DELTA_DIRECTORY, DeltaName, RefusedName, VersionId
from state_store.core.storage.contract import Storage
from state_store.errors import ConflictError


def look(storage: Storage, first: int) -> Attempts:
    """The attempts at versions from `first` up that there are now, from one listing. Raises as the
    storage does.
    """
    least = f"{first:020d}"
    entries = storage.list_files(DELTA_DIRECTORY)
    return Listing.from_files(
        (f"{DELTA_DIRECTORY}/{entry.name}", entry.size_bytes) for entry in entries if entry.name >= least
    ).attempts


def store_attempt(
    storage: Storage, delta: DeltaName, seen: ObservedAttempts, store: Callable[[], object]
) -> ObservedAttempts:
    """Makes the attempt `delta` by `store`, which writes it; what there is above its version since.

    `seen` is what there was above the version that it builds on when it began. Raises ConflictError where the
    attempt does not count, because another one was at work; it is marked as refused then. Raises as `store`
    and the storage do: whether it counts is then not known, and the next attempt finds out.
    """
    overtaken = Attempts(()).superseded_by(delta.version_id, seen)
    if overtaken is not None:
        raise _refused(storage, delta, overtaken)
    store()
    there = look(storage, delta.version - 1)
    objection = there.why_refused(delta, seen)
    if objection is not None:
        refuse(storage, delta.version_id, objection)
        raise _refused(storage, delta, objection)
    return there.after(delta.version)


def refuse(storage: Storage, attempt: VersionId, why: str) -> None:
    """Marks the attempt as one that does not count; again is fine. Raises as the storage does.

    Its delta stays: somebody may have taken it for the version, and committed the next one on it.
    """
    assert attempt.checkpoint_id is not None
    mark = RefusedName(attempt.number, attempt.checkpoint_id)
    with contextlib.suppress(ConflictError):
        storage.write(mark.path, encode({"why": why}))


def touch(local: Path) -> None:
    """Gives a local file that is about to be stored the present time: storage that links or renames keeps it,
    and where attempts meet, it tells which was first. A file that is stored already keeps its time.
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
