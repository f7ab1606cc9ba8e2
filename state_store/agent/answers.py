"""The `ok` objects of docs/protocol.md, from what the operations give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from state_store.checkpoint.metadata import encode_column_families
from state_store.checkpoint.names import VersionId
from state_store.deletion.retention import Cleanup
from state_store.planning.chain import Chain
from state_store.planning.policy import Due
from state_store.snapshots.local_database import LocalDatabase
from state_store.snapshots.publish import Published
from state_store.snapshots.restore import Restored


def restored(restored: Restored, predicted_ms: float | None) -> dict[str, Any]:
    base, chain = restored.base, restored.chain
    return {
        "directory": str(base.directory),
        "keys": base.keys,
        "column_families": encode_column_families(base.column_families),
        "bytes": base.size_bytes,
        "files": len(base.files),
        "snapshot_version": chain.snapshot.version if chain.snapshot else None,
        "deltas": len(chain.deltas),
        "local_files": restored.fetched.local_files,
        "fetched_files": restored.fetched.files,
        "fetched_bytes": restored.fetched.size_bytes,
        "predicted_ms": predicted_ms,
        "phases": dict(restored.phases),
        "warnings": list(restored.warnings),
    }


def merged(
    base: LocalDatabase, kind: str, published: Published | None, chain: Chain, phases: dict[str, float]
) -> dict[str, Any]:
    return {
        "directory": str(base.directory),
        "version": base.version.number,
        "id": base.version.checkpoint_id,
        "kind": kind,
        "keys": base.keys,
        "shared_files": published.shared_files if published else 0,
        "new_files": published.new_files if published else 0,
        "own_files": published.own_files if published else 0,
        "uploaded_bytes": published.uploaded_bytes if published else 0,
        "chain": chain.to_json(),
        "phases": phases,
    }


def cleaned(cleanup: Cleanup, retained: Sequence[VersionId]) -> dict[str, Any]:
    return {
        "deleted_files": len(cleanup.deleted),
        "deleted_bytes": cleanup.deleted_bytes,
        "retained": [{"version": version.number, "id": version.checkpoint_id} for version in retained],
    }


def due(due: Due | None) -> dict[str, str] | None:
    return None if due is None else {"kind": due.kind, "reason": due.reason}
