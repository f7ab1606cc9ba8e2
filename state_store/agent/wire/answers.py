"""The `ok` objects and the events of docs/protocol.md as types.

A class is written field by field (`core.codec`); its fields are named as in the protocol unless it says
otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Union

from state_store.agent.lazy.hydration import Progress
from state_store.core.checkpoint.lineage import ObservedAttempts, next_ordinal
from state_store.core.checkpoint.names import VersionId, version_order
from state_store.core.checkpoint.stored_documents import ColumnFamily
from state_store.core.codec import INLINE, JsonObject, Signed, fields_to_json, json_names
from state_store.core.files.sparse import SparseFile
from state_store.core.planning.chain import Chain
from state_store.core.snapshots.publish import Published
from state_store.core.snapshots.restore import Restored, RestoredDelta
from state_store.errors import StateStoreError


class Answer(JsonObject):
    """Base of the answers."""


@dataclass(frozen=True)
class Pong(Answer):
    """Answer to `ping`: the process, its release, its resident memory and the connections lent to it."""

    pid: int
    version: str
    memory_bytes: int
    file_connections: int


@dataclass(frozen=True)
class Ack(Answer):
    """Answer to calls that return nothing: they are done."""


@dataclass(frozen=True)
class Closed(Answer):
    """Answer to `close`.

    With `owed` a merge of the store still has to be made, and the JVM serves its files until the event
    `closed`.
    """

    owed: bool


@dataclass(frozen=True)
class Opened(Answer):
    """Answer to `open`: the directory for new deltas, the data plane's share of the memory budget, options.

    `file_connections` is how many connections the JVM has to lend at least, over all stores.
    """

    incoming: Path
    memory_budget_bytes: int
    file_connections: int
    options: Mapping[str, Any]


@dataclass(frozen=True)
class SeenAttempts(Answer):
    """Attempts in storage above `version`, for the next commit on it where Spark gives no ids."""

    version: int
    seen: ObservedAttempts

    def to_json(self) -> dict[str, Any]:
        ordered = sorted(self.seen, key=version_order)
        return {
            "ordinal": next_ordinal(self.seen, self.version + 1),
            "seen": [[version.number, version.checkpoint_id] for version in ordered],
        }


@dataclass(frozen=True)
class Ages(Answer):
    """Milliseconds since the newest snapshot, and since the newest full one; None where there is none."""

    snapshot_age_ms: int | None
    full_age_ms: int | None


@dataclass(frozen=True)
class Prediction(Answer):
    """Milliseconds that a restore of the newest version would take now on another machine.

    `restore_objective_ms` is the option `restoreObjective`; 0 means that there is no objective.
    """

    predicted_restore_ms: float
    restore_objective_ms: int


@json_names(version=INLINE)
@dataclass(frozen=True)
class LooseDelta(Answer):
    """A delta as a local file that is not part of a database."""

    version: VersionId
    path: Path


@dataclass(frozen=True)
class Paging:
    """Rules by which the sparse files of a base are read.

    If `page_bytes` is not 0, pages of this length may be evicted at any moment, and a call asks for at most
    `pages_at_once` bytes of them. `stored` has the path in checkpoint storage of each file, by its name.
    """

    page_bytes: int
    pages_at_once: int
    stored: Mapping[str, str]

    @classmethod
    def of_whole_files(cls, files: Iterable[SparseFile]) -> Paging:
        """Return the rules for files that come whole in the background, and stay."""
        return cls(0, 0, {file.name: file.path for file in files})


NO_PAGES = Paging(0, 0, {})


@json_names(loose_deltas="beside", paging=INLINE)
@dataclass(frozen=True)
class RestoredStore(Answer):
    """Answer to `restore`: a database to open read-only, the cost of the restore, and the predicted cost.

    With `loose_deltas` the database is one of `base`, and so are `keys` and `column_families`.
    """

    id: str | None
    attempts: SeenAttempts
    directory: Path
    base: VersionId
    loose_deltas: Sequence[LooseDelta]
    sparse: Sequence[str]
    paging: Paging
    needs_rocksdb: bool
    keys: int
    column_families: Mapping[str, Any]
    bytes: int
    files: int
    snapshot_version: int | None
    deltas: int
    local_files: int
    fetched_files: int
    fetched_bytes: int
    predicted_ms: float
    phases: Mapping[str, float]
    ages: Ages
    warnings: Sequence[str]

    @classmethod
    def of(cls, restored: Restored, predicted_ms: float, ages: Ages, paging: Paging) -> RestoredStore:
        """Return the answer for a restore that was made."""
        base, chain = restored.base, restored.chain
        return cls(
            id=restored.version.checkpoint_id,
            attempts=SeenAttempts(restored.version.number, restored.seen),
            directory=base.directory,
            base=base.version,
            loose_deltas=[_loose(delta) for delta in restored.deltas],
            sparse=[file.name for file in restored.sparse],
            paging=paging,
            needs_rocksdb=restored.needs_rocksdb,
            keys=base.keys,
            column_families=_encoded(base.column_families),
            bytes=base.size_bytes + sum(delta.size_bytes for delta in restored.deltas),
            files=len(base.files) + len(restored.deltas),
            snapshot_version=chain.snapshot.version if chain.snapshot else None,
            deltas=len(chain.deltas),
            local_files=restored.fetched.local_files,
            fetched_files=restored.fetched.files,
            fetched_bytes=restored.fetched.size_bytes,
            predicted_ms=predicted_ms,
            phases=restored.phases,
            ages=ages,
            warnings=restored.warnings,
        )


def _loose(delta: RestoredDelta) -> LooseDelta:
    return LooseDelta(delta.version, delta.path)


def _encoded(families: Mapping[str, ColumnFamily]) -> Mapping[str, Any]:
    return {name: fields_to_json(family) for name, family in families.items()}


@dataclass(frozen=True)
class ReadRange(Answer):
    """Answer to `range`: this many bytes are there now."""

    bytes: int


@json_names(restore=INLINE)
@dataclass(frozen=True)
class Committed(Answer):
    """Answer to `commit`: the chain with the new delta, and the attempts above it.

    `phases` has milliseconds; `hydration` is the progress of lazy restores.
    """

    chain: Chain
    restore: Prediction
    ages: Ages
    attempts: SeenAttempts
    phases: Mapping[str, float]
    hydration: Progress


@json_names(version=INLINE)
@dataclass(frozen=True)
class FullAsked(Answer):
    """Answer to `full`: the version that is meant, and `already` if its newest snapshot is a full one.

    Otherwise `state` is `queued`: a merge of kind `full` waits in the queue, and an event says how it ended.
    """

    version: VersionId
    state: str


@dataclass(frozen=True)
class Cleaned(Answer):
    """Answer to `cleanup`: the number and bytes of deleted files, and the versions that can be restored."""

    deleted_files: int
    deleted_bytes: int
    retained: Sequence[VersionId]


@dataclass(frozen=True)
class DeltaFiles(Answer):
    """Answer to `deltas`: local copies, oldest first, all in one directory that the JVM has to release."""

    directory: Path
    files: Sequence[LooseDelta]


@json_names(loose_deltas="beside", paging=INLINE)
@dataclass(frozen=True)
class OfferedBase(Answer):
    """A base that the JVM may open; it is the JVM's until the JVM releases it.

    As in the answer to `restore`, the database is one of `base` and has that many `keys`.
    """

    directory: Path
    version: int
    id: str | None
    keys: int
    base: VersionId
    loose_deltas: Sequence[LooseDelta] = ()
    sparse: Sequence[str] = ()
    paging: Paging = NO_PAGES

    @classmethod
    def of(cls, version: VersionId, restored: Restored, paging: Paging) -> OfferedBase:
        """Return the base that a restore has made of a version."""
        base = restored.base
        return cls(
            base.directory,
            version.number,
            version.checkpoint_id,
            base.keys,
            base.version,
            [_loose(delta) for delta in restored.deltas],
            [file.name for file in restored.sparse],
            paging,
        )


@dataclass(frozen=True)
class MergedStore(Answer):
    """A merge that was made. Counts of files and bytes are those of its snapshot, 0 for kind `ingest`."""

    kind: str
    reason: str
    base: OfferedBase
    took_ms: float
    shared_files: int
    new_files: int
    own_files: int
    uploaded_bytes: int
    chain: Chain
    phases: Mapping[str, float]

    @classmethod
    def of(
        cls,
        kind: str,
        reason: str,
        offered: OfferedBase,
        published: Published | None,
        *,
        took_ms: float,
        chain: Chain,
        phases: Mapping[str, float],
    ) -> MergedStore:
        """Return the answer for a merge that made a base; `published` is None for kind `ingest`."""
        return cls(
            kind=kind,
            reason=reason,
            base=offered,
            took_ms=took_ms,
            shared_files=published.shared_files if published else 0,
            new_files=published.new_files if published else 0,
            own_files=published.own_files if published else 0,
            uploaded_bytes=published.uploaded_bytes if published else 0,
            chain=chain,
            phases=phases,
        )


@json_names(why="skipped")
@dataclass(frozen=True)
class Skipped(Answer):
    """A merge that was not made, and the reason."""

    why: str


@dataclass(frozen=True)
class MergeEnded(Answer):
    """Event: a merge of `store` was made; its base is offered, its snapshot published (kind `ingest`: none).

    `failures_in_row` is 0 unless merges of another kind fail.
    """

    event: ClassVar[str] = "merged"

    store: int
    merged: MergedStore
    ages: Ages
    failures_in_row: int


@dataclass(frozen=True)
class MergeFailed(Answer):
    """Event: a merge of `store` failed, the `failures_in_row`-th without a success between."""

    event: ClassVar[str] = "merge_failed"

    store: int
    version: int
    kind: str
    reason: str
    error: StateStoreError
    failures_in_row: int


@dataclass(frozen=True)
class StoreClosed(Answer):
    """Event: the agent needs the files of a store no more. Its provider was closed before."""

    event: ClassVar[str] = "closed"

    store: int


Event = Union[MergeEnded, MergeFailed, StoreClosed]


@dataclass(frozen=True)
class Events(Answer):
    """Answer to `events`: those after the last one that the JVM has handled, each with its number."""

    events: Sequence[tuple[int, Event]]

    def to_json(self) -> dict[str, Any]:
        return {
            "events": [
                {"number": number, "event": event.event, **event.to_json()} for number, event in self.events
            ]
        }


@json_names(version=INLINE)
@dataclass(frozen=True)
class RunningMerge:
    """A merge that runs, and the milliseconds since it began."""

    version: VersionId
    kind: str
    reason: str
    elapsed_ms: float


@json_names(version=INLINE)
@dataclass(frozen=True)
class WaitingMerge:
    """A merge that waits, and the reason as a sentence.

    `ready_in_ms` is None when time alone does not make it ready.
    """

    version: VersionId
    kind: str
    reason: str
    why: str
    ready_in_ms: float | None


@json_names(version=INLINE)
@dataclass(frozen=True)
class EndedMerge:
    """The last merge that was made, or that failed, and the milliseconds since it ended.

    `error` is None for a merge that was made.
    """

    version: VersionId
    kind: str
    reason: str
    ended_ms_ago: float
    took_ms: float
    error: StateStoreError | None


@dataclass(frozen=True)
class MergeStatus:
    """The merges of one store."""

    running: RunningMerge | None
    waiting: Sequence[WaitingMerge]
    last_made: EndedMerge | None
    last_failed: EndedMerge | None
    failures_in_row: int


@json_names(restore=INLINE)
@dataclass(frozen=True)
class StoreStatus:
    """A store as its agent sees it now.

    `newest` is the version committed or restored last, `certain` the newest one that Spark has committed for
    certain. `options` are the options in force by name, None unless they were asked for.
    """

    store: int
    location: str
    operator: Signed
    partition: Signed
    name: str
    run: str
    newest: VersionId | None
    certain: VersionId | None
    chain: Chain
    ages: Ages
    restore: Prediction
    hydration: Progress
    merges: MergeStatus
    options: Mapping[str, Any] | None


@dataclass(frozen=True)
class Status(Answer):
    """Answer to `status`: the stores that this agent has open."""

    stores: Sequence[StoreStatus]
