"""The end of a history: it becomes calm, goes on without faults, and everything has to be right."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

from simulation.cluster import EMPTY, Provider, Version, rows_of
from simulation.terms import LONGEST_LEASE_S, TEMPORARY_EXPIRY_S, QueryFailedError
from state_store.checkpoint.names import VersionId
from state_store.cli.stores.verification import verify_store
from state_store.deletion.contents import StoreContents
from state_store.embedded.store import EmbeddedStore
from state_store.errors import DamagedError, MissingError
from state_store.query import StoreKey

if TYPE_CHECKING:
    from simulation.history import History

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
    history.executors.append(history.new_executor())
    history.executors.insert(0, history.executors.pop())
    history.driver_dies = False
    for _ in range(2):
        _quiet_batch(history)
    history.scheduler.sleep(LONGEST_LEASE_S + TEMPORARY_EXPIRY_S)
    for process in history.scheduler.processes:
        process.wall_ahead_ms = 30 * 86_400_000  # a lease by a clock that was ahead runs out late
    _quiet_batch(history)
    provider = _last_provider(history)
    made = provider.snapshot("full")
    assert "base" in made or "skipped" in made, made
    for _ in range(history.retain + 1):  # a clean-up looks at leases when it has files to delete
        _quiet_batch(history)
    history.scheduler.sleep(LONGEST_LEASE_S + TEMPORARY_EXPIRY_S)
    _quiet_batch(history)
    provider = _last_provider(history)
    version, id_ = provider.newest or EMPTY
    for one in history.executors:
        one.check_local_files()
    cleaned = provider._call("cleanup", version=version, id=id_)
    history.note("last clean-up", cleaned["deleted_files"])
    for executor in history.executors[1:]:
        executor.kill()
    provider.close()
    left = [path for path in history.executors[0].directory.rglob("*") if path.name.startswith(_WORK)]
    assert not left, f"left on the local disk: {left}"


def _quiet_batch(history: History) -> None:
    count = len(history.committed)
    while len(history.committed) == count:
        try:
            history.batch(_Preferring(history.chance.getrandbits(32)))
        except QueryFailedError:
            raise AssertionError("without faults the query failed") from None
    history.scheduler.sleep(1)


def _last_provider(history: History) -> Provider:
    return history.executors[0].provider(f"run-{history.runs}")


def check_end(history: History, directory: Path) -> None:
    """Every retained version is restored exactly, `verify` is content, nothing is left over."""
    retained = [version for version in history.committed[-history.retain :] if version != EMPTY]
    for version in retained:
        _check_restored(history, version, directory / f"end-{version[0]}")
    if history.is_lying:
        return
    newest = history.committed[-1]
    verdict = verify_store(StoreKey(0, 0), history.bucket, lambda: history.named(newest), every=True)
    assert not verdict.findings, f"verify finds {verdict.findings}"
    assert verdict.restored == VersionId(*newest)
    contents = StoreContents.read(history.bucket)
    floor = newest[0] - history.retain + 1
    needed = {file.path for file in contents.registry(floor).entries()}
    over = [
        path
        for path in sorted(history.bucket.files)
        if path not in needed and not _is_attempt(path, floor, contents)
    ]
    assert not over, f"left in checkpoint storage: {over}"


def _is_attempt(path: str, floor: int, contents: StoreContents) -> bool:
    """Deltas of versions that stay do so whether or not something can be made of them."""
    listing = contents.listing
    return any(one.path == path and one.version >= floor for one in (*listing.deltas, *listing.refused))


def _check_restored(history: History, version: Version, directory: Path) -> None:
    try:
        with EmbeddedStore(history.bucket, directory, has_checkpoint_ids=history.ids) as store:
            store.load(history.named(version))
            history.truth.check(version, rows_of(store), "the last restore")
    except (DamagedError, MissingError):
        if not history.is_lying:
            raise


class _Preferring(random.Random):
    """Chance for quiet batches: they stay on the first executor."""

    def random(self) -> float:
        return 0.5
