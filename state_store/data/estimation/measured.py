"""The workload of a query that has run, measured from the files of its checkpoint.

The last deltas of some partitions are read for records, their sizes, and keys that recur.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from state_store.core.checkpoint.names import DeltaName, SnapshotName, VersionId
from state_store.core.checkpoint.stored_documents import DeltaMetadata, Manifest
from state_store.core.compat import pairwise, zip
from state_store.core.deletion.lease import StoreContents
from state_store.core.engine.table import read_metadata, read_records
from state_store.core.files.transfer import PART_BYTES
from state_store.core.planning.cost import COPIED, CostModel, RemoteTransfers, RequestTimes, RestoreWork
from state_store.core.planning.policy import oldest_run_bytes
from state_store.core.runtime import SYSTEM, Runtime, ScratchDirectory
from state_store.core.snapshots.context import THREADS, MeasuredStorage
from state_store.core.snapshots.restore import MIN_SPARSE_DELTA_BYTES, Restored
from state_store.core.storage.contract import Storage
from state_store.data.dataset.moments import table
from state_store.data.dataset.partitions import PinnedVersion
from state_store.data.dataset.views import default_name, view
from state_store.data.estimation.simulation import (
    FAMILY_BYTES,
    TableSize,
    Touches,
    Workload,
    observed,
    table_size,
)
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


@dataclass(frozen=True)
class DeltaRecords:
    """The records of one delta.

    Attributes:
        metadata: the delta's metadata.
        size_bytes: the size of its file.
        written: hashes of the keys that it puts.
        key_bytes: bytes of these keys.
        value_bytes: bytes of their values.
        removals: the number of keys that it removes.
    """

    metadata: DeltaMetadata
    size_bytes: int
    written: frozenset[int]
    key_bytes: int
    value_bytes: int
    removals: int


@dataclass(frozen=True)
class DeltaSample:
    """Consecutive deltas of some partitions, the same number of each, oldest first."""

    partitions: tuple[tuple[DeltaRecords, ...], ...]

    @classmethod
    def of(cls, partitions: Sequence[Sequence[DeltaRecords]]) -> DeltaSample:
        """Return a sample with the same number of last deltas of each partition, which has one at least."""
        batches = min(len(deltas) for deltas in partitions)
        return cls(tuple(tuple(deltas[-batches:]) for deltas in partitions))

    @property
    def batches(self) -> int:
        """The number of deltas of each partition."""
        return len(self.partitions[0])

    @property
    def keys(self) -> int:
        """Keys of these partitions after the last batch."""
        return sum(deltas[-1].metadata.keys for deltas in self.partitions)

    @property
    def puts(self) -> float:
        """Keys that a batch puts in these partitions."""
        return sum(len(delta.written) for delta in self._all) / self.batches

    @property
    def removals(self) -> float:
        """Keys that a batch removes from these partitions."""
        return sum(delta.removals for delta in self._all) / self.batches

    @property
    def new(self) -> float:
        """Keys that a batch puts in these partitions and that were not there before."""
        new_keys = sum(
            after.metadata.keys - before.metadata.keys + after.metadata.removes
            for deltas in self.partitions
            for before, after in pairwise(deltas)
        )
        return min(self.puts, max(0.0, new_keys / (self.batches - 1))) if self.batches > 1 else 0.0

    @property
    def key_bytes(self) -> float:
        """Average bytes of a put key, without its column family."""
        return sum(delta.key_bytes for delta in self._all) / max(1, self._records)

    @property
    def value_bytes(self) -> float:
        """Average bytes of a value."""
        return sum(delta.value_bytes for delta in self._all) / max(1, self._records)

    def table(self) -> TableSize | None:
        """Return the sizes of the deltas by their records; None if they have none."""
        files = len(self._all)
        expected = table_size(self.key_bytes, self.value_bytes, self._records / files)
        own = sum(delta.size_bytes for delta in self._all) - files * expected.file_bytes
        own -= sum(delta.removals for delta in self._all) * expected.removal_bytes
        if own <= 0 or not self._records:
            return None
        return TableSize(expected.file_bytes, own / self._records, expected.removal_bytes)

    def touches(self) -> Touches:
        """Return the distribution of the keys that batches write in these partitions."""
        counts = [0] * (self.batches + 1)
        for deltas in self.partitions:
            for times in Counter(key for delta in deltas for key in delta.written).values():
                counts[times] += 1
        powers = {1 << power for power in range(int(math.log2(self.batches)) + 1)}
        windows = [(width, self._distinct(width)) for width in sorted(powers | {self.batches})]
        return observed(counts, windows, self.keys, self.new)

    def _distinct(self, width: int) -> float:
        """Return the average number of different keys in this many consecutive batches."""
        starts = range(0, self.batches - width + 1, width)
        distinct = sum(
            len(frozenset().union(*(delta.written for delta in deltas[first : first + width])))
            for deltas in self.partitions
            for first in starts
        )
        return distinct / len(starts)

    @property
    def _all(self) -> list[DeltaRecords]:
        return [delta for deltas in self.partitions for delta in deltas]

    @property
    def _records(self) -> int:
        return sum(len(delta.written) for delta in self._all)


def read_deltas(pin: PinnedVersion, directory: Path) -> list[DeltaRecords]:
    """Return the last deltas of a store, oldest first.

    `directory` is used meanwhile and removed. Raises DamagedError.
    """
    try:
        return [_read(pin, delta, directory) for delta in _last(pin)]
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _last(pin: PinnedVersion) -> list[DeltaName]:
    """Return the newest deltas that follow each other without a gap, within the bounds.

    The first batch is left out if there are others, because it is unlike them.
    """
    deltas: list[DeltaName] = []
    remaining_bytes = MAX_BYTES
    for delta in reversed(pin.lineage[-MAX_DELTAS:]):
        remaining_bytes -= pin.delta_bytes(delta)
        follows = not deltas or delta.version == deltas[-1].version - 1
        if not follows or (deltas and (remaining_bytes < 0 or delta.version == 1)):
            break
        deltas.append(delta)
    return deltas[::-1]


def _read(pin: PinnedVersion, delta: DeltaName, directory: Path) -> DeltaRecords:
    path = pin.fetch(delta, directory)
    metadata = DeltaMetadata.from_json(read_metadata(path), file=delta.path)
    written = set()
    key_bytes = value_bytes = removals = 0
    for key, value in read_records(path):
        if value is None:
            removals += 1
            continue
        written.add(hash(key))
        key_bytes += len(key) - FAMILY_BYTES
        value_bytes += len(value)
    path.unlink()
    return DeltaRecords(
        metadata, pin.delta_bytes(delta), frozenset(written), key_bytes, value_bytes, removals
    )


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
        lines = [
            ("keys", work.keys),
            ("bytes of a key", work.key_bytes),
            ("bytes of a value", work.value_bytes),
            ("keys that a batch writes", work.updates_per_batch),
            ("of these new", work.new_per_batch),
            ("ms from a batch to the next", work.interval_ms),
            ("bytes in storage", self.stored_bytes),
            ("files in storage", self.stored_files),
            ("bytes that a restore reads", self.restore_bytes),
            ("files that a restore reads", self.restore_files),
            ("ms that a restore took", self.restore_ms),
        ]
        title = f"operator {self.operator}, store {self.store}, version {self.version}"
        return table(title, ("", ""), [(name, f"{number:,.6g}") for name, number in lines])


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
    spark_name = _spark_name(query, operator, store)
    keys = query.stores(Filter(operator, None, spark_name))
    with reporting(progress, "measured", len(keys)) as meter:
        return _measured(query, operator, spark_name, keys, meter, runtime)


def _spark_name(query: Query, operator: int, store: str | None) -> str:
    """Return Spark's name of a store that is called by it, by a side or by a variable; None: the default."""
    names = [name for each in query.operators if each.id == operator for name in each.stores]
    if store in names or (store is None and len(names) == 1):
        return store or names[0]
    require_arrow()
    return view(query, operator, store or default_name(query, operator)).store


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
    read = on_stores(query, keys, lambda _, storage, __: StoreContents.read(storage), meter=progress)
    contents = dict(zip(keys, read, strict=True))
    sampled = [keys[number * len(keys) // SAMPLED] for number in range(SAMPLED)]
    sampled = list(dict.fromkeys(sampled))
    deltas, runs = [], []
    cost = CostModel()
    times = RequestTimes(runtime.lock())
    restored: list[Restored] = []
    with ScratchDirectory("state-store-estimate-") as name:
        for key in sampled:
            storage = query.storage(key)
            if not storage.is_local:
                storage = MeasuredStorage(storage, times, runtime)
            since = max(0, version - MAX_DELTAS)
            pin = PinnedVersion(key, storage, version, committed[key], since=since, runtime=runtime)
            if progress is not None:
                pin.follow(progress)
                progress.expect(pin.lineage_bytes)
            try:
                if key == sampled[0]:
                    cost = _expected(storage, Path(name), times)
                restored.append(_restored(pin, Path(name) / "restored", progress))
                deltas.append(read_deltas(pin, Path(name) / "deltas"))
                runs.append(_oldest_run(pin.version, contents[key]))
            finally:
                pin.release()
    _fit(cost, restored)
    chains = [_chain(contents[key], committed[key]) for key in keys]
    readable = [records for records in deltas if records]
    if not readable:
        partitions = ", ".join(str(key.partition) for key in sampled)
        raise MissingError(
            f"no delta of store '{store}' of operator {operator} is left in partitions {partitions}, whose "
            "batches are measured: full checkpoints have replaced all of them; measure after the next batch"
        )
    sample = DeltaSample.of(readable)
    return Measured(
        operator,
        store,
        version,
        _workload(sample, runs, len(keys), _interval_ms(query)),
        sum(entry.size_bytes for listed in read for entry in listed.entries.values()),
        sum(len(listed.entries) for listed in read),
        sum(size_bytes for size_bytes, _ in chains) / len(keys),
        sum(files for _, files in chains) / len(keys),
        _retained(query, contents[sampled[0]], version),
        tuple(key.partition for key, records in zip(sampled, deltas, strict=True) if records),
        sample.batches,
        mean(map(_total_ms, restored)),
        cost,
    )


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


def _workload(
    sample: DeltaSample, runs: Sequence[tuple[int, int]], partitions: int, interval_ms: float
) -> Workload:
    times = partitions / len(sample.partitions)
    keys = max(1.0, times * sample.keys)
    deltas = sample.table()
    return Workload(
        keys,
        sample.key_bytes,
        sample.value_bytes,
        min(times * sample.puts, keys + times * sample.new),
        interval_ms,
        partitions,
        times * sample.new,
        times * sample.removals,
        delta_table=deltas,
        merged_table=_merged_table(sample, runs) or deltas,
        touches=sample.touches().divided(1 / times),
    )


def _merged_table(sample: DeltaSample, runs: Sequence[tuple[int, int]]) -> TableSize | None:
    """Return the sizes of merged files by the bytes and keys of oldest runs; None without such runs."""
    full_runs = [(size_bytes, keys) for size_bytes, keys in runs if keys]
    keys = sum(count for _, count in full_runs)
    if not keys:
        return None
    expected = table_size(sample.key_bytes, sample.value_bytes, keys / len(full_runs))
    own = (sum(size_bytes for size_bytes, _ in full_runs) - len(full_runs) * expected.file_bytes) / keys
    if own <= 0:
        return None
    return TableSize(expected.file_bytes, own, expected.removal_bytes * own / expected.put_bytes)


def _oldest_run(version: VersionId, contents: StoreContents) -> tuple[int, int]:
    """Return bytes and keys of the newest full checkpoint.

    If it is gone, they are those of its files in the newest snapshot; 0 if there is neither.
    """
    manifest = _snapshot(version, contents)
    if manifest is not None and manifest.full is not None:
        manifest = contents.manifests.get(SnapshotName(*manifest.full), manifest)
    if manifest is None or max((file.level for file in manifest.files), default=0) == 0:
        return 0, 0
    return oldest_run_bytes(manifest), manifest.keys


def _retained(query: Query, contents: StoreContents, version: int) -> int | None:
    """Return the number of retained versions; None if none has been deleted yet.

    It follows from Spark's commit log, which keeps one batch more, and from the restorable versions, which an
    option may narrow.
    """
    batches = sorted(query.logs.commit_times_ms())
    if batches[0] == 0:
        return None
    oldest = min((restorable.number for restorable in contents.lineages.restorable()), default=version)
    return max(1, min(len(batches) - 1, version - oldest + 1))


def _chain(contents: StoreContents, version: VersionId) -> tuple[int, int]:
    """Return bytes and files that a restore reads."""
    if version.checkpoint_id is None:
        version = contents.listing.attempts.resolve(version.number) or version
    manifest = _snapshot(version, contents)
    files = [] if manifest is None else [file.size_bytes for file in manifest.files]
    files += [contents.listing.deltas[delta] for delta in contents.lineages.plan(version).deltas]
    return sum(files), len(files)


def _snapshot(version: VersionId, contents: StoreContents) -> Manifest | None:
    plan = contents.lineages.plan(version)
    return None if plan.snapshot is None else contents.manifests[plan.snapshot]


def _interval_ms(query: Query) -> float:
    """Return the median time between the last batches."""
    times = [at_ms for _, at_ms in sorted(query.logs.end_times_ms().items())][-_MAX_TIMES:]
    steps = [after - before for before, after in pairwise(times) if after > before]
    return median(steps) if steps else DEFAULT_INTERVAL_MS
