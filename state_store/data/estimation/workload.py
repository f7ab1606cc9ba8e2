"""The writes of a query into its state: a plan in numbers, or measured from the files of its checkpoint.

A workload (`Workload`) says how many keys there are, and which of them batches write. Sizes of runs and of
memory follow from the distribution of the keys that batches write (`Touches`), and sizes of files from those
of keys and values (`TableSize`). `measure` finds all three: it reads the last deltas of some partitions for
records, their sizes, and keys that recur, and it restores these partitions to fit the model of restores.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from state_store.core.checkpoint.names import DeltaName, SnapshotName, VersionId
from state_store.core.checkpoint.stored_documents import DeltaMetadata
from state_store.core.engine.database import BLOOM_BITS_PER_KEY, DatabaseSettings
from state_store.core.engine.table import read_metadata, read_records
from state_store.core.files.transfer import PART_BYTES
from state_store.core.planning.cost import COPIED, CostModel, RemoteTransfers, RequestTimes
from state_store.core.planning.policy import oldest_run_bytes
from state_store.core.runtime import SYSTEM, Runtime, ScratchDirectory
from state_store.core.snapshots.context import THREADS, MeasuredStorage
from state_store.core.snapshots.restore import MIN_SPARSE_DELTA_BYTES, Restored
from state_store.core.storage.contract import Storage
from state_store.data.dataset.checkpoints import FoundStore
from state_store.data.dataset.moments import table
from state_store.data.dataset.partitions import PinnedVersion
from state_store.data.dataset.views import default_name, view
from state_store.data.jobs import on_stores
from state_store.data.query import Filter, Progress, ProgressOption, Query, reporting
from state_store.data.query.arguments import Location, check_name, check_number, counted, require_arrow
from state_store.errors import MissingError, OptionError

PARTITIONS, INTERVAL_MS = 200, 10_000
"""Spark's default of `spark.sql.shuffle.partitions`, and the time between batches that is not known."""

MAX_PARTITION_BYTES = 512 << 30
"""Bound of the rows of a partition, in bytes: a simulation keeps each file of the state in memory."""

FAMILY_BYTES = 2
"""Bytes of the column family before each key."""

_COMMON_BYTES, _KEY_FOOTER_BYTES, _INDEX_BYTES, _FILE_BYTES, _RESTART = FAMILY_BYTES + 8, 8, 18, 1_450, 16
"""Bytes that most keys of a query share (with the first word of Spark's rows), that follow a key, of an entry
of the index without its key, and of a file without records; records from one whole key to the next.
"""

_COMPRESSED_TO = 0.5
"""Share to which lz4 compresses a typical row (docs/options.md)."""

_SINGLE_RANKS, _CLASSES_PER_OCTAVE, _LONGEST_BATCHES = 32, 4, 1e9

SAMPLED, MAX_DELTAS, MAX_BYTES = 4, 32, 32 << 20
"""Bounds of what is measured: partitions, and the deltas that are read of each, in number and bytes."""

_MIN_RESTORES, _MAX_RESTORES, _LONG_MS = 2, 9, 300
"""Restores of one partition that are timed: at least 2, at most 9, until 300 ms have passed."""

_MAX_TIMES, _REPEATS = 100, 8


# ---- keys, files, writes ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Touches:
    """The keys that batches write.

    `classes` are numbers of existing keys, and the writes of each of them in a batch on average, which are
    independent of each other. `new` keys of a batch did not exist before. `windows` are measured counts of
    different keys in consecutive batches, by the number of batches, from 1 up.
    """

    classes: tuple[tuple[float, float], ...]
    new: float = 0.0
    windows: tuple[tuple[int, float], ...] = ()

    def distinct(self, batches: float) -> float:
        """Return the number of different keys that this many consecutive batches write.

        It is interpolated between windows. After the last one it grows no faster than between the last two.
        """
        width, count, growth = 0, 0.0, math.inf
        for next_width, next_count in self.windows:
            if batches <= next_width:
                return count + (next_count - count) * (batches - width) / (next_width - width)
            growth = math.log(next_count / count) / math.log(next_width / width) if count else 1.0
            width, count = next_width, next_count
        more = self.new * (batches - width) + self._existing(batches) - self._existing(width)
        return min(count + more, count * (batches / width) ** growth) if width else more

    def _existing(self, batches: float) -> float:
        """Return the number of different keys of the classes that this many consecutive batches write."""
        return sum(keys * -math.expm1(-rate * batches) for keys, rate in self.classes)

    def batches_for(self, hit_ratio: float) -> float:
        """Return the number of last batches that wrote this share of the next batch's existing keys.

        The others are those by which the next batch adds to the different keys of the last ones.
        """
        missed = (1 - hit_ratio) * self._existing(1)
        return _least(lambda batches: self._existing(batches + 1) - self._existing(batches) <= missed)

    def divided(self, parts: float) -> Touches:
        """Return the touches of one of this many partitions, which a hash of the keys makes alike."""
        classes = tuple((keys / parts, rate) for keys, rate in self.classes)
        windows = tuple((width, count / parts) for width, count in self.windows)
        return Touches(classes, self.new / parts, windows)


def _least(is_enough: Callable[[float], bool]) -> float:
    """Return the least number above 0 that is enough, or one of more than `_LONGEST_BATCHES`."""
    low, high = 0.0, 1.0
    while not is_enough(high) and high < _LONGEST_BATCHES:
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def zipf(keys: float, updates: float, exponent: float, new: float = 0.0) -> Touches:
    """Return the touches of batches that write `updates` existing keys, by Zipf's law.

    The weight of rank r is r to the power of -`exponent`; 0 writes all keys equally often. The first ranks
    are classes of their own; later ones share ever larger classes.
    """
    if updates <= 0:
        return Touches((), new)
    if exponent == 0:
        return Touches(((keys, -math.log1p(-min(updates / max(keys, 1e-9), 1 - 1e-9))),), new)
    ranks, rank = [], 1.0
    while rank <= keys:
        width = 1.0 if rank <= _SINGLE_RANKS else rank * (2 ** (1 / _CLASSES_PER_OCTAVE) - 1)
        width = min(width, keys - rank + 1)
        ranks.append((width, (rank + (width - 1) / 2) ** -exponent))
        rank += width
    by_weight, target = Touches(tuple(ranks)), min(updates, keys * (1 - 1e-9))
    factor = _least(lambda factor: by_weight._existing(factor) >= target)  # of weights, as of batches
    return Touches(tuple((count, weight * factor) for count, weight in ranks), new)


def observed(
    counts: Mapping[int, int], windows: Sequence[tuple[int, float]], keys: float, new: float
) -> Touches:
    """Return the touches that consecutive deltas show, in a store of `keys` keys with `new` ones in a batch.

    `counts[c]` keys were written in c of the batches; the last window has all batches. New keys are taken to
    be among those that were written least often. Keys that were written once are taken for some of all
    others, each of which is written as seldom.
    """
    batches = windows[-1][0]
    strangers, once, total = new * batches, 0.0, 0.0
    classes = []
    for times, count in sorted(counts.items()):
        existing = max(0.0, count - strangers)
        strangers -= count - existing
        total += existing
        if times == 1:
            once = existing
        elif existing:
            classes.append((existing, times / batches))
    if once:
        seldom = once + max(0.0, keys - total)
        share = min(once / seldom, math.exp(-1))  # of a Poisson distribution's values that are 1
        classes.append((seldom, _least(lambda mean: mean * math.exp(-mean) >= share) / batches))
    return Touches(tuple(classes), new, tuple(windows))


class TableSize(NamedTuple):
    """Bytes of an SST file itself, of each put and of each removal in it."""

    file_bytes: float
    put_bytes: float
    removal_bytes: float

    def of(self, puts: float, removals: float = 0.0) -> int:
        """Return the bytes of a file with this many records."""
        return max(1, round(self.file_bytes + puts * self.put_bytes + removals * self.removal_bytes))


def table_size(key_bytes: float, value_bytes: float, records: float, ratio: float = 1.0) -> TableSize:
    """Return the sizes of SST files of about this many records, as both planes write them (docs/format.md).

    Keys, whose bytes are those without the column family, have a common prefix, as Spark's rows have, and
    random bytes after it. So neighbours share more bytes if there are more keys. `ratio` is the compressed
    share of the bytes of a block.
    """
    key = FAMILY_BYTES + key_bytes
    alike = min(key - 1, _COMMON_BYTES + math.log(max(records, 1), 256))
    own = key - alike * (_RESTART - 1) / _RESTART + _KEY_FOOTER_BYTES
    block, index = DatabaseSettings().block_bytes, _INDEX_BYTES + min(key, alike + 1)

    def record_bytes(value: float) -> float:
        lengths = sum(1 + int(math.log(max(number, 1), 128)) for number in (own, value))
        size = 1 + lengths + own + value + 4 / _RESTART
        return size * ratio + index * size / max(block, size) + BLOOM_BITS_PER_KEY / 8

    return TableSize(_FILE_BYTES, record_bytes(value_bytes), record_bytes(0))


@dataclass(frozen=True)
class Workload:
    """The writes of a query into one store, over all partitions, which are alike. Numbers are averages.

    Attributes:
        keys: the constant number of keys.
        key_bytes: bytes of an encoded key, as `stats` shows them. Spark's format has 8 bytes for each 64
            columns, 8 for each column, and the bytes of texts, rounded up to 8.
        value_bytes: bytes of an encoded value.
        updates_per_batch: different keys that a batch writes, new ones included.
        interval_ms: the time from a batch to the next.
        partitions: the number of partitions.
        new_per_batch: keys that a batch writes and that did not exist before.
        removed_per_batch: keys that a batch removes; None is `new_per_batch`.
        zipf: the exponent of Zipf's law by which keys are written; 0 writes all equally often.
        delta_table: measured sizes of deltas, instead of those that follow from the numbers above.
        merged_table: measured sizes of merged files, instead of those that follow from `snapshotCompression`.
        touches: the measured distribution of keys.
    """

    keys: float
    key_bytes: float
    value_bytes: float
    updates_per_batch: float
    interval_ms: float = INTERVAL_MS
    partitions: int = PARTITIONS
    new_per_batch: float = 0.0
    removed_per_batch: float | None = None
    zipf: float = 0.0
    delta_table: TableSize | None = field(default=None, repr=False)
    merged_table: TableSize | None = field(default=None, repr=False)
    touches: Touches | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raise OptionError for numbers that are impossible, or too large for a simulation."""
        rates = (self.key_bytes, self.value_bytes, self.zipf, self.new_per_batch, self.removed_per_batch or 0)
        numbers = (self.keys, self.updates_per_batch, self.interval_ms, self.partitions, *rates)
        if not all(isinstance(number, (int, float)) and math.isfinite(number) for number in numbers):
            raise OptionError("an estimate needs finite numbers")
        if self.keys < 1 or self.partitions < 1 or self.interval_ms <= 0:
            raise OptionError("an estimate needs a key, a partition and an interval above 0")
        if self.keys / self.partitions * (self.key_bytes + self.value_bytes) > MAX_PARTITION_BYTES:
            bound = f"more than {MAX_PARTITION_BYTES >> 30} GiB"
            raise OptionError(f"a partition would have {bound}: estimate with more partitions")
        if min(rates) < 0:
            raise OptionError("sizes, rates and exponents are 0 or more")
        if not self.new_per_batch <= self.updates_per_batch <= self.keys + self.new_per_batch:
            raise OptionError(
                f"a batch cannot write {self.updates_per_batch:.0f} different keys, "
                f"{self.new_per_batch:.0f} of them new, if there are {self.keys:.0f}"
            )

    @property
    def removals(self) -> float:
        """The number of keys that a batch removes."""
        return self.new_per_batch if self.removed_per_batch is None else self.removed_per_batch

    def touches_per_partition(self) -> Touches:
        """Return the distribution of the keys that batches write in a partition."""
        updates = self.updates_per_batch - self.new_per_batch
        touches = self.touches or zipf(self.keys, updates, self.zipf, self.new_per_batch)
        return touches.divided(self.partitions)

    def tables(self, compression: str) -> tuple[TableSize, TableSize]:
        """Return the sizes of a partition's deltas, and of merged files by `snapshotCompression`."""
        sizes, changes = (self.key_bytes, self.value_bytes), self.updates_per_batch / self.partitions
        ratio = 1.0 if compression == "none" else _COMPRESSED_TO
        delta, merged = table_size(*sizes, changes), table_size(*sizes, self.keys / self.partitions, ratio)
        return self.delta_table or delta, self.merged_table or merged


# ---- a query that has run --------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Measured:
    """The workload of one of Spark's stores of a query, all partitions, measured at `version`.

    Attributes:
        operator: the number of the operator.
        store: Spark's name of the store.
        version: the version.
        workload: the measured workload.
        cost: the cost model fitted to restores of some partitions.
        stored_bytes: bytes in checkpoint storage.
        stored_files: files in checkpoint storage.
        restore_bytes: bytes that a restore of the average partition reads.
        restore_files: files that it reads.
        restore_ms: milliseconds that a restore of a partition of `sampled` took on this machine.
        retained: the number of restorable versions; None if no version has been deleted yet.
        sampled: the partitions whose last `deltas` deltas were read.
        deltas: the number of deltas read of each.
    """

    operator: int
    store: str
    version: int
    workload: Workload
    cost: CostModel
    stored_bytes: int
    stored_files: int
    restore_bytes: float
    restore_files: float
    restore_ms: float
    retained: int | None
    sampled: tuple[int, ...]
    deltas: int

    def __repr__(self) -> str:
        work = self.workload
        return (
            f"Measured(operator {self.operator}, store {self.store}, version {self.version}: "
            f"{work.keys:.0f} keys, {work.updates_per_batch:.0f} written a batch, "
            f"{self.stored_bytes} bytes in {counted(self.stored_files, 'file')})"
        )

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        numbers = {**vars(self.workload), **vars(self)}
        rows = [
            (name.replace("_", " "), f"{number:,.6g}")
            for name, number in numbers.items()
            if isinstance(number, (int, float)) and name not in ("operator", "version")
        ]
        return table(f"operator {self.operator}, store {self.store}, version {self.version}", ("", ""), rows)


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
        batch = query.newest_batch()
        version, committed = batch + 1, query.committed(batch)
        stores = on_stores(query, keys, lambda key, storage, _: FoundStore.read(key, storage), meter=meter)
        places = sorted({number * len(keys) // SAMPLED for number in range(SAMPLED)})
        times, since = RequestTimes(runtime.lock()), max(0, version - MAX_DELTAS)
        restores: list[Restored] = []
        deltas: dict[int, list[_Delta]] = {}
        with ScratchDirectory("state-store-estimate-") as name:
            for place in places:
                key, directory = keys[place], Path(name)
                storage = query.storage(key)
                if not storage.is_local:
                    storage = MeasuredStorage(storage, times, runtime)
                cost = _expected(storage, directory, times)
                pin = PinnedVersion(key, storage, version, committed[key], since=since, runtime=runtime)
                try:
                    if meter is not None:
                        pin.follow(meter)
                        meter.expect(pin.lineage_bytes)
                    restores.append(_restored(pin, directory / "restored", meter))
                    if last_deltas := _last_deltas(pin, directory / "deltas"):
                        deltas[place] = last_deltas
                finally:
                    pin.release()
    _fit(cost, restores)
    if not deltas:
        partitions = ", ".join(map(str, places))
        raise MissingError(
            f"no delta of store '{store}' of operator {operator} is left in partitions {partitions}, whose "
            "batches are measured: full checkpoints have replaced all of them; measure after the next batch"
        )
    count = min(map(len, deltas.values()))
    newest = [(listed, last) for listed in stores if (last := listed.restorable(committed[listed.key]))]
    runs = [_oldest_run(listed, last) for listed, last in newest]
    needed = [
        file.size_bytes
        for listed, last in newest
        for file in listed.registry.files(last)
        if not file.is_snapshot
    ]
    sizes = [entry.size_bytes for listed in stores for entry in listed.contents.entries.values()]
    return Measured(
        operator,
        store,
        version,
        _workload([last[-count:] for last in deltas.values()], runs, len(keys), _interval_ms(query)),
        cost,
        sum(sizes),
        len(sizes),
        sum(needed) / len(keys),
        len(needed) / len(keys),
        mean(map(_total_ms, restores)),
        _retained(query, stores[0], version),
        tuple(deltas),
        count,
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
    for restore in [*restores] * _REPEATS:
        restore.teach(cost)


def _total_ms(restore: Restored) -> float:
    return sum(restore.phases.values())


class _Delta(NamedTuple):
    """A delta: its metadata and size, hashes of the keys that it puts, and the bytes of keys and values."""

    metadata: DeltaMetadata
    size_bytes: int
    written: set[int]
    key_bytes: int
    value_bytes: int


def _last_deltas(pin: PinnedVersion, directory: Path) -> list[_Delta]:
    """Return the newest deltas that follow each other without a gap, within the bounds, oldest first.

    The first batch is left out if there are others, because it is unlike them. `directory` is used meanwhile
    and removed. Raises DamagedError.
    """
    names: list[DeltaName] = []
    remaining_bytes = MAX_BYTES
    for name in reversed(pin.lineage[-MAX_DELTAS:]):
        remaining_bytes -= pin.delta_bytes(name)
        follows = not names or name.version == names[-1].version - 1
        if not follows or (names and (remaining_bytes < 0 or name.version == 1)):
            break
        names.append(name)
    deltas = []
    try:
        for name in reversed(names):
            path = pin.fetch(name, directory)
            metadata = DeltaMetadata.from_json(read_metadata(path), file=name.path)
            written, key_bytes, value_bytes = set(), 0, 0
            for key, value in read_records(path):
                if value is not None:
                    written.add(hash(key))
                    key_bytes += len(key) - FAMILY_BYTES
                    value_bytes += len(value)
            path.unlink()
            deltas.append(_Delta(metadata, pin.delta_bytes(name), written, key_bytes, value_bytes))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return deltas


def _workload(
    partitions: Sequence[Sequence[_Delta]], runs: Sequence[tuple[int, int]], count: int, interval_ms: float
) -> Workload:
    """Return the workload of `count` partitions.

    Some of them are `partitions`: consecutive deltas, the same number of each, oldest first. `runs` are bytes
    and keys of their oldest runs.
    """
    batches, times = len(partitions[0]), count / len(partitions)
    deltas = [delta for of_partition in partitions for delta in of_partition]
    records = sum(delta.metadata.puts for delta in deltas)
    removals = sum(delta.metadata.removes for delta in deltas)
    keys = sum(of_partition[-1].metadata.keys for of_partition in partitions)
    added = sum(
        after.metadata.keys - before.metadata.keys + after.metadata.removes
        for of_partition in partitions
        for before, after in pairwise(of_partition)
    )
    new = min(records / batches, max(0.0, added / max(1, batches - 1)))
    key_bytes = sum(delta.key_bytes for delta in deltas) / max(1, records)
    value_bytes = sum(delta.value_bytes for delta in deltas) / max(1, records)
    writes = Counter(
        times_written
        for of_partition in partitions
        for times_written in Counter(key for delta in of_partition for key in delta.written).values()
    )
    widths = sorted({1 << power for power in range(batches.bit_length())} | {batches})
    windows = [(width, _distinct(partitions, width)) for width in widths]
    sizes = [(delta.size_bytes, delta.metadata.puts, delta.metadata.removes) for delta in deltas]
    changes = _fitted(key_bytes, value_bytes, sizes)
    merged = _fitted(key_bytes, value_bytes, [(*run, 0) for run in runs if run[1]])
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
        merged_table=merged or changes,
        touches=observed(writes, windows, keys, new).divided(1 / times),
    )


def _distinct(partitions: Sequence[Sequence[_Delta]], width: int) -> float:
    """Return the average number of different keys in this many consecutive batches."""
    starts = range(0, len(partitions[0]) - width + 1, width)
    return sum(
        len(set().union(*(delta.written for delta in deltas[first : first + width])))
        for deltas in partitions
        for first in starts
    ) / len(starts)


def _fitted(key_bytes: float, value_bytes: float, files: Sequence[tuple[int, int, int]]) -> TableSize | None:
    """Return the sizes of records that make files as large as these; None without records.

    `files` are the bytes, puts and removals of each file. One factor makes all records larger or smaller than
    planned ones.
    """
    if not files:
        return None
    size_bytes, puts, removals = map(sum, zip(*files, strict=True))
    planned = table_size(key_bytes, value_bytes, puts / len(files))
    own_bytes = size_bytes - len(files) * planned.file_bytes
    if own_bytes <= 0 or not puts:
        return None
    factor = own_bytes / (puts * planned.put_bytes + removals * planned.removal_bytes)
    return TableSize(planned.file_bytes, planned.put_bytes * factor, planned.removal_bytes * factor)


def _oldest_run(store: FoundStore, version: VersionId) -> tuple[int, int]:
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
    oldest = min((restorable.number for restorable in store.contents.lineages.restorable()), default=version)
    return max(1, min(len(batches) - 1, version - oldest + 1))


def _interval_ms(query: Query) -> float:
    """Return the median time between the last batches."""
    times = [at_ms for _, at_ms in sorted(query.logs.end_times_ms().items())][-_MAX_TIMES:]
    steps = [after - before for before, after in pairwise(times) if after > before]
    return median(steps) if steps else INTERVAL_MS
