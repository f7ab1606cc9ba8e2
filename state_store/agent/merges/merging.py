"""One merge of one store, from the base it starts at to the base and the snapshot that come of it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from state_store.agent.open_store import OpenStore
from state_store.agent.wire.answers import MergedStore, Skipped
from state_store.core.checkpoint.names import SNAPSHOT_DIRECTORY, SnapshotName, VersionId
from state_store.core.deletion.lease import Lease
from state_store.core.deletion.reading import read_newest_manifest
from state_store.core.files.deadline import Deadline
from state_store.core.snapshots.local_database import LocalDatabase
from state_store.core.snapshots.merge import FULL, INCREMENTAL, INGEST, merge
from state_store.core.snapshots.publish import Published, publish
from state_store.core.snapshots.restore import restore
from state_store.errors import DamagedError, MissingError


@dataclass(frozen=True)
class MergeRequest:
    """A merge of `version`; `kind` is `ingest`, `incremental` or `full`, `reason` is for people."""

    version: VersionId
    kind: str
    reason: str


def merge_store(store: OpenStore, request: MergeRequest, deadline: Deadline) -> MergedStore | Skipped:
    """Makes the merge and, unless it is of kind `ingest`, publishes it. One at a time for a store.

    The deadline covers all of it: a restore that it may begin with, downloads, checksums, the compaction and
    uploads; it is checked between files, and before the archive that makes the snapshot visible. Raises
    BusyError past it, and as the steps do.
    Nothing is left behind then, neither locally nor in checkpoint storage.
    """
    clock_s = store.context.runtime.monotonic_s
    start_s = clock_s()
    context, head = store.context.bounded(deadline), store.head
    if request.kind != INGEST:
        _look_for_newer_snapshot(store, deadline)
    snapshot = head.chain.snapshot
    if request.kind == INCREMENTAL and snapshot is not None and snapshot.version_id == request.version:
        return Skipped(f"version {request.version} has a snapshot already")
    start = head.begin_merge(request.version)
    base, deltas = start.base, start.deltas
    if base is None:
        store.hydrations.settle(deadline)  # its files would be fetched a second time
        base, deltas = restore(context, request.version).base, ()
        head.hold(base)
    try:
        store.hydrations.wait(base.directory, deadline)
        if (
            request.kind == INCREMENTAL
            and base.snapshot is not None
            and base.snapshot.version_id == request.version
        ):
            return Skipped(f"version {request.version} has a snapshot already")
        merged = merge(context, base, deltas, request.version, request.kind)
    except (DamagedError, MissingError):
        head.forget(base)  # the damage may be that of this database: the next merge restores
        raise
    finally:
        head.release(base.directory)
    base, published, phases = merged.base, None, dict(merged.phases)
    try:
        if request.kind != INGEST:
            published = _publish(store, base, request.kind, deadline)
            base = published.base
            phases.update(published.phases)
        chain = head.offer(base, published)
    except BaseException:
        shutil.rmtree(base.directory, ignore_errors=True)
        raise
    if published is not None:
        head.published(published, len(deltas), phases)
    kind = request.kind if published is None else published.manifest.kind
    took_ms = (clock_s() - start_s) * 1000
    _log(store, request, kind, published, took_ms)
    return MergedStore.of(
        kind,
        request.reason,
        base,
        published,
        took_ms=took_ms,
        chain=chain,
        phases=phases,
    )


def _publish(store: OpenStore, base: LocalDatabase, kind: str, deadline: Deadline) -> Published:
    context = store.context
    lease = Lease(context.storage, expiry_ms=store.options.lease_expiry_ms, runtime=context.runtime)
    published = publish(context.bounded(deadline), base, lease, full=kind == FULL)
    for warning in lease.warnings:
        store.log.warning(warning)
    return published


def _look_for_newer_snapshot(store: OpenStore, deadline: Deadline) -> None:
    """Another process may have published one meanwhile (the command line a full one, say): go on from it."""
    chain = store.head.chain
    mine = {delta.name.version_id for delta in chain.deltas} | (
        {chain.snapshot.version_id} if chain.snapshot else set()
    )
    if not mine:
        return
    storage = store.context.bounded(deadline).storage
    entries = storage.list_files(SNAPSHOT_DIRECTORY)
    names = [
        name for entry in entries if (name := SnapshotName.parse(entry.name)) and name.version_id in mine
    ]
    manifest, warnings = read_newest_manifest(storage, names)
    for warning in warnings:
        store.log.warning(warning)
    if manifest is not None:
        store.head.saw_snapshot(chain, manifest)


def _log(
    store: OpenStore, request: MergeRequest, kind: str, published: Published | None, took_ms: float
) -> None:
    if published is None:
        store.log.info(f"merged version {request.version} ({request.reason}): {kind}, {took_ms:.0f} ms")
        return
    store.log.info(
        f"merged version {request.version} ({request.reason}): {kind}, {published.shared_files} files "
        f"shared, {published.new_files} new, {published.uploaded_bytes} bytes uploaded, {took_ms:.0f} ms"
    )
