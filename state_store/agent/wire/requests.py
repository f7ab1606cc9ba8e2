"""The calls of docs/protocol.md as types: the arguments of the JVM, checked and decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from state_store.core.checkpoint.lineage import ObservedAttempts
from state_store.core.checkpoint.names import EMPTY_PARENT, DeltaName, VersionId
from state_store.core.codec import INLINE, Mismatch, Signed, from_json, json_names
from state_store.core.deletion.retention import RetentionPolicy
from state_store.core.settings.options import Options
from state_store.errors import InternalError

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

    With `thorough` every file is verified as a whole. With `ingest` the deltas are part of the database.
    """

    version: VersionId
    from_version: int | None
    from_id: str | None
    thorough: bool = True
    ingest: bool = True

    @property
    def start(self) -> VersionId | None:
        """Version of the snapshot to start from; None lets the restore choose."""
        return None if self.from_version is None else VersionId(self.from_version, self.from_id)


@dataclass(frozen=True)
class RangeRequest:
    """Request for `length` bytes from `offset` on of the sparse file `name` in a base's directory."""

    directory: Path
    name: str
    offset: int
    length: int


@dataclass(frozen=True)
class RangesRequest:
    """Ranges of sparse files in the directory of a base: name, offset and length of each."""

    directory: Path
    ranges: tuple[tuple[Any, ...], ...]

    def checked(self) -> list[tuple[str, int, int]]:
        """Return the ranges.

        Raises:
            InternalError: Some range is of another form.
        """
        for part in self.ranges:
            if [type(field) for field in part] != [str, int, int]:
                raise InternalError(f"{part!r} is not a name, an offset and a length")
        return [(name, offset, length) for name, offset, length in self.ranges]


@json_names(version=INLINE, size_bytes="bytes", crc32="crc", seen_pairs="seen")
@dataclass(frozen=True)
class CommitRequest:
    """Request to commit the delta at `path` as `version`, which follows the version of id `parent`.

    `seen_pairs` are the later versions that the attempt knew of when it began, without Spark's ids. With
    `memory_short` the data plane asks for an `ingest` merge, which gives memory back.
    """

    version: VersionId
    parent: str | None
    path: Path
    size_bytes: int
    crc32: int
    keys: int
    memory_short: bool = False
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
