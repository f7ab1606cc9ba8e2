"""Attempts at a version without Spark's ids (checkpoint format 1): ids of the store's own, and which counts.

Spark names versions by their numbers alone then. Each attempt still has an id, which the store makes, and the
names say which attempt each delta builds on. The id begins with an ordinal: one more than the highest of the
attempts at that version that were in storage when this one began. From the names in a listing follows

- which attempt a number stands for (`Attempts.resolve`), and
- whether an attempt that has just been stored may count (`Attempts.why_refused`).

An attempt stores its delta first and lists then. So of two that were at work at the same time at least one
sees the other, and is refused; and one that comes late, whenever it does, sees what it missed. A delta that
was refused stays, marked by a file of its own: what was made of it meanwhile can be restored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from state_store.core.checkpoint.names import DeltaName, RefusedName, SnapshotName, VersionId, version_order
from state_store.errors import ConflictError

_ID = re.compile(r"a(0|[1-9]\d*)-([0-9a-f]{8})-(0|[1-9]\d*)-([0-9a-f]{8})")

NO_APPLICATION = "0" * 8
"""Stands for a program that is no Spark application."""

ObservedAttempts = frozenset[VersionId]
"""The attempts at later versions that were in storage when an attempt began."""


class AttemptId(NamedTuple):
    """The id of an attempt as its parts. `task` is Spark's task attempt id, which grows with each task that
    the application launches; `application` and `unique` are 8 hexadecimal digits.
    """

    ordinal: int
    application: str
    task: int
    unique: str

    def __str__(self) -> str:
        return f"a{self.ordinal}-{self.application}-{self.task}-{self.unique}"

    @classmethod
    def parse(cls, text: str) -> AttemptId | None:
        """None for an id that is not the store's own."""
        match = _ID.fullmatch(text)
        return None if match is None else cls(int(match[1]), match[2], int(match[3]), match[4])


def next_ordinal(seen: Iterable[VersionId], version: int) -> int:
    """The ordinal of an attempt at `version` that begins where `seen` is in storage."""
    ordinals = [_ordinal(version_id) for version_id in seen if version_id.number == version]
    return 1 + max((ordinal for ordinal in ordinals if ordinal is not None), default=-1)


class Attempts:
    """The attempts that a listing shows. Immutable; safe for any thread.

    `written_ms` are the times of deltas, by the storage's clock; they are asked for only where attempts have
    one ordinal.
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
        """The attempts at versions above that one."""
        return frozenset(delta.version_id for delta in self._deltas if delta.version > version)

    def resolve(self, number: int) -> VersionId | None:
        """The attempt that the number alone stands for; None where there is none of the store's own.

        It is the one with the highest ordinal that was not refused. Of several with that one, at most one
        was accepted: the one that the query went on from, or that was written first, as an accepted one saw
        no other after it had been written. Raises ConflictError where neither tells.
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
        """The files of the attempts at version `number` whose ids are Spark's (checkpoint format 2)."""
        return sorted(self._path(version) for version in self._at(number) if _ordinal(version) is None)

    def superseded_by(self, own: VersionId, seen: ObservedAttempts) -> str | None:
        """Why an attempt must not even be stored: when it began, one at its version was there that belongs to
        a task that Spark had launched later. None where there is none.
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
        """Why the attempt `delta`, which is in storage by now, does not count; None where it does.

        `seen` is what there was above the version that it builds on when it began.
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
        """The version before may have been committed anew since this executor came to it."""
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
        """Those that a later delta builds on, or that a snapshot was made of: Spark has committed them."""
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
