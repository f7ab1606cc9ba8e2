"""Reasons for which files lie in checkpoint storage."""

from __future__ import annotations

from state_store.core.checkpoint.names import DELTA_DIRECTORY

NEWEST_MERGED = "newest version: snapshot"
NEWEST_DELTAS = "newest version: deltas"
OLDER_MERGED = "older versions alone: snapshots"
OLDER_DELTAS = "older versions alone: deltas"
NO_VERSION = "no version"

REASONS = (NEWEST_MERGED, NEWEST_DELTAS, OLDER_MERGED, OLDER_DELTAS, NO_VERSION)


def reason_of(path: str, *, by_newest: bool, by_older: bool) -> str:
    """Return why a file is there.

    Args:
        path: its path below the store's directory.
        by_newest: the newest version needs it.
        by_older: a version before the newest one needs it.
    """
    is_delta = path.startswith(DELTA_DIRECTORY + "/")
    if by_newest:
        return NEWEST_DELTAS if is_delta else NEWEST_MERGED
    if by_older:
        return OLDER_DELTAS if is_delta else OLDER_MERGED
    return NO_VERSION
