"""The calls of docs/protocol.md as types: what the JVM asks, from its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from state_store.agent.store_id import StoreId
from state_store.core.checkpoint.attempts import Seen
from state_store.core.checkpoint.names import VersionId
from state_store.core.snapshots.merge import FULL, INCREMENTAL
from state_store.errors import InternalError


@dataclass(frozen=True)
class StoreFields:
    """The store that a call is about. `instance` numbers the providers of this JVM.

    `texts` are the options as the query has them; `held` the bases that the JVM has open, for an agent that
    replaces another.
    """

    instance: int
    store_id: StoreId
    texts: Mapping[str, str]
    held: tuple[Path, ...]

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> StoreFields:
        return cls(
            fields["instance"],
            StoreId.from_fields(fields),
            fields["options"],
            tuple(Path(one) for one in fields.get("held", ())),
        )


@dataclass(frozen=True)
class RestoreRequest:
    """`start`: exactly the snapshot of that version is to be used. `thorough`: every file is to be verified
    as a whole. `ingest`: the deltas are to be part of the database.
    """

    version: VersionId
    start: VersionId | None
    thorough: bool
    ingest: bool

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> RestoreRequest:
        start = None
        if fields.get("from_version") is not None:
            start = VersionId(fields["from_version"], fields.get("from_id"))
        return cls(
            _version(fields), start, bool(fields.get("thorough", True)), bool(fields.get("ingest", True))
        )


@dataclass(frozen=True)
class RangeRequest:
    """`length` bytes from `offset` on of the file `name` in a base's directory are needed, and not there."""

    directory: Path
    name: str
    offset: int
    length: int

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> RangeRequest:
        return cls(Path(fields["directory"]), fields["name"], fields["offset"], fields["length"])


@dataclass(frozen=True)
class CommitRequest:
    """The delta at `path` is to become `version`, which follows the version of id `parent`.

    `seen`: without Spark's ids, what the attempt was told of later versions when it began.
    `memory_short`: the data plane would like an `ingest` merge, which gives memory back.
    """

    version: VersionId
    parent: str | None
    path: Path
    size_bytes: int
    crc32: int
    keys: int
    memory_short: bool
    seen: Seen

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> CommitRequest:
        return cls(
            _version(fields),
            fields.get("parent"),
            Path(fields["path"]),
            fields["bytes"],
            fields["crc"],
            fields["keys"],
            bool(fields.get("memory_short")),
            frozenset(VersionId(number, id_) for number, id_ in fields.get("seen") or ()),
        )


@dataclass(frozen=True)
class AttemptsRequest:
    """An attempt on `version` begins in memory, and asks what there is above it."""

    version: int

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> AttemptsRequest:
        return cls(fields["version"])


@dataclass(frozen=True)
class RefuseRequest:
    """The task that had committed `version` failed: without Spark's ids it is not what the number means."""

    version: VersionId

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> RefuseRequest:
        return cls(_version(fields))


@dataclass(frozen=True)
class SnapshotRequest:
    """A snapshot of exactly `version` is wanted now."""

    version: VersionId
    kind: str
    reason: str

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> SnapshotRequest:
        kind = fields.get("kind", INCREMENTAL)
        if kind not in (INCREMENTAL, FULL):
            raise InternalError(f"there is no snapshot of kind {kind!r}; kinds are {INCREMENTAL}, {FULL}")
        return cls(_version(fields), kind, fields.get("reason") or "asked")


@dataclass(frozen=True)
class FullRequest:
    """A full checkpoint of version `number` is wanted as soon as the limits of merges allow it.

    `checkpoint_id` is None if the caller knows the number alone: the version on the store's chain is meant.
    """

    number: int
    checkpoint_id: str | None
    reason: str

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> FullRequest:
        return cls(fields["version"], fields.get("id"), fields.get("reason") or "asked")


@dataclass(frozen=True)
class CleanupRequest:
    """Everything that no retained version needs may go, seen from `newest`, the newest committed."""

    newest: VersionId

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> CleanupRequest:
        return cls(_version(fields))


@dataclass(frozen=True)
class DeltasRequest:
    """The deltas of the versions `first` to `version`."""

    version: VersionId
    first: int

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> DeltasRequest:
        return cls(_version(fields), fields["first"])


def _version(fields: Mapping[str, Any]) -> VersionId:
    return VersionId(fields["version"], fields.get("id"))
