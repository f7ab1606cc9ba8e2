"""The messages of docs/protocol.md as types: the JVM's calls, the `ok` objects, events, and the status.

1. Arguments of the JVM are checked and decoded.
2. An answer is a class that is written field by field (`core.codec`); its fields are named as in the
   protocol unless it says otherwise.
3. `status` lists the stores of this executor and their merges, for people and tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, Union

from state_store.agent.lazy.prefetch import Progress
from state_store.core.checkpoint.lineage import Chain, ObservedAttempts, next_ordinal
from state_store.core.checkpoint.names import EMPTY_PARENT, DeltaName, VersionId, version_order
from state_store.core.checkpoint.stored_documents import ColumnFamily
from state_store.core.codec import INLINE, JsonObject, Mismatch, Signed, fields_to_json, from_json, json_names
from state_store.core.deletion.retention import RetentionPolicy
from state_store.core.settings.options import Options
from state_store.core.snapshots.merge import Published
from state_store.core.snapshots.restore import Restored
from state_store.errors import InternalError, StateStoreError

T = TypeVar("T")


def decode(kind: type[T], call: Mapping[str, Any]) -> T:
    """Return the arguments of a call as an instance of `kind`.

    Raises:
        InternalError: An argument is missing or is not of its type.
    """
    try:
        return from_json(kind, call)
    except Mismatch as mismatch:
        raise InternalError(f"the call {call.get('op')!r} {mismatch}") from mismatch


@json_names(has_checkpoint_ids="ids")
@dataclass(frozen=True)
class StoreId:
    """Identity of a store, as the JVM names it; `retain` is Spark's `minBatchesToRetain`."""

    location: str
    operator: Signed
    partition: Signed
    name: str
    run: str
    has_checkpoint_ids: bool
    retain: int

    @property
    def label(self) -> str:
        """Short name for the log."""
        return f"{self.operator}/{self.partition}/{self.name}"

    def retention(self, options: Options) -> RetentionPolicy:
        """Return the rule by which versions are retained."""
        return RetentionPolicy(
            self.retain,
            options.retained_checkpoints,
            options.retained_age_ms,
            options.lease_expiry_ms,
            options.temporary_expiry_ms,
            options.retained_older_bytes,
        )

    def delta(self, version: VersionId, parent: str | None, crc: int) -> DeltaName:
        """Return the name under which a delta of the JVM is committed.

        Raises:
            InternalError: The version has no id.
        """
        if version.checkpoint_id is None:
            raise InternalError(f"version {version} came without its id")
        return DeltaName(version.number, version.checkpoint_id, parent or EMPTY_PARENT, crc)


@json_names(store_id=INLINE, texts="options")
@dataclass(frozen=True)
class StoreFields:
    """The store that a call is about. `instance` is the number of its provider in the JVM.

    `texts` are the options as the query has them; `held` the bases that the JVM has open, for an agent that
    replaces another.
    """

    instance: int
    store_id: StoreId
    texts: Mapping[str, str]
    held: tuple[Path, ...] = ()


@json_names(version=INLINE)
@dataclass(frozen=True)
class RestoreRequest:
    """Request for a base of `version`, made from exactly the snapshot of `from_version` if that is given.

    With `thorough` every file is verified as a whole.
    """

    version: VersionId
    from_version: int | None
    from_id: str | None
    thorough: bool = True

    @property
    def start(self) -> VersionId | None:
        """Version of the snapshot to start from; None lets the restore choose."""
        return None if self.from_version is None else VersionId(self.from_version, self.from_id)


@dataclass(frozen=True)
class RangesRequest:
    """Ranges of sparse files in the directory of a base: name, offset and length of each."""

    directory: Path
    ranges: tuple[tuple[Any, ...], ...]

    def checked(self) -> list[tuple[str, int, int]]:
        """Return the ranges.

        Raises:
            InternalError: A range is malformed.
        """
        for part in self.ranges:
            if [type(field) for field in part] != [str, int, int]:
                raise InternalError(f"{part!r} is not a name, an offset and a length")
        return [(name, offset, length) for name, offset, length in self.ranges]


@json_names(version=INLINE, size_bytes="bytes", crc32="crc", is_stored="stored", seen_pairs="seen")
@dataclass(frozen=True)
class CommitRequest:
    """Request to commit the delta at `path` as `version`, which follows the version of id `parent`.

    `seen_pairs` are the later versions that the attempt knew of when it began, without Spark's ids. With
    `memory_short` the data plane asks for an `ingest` merge, which gives memory back. With `is_stored` the
    data plane has stored the delta itself, durably and under its name, so that the version is committed.
    """

    version: VersionId
    parent: str | None
    path: Path
    size_bytes: int
    crc32: int
    keys: int
    memory_short: bool = False
    is_stored: bool = False
    seen_pairs: tuple[tuple[Any, ...], ...] = ()

    @property
    def seen(self) -> ObservedAttempts:
        """Later versions that the attempt knew of.

        Raises:
            InternalError: A member is not a pair of a number and an id.
        """
        if any(len(pair) != 2 or not isinstance(pair[0], int) for pair in self.seen_pairs):
            raise InternalError("the call 'commit' has a member in 'seen' that is not a pair [version, id]")
        return frozenset(VersionId(number, checkpoint_id) for number, checkpoint_id in self.seen_pairs)


@dataclass(frozen=True)
class AttemptsRequest:
    """Request for the attempts above `version`, for an attempt that begins on it in memory."""

    version: int


@json_names(version=INLINE)
@dataclass(frozen=True)
class VersionRequest:
    """Request about a version: the one to refuse, or the newest committed one that a clean-up retains."""

    version: VersionId


@json_names(version=INLINE)
@dataclass(frozen=True)
class SnapshotRequest:
    """Request for a snapshot of exactly `version`, now."""

    version: VersionId
    kind: Literal["incremental", "full"] = "incremental"
    reason: str = "asked"


@json_names(number="version", checkpoint_id="id")
@dataclass(frozen=True)
class FullRequest:
    """Request for a full checkpoint of version `number` as soon as the limits of merges allow it.

    `checkpoint_id` is None if the caller knows the number alone: the version on the store's chain is meant.
    """

    number: int
    checkpoint_id: str | None
    reason: str = "asked"


@dataclass(frozen=True)
class StatusRequest:
    """Request for the stores of those providers (None: all), with their options in force if `options`."""

    instances: frozenset[int] | None
    options: bool = False


@json_names(version=INLINE)
@dataclass(frozen=True)
class DeltasRequest:
    """Request for the deltas of the versions `first` to `version`."""

    version: VersionId
    first: int


@dataclass(frozen=True)
class DirectoryRequest:
    """Request about a directory that an answer or an event gave to the JVM."""

    directory: Path


@dataclass(frozen=True)
class EventsRequest:
    """Request for the events above number `after`, which waits up to `wait_ms` ms for the first."""

    after: int
    wait_ms: float | None = field(default=None)


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

    `file_connections` is how many connections the JVM has to lend at least, over all stores. The JVM may
    store deltas in `delta_directory` itself; None: it may not.
    """

    incoming: Path
    delta_directory: Path | None
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


NO_PAGES = Paging(0, 0, {})


@json_names(loose_deltas="beside", paging=INLINE)
@dataclass(frozen=True)
class OfferedBase(Answer):
    """A base that the JVM may open read-only; it is the JVM's until the JVM releases it.

    With `loose_deltas` the database is one of `base`, and so are `keys`.
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
            [LooseDelta(delta.version, delta.path) for delta in restored.deltas],
            [file.name for file in restored.sparse],
            paging,
        )


@json_names(offered=INLINE)
@dataclass(frozen=True)
class RestoredStore(Answer):
    """Answer to `restore`: a base to open, the cost of the restore, and the predicted cost.

    With loose deltas the `column_families` are those of the database.
    """

    offered: OfferedBase
    attempts: SeenAttempts
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
            offered=OfferedBase.of(restored.version, restored, paging),
            attempts=SeenAttempts(restored.version.number, restored.seen),
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


def _encoded(families: Mapping[str, ColumnFamily]) -> Mapping[str, Any]:
    return {name: fields_to_json(family) for name, family in families.items()}


@dataclass(frozen=True)
class ReadRanges(Answer):
    """Answer to `ranges`: this many bytes are there now."""

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


@dataclass(frozen=True)
class MergedStore(Answer):
    """A merge that was made. Counts of files and bytes are those of its snapshot, 0 for kind `ingest`.

    Its version has `new_bytes` now, and had `new_bytes_before`: those of its delta, or of an older snapshot;
    the two are equal if the agent does not know that.
    """

    kind: str
    reason: str
    base: OfferedBase
    took_ms: float
    shared_files: int
    new_files: int
    own_files: int
    uploaded_bytes: int
    new_bytes: int
    new_bytes_before: int
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
        new_bytes_before: int | None = None,
        took_ms: float,
        chain: Chain,
        phases: Mapping[str, float],
    ) -> MergedStore:
        """Return the answer for a merge that made a base; `published` is None for kind `ingest`."""
        new_bytes = (published.manifest.new_bytes or new_bytes_before or 0) if published else 0
        return cls(
            kind=kind,
            reason=reason,
            base=offered,
            took_ms=took_ms,
            shared_files=published.shared_files if published else 0,
            new_files=published.new_files if published else 0,
            own_files=published.own_files if published else 0,
            uploaded_bytes=published.uploaded_bytes if published else 0,
            new_bytes=new_bytes,
            new_bytes_before=new_bytes if published is None or new_bytes_before is None else new_bytes_before,
            chain=chain,
            phases=phases,
        )


@json_names(why="skipped")
@dataclass(frozen=True)
class Skipped(Answer):
    """A merge that was not made, and the reason."""

    why: str


@json_names(restore=INLINE)
@dataclass(frozen=True)
class MergeEnded(Answer):
    """Event: a merge of `store` was made; its base is offered, its snapshot published (kind `ingest`: none).

    `restore` is of the chain after it. `failures_in_row` is 0 unless merges of another kind fail.
    """

    event: ClassVar[str] = "merged"

    store: int
    merged: MergedStore
    ages: Ages
    restore: Prediction
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
