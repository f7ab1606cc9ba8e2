"""The `ok` objects of docs/protocol.md as types: what each call gives, and its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from state_store.agent.hydration import Progress
from state_store.checkpoint.attempts import Seen, next_ordinal
from state_store.checkpoint.metadata import ColumnFamily, encode_column_families
from state_store.checkpoint.names import VersionId, version_order
from state_store.errors import StateStoreError
from state_store.planning.chain import Chain
from state_store.snapshots.local_database import LocalDatabase
from state_store.snapshots.publish import Published
from state_store.snapshots.restore import DeltaBeside, Restored


@dataclass(frozen=True)
class Pong:
    """To `ping`: the process, its release and its resident memory."""

    pid: int
    version: str
    memory_bytes: int
    file_connections: int

    def to_json(self) -> dict[str, Any]:
        return {
            "pid": self.pid,
            "version": self.version,
            "memory_bytes": self.memory_bytes,
            "file_connections": self.file_connections,
        }


@dataclass(frozen=True)
class Nothing:
    """To calls that answer nothing but that they are done."""

    def to_json(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Opened:
    """To `open`: where deltas are to be written, the data plane's share of the memory budget, the options.

    `file_connections`: how many the JVM is to lend (at least, over all stores) for this store's files.
    """

    incoming: Path
    memory_budget_bytes: int
    file_connections: int
    options: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {
            "incoming": str(self.incoming),
            "memory_budget_bytes": self.memory_budget_bytes,
            "file_connections": self.file_connections,
            "options": dict(self.options),
        }


@dataclass(frozen=True)
class Ages:
    """Milliseconds since the newest snapshot, and since the newest full one; None where there is none."""

    snapshot_age_ms: int | None
    full_age_ms: int | None

    def to_json(self) -> dict[str, Any]:
        return {"snapshot_age_ms": self.snapshot_age_ms, "full_age_ms": self.full_age_ms}


@dataclass(frozen=True)
class SeenAttempts:
    """What was in storage above `version`; for the next commit on it, where Spark gives no ids."""

    version: int
    seen: Seen

    def to_json(self) -> dict[str, Any]:
        ordered = sorted(self.seen, key=version_order)
        return {
            "ordinal": next_ordinal(self.seen, self.version + 1),
            "seen": [[one.number, one.checkpoint_id] for one in ordered],
        }


@dataclass(frozen=True)
class RestoredStore:
    """To `restore`: a database of `version` to open read-only, what it took, and what was predicted for
    it. With deltas beside it the database is one of `base_version`, and `keys` and `column_families` are
    its."""

    version: VersionId
    attempts: SeenAttempts
    directory: Path
    base_version: VersionId
    beside: Sequence[DeltaBeside]
    sparse: Sequence[str]
    keys: int
    column_families: Mapping[str, ColumnFamily]
    size_bytes: int
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
    def of(cls, restored: Restored, predicted_ms: float, ages: Ages) -> RestoredStore:
        base, chain = restored.base, restored.chain
        return cls(
            version=restored.version,
            attempts=SeenAttempts(restored.version.number, restored.seen),
            directory=base.directory,
            base_version=base.version,
            beside=restored.deltas,
            sparse=[file.name for file in restored.sparse],
            keys=base.keys,
            column_families=base.column_families,
            size_bytes=base.size_bytes + sum(delta.size_bytes for delta in restored.deltas),
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

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.version.checkpoint_id,
            "attempts": self.attempts.to_json(),
            "directory": str(self.directory),
            "base": {"version": self.base_version.number, "id": self.base_version.checkpoint_id},
            "beside": [
                {"version": one.version.number, "id": one.version.checkpoint_id, "path": str(one.path)}
                for one in self.beside
            ],
            "sparse": list(self.sparse),
            "keys": self.keys,
            "column_families": encode_column_families(self.column_families),
            "bytes": self.size_bytes,
            "files": self.files,
            "snapshot_version": self.snapshot_version,
            "deltas": self.deltas,
            "local_files": self.local_files,
            "fetched_files": self.fetched_files,
            "fetched_bytes": self.fetched_bytes,
            "predicted_ms": self.predicted_ms,
            "phases": dict(self.phases),
            "ages": self.ages.to_json(),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class ReadRange:
    """To `range`: so many bytes are there now."""

    size_bytes: int

    def to_json(self) -> dict[str, Any]:
        return {"bytes": self.size_bytes}


@dataclass(frozen=True)
class Committed:
    """To `commit`: the chain with the new delta, what there is above it, milliseconds by phase; what lazy
    restores have fetched."""

    chain: Chain
    ages: Ages
    attempts: SeenAttempts
    phases: Mapping[str, float]
    hydration: Progress

    def to_json(self) -> dict[str, Any]:
        return {
            "hydration": asdict(self.hydration),
            "chain": self.chain.to_json(),
            "ages": self.ages.to_json(),
            "attempts": self.attempts.to_json(),
            "phases": dict(self.phases),
        }


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
class Cleaned:
    """To `cleanup`: what was deleted, and the versions that can be restored."""

    deleted_files: int
    deleted_bytes: int
    retained: Sequence[VersionId]

    def to_json(self) -> dict[str, Any]:
        return {
            "deleted_files": self.deleted_files,
            "deleted_bytes": self.deleted_bytes,
            "retained": [
                {"version": version.number, "id": version.checkpoint_id} for version in self.retained
            ],
        }


@dataclass(frozen=True)
class DeltaFiles:
    """To `deltas`: local copies of deltas, oldest first, all in one directory that is to be released."""

    directory: Path
    versions: Sequence[VersionId]
    names: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        return {
            "directory": str(self.directory),
            "files": [
                {"version": version.number, "id": version.checkpoint_id, "path": str(self.directory / name)}
                for version, name in zip(self.versions, self.names, strict=True)
            ],
        }


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


Event = MergeEnded | MergeFailed


@dataclass(frozen=True)
class Events:
    """To `events`: what happened since the last one that the JVM has handled, each with its number."""

    events: Sequence[tuple[int, Event]]

    def to_json(self) -> dict[str, Any]:
        return {"events": [{"number": number, **event.to_json()} for number, event in self.events]}


Answer = (
    Pong
    | Nothing
    | Opened
    | RestoredStore
    | ReadRange
    | Committed
    | SeenAttempts
    | MergedStore
    | Skipped
    | Cleaned
    | DeltaFiles
    | Events
)
