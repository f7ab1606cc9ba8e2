"""Files that make a version: the newest snapshot on its lineage and the deltas after it (docs/format.md).

The answers come from listings (names that exist), so they are as old as those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from state_store.core.checkpoint.names import (
    SNAPSHOT_DIRECTORY,
    DeltaName,
    SnapshotName,
    VersionId,
    version_order,
)
from state_store.core.compat import zip
from state_store.errors import ConflictError, MissingError

_MOST_RUNS = 10
"""Runs of versions that a message lists."""


@dataclass(frozen=True)
class Plan:
    """Recipe for `version`: open `snapshot` (None: start empty), then ingest `deltas` in this order."""

    version: VersionId
    snapshot: SnapshotName | None
    deltas: tuple[DeltaName, ...]


class Lineages:
    """The versions that a listing can make. Immutable; safe for any thread.

    Args:
        deltas: deltas that exist.
        snapshots: snapshots that exist; leave out a damaged one to plan without it.
    """

    def __init__(self, deltas: Iterable[DeltaName], snapshots: Iterable[SnapshotName]) -> None:
        self._deltas: dict[VersionId, list[DeltaName]] = {}
        for delta in sorted(set(deltas), key=lambda delta: delta.name):
            self._deltas.setdefault(delta.version_id, []).append(delta)
        self._snapshots = {snapshot.version_id for snapshot in snapshots}

    def plan(self, version: VersionId, *, start: VersionId | None = None) -> Plan:
        """Return the files that make `version`.

        Args:
            version: the version, with its id.
            start: the version whose snapshot must be the first file; None: the newest snapshot.

        Raises:
            MissingError: If a file is missing; the error names it, and the versions that can be made.
            ConflictError: If two deltas claim to be the same version.
        """
        deltas: list[DeltaName] = []
        current: VersionId | None = version if version.number > 0 else None
        while current is not None:
            if current in self._snapshots and start in (None, current):
                return Plan(version, SnapshotName(*current), tuple(reversed(deltas)))
            if start is not None and current.number <= start.number:
                raise self._no_such_start(version, start)
            delta = self.delta(current)
            if delta is None:
                raise self._missing(version, current)
            deltas.append(delta)
            current = delta.builds_on
        if start is not None:
            raise self._no_such_start(version, start)
        return Plan(version, None, tuple(reversed(deltas)))

    def history(self, version: VersionId) -> list[VersionId]:
        """Return `version` and its ancestors, newest first, as long as the listing has their deltas."""
        versions: list[VersionId] = []
        current: VersionId | None = version
        while current is not None and (current in self._deltas or current in self._snapshots):
            versions.append(current)
            delta = self.delta(current)
            current = None if delta is None else delta.builds_on
        return versions

    def restorable(self) -> list[VersionId]:
        """Return all versions that the listing can make, oldest first."""
        known: set[VersionId] = set(self._snapshots)
        for version in sorted(self._deltas, key=version_order):
            if len(self._deltas[version]) > 1:
                continue
            base = self._deltas[version][0].builds_on
            if base is None or base in known:
                known.add(version)
        return sorted(known, key=version_order)

    def delta(self, version: VersionId) -> DeltaName | None:
        """Return the delta of `version`, or None. Raises ConflictError if there are two."""
        deltas = self._deltas.get(version, [])
        if len(deltas) > 1:
            names = "' and '".join(delta.path for delta in deltas)
            raise ConflictError(
                f"'{names}' both claim to be version {version}: remove the one that the query did not commit",
                file=deltas[0].path,
            )
        return deltas[0] if deltas else None

    def _missing(self, version: VersionId, ancestor: VersionId) -> MissingError:
        path = missing_delta_path(ancestor)
        needed = "" if ancestor == version else f", which version {version} builds on,"
        return MissingError(
            f"version {version} cannot be restored: there is no '{path}'{needed} and no snapshot at or "
            f"after it; {describe_restorable(self.restorable())}",
            file=path,
        )

    def _no_such_start(self, version: VersionId, start: VersionId) -> MissingError:
        id_ = "" if start.checkpoint_id is None else f"_{start.checkpoint_id}"
        file = f"{SNAPSHOT_DIRECTORY}/{start.number:020d}{id_ or '*'}.zip"
        why = "is not on the lineage of that version" if start in self._snapshots else "does not exist"
        available = (
            ", ".join(str(snapshot) for snapshot in sorted(self._snapshots, key=version_order)) or "none"
        )
        return MissingError(
            f"version {version} cannot be read from the snapshot '{file}': it {why}; "
            f"snapshots there are: {available}",
            file=file,
        )


def missing_delta_path(version: VersionId) -> str:
    """Return the path of a missing delta, with `*` in place of the unknown part of its name."""
    attempt = "" if version.checkpoint_id is None else f"_{version.checkpoint_id}_"
    return f"delta/{version.number:020d}{attempt}*.sst"


def describe_restorable(versions: Sequence[VersionId]) -> str:
    """Return a clause for error messages that lists versions that can be restored.

    Runs of numbers are folded; the first and the last nine are shown. Attempts have their ids where several
    share a number.

    Args:
        versions: the versions, oldest first.
    """
    if not versions:
        return "no version of this store can be restored"
    attempts = Counter(version.number for version in versions)
    runs: list[list[VersionId]] = []
    for version in versions:
        is_next = runs and runs[-1][-1].number == version.number - 1
        if is_next and attempts[version.number] == attempts[version.number - 1] == 1:
            runs[-1].append(version)
        else:
            runs.append([version])
    texts = [
        str(first) if attempts[first.number] > 1 else str(first.number) for first in (run[0] for run in runs)
    ]
    texts = [
        text if len(run) == 1 else f"{text} to {run[-1].number}"
        for text, run in zip(texts, runs, strict=True)
    ]
    if len(texts) > _MOST_RUNS:
        texts = [texts[0], "...", *texts[1 - _MOST_RUNS :]]
    return f"versions that can be restored: {', '.join(texts)}"
