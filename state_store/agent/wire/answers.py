"""The `ok` objects of docs/protocol.md as types: what each call gives, and its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Union

from state_store.agent.lazy.hydration import Progress
from state_store.agent.wire.merge_answers import Ages, Events, MergedStore, Skipped
from state_store.core.checkpoint.attempts import Seen, next_ordinal
from state_store.core.checkpoint.metadata import ColumnFamily, encode_column_families
from state_store.core.checkpoint.names import VersionId, version_order
from state_store.core.compat import zip
from state_store.core.planning.chain import Chain
from state_store.core.snapshots.assembly import DeltaBeside, Restored


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
    it. With deltas beside it the database is one of `base_version`, and `keys` and `column_families`
    are its.
    """

    version: VersionId
    attempts: SeenAttempts
    directory: Path
    base_version: VersionId
    beside: Sequence[DeltaBeside]
    sparse: Sequence[str]
    needs_rocksdb: bool
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
            needs_rocksdb=restored.needs_rocksdb,
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
            "needs_rocksdb": self.needs_rocksdb,
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
    """To `range`: this many bytes are there now."""

    size_bytes: int

    def to_json(self) -> dict[str, Any]:
        return {"bytes": self.size_bytes}


@dataclass(frozen=True)
class Committed:
    """To `commit`: the chain with the new delta, what there is above it, milliseconds by phase; what lazy
    restores have fetched.
    """

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
class FullAsked:
    """To `full`: the version that is meant, and whether its newest snapshot is a full one already.

    If it is not, a merge of kind `full` waits in the queue, and its event tells how it ended.
    """

    version: VersionId
    is_there: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version.number,
            "id": self.version.checkpoint_id,
            "state": "already" if self.is_there else "queued",
        }


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


Answer = Union[
    Pong,
    Nothing,
    Opened,
    RestoredStore,
    ReadRange,
    Committed,
    SeenAttempts,
    MergedStore,
    Skipped,
    FullAsked,
    Cleaned,
    DeltaFiles,
    Events,
]
