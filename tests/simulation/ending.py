"""The end of a history: it becomes calm, goes on without faults, and everything has to be right."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import TYPE_CHECKING

from simulation.partition import Partition
from simulation.provider import Provider
from simulation.simulated_storage import Bucket
from simulation.terms import MAX_LEASE_S, TEMPORARY_EXPIRY_S, QueryFailedError
from simulation.troubles import MIN_RETAINED
from simulation.truth import EMPTY, Version, rows_of
from state_store.core.checkpoint.names import VersionId
from state_store.core.deletion.lease import StoreContents
from state_store.core.deletion.retention import Retention, RetentionPolicy
from state_store.data.embedded import EmbeddedStore
from state_store.data.maintenance.verification import verify_store
from state_store.data.query import StoreKey
from state_store.errors import DamagedError, MissingError, StateStoreError

if TYPE_CHECKING:
    from simulation.cluster_history import History

_WORK = ("base-", "scratch-")


def calm_down(history: History) -> None:
    """No more faults: the query goes on for some batches, and after one clean-up nothing is left over."""
    history.is_calm = True
    history.weather.clear()
    history.note("calm")
    history.scheduler.sleep(1500)  # zombies wake up and end, leases run out
    if history.is_lying:
        return
    history.is_quiet = True
    history.driver_dies = False
    if history.troubles.hits_machines:
        for _ in history.executors:
            history.executors.insert(0, history.executors.pop())
            _quiet_batch(history)
            for provider in _last_providers(history):
                with contextlib.suppress(StateStoreError):  # notices what is gone of the local disk
                    provider.snapshot("full")
                provider.snapshot("full")
    history.executors.append(history.new_executor())
    history.executors.insert(0, history.executors.pop())
    for _ in range(2):
        _quiet_batch(history)
    history.scheduler.sleep(MAX_LEASE_S + TEMPORARY_EXPIRY_S)
    for process in history.scheduler.processes:
        process.wall_ahead_ms = 30 * 86_400_000  # a lease by a clock that was ahead runs out late
    _quiet_batch(history)
    for provider in _last_providers(history):
        made = provider.snapshot("full")
        assert "base" in made or "skipped" in made, made
    for _ in range(history.retain + 1):  # a clean-up looks at leases when it has files to delete
        _quiet_batch(history)
    if history.caches_pages:  # Spark would unload the others' providers, which keep the files that they read
        while len(history.executors) > 1:
            history.executors.pop().kill()
    history.scheduler.sleep(MAX_LEASE_S + TEMPORARY_EXPIRY_S)
    _quiet_batch(history)
    providers = _last_providers(history)
    for executor in history.executors:
        if not history.troubles.leaves_local_files:
            executor.check_local_files()
    _wait_for_merges(history)  # after the clean-up they would supersede files
    if history.caches_pages:
        _take_last_bases(history, providers)
    for provider in providers:
        version, id_ = provider.newest or EMPTY
        cleaned = provider._call("cleanup", version=version, id=id_)
        history.note("last clean-up", cleaned["deleted_files"])
    for executor in history.executors[1:]:
        executor.kill()
    for provider in providers:
        provider.close()
    last = history.executors[0]
    left = [path for path in last.directory.rglob("*") if path.name.startswith(_WORK)]
    assert not left or history.troubles.leaves_local_files, f"left on the local disk: {left}"
    if last.agent is not None and not last.providers:
        last.agent.check_closed()


def _wait_for_merges(history: History) -> None:
    """Until no store is owed a merge."""
    agent = history.executors[0].agent
    if agent is None:
        return
    scheduler = agent.calls.scheduler
    for _ in range(1000):
        if not scheduler._busy and all(scheduler._queue.owed(store) is None for store in scheduler._entries):
            return
        history.scheduler.sleep(0.1)


def _take_last_bases(history: History, providers: list[Provider]) -> None:
    """Until the base of the newest snapshot is the only one that is read: others hold their stored files.

    The event of the last merge comes, and then that of a base which takes the place of one that only its
    lease keeps.
    """
    for _ in range(12):
        history.scheduler.sleep(100)
        for provider in providers:
            provider.take_offered()
            provider.used_at_s = history.scheduler.now_s


def _quiet_batch(history: History) -> None:
    count = history.committed
    while history.committed == count:
        try:
            history.batch(_Preferring(history.chance.getrandbits(32)))
        except QueryFailedError:
            raise AssertionError("without faults the query failed") from None
    history.scheduler.sleep(1)


def _last_providers(history: History) -> list[Provider]:
    return [history.executors[0].provider(history.run_id, partition) for partition in history.partitions]


def check_end(history: History, directory: Path) -> None:
    """Every retained version is restored exactly, `verify` is content, nothing is left over."""
    for partition in history.partitions:
        _check_partition(history, partition, directory)


def _check_partition(history: History, partition: Partition, directory: Path) -> None:
    hides_leftovers = history.troubles.hides_leftovers
    count = min(MIN_RETAINED, history.retain) if hides_leftovers else history.retain
    retained = [version for version in partition.committed[-count:] if version != EMPTY]
    for version in retained:
        _check_restored(history, partition, version, directory / f"end-{partition.number}-{version[0]}")
    if history.is_lying or hides_leftovers:
        return
    newest, bucket = partition.committed[-1], partition.bucket
    key = StoreKey(0, partition.number)
    verdict = verify_store(key, bucket, lambda: partition.named(newest), every=True)
    assert not verdict.findings, f"verify finds {verdict.findings}"
    assert verdict.restored == VersionId(*newest)
    floor = newest[0] - history.retain + 1
    over = _left_over(bucket, floor)
    if history.caches_pages and any(path.startswith("tombstone/") for path in over):
        # They were condemned while a base read them, and no clean-up was due since.
        runtime = history.scheduler.process("repair").runtime
        Retention(bucket, RetentionPolicy(batches=history.retain), runtime=runtime).cleanup(
            VersionId(*newest)
        )
        over = _left_over(bucket, floor)
    assert not over, f"left in the checkpoint storage of partition {partition.number}: {over}"


def _left_over(bucket: Bucket, floor: int) -> list[str]:
    contents = StoreContents.read(bucket)
    needed = {file.path for file in contents.registry(floor).entries()}
    return [
        path for path in sorted(bucket.files) if path not in needed and not _is_attempt(path, floor, contents)
    ]


def _is_attempt(path: str, floor: int, contents: StoreContents) -> bool:
    """Deltas of versions that stay do so whether or not something can be made of them."""
    listing = contents.listing
    return any(name.path == path and name.version >= floor for name in (*listing.deltas, *listing.refused))


def _check_restored(history: History, partition: Partition, version: Version, directory: Path) -> None:
    try:
        with EmbeddedStore(partition.bucket, directory, has_checkpoint_ids=history.ids) as store:
            store.load(partition.named(version))
            partition.truth.check(version, rows_of(store), "the last restore")
    except (DamagedError, MissingError):
        if not history.is_lying:
            raise


class _Preferring(random.Random):
    """Chance for quiet batches: they stay on the first executor."""

    def random(self) -> float:
        return 0.5
