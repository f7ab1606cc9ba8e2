"""Which files make a version: the newest snapshot on its lineage, then the deltas after it (docs/format.md).

Works on listings (names that exist), so the answer is only as fresh as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from state_store.core.checkpoint.names import (
    SNAPSHOT_DIRECTORY,
    DeltaName,
    SnapshotName,
    VersionId,
    version_order,
)
from state_store.errors import ConflictError, MissingError


@dataclass(frozen=True)
class Plan:
    """How to make `version`: open `snapshot` (None: start empty), ingest `deltas` in this order."""

    version: VersionId
    snapshot: SnapshotName | None
    deltas: tuple[DeltaName, ...]


class Lineages:
    """Every version that a listing can make. Immutable; safe for any thread.

    `deltas` and `snapshots` are the names that exist; leave a snapshot out to
    plan without it (because it is damaged).
    """

    def __init__(self, deltas: Iterable[DeltaName], snapshots: Iterable[SnapshotName]) -> None:
        self._deltas: dict[VersionId, list[DeltaName]] = {}
        for delta in sorted(set(deltas), key=lambda delta: delta.name):
            self._deltas.setdefault(delta.version_id, []).append(delta)
        self._snapshots = {snapshot.version_id for snapshot in snapshots}

    def plan(self, version: VersionId, *, start: VersionId | None = None) -> Plan:
        """The files that make `version`; with `start`, from exactly the snapshot of that version.

        Raises MissingError, naming the first file that lacks and the versions that can be made, and
        ConflictError when two deltas claim to be the same version.
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
        """`version` and those that it came from, newest first, as far back as the listing has deltas."""
        versions: list[VersionId] = []
        current: VersionId | None = version
        while current is not None and (current in self._deltas or current in self._snapshots):
            versions.append(current)
            delta = self.delta(current)
            current = None if delta is None else delta.builds_on
        return versions

    def restorable(self) -> list[VersionId]:
        """All versions that the listing can make, oldest first."""
        known: set[VersionId] = set(self._snapshots)
        for version in sorted(self._deltas, key=version_order):
            if len(self._deltas[version]) > 1:
                continue
            base = self._deltas[version][0].builds_on
            if base is None or base in known:
                known.add(version)
        return sorted(known, key=version_order)

    def delta(self, version: VersionId) -> DeltaName | None:
        """The delta that made `version`, where it is there. Raises ConflictError when there are two."""
        deltas = self._deltas.get(version, [])
        if len(deltas) > 1:
            names = "' and '".join(delta.path for delta in deltas)
            raise ConflictError(
                f"'{names}' both claim to be version {version}: remove the one that the query did not commit",
                file=deltas[0].path,
            )
        return deltas[0] if deltas else None

    def _missing(self, version: VersionId, ancestor: VersionId) -> MissingError:
        lacking = missing_delta_path(ancestor)
        needed = "" if ancestor == version else f", which version {version} builds on,"
        return MissingError(
            f"version {version} cannot be restored: there is no '{lacking}'{needed} and no snapshot at or "
            f"after it; {describe_restorable(self.restorable())}",
            file=lacking,
        )

    def _no_such_start(self, version: VersionId, start: VersionId) -> MissingError:
        id_ = "" if start.checkpoint_id is None else f"_{start.checkpoint_id}"
        file = f"{SNAPSHOT_DIRECTORY}/{start.number:020d}{id_ or '*'}.zip"
        why = "is not on the lineage of that version" if start in self._snapshots else "does not exist"
        available = ", ".join(str(one) for one in sorted(self._snapshots, key=version_order)) or "none"
        return MissingError(
            f"version {version} cannot be read from the snapshot '{file}': it {why}; "
            f"snapshots there are: {available}",
            file=file,
        )


def missing_delta_path(version: VersionId) -> str:
    """The path that the delta of `version` would have, with `*` where its name cannot be known."""
    attempt = "" if version.checkpoint_id is None else f"_{version.checkpoint_id}_"
    return f"delta/{version.number:020d}{attempt}*.sst"


def describe_restorable(versions: Sequence[VersionId]) -> str:
    """A clause for error messages: which versions can be restored, runs of
    numbers folded, at most the last 10 runs.
    """
    if not versions:
        return "no version of this store can be restored"
    runs: list[list[VersionId]] = []
    for version in versions:
        if runs and version.checkpoint_id is None and runs[-1][-1] == (version.number - 1, None):
            runs[-1].append(version)
        else:
            runs.append([version])
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    shown = ", ".join(texts[-10:])
    return f"versions that can be restored: {'..., ' if len(texts) > 10 else ''}{shown}"
