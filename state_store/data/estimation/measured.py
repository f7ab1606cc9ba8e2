"""The workload of a query that has run, measured from the files of its checkpoint.

The last deltas of some partitions are read for records, their sizes, and keys that recur.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

from state_store.core.checkpoint.names import DeltaName, SnapshotName, VersionId
from state_store.core.checkpoint.stored_documents import DeltaMetadata
from state_store.core.compat import pairwise, zip
from state_store.core.engine.table import read_metadata, read_records
from state_store.core.files.transfer import PART_BYTES
from state_store.core.planning.cost import COPIED, CostModel, RemoteTransfers, RequestTimes, RestoreWork
from state_store.core.planning.policy import oldest_run_bytes
from state_store.core.runtime import SYSTEM, Runtime, ScratchDirectory
from state_store.core.snapshots.context import THREADS, MeasuredStorage
from state_store.core.snapshots.restore import MIN_SPARSE_DELTA_BYTES, Restored
from state_store.core.storage.contract import Storage
from state_store.data.dataset.checkpoints import FoundStore
from state_store.data.dataset.moments import table
from state_store.data.dataset.partitions import PinnedVersion
from state_store.data.dataset.views import default_name, view
from state_store.data.estimation.simulation import FAMILY_BYTES, TableSize, Workload, observed, table_size
from state_store.data.jobs import on_stores
from state_store.data.query import Filter, Progress, ProgressOption, Query, StoreKey, reporting
from state_store.data.query.arguments import Location, check_name, check_number, counted, require_arrow
from state_store.errors import MissingError

MAX_DELTAS = 32
MAX_BYTES = 32 << 20
"""Bound of the deltas that are read of one partition, in bytes."""

SAMPLED = 4
"""The number of partitions whose files are read."""

DEFAULT_INTERVAL_MS = 10_000
_MAX_TIMES = 100
_MIN_RESTORES, _MAX_RESTORES, _LONG_MS = 2, 9, 300
"""Restores of one partition that are timed: at least 2, at most 9, until 300 ms have passed."""

_REPEATS = 8


@dataclass(frozen=True, repr=False)
class Measured:
    """The workload of one of Spark's stores of a query, all partitions, measured at `version`.

    Attributes:
        operator: the number of the operator.
        store: Spark's name of the store.
        version: the version.
        workload: the measured workload.
        stored_bytes: bytes in checkpoint storage.
        stored_files: files in checkpoint storage.
        restore_bytes: bytes that a restore of the average partition reads.
        restore_files: files that it reads.
        retained: the number of restorable versions; None if no version has been deleted yet.
        sampled: the partitions whose last `deltas` deltas were read.
        deltas: the number of deltas read of each.
        restore_ms: milliseconds that a restore of one of them took on this machine.
        cost: the cost model fitted to these restores.
    """

    operator: int
    store: str
    version: int
    workload: Workload
    stored_bytes: int
    stored_files: int
    restore_bytes: float
    restore_files: float
    retained: int | None
    sampled: tuple[int, ...]
    deltas: int
    restore_ms: float
    cost: CostModel

    def __repr__(self) -> str:
        work = self.workload
        return (
            f"Measured(operator {self.operator}, store {self.store}, version {self.version}: "
            f"{work.keys:.0f} keys, {work.updates_per_batch:.0f} written a batch, "
            f"{self.stored_bytes} bytes in {counted(self.stored_files, 'file')})"
        )

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        work = self.workload
        numbers = {
            "keys": work.keys,
            "bytes of a key": work.key_bytes,
            "bytes of a value": work.value_bytes,
            "keys that a batch writes": work.updates_per_batch,
            "of these new": work.new_per_batch,
            "ms from a batch to the next": work.interval_ms,
            "bytes in storage": self.stored_bytes,
            "files in storage": self.stored_files,
            "bytes that a restore reads": self.restore_bytes,
            "files that a restore reads": self.restore_files,
            "ms that a restore took": self.restore_ms,
        }
        title = f"operator {self.operator}, store {self.store}, version {self.version}"
        return table(title, ("", ""), [(name, f"{number:,.6g}") for name, number in numbers.items()])


def measure(
    checkpoint: Location,
    operator: int = 0,
    store: str | None = None,
    *,
    progress: ProgressOption = None,
    runtime: Runtime = SYSTEM,
) -> Measured:
    """Measure the workload of one of Spark's stores of a query, which may be running.

    Lists every partition, reads the archives of its snapshots, and reads the last deltas of a few partitions.
    These partitions are restored into the directory of temporary files, one after the other, to measure the
    time that storage takes.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        operator: the number of the stateful operator in the query.
        store: the store: a side of a join, a state variable (which counts with all), or Spark's name.
            Default: the only store, the left side, or the first variable.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.
        runtime: clocks and threads.

    Raises:
        MissingError: there is no such query or store, Spark has committed no batch of it, or no delta is
            left.
        OptionError: an argument is of a wrong type, or another provider keeps the query's state.
        StateStoreError: as the files and the storage are.
    """
    check_number("operator", operator)
    check_name("store", store)
    query = Query.open(checkpoint)
    names = [name for each in query.operators if each.id == operator for name in each.stores]
    if store is None and len(names) == 1:
        store = names[0]
    elif store not in names:
        require_arrow()
        store = view(query, operator, store or default_name(query, operator)).store
    keys = query.stores(Filter(operator, None, store))
    with reporting(progress, "measured", len(keys)) as meter:
        return _measured(query, operator, store, keys, meter, runtime)


def _measured(
    query: Query,
    operator: int,
    store: str,
    keys: Sequence[StoreKey],
    progress: Progress | None,
    runtime: Runtime,
) -> Measured:
    batch = query.newest_batch()
    version, committed = batch + 1, query.committed(batch)
    stores = on_stores(query, keys, lambda key, storage, _: FoundStore.read(key, storage), meter=progress)
    places = dict.fromkeys(number * len(keys) // SAMPLED for number in range(SAMPLED))
    sampled = [stores[place] for place in places]
    cost, times = CostModel(), RequestTimes(runtime.lock())
    restored: list[Restored] = []
    deltas, runs = [], []
    with ScratchDirectory("state-store-estimate-") as name:
        for each in sampled:
            storage = query.storage(each.key)
            if not storage.is_local:
                storage = MeasuredStorage(storage, times, runtime)
            since = max(0, version - MAX_DELTAS)
            pin = PinnedVersion(each.key, storage, version, committed[each.key], since=since, runtime=runtime)
            if progress is not None:
                pin.follow(progress)
                progress.expect(pin.lineage_bytes)
            try:
                if not restored:
                    cost = _expected(storage, Path(name), times)
                restored.append(_restored(pin, Path(name) / "restored", progress))
                deltas.append(_last_deltas(pin, Path(name) / "deltas"))
                runs.append(_oldest_run(pin.version, each))
            finally:
                pin.release()
    _fit(cost, restored)
    if not any(deltas):
        partitions = ", ".join(str(each.key.partition) for each in sampled)
        raise MissingError(
            f"no delta of store '{store}' of operator {operator} is left in partitions {partitions}, whose "
            "batches are measured: full checkpoints have replaced all of them; measure after the next batch"
        )
    count = min(len(records) for records in deltas if records)
    chains = [
        [file.size_bytes for file in each.registry.files(wanted) if not file.is_snapshot]
        for each in stores
        if (wanted := each.restorable(committed[each.key]))
    ]
    return Measured(
        operator,
        store,
        version,
        _workload([records[-count:] for records in deltas if records], runs, len(keys), _interval_ms(query)),
        sum(entry.size_bytes for each in stores for entry in each.contents.entries.values()),
        sum(len(each.contents.entries) for each in stores),
        sum(map(sum, chains)) / len(keys),
        sum(map(len, chains)) / len(keys),
        _retained(query, sampled[0], version),
        tuple(each.key.partition for each, records in zip(sampled, deltas, strict=True) if records),
        count,
        mean(map(_total_ms, restored)),
        cost,
    )


# ---- restores --------------------------------------------------------------------------------------------


def _expected(storage: Storage, directory: Path, times: RequestTimes) -> CostModel:
    """Return the model before any measurement, which splits transfer times into those by file and by byte.

    Files of a local disk are linked, but copied from another; those of other machines come by requests, which
    are measured one by one.
    """
    is_copied = storage.is_local and Path(storage.location).stat().st_dev != directory.stat().st_dev
    remote = None if storage.is_local else RemoteTransfers(times, THREADS, PART_BYTES, MIN_SPARSE_DELTA_BYTES)
    return CostModel(is_local=storage.is_local, transfers=COPIED if is_copied else None, remote=remote)


def _restored(pin: PinnedVersion, directory: Path, progress: Progress | None) -> Restored:
    """Restore the version several times as a query does, and return the fastest restore.

    The first restore meets cold caches, and other programs may delay any of them.
    """
    restores: list[Restored] = []
    while len(restores) < _MIN_RESTORES or (
        len(restores) < _MAX_RESTORES and sum(map(_total_ms, restores)) < _LONG_MS
    ):
        if progress is not None:
            progress.expect(pin.size_bytes)
        restores.append(pin.restore_by_blocks(directory))
        shutil.rmtree(directory, ignore_errors=True)
    return min(restores, key=_total_ms)


def _fit(cost: CostModel, restores: Sequence[Restored]) -> None:
    """Fit the model to restores of several partitions, repeated until little of its prior is left."""
    for restored in [*restores] * _REPEATS:
        phases, fetched, chain = restored.phases, restored.fetched, restored.chain
        cost.observe_choice(phases["choose_ms"], RestoreWork.of_chain(chain).archives)
        cost.observe_fetch(fetched.files, fetched.size_bytes, phases["fetch_ms"])
        cost.observe_verification(chain.files, chain.size_bytes, phases["verify_ms"], thorough=False)


def _total_ms(restored: Restored) -> float:
    return sum(restored.phases.values())


# ---- the writes of batches -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Delta:
    """The records of a delta: hashes of the keys that it puts, bytes of keys and values, and removals."""

    metadata: DeltaMetadata
    size_bytes: int
    written: frozenset[int]
    key_bytes: int
    value_bytes: int
    removals: int


def _last_deltas(pin: PinnedVersion, directory: Path) -> list[_Delta]:
    """Return the newest deltas that follow each other without a gap, within the bounds, oldest first.

    The first batch is left out if there are others, because it is unlike them. `directory` is used meanwhile
    and removed. Raises DamagedError.
    """
    deltas: list[DeltaName] = []
    remaining_bytes = MAX_BYTES
    for delta in reversed(pin.lineage[-MAX_DELTAS:]):
        remaining_bytes -= pin.delta_bytes(delta)
        follows = not deltas or delta.version == deltas[-1].version - 1
        if not follows or (deltas and (remaining_bytes < 0 or delta.version == 1)):
            break
        deltas.append(delta)
    try:
        return [_read(pin, delta, directory) for delta in reversed(deltas)]
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _read(pin: PinnedVersion, delta: DeltaName, directory: Path) -> _Delta:
    path = pin.fetch(delta, directory)
    metadata = DeltaMetadata.from_json(read_metadata(path), file=delta.path)
    written, key_bytes, value_bytes, removals = set(), 0, 0, 0
    for key, value in read_records(path):
        if value is None:
            removals += 1
            continue
        written.add(hash(key))
        key_bytes += len(key) - FAMILY_BYTES
        value_bytes += len(value)
    path.unlink()
    return _Delta(metadata, pin.delta_bytes(delta), frozenset(written), key_bytes, value_bytes, removals)


def _workload(
    partitions: Sequence[Sequence[_Delta]],
    runs: Sequence[tuple[int, int]],
    count: int,
    interval_ms: float,
) -> Workload:
    """Return the workload of `count` partitions.

    Args:
        partitions: consecutive deltas of some of them, the same number of each, oldest first.
        runs: bytes and keys of the oldest runs of these.
        count: the number of partitions.
        interval_ms: the time from a batch to the next.
    """
    batches, times = len(partitions[0]), count / len(partitions)
    deltas = [delta for of_partition in partitions for delta in of_partition]
    records, removals = (sum(numbers) for numbers in zip(*((len(d.written), d.removals) for d in deltas)))
    keys = sum(of_partition[-1].metadata.keys for of_partition in partitions)
    new = 0.0
    if batches > 1:
        added = sum(
            after.metadata.keys - before.metadata.keys + after.metadata.removes
            for of_partition in partitions
            for before, after in pairwise(of_partition)
        )
        new = min(records / batches, max(0.0, added / (batches - 1)))
    key_bytes = sum(delta.key_bytes for delta in deltas) / max(1, records)
    value_bytes = sum(delta.value_bytes for delta in deltas) / max(1, records)
    writes = Counter(
        times_written
        for of_partition in partitions
        for times_written in Counter(key for delta in of_partition for key in delta.written).values()
    )
    widths = sorted({1 << power for power in range(batches.bit_length())} | {batches})
    windows = [(width, _distinct(partitions, width)) for width in widths]
    table = table_size(key_bytes, value_bytes, records / len(deltas))
    removed_bytes = removals * table.removal_bytes
    changes = _fitted(table, sum(delta.size_bytes for delta in deltas) - removed_bytes, records, len(deltas))
    if changes is not None:
        changes = replace(changes, removal_bytes=table.removal_bytes)
    full_runs = [run for run in runs if run[1]]
    run_bytes, run_keys = (sum(numbers) for numbers in zip(*full_runs)) if full_runs else (0, 0)
    merged = table_size(key_bytes, value_bytes, run_keys / max(1, len(full_runs)))
    return Workload(
        max(1.0, times * keys),
        key_bytes,
        value_bytes,
        min(times * records / batches, max(1.0, times * keys) + times * new),
        interval_ms,
        count,
        times * new,
        times * removals / batches,
        delta_table=changes,
        merged_table=_fitted(merged, run_bytes, run_keys, len(full_runs)) or changes,
        touches=observed(writes, windows, keys, new).divided(1 / times),
    )


def _distinct(partitions: Sequence[Sequence[_Delta]], width: int) -> float:
    """Return the average number of different keys in this many consecutive batches."""
    starts = range(0, len(partitions[0]) - width + 1, width)
    distinct = sum(
        len(frozenset().union(*(delta.written for delta in deltas[first : first + width])))
        for deltas in partitions
        for first in starts
    )
    return distinct / len(starts)


def _fitted(table: TableSize, size_bytes: float, puts: int, files: int) -> TableSize | None:
    """Return the sizes of records with which files of this many bytes have as many; None without records."""
    own_bytes = size_bytes - files * table.file_bytes
    if own_bytes <= 0 or not puts:
        return None
    times = own_bytes / puts / table.put_bytes
    return TableSize(table.file_bytes, own_bytes / puts, table.removal_bytes * times)


def _oldest_run(version: VersionId, store: FoundStore) -> tuple[int, int]:
    """Return bytes and keys of the newest full checkpoint.

    If it is gone, they are those of its files in the newest snapshot; 0 if there is neither.
    """
    manifest = store.manifest(version)
    if manifest is not None and manifest.full is not None:
        manifest = store.contents.manifests.get(SnapshotName(*manifest.full), manifest)
    if manifest is None or max((file.level for file in manifest.files), default=0) == 0:
        return 0, 0
    return oldest_run_bytes(manifest), manifest.keys


def _retained(query: Query, store: FoundStore, version: int) -> int | None:
    """Return the number of retained versions; None if none has been deleted yet.

    It follows from Spark's commit log, which keeps one batch more, and from the restorable versions, which an
    option may narrow.
    """
    batches = sorted(query.logs.commit_times_ms())
    if batches[0] == 0:
        return None
    restorable = store.contents.lineages.restorable()
    oldest = min((restorable_version.number for restorable_version in restorable), default=version)
    return max(1, min(len(batches) - 1, version - oldest + 1))


def _interval_ms(query: Query) -> float:
    """Return the median time between the last batches."""
    times = [at_ms for _, at_ms in sorted(query.logs.end_times_ms().items())][-_MAX_TIMES:]
    steps = [after - before for before, after in pairwise(times) if after > before]
    return median(steps) if steps else DEFAULT_INTERVAL_MS
