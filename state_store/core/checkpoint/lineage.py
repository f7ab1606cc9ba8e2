"""Answers from the names in a listing: the attempt that counts and the files that make a version.

A `Listing` has the names of the files in a store's directory. Its answers are as old as it is.

**Attempts.** Under checkpoint format 1 Spark names versions by their numbers alone. The store gives each
attempt at a version an id, and the name of a delta says which attempt it builds on. An id begins with an
ordinal: one more than the highest ordinal of the attempts at that version that were in storage when this one
began. The names in a listing tell

- the attempt that a number stands for (`Attempts.resolve`), and
- whether an attempt that has just been stored may count (`Attempts.why_refused`).

An attempt stores its delta first and lists afterwards. So of two attempts that overlap at least one sees the
other and is refused, and a late attempt sees those that it missed. A refused delta stays, with a mark in a
file of its own: versions that were built on it meanwhile can still be restored. `store_attempt` does all of
this for one attempt.

**Lineages.** A version is the newest snapshot on its lineage and the deltas after it (`Lineages.plan`). A
process that commits keeps it as a `Chain`, which each commit and each snapshot replaces by a new one.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from state_store.core.checkpoint.names import (
    DELTA_DIRECTORY,
    SHARED_DIRECTORY,
    SNAPSHOT_DIRECTORY,
    DeltaName,
    RefusedName,
    SharedName,
    SnapshotName,
    VersionId,
    version_order,
)
from state_store.core.checkpoint.stored_documents import FULL, Manifest, encode
from state_store.core.storage.contract import Storage
from state_store.errors import ConflictError, MissingError

_ID = re.compile(r"a(0|[1-9]\d*)-([0-9a-f]{8})-(0|[1-9]\d*)-([0-9a-f]{8})")

NO_APPLICATION = "0" * 8
"""Application of attempts by a program that is not a Spark application."""

_MAX_RUNS = 10
"""Runs of versions that a message lists."""

ObservedAttempts = frozenset[VersionId]
"""The attempts at later versions that were in storage when an attempt began."""


# ---- listings -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Listing:
    """Names that exist, each with its size in bytes, without foreign files and unfinished writes.

    `written_ms` is the time at which each delta was written, by the storage's clock, if it is known.
    """

    deltas: Mapping[DeltaName, int] = field(default_factory=dict)
    snapshots: Mapping[SnapshotName, int] = field(default_factory=dict)
    shared: Mapping[SharedName, int] = field(default_factory=dict)
    written_ms: Mapping[DeltaName, int] = field(default_factory=dict)
    refused: frozenset[RefusedName] = frozenset()

    @classmethod
    def from_files(
        cls, files: Iterable[tuple[str, int]], modified_ms: Mapping[str, int] | None = None
    ) -> Listing:
        """Return the listing of these files.

        Args:
            files: pairs of a path below the store's directory and its bytes.
            modified_ms: times by path.
        """
        times = modified_ms or {}
        deltas: dict[DeltaName, int] = {}
        snapshots: dict[SnapshotName, int] = {}
        shared: dict[SharedName, int] = {}
        refused: set[RefusedName] = set()
        for path, size_bytes in files:
            directory, _, name = path.partition("/")
            if directory == DELTA_DIRECTORY and (delta := DeltaName.parse(name)):
                deltas[delta] = size_bytes
            elif directory == DELTA_DIRECTORY and (mark := RefusedName.parse(name)):
                refused.add(mark)
            elif directory == SNAPSHOT_DIRECTORY and (snapshot := SnapshotName.parse(name)):
                snapshots[snapshot] = size_bytes
            elif directory == SHARED_DIRECTORY and (table := SharedName.parse(name)):
                shared[table] = size_bytes
        written_ms = {delta: times[delta.path] for delta in deltas if delta.path in times}
        return cls(deltas, snapshots, shared, written_ms, frozenset(refused))

    @property
    def attempts(self) -> Attempts:
        """The attempts at versions that are in the listing."""
        return Attempts(self.deltas, self.refused, self.snapshots, self.written_ms)

    def sst_bytes(self) -> dict[str, int]:
        """Return the bytes of every SST, delta or shared, by path."""
        return {name.path: size for names in (self.deltas, self.shared) for name, size in names.items()}


# ---- attempts -------------------------------------------------------------------------------------------


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
        candidates = self._at(number) - self._refused
        ordinals = {version: ordinal for version in candidates if (ordinal := _ordinal(version)) is not None}
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

    def likeliest(self, candidates: Collection[VersionId]) -> VersionId:
        """Return the attempt that counts, of several with one number that were not refused and have any ids.

        It is the one that a later version builds on, else the one that was written first, as in `resolve`.
        """
        number = next(iter(candidates)).number
        best = set(candidates) & self._continued(number) or set(candidates)
        return min(self._first_written(best) or best, key=version_order)

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

    def at(self, number: int) -> ObservedAttempts:
        """Return the attempts at a version that were not refused."""
        return frozenset(self._at(number) - self._refused)

    def why_refused(
        self, delta: DeltaName, seen: ObservedAttempts, at_parent: ObservedAttempts | None = None
    ) -> str | None:
        """Return why a stored attempt does not count, or None if it counts.

        A later version that builds on the attempt has taken it for the version, and is no objection.

        Args:
            delta: the delta of the attempt, which is in storage by now.
            seen: attempts above the version that it builds on that were in storage when it began.
            at_parent: the attempts at the version that it builds on that were in storage when that was read,
                perhaps before its writer had looked; None: which of them counts is known.
        """
        own = delta.version_id
        mine = _ordinal(own)
        if own in self._refused:
            return "it was given up"
        built_on = self._built_on(own)
        seen = seen | built_on
        if mine is None and built_on:  # it was alone, or the first, when its reader looked
            seen |= self._at(own.number)
        for other in sorted(self._deltas, key=lambda delta: delta.name):
            at = other.version_id
            if at == own or at in seen:
                continue
            if at.number > own.number:
                return f"the query has gone on to version {at.number} without this task ('{other.path}')"
            theirs = _ordinal(at)
            if at.number == own.number and (theirs is None or mine is None or theirs >= mine):
                return f"another attempt committed it meanwhile ('{other.path}')"
        parent = delta.builds_on
        if parent is not None and at_parent is not None and self.at(parent.number) - at_parent - {parent}:
            return f"version {parent.number}, which it builds on, was committed by another program as well"
        return self._why_parent_refused(delta)

    def without_built_on(self, version: VersionId) -> ObservedAttempts:
        """Return the attempts above a version that do not build on it."""
        return self.after(version.number) - self._built_on(version)

    def _built_on(self, version: VersionId) -> set[VersionId]:
        """Return the attempts that build on a version, on others that do, and so on."""
        lineage = {version}
        for delta in sorted(self._deltas, key=lambda delta: delta.version):
            if delta.builds_on in lineage:
                lineage.add(delta.version_id)
        return lineage - {version}

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


def list_attempts(storage: Storage, first: int) -> Attempts:
    """Return the attempts at versions from `first` on, from one listing."""
    least = f"{first:020d}"
    entries = storage.list_files(DELTA_DIRECTORY)
    return Listing.from_files(
        (f"{DELTA_DIRECTORY}/{entry.name}", entry.size_bytes) for entry in entries if entry.name >= least
    ).attempts


def store_attempt(
    storage: Storage,
    delta: DeltaName,
    seen: ObservedAttempts,
    store: Callable[[], object],
    at_parent: ObservedAttempts | None = None,
) -> ObservedAttempts:
    """Store an attempt, and find out whether it counts.

    Args:
        storage: Checkpoint storage.
        delta: The attempt.
        seen: The attempts above the version that it builds on, when it began.
        store: Writes the delta.
        at_parent: As for `Attempts.why_refused`.

    Returns:
        The attempts above its version now, without those that build on it: they compete with the next one.

    Raises:
        ConflictError: The attempt does not count, because another one was at work. It is marked as refused.
        StateStoreError: The storage failed. The next attempt finds out whether this one counts.
    """
    overtaken = Attempts(()).superseded_by(delta.version_id, seen)
    if overtaken is not None:
        raise _refused(storage, delta, overtaken)
    store()
    attempts = list_attempts(storage, delta.version - 1)
    objection = attempts.why_refused(delta, seen, at_parent)
    if objection is not None:
        refuse(storage, delta.version_id, objection)
        raise _refused(storage, delta, objection)
    return attempts.without_built_on(delta.version_id)


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


# ---- lineages -------------------------------------------------------------------------------------------


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
        known_versions: set[VersionId] = set(self._snapshots)
        for version in sorted(self._deltas, key=version_order):
            if len(self._deltas[version]) > 1:
                continue
            base = self._deltas[version][0].builds_on
            if base is None or base in known_versions:
                known_versions.add(version)
        return sorted(known_versions, key=version_order)

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
    if len(texts) > _MAX_RUNS:
        texts = [texts[0], "...", *texts[1 - _MAX_RUNS :]]
    return f"versions that can be restored: {', '.join(texts)}"


# ---- the chain of a process that commits ----------------------------------------------------------------


def new_bytes(snapshot: Manifest | None, delta_bytes: int | None) -> int | None:
    """Return the bytes of the files that a restore of a version reads and no older version needs.

    If the version has a snapshot, a restore reads its files and not the delta, whose changes they have; if no
    file of the snapshot is new, the version is that of its delta.

    Args:
        snapshot: The snapshot of exactly this version; None if it has none.
        delta_bytes: The size of its delta; None if there is none.
    """
    own_bytes = 0 if snapshot is None else snapshot.new_bytes
    return own_bytes or delta_bytes


@dataclass(frozen=True)
class ChainDelta:
    """A delta of the chain, its size, and the CRC-32 of its name."""

    name: DeltaName
    size_bytes: int
    crc32: int | None = None

    @classmethod
    def from_listing(cls, name: DeltaName, size_bytes: int) -> ChainDelta:
        """Return the delta as a listing shows it."""
        return cls(name, size_bytes, name.crc)


@dataclass(frozen=True)
class Chain:
    """The files of `version` (None: nothing is committed). Immutable: each change returns a new chain.

    `full_snapshot` is the newest full one at or before `snapshot`, None if it is unknown or gone.
    """

    version: VersionId | None = None
    snapshot: Manifest | None = None
    deltas: tuple[ChainDelta, ...] = ()
    delta_bytes: int = 0
    full_snapshot: Manifest | None = None

    @classmethod
    def from_listing(
        cls,
        version: VersionId,
        snapshot: Manifest | None,
        deltas: Sequence[ChainDelta],
        full_snapshot: Manifest | None = None,
    ) -> Chain:
        """Return the chain of `version` (0: none) as it is in checkpoint storage."""
        size_bytes = sum(delta.size_bytes for delta in deltas)
        chain_version = version if version.number else None
        return cls(chain_version, snapshot, tuple(deltas), size_bytes, full_snapshot)

    @property
    def deltas_since_full(self) -> int:
        """Number of deltas that were committed since the last full checkpoint."""
        return len(self.deltas) + (self.snapshot.deltas_since_full if self.snapshot else 0)

    @property
    def merges_since_full(self) -> int:
        """Number of merges that were published since the last full checkpoint."""
        return self.snapshot.merges_since_full if self.snapshot else 0

    @property
    def snapshot_files(self) -> int:
        """Number of SST files of the snapshot; 0 without one."""
        return len(self.snapshot.files) if self.snapshot else 0

    @property
    def files(self) -> int:
        """Number of SST files that a restore opens: those of the snapshot and the deltas."""
        return self.snapshot_files + len(self.deltas)

    @property
    def size_bytes(self) -> int:
        """Bytes of all these files."""
        return self.delta_bytes + (self.snapshot.total_bytes if self.snapshot else 0)

    def new_bytes(self, version: VersionId) -> int | None:
        """Return `new_bytes` of a version; None if the chain has neither its snapshot nor its delta."""
        sizes = (delta.size_bytes for delta in self.deltas if delta.name.version_id == version)
        is_own = self.snapshot is not None and self.snapshot.version_id == version
        return new_bytes(self.snapshot if is_own else None, next(sizes, None))

    def commit(self, delta: ChainDelta) -> Chain:
        """Return the chain with one more delta.

        A delta of the newest version replaces it. A delta that the snapshot contains changes nothing.
        """
        if self.deltas and self.deltas[-1].name.version_id == delta.name.version_id:
            before = replace(
                self, deltas=self.deltas[:-1], delta_bytes=self.delta_bytes - self.deltas[-1].size_bytes
            )
            return before.commit(delta)
        if self.snapshot is not None and self.snapshot.version_id == delta.name.version_id:
            return self
        deltas = (*self.deltas, delta)
        return replace(
            self,
            version=delta.name.version_id,
            deltas=deltas,
            delta_bytes=self.delta_bytes + delta.size_bytes,
        )

    def publish(self, manifest: Manifest) -> Chain:
        """Return the chain with a newer snapshot and the deltas after it."""
        later_deltas = tuple(delta for delta in self.deltas if delta.name.version > manifest.version)
        return replace(
            self,
            snapshot=manifest,
            deltas=later_deltas,
            delta_bytes=sum(delta.size_bytes for delta in later_deltas),
            full_snapshot=manifest if manifest.kind == FULL else self.full_snapshot,
        )

    def back_to(self, version: VersionId) -> Chain | None:
        """Return the chain as it was at `version`, or None if the snapshot is newer."""
        for index, delta in enumerate(self.deltas):
            if delta.name.version_id == version:
                earlier_deltas = self.deltas[: index + 1]
                return replace(
                    self,
                    version=version,
                    deltas=earlier_deltas,
                    delta_bytes=sum(delta.size_bytes for delta in earlier_deltas),
                )
        if self.snapshot is not None and self.snapshot.version_id == version:
            return replace(self, version=version, deltas=(), delta_bytes=0)
        return None

    def between(self, after: VersionId | None, version: VersionId) -> Sequence[ChainDelta] | None:
        """Return the deltas from `after` to `version`, oldest first, or None if the chain lacks one."""
        by_version = {delta.name.version_id: delta for delta in self.deltas}
        path: list[ChainDelta] = []
        current: VersionId | None = version
        while current is not None and current != after:
            delta = by_version.get(current)
            if delta is None:
                return None
            path.append(delta)
            current = delta.name.builds_on
        return tuple(reversed(path)) if current == after else None

    def paths(self) -> set[str]:
        """Return the paths of the SST files below the store's directory."""
        paths = {delta.name.path for delta in self.deltas}
        return paths | ({entry.path for entry in self.snapshot.files} if self.snapshot else set())

    def to_json(self) -> dict[str, int | str | None]:
        """Return the sizes of the chain, as in docs/protocol.md."""
        snapshot = self.snapshot
        shared_files, shared_bytes = snapshot.older if snapshot else (0, 0)
        return {
            "deltas": len(self.deltas),
            "deltas_since_full": self.deltas_since_full,
            "merges_since_full": self.merges_since_full,
            "files": self.files,
            "bytes": self.size_bytes,
            "shared_files": shared_files,
            "shared_bytes": shared_bytes,
            "snapshot_version": snapshot.version if snapshot else None,
            "snapshot_kind": snapshot.kind if snapshot else None,
            "full_version": snapshot.full.number if snapshot and snapshot.full else None,
        }
