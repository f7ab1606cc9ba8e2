"""What the agent tells of merges: the answers and events of docs/protocol.md as types, and their JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

from state_store.core.checkpoint.names import VersionId
from state_store.core.planning.chain import Chain
from state_store.core.snapshots.local_database import LocalDatabase
from state_store.core.snapshots.publish import Published
from state_store.errors import StateStoreError


@dataclass(frozen=True)
class Ages:
    """Milliseconds since the newest snapshot, and since the newest full one; None where there is none."""

    snapshot_age_ms: int | None
    full_age_ms: int | None

    def to_json(self) -> dict[str, Any]:
        return {"snapshot_age_ms": self.snapshot_age_ms, "full_age_ms": self.full_age_ms}


@dataclass(frozen=True)
class OfferedBase:
    """A base that the JVM may open; it is the JVM's until it is released."""

    directory: Path
    version: VersionId
    keys: int

    def to_json(self) -> dict[str, Any]:
        return {
            "directory": str(self.directory),
            "version": self.version.number,
            "id": self.version.checkpoint_id,
            "keys": self.keys,
        }


@dataclass(frozen=True)
class MergedStore:
    """What a merge made. File counts and bytes are those of its snapshot, 0 for kind `ingest`."""

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
        base: LocalDatabase,
        published: Published | None,
        *,
        took_ms: float,
        chain: Chain,
        phases: Mapping[str, float],
    ) -> MergedStore:
        return cls(
            kind=kind,
            reason=reason,
            base=OfferedBase(base.directory, base.version, base.keys),
            took_ms=took_ms,
            shared_files=published.shared_files if published else 0,
            new_files=published.new_files if published else 0,
            own_files=published.own_files if published else 0,
            uploaded_bytes=published.uploaded_bytes if published else 0,
            chain=chain,
            phases=phases,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "reason": self.reason,
            "base": self.base.to_json(),
            "took_ms": self.took_ms,
            "shared_files": self.shared_files,
            "new_files": self.new_files,
            "own_files": self.own_files,
            "uploaded_bytes": self.uploaded_bytes,
            "chain": self.chain.to_json(),
            "phases": dict(self.phases),
        }


@dataclass(frozen=True)
class Skipped:
    """A merge that was not made, and why."""

    why: str

    def to_json(self) -> dict[str, Any]:
        return {"skipped": self.why}


@dataclass(frozen=True)
class MergeEnded:
    """A merge of `store` was made: its base is offered, its snapshot published (not of kind `ingest`)."""

    store: int
    merged: MergedStore
    ages: Ages
    failures_in_row: int

    def to_json(self) -> dict[str, Any]:
        return {
            "event": "merged",
            "store": self.store,
            "merged": self.merged.to_json(),
            "ages": self.ages.to_json(),
            "failures_in_row": self.failures_in_row,
        }


@dataclass(frozen=True)
class MergeFailed:
    """A merge of `store` failed, the `failures_in_row`-th without a success between."""

    store: int
    version: int
    kind: str
    reason: str
    error: StateStoreError
    failures_in_row: int

    def to_json(self) -> dict[str, Any]:
        return {
            "event": "merge_failed",
            "store": self.store,
            "version": self.version,
            "kind": self.kind,
            "reason": self.reason,
            "error": self.error.to_json(),
            "failures_in_row": self.failures_in_row,
        }


Event = Union[MergeEnded, MergeFailed]


@dataclass(frozen=True)
class Events:
    """To `events`: what happened since the last one that the JVM has handled, each with its number."""

    events: Sequence[tuple[int, Event]]

    def to_json(self) -> dict[str, Any]:
        return {"events": [{"number": number, **event.to_json()} for number, event in self.events]}
