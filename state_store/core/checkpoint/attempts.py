"""Attempts at a version without Spark's ids (checkpoint format 1): the store's own ids, and which counts.

Under format 1 Spark names versions by their numbers alone. The store gives each attempt an id, and the name
of a delta says which attempt it builds on. An id begins with an ordinal: one more than the highest ordinal of
the attempts at that version that were in storage when this one began. The names in a listing tell

- the attempt that a number stands for (`Attempts.resolve`), and
- whether an attempt that has just been stored may count (`Attempts.why_refused`).

An attempt stores its delta first and lists afterwards. So of two attempts that overlap at least one sees the
other and is refused, and a late attempt sees those that it missed. A refused delta stays, with a mark in a
file of its own: versions that were built on it meanwhile can still be restored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from state_store.core.checkpoint.names import DeltaName, RefusedName, SnapshotName, VersionId, version_order
from state_store.errors import ConflictError

_ID = re.compile(r"a(0|[1-9]\d*)-([0-9a-f]{8})-(0|[1-9]\d*)-([0-9a-f]{8})")

NO_APPLICATION = "0" * 8
"""Application of attempts by a program that is no Spark application."""

ObservedAttempts = frozenset[VersionId]
"""The attempts at later versions that were in storage when an attempt began."""


class AttemptId(NamedTuple):
    """The parts of an attempt's id.

    `task` is Spark's task attempt id, which grows with each task that the application launches.
    `application` and `unique` are 8 hexadecimal digits.
    """

    ordinal: int
    application: str
    task: int
    unique: str

    def __str__(self) -> str:
        return f"a{self.ordinal}-{self.application}-{self.task}-{self.unique}"

    @classmethod
    def parse(cls, text: str) -> AttemptId | None:
        """Return the parts of an id, or None if it is not the store's own."""
        match = _ID.fullmatch(text)
        return None if match is None else cls(int(match[1]), match[2], int(match[3]), match[4])


def next_ordinal(seen: Iterable[VersionId], version: int) -> int:
    """Return the ordinal of an attempt at `version` that begins while `seen` is in storage."""
    ordinals = [_ordinal(version_id) for version_id in seen if version_id.number == version]
    return 1 + max((ordinal for ordinal in ordinals if ordinal is not None), default=-1)


class Attempts:
    """The attempts in a listing. Immutable; safe for any thread.

    Args:
        deltas: the deltas in the listing.
        refused: the marks on refused attempts.
        snapshots: the snapshots in the listing.
        written_ms: times of deltas by the storage's clock; needed only if attempts have the same ordinal.
    """

    def __init__(
        self,
        deltas: Iterable[DeltaName],
        refused: Iterable[RefusedName] = (),
        snapshots: Iterable[SnapshotName] = (),
        written_ms: Mapping[DeltaName, int] | None = None,
    ) -> None:
        self._deltas = tuple(deltas)
        self._refused = frozenset(mark.version_id for mark in refused)
        self._snapshots = frozenset(snapshot.version_id for snapshot in snapshots)
        self._written_ms = written_ms or {}

    def after(self, version: int) -> ObservedAttempts:
        """Return the attempts at versions above `version`."""
        return frozenset(delta.version_id for delta in self._deltas if delta.version > version)

    def resolve(self, number: int) -> VersionId | None:
        """Return the attempt that a number alone stands for, or None if none is the store's own.

        It is the one with the highest ordinal that was not refused. Of several with that ordinal at most one
        was accepted: the one that a later version builds on, else the one that was written first, since an
        accepted attempt saw no other after it had been written.

        Raises:
            ConflictError: If neither rule decides.
        """
        found = self._at(number) - self._refused
        ordinals = {version: ordinal for version in found if (ordinal := _ordinal(version)) is not None}
        if not ordinals:
            return None
        highest = max(ordinals.values())
        best = {version for version, ordinal in ordinals.items() if ordinal == highest}
        if len(best) > 1:
            best = (best & self._continued(number)) or best
        if len(best) > 1:
            best = self._first_written(best)
        if len(best) > 1:
            files = "' and '".join(sorted(self._path(version) for version in best))
            raise ConflictError(
                f"'{files}' both claim to be version {number}, and were written at the same time: remove the "
                "one that the query did not commit",
                file=self._path(min(best, key=version_order)),
            )
        return next(iter(best))

    def paths_with_spark_ids(self, number: int) -> list[str]:
        """Return the files of the attempts at a version whose ids are Spark's (checkpoint format 2)."""
        return sorted(self._path(version) for version in self._at(number) if _ordinal(version) is None)

    def superseded_by(self, own: VersionId, seen: ObservedAttempts) -> str | None:
        """Return why an attempt must not even be stored, or None.

        The reason is an attempt at its version, in storage when it began, of a task that Spark launched
        later.

        Args:
            own: the attempt.
            seen: attempts that were in storage when it began.
        """
        mine = AttemptId.parse(own.checkpoint_id or "")
        for other in sorted(seen, key=version_order):
            theirs = AttemptId.parse(other.checkpoint_id or "") if other.number == own.number else None
            if (
                mine is not None
                and theirs is not None
                and theirs.application == mine.application
                and theirs.task > mine.task
            ):
                return f"a task that Spark launched later has committed it already, as '{theirs}'"
        return None

    def why_refused(self, delta: DeltaName, seen: ObservedAttempts) -> str | None:
        """Return why a stored attempt does not count, or None if it counts.

        Args:
            delta: the delta of the attempt, which is in storage by now.
            seen: attempts above the version that it builds on that were in storage when it began.
        """
        own = delta.version_id
        mine = _ordinal(own)
        if own in self._refused:
            return "it was given up"
        for other in sorted(self._deltas, key=lambda delta: delta.name):
            at = other.version_id
            if at == own or at in seen:
                continue
            if at.number > own.number:
                return f"the query has gone on to version {at.number} without this task ('{other.path}')"
            theirs = _ordinal(at)
            if at.number == own.number and (theirs is None or mine is None or theirs >= mine):
                return f"another attempt committed it meanwhile ('{other.path}')"
        return self._why_parent_refused(delta)

    def _why_parent_refused(self, delta: DeltaName) -> str | None:
        """Return why the version before does not count any more: it may have been committed anew."""
        parent = delta.builds_on
        if parent is None:
            return None
        if parent in self._refused:
            return f"version {parent}, which it builds on, was given up"
        base = _ordinal(parent)
        for other in self._deltas:
            at = other.version_id
            theirs = _ordinal(at) if at.number == parent.number and at not in self._refused else None
            if theirs is not None and base is not None and theirs > base:
                return f"version {parent.number}, which it builds on, was committed anew ('{other.path}')"
        return None

    def _at(self, number: int) -> set[VersionId]:
        snapshots = {version for version in self._snapshots if version.number == number}
        return snapshots | {delta.version_id for delta in self._deltas if delta.version == number}

    def _continued(self, number: int) -> set[VersionId]:
        """Return the attempts that a later delta builds on or that have a snapshot: Spark committed them."""
        later = {delta.builds_on for delta in self._deltas if delta.version == number + 1}
        return {version for version in later if version is not None} | self._snapshots

    def _first_written(self, attempts: set[VersionId]) -> set[VersionId]:
        times = {
            delta.version_id: self._written_ms.get(delta, 0)
            for delta in self._deltas
            if delta.version_id in attempts
        }
        first_ms = min(times.values(), default=0)
        return {version for version, at_ms in times.items() if at_ms == first_ms}

    def _path(self, version: VersionId) -> str:
        paths = [delta.path for delta in self._deltas if delta.version_id == version]
        return paths[0] if paths else SnapshotName(*version).path


def _ordinal(version: VersionId) -> int | None:
    """Return the ordinal of an attempt, or None if its id is not the store's own but Spark's."""
    parsed = AttemptId.parse(version.checkpoint_id or "")
    return None if parsed is None else parsed.ordinal
