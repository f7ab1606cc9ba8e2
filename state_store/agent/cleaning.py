"""Clean-up: delete files that no retained version needs, in checkpoint storage and on this machine."""

from __future__ import annotations

from dataclasses import replace

from state_store.agent.jvm_connections import background
from state_store.agent.open_store import OpenStore
from state_store.agent.wire.answers import Cleaned
from state_store.core.checkpoint.names import VersionId
from state_store.core.deletion.contents import StoreContents
from state_store.core.deletion.retention import Cleanup
from state_store.core.files.deadline import Deadline
from state_store.core.settings.option import PREFIX


def clean_up_after_merge(store: OpenStore) -> Cleaned:
    """Clean up after a merge, seen from the newest version that Spark has committed for certain.

    This retains more files than a clean-up that Spark asks for, whose version is newer. So Spark's next
    clean-up has to read the files again.

    Raises:
        StateStoreError: As `clean_up`.
    """
    certain = store.head.certain
    if certain is None:
        return Cleaned(0, 0, [])
    try:
        return clean_up(store, certain)
    finally:
        store.head.forget_registry()


def clean_up(store: OpenStore, newest: VersionId) -> Cleaned:
    """Delete the files that no retained version needs, seen from the newest version.

    If nothing is due, no request is made of checkpoint storage.

    Raises:
        BusyError: The time for clean-ups is over; the next one finds the remaining files.
        StateStoreError: As `Retention.cleanup`.
    """
    head, retention = store.head, store.retention
    registry = head.registry
    floor = newest.number - store.store_id.retention(store.options).keep
    due = registry is None or retention.is_due(registry, newest) or head.superseded_below(floor + 1)
    if not due:
        store.log.debug(f"clean-up at version {newest}: nothing is due, the storage is not asked")
        cleanup = Cleanup(floor + 1)
        registry = head.retire_below(cleanup.floor)
        return Cleaned(0, 0, registry.checkpoints() if registry is not None else [])
    with store.cleaning, background():
        restores = head.begin_inventory()
        try:
            cleanup = _clean(store, newest)
            if cleanup.registry is None and head.registry is None:  # there are too few versions to decide on
                read = StoreContents.read(store.cleanup_storage).registry(cleanup.floor)
                cleanup = replace(cleanup, registry=read)
        except BaseException:
            head.end_inventory(None, 0, restores)
            raise
        registry = head.end_inventory(cleanup.registry, cleanup.floor, restores)
    for warning in cleanup.warnings:
        store.log.warning(warning)
    if cleanup.skipped:
        store.log.warning(f"nothing was deleted: {cleanup.skipped}")
    store.log.debug(
        f"clean-up at version {newest}: versions below {cleanup.floor} are retired, "
        f"{len(cleanup.deleted)} files deleted: {', '.join(cleanup.deleted)}"
    )
    if head.chain.version == newest:
        store.context.cache.retain(head.chain.paths())
    store.prune()
    retained = registry.checkpoints() if registry is not None else []
    return Cleaned(len(cleanup.deleted), cleanup.deleted_bytes, retained)


def _clean(store: OpenStore, newest: VersionId) -> Cleanup:
    """Clean up within the time that `cleanupTimeout` allows.

    A lease's expiry bounds it, too: if the tombstone turns out to be damaged, it counts for that long, and a
    cleaner that stood still for longer must delete nothing more.
    """
    limit_ms = min(store.options.cleanup_timeout_ms, store.options.lease_expiry_ms)
    store.cleanup_storage.deadline = Deadline(
        "a clean-up", limit_ms, option=PREFIX + "cleanupTimeout", runtime=store.context.runtime
    )
    return store.retention.cleanup(newest)
