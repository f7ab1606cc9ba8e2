"""Cost model of restores, fitted to the measured restores and merges of one store.

`RestoreWork` is what is known of a restore beforehand: the number of its files and their sizes. A `CostModel`
predicts its time.

Each figure starts from a prior that suits a local disk and follows the measurements. Recent measurements
weigh most, and the prior fades with them.

Of remote storage the requests are measured (`RequestTimes`). A request takes a fixed time, which depends on
its kind, and a time for each byte. A regression over the requests of all kinds that carry bytes finds both.
Requests are measured while others run, so the times include a network or a service that they share.
`RemoteTransfers` are the times of many requests together.

Not safe for threads, but for `RequestTimes`: the caller locks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from state_store.core.checkpoint.lineage import Chain
from state_store.core.checkpoint.stored_documents import FULL
from state_store.core.settings.options import AUTO, FILES, LAZY, Options

LIST, READ, DOWNLOAD, PART = "list", "read", "download", "part"
"""Kinds of requests: a listing, a file into memory, a file to disk, a part of a file to disk."""

SMALL_AT_ONCE = 2
"""Small requests that run at once for each large one: they wait for the storage, not for bytes."""

_OPENS = 2
"""Listings that take as long as a read: a read asks for the file first, and then for its bytes."""

_LEASE_REQUESTS = 4
"""Requests for the lease on files that stay remote: a write and three listings, each as long as a listing."""
_PRIOR_WEIGHT = 1.0
"""Weight of the prior rate in the regression, as a sum of squared deviations of sizes, in MiB^2."""

_REQUEST_DECAY = 0.97
_MIB = 1 << 20

_DECAY = 0.8


@dataclass(frozen=True)
class RestoreWork:
    """Files that a restore fetches.

    Attributes:
        files: number of SST files.
        size_bytes: their bytes.
        deltas: how many of them are deltas.
        archives: number of snapshots' archives that are read first.
        table_sizes: bytes of each table of the snapshot; None: all files are as large as the average.
        delta_sizes: bytes of each delta, in the same way.
    """

    files: int
    size_bytes: int
    deltas: int
    archives: int = 1
    table_sizes: Sequence[int] | None = None
    delta_sizes: Sequence[int] | None = None

    @classmethod
    def of_sizes(
        cls, table_sizes: Sequence[int], delta_sizes: Sequence[int], *, archives: int = 1
    ) -> RestoreWork:
        """Return the work on tables and deltas of these sizes, in bytes."""
        return cls(
            len(table_sizes) + len(delta_sizes),
            sum(table_sizes) + sum(delta_sizes),
            len(delta_sizes),
            archives,
            table_sizes,
            delta_sizes,
        )

    @classmethod
    def of_chain(cls, chain: Chain) -> RestoreWork:
        """Return the work on all files of the chain."""
        snapshot = chain.snapshot
        knows_full = snapshot is not None and snapshot.kind != FULL and chain.full_snapshot is not None
        archives = (snapshot is not None) + knows_full
        return cls.of_sizes(
            [file.size_bytes for file in snapshot.files] if snapshot else [],
            [delta.size_bytes for delta in chain.deltas],
            archives=archives,
        )

    @property
    def sizes(self) -> tuple[Sequence[int], Sequence[int]]:
        """Bytes of each table and of each delta."""
        if self.table_sizes is None or self.delta_sizes is None:
            average = self.size_bytes // max(1, self.files)
            return [average] * (self.files - self.deltas), [average] * self.deltas
        return self.table_sizes, self.delta_sizes


@dataclass(frozen=True)
class Transfers:
    """Time that storage takes for each file and for each MiB, in milliseconds."""

    file_ms: float
    mib_ms: float


LINKED, COPIED, FETCHED = Transfers(0.015, 0.0005), Transfers(0.1, 0.7), Transfers(0.5, 5.0)
"""Priors for storage on the disk that restores work on, on another disk of this machine, and for remote
storage."""


@dataclass
class _Sums:
    """Sums over the requests of a kind: number, MiB, milliseconds, and the products for a regression."""

    count: float = 0.0
    mib: float = 0.0
    ms: float = 0.0
    mib_mib: float = 0.0
    mib_ms: float = 0.0

    def add(self, mib: float, ms: float) -> None:
        self.count = self.count * _REQUEST_DECAY + 1
        self.mib = self.mib * _REQUEST_DECAY + mib
        self.ms = self.ms * _REQUEST_DECAY + ms
        self.mib_mib = self.mib_mib * _REQUEST_DECAY + mib * mib
        self.mib_ms = self.mib_ms * _REQUEST_DECAY + mib * ms


@dataclass(frozen=True)
class RequestLine:
    """Time of requests of a kind: `request_ms`, and `mib_ms` for each MiB."""

    request_ms: float
    mib_ms: float

    def ms(self, size_bytes: float) -> float:
        """Return the time of a request for this many bytes."""
        return self.request_ms + size_bytes / _MIB * self.mib_ms


class RequestTimes:
    """Times of the requests to one storage, shared by all stores of a process. Safe for any thread.

    Args:
        lock: is held during each access.
    """

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        self._sums: dict[str, _Sums] = {}
        self._ends, self._end_requests = 1.0, 1.0

    def observe(self, kind: str, size_bytes: int, ms: float) -> None:
        """Note that a request fetched this many bytes in `ms`."""
        with self._lock:
            self._sums.setdefault(kind, _Sums()).add(size_bytes / _MIB, ms)

    def observe_ends(self, files: int, requests: int) -> None:
        """Note that the ends of `files` files (one or more) took this many requests, one or two for each."""
        with self._lock:
            self._ends = self._ends * _REQUEST_DECAY + files
            self._end_requests = self._end_requests * _REQUEST_DECAY + requests

    @property
    def requests_per_end(self) -> float:
        """Average number of requests for the end of a file."""
        with self._lock:
            return self._end_requests / self._ends

    @property
    def are_known(self) -> bool:
        """True once a request was noted."""
        return bool(self._sums)

    def copy(self) -> RequestTimes:
        """Return a copy that later requests do not change."""
        with self._lock:
            other_times = RequestTimes(self._lock)
            other_times._sums = copy.deepcopy(self._sums)
            other_times._ends, other_times._end_requests = self._ends, self._end_requests
            return other_times

    def line(self, kind: str, expected_mib_ms: float) -> RequestLine:
        """Return the time of requests of that kind; for a kind that was not noted, that of the others.

        Args:
            kind: the kind of the requests.
            expected_mib_ms: prior of the time for each MiB.
        """
        with self._lock:
            own, listed = self._sums.get(kind), self._sums.get(LIST)
            if kind == LIST:
                return RequestLine(own.ms / own.count if own else 0.0, 0.0)
            carried = [sums for name, sums in self._sums.items() if name != LIST]
            mib_ms = _slope(carried, expected_mib_ms)
            measured_sums = [own] if own else carried
            if measured_sums:
                count, mib, ms = (
                    sum(getattr(sums, of) for sums in measured_sums) for of in ("count", "mib", "ms")
                )
                request_ms = (ms - mib * mib_ms) / count
                return RequestLine(request_ms, mib_ms) if request_ms >= 0 else RequestLine(0.0, ms / mib)
            return RequestLine(_OPENS * listed.ms / listed.count if listed else 0.0, mib_ms)


def _slope(carried: Sequence[_Sums], expected_mib_ms: float) -> float:
    """Return milliseconds per MiB, 0 or more; the prior weighs as much as a few small requests."""
    count, mib, ms, mib_mib, mib_ms = (
        sum(getattr(sums, of) for sums in carried) for of in ("count", "mib", "ms", "mib_mib", "mib_ms")
    )
    if not count:
        return expected_mib_ms
    spread, common = mib_mib - mib * mib / count, mib_ms - mib * ms / count
    return max(0.0, (common + _PRIOR_WEIGHT * expected_mib_ms) / (max(0.0, spread) + _PRIOR_WEIGHT))


@dataclass(frozen=True)
class RemoteTransfers:
    """Model of fetches from remote storage: the way that files come and the time that it takes.

    Attributes:
        times: times of the requests.
        threads: requests at a time.
        part_bytes: larger files are fetched in parts of about this size.
        min_sparse_bytes: a lazy restore fetches smaller deltas as a whole.
    """

    times: RequestTimes
    threads: int
    part_bytes: int
    min_sparse_bytes: int

    def choice_ms(self, archives: int, *, is_lazy: bool = False) -> float:
        """Return the time until it is known which files are needed: two listings and the first archive.

        Other archives are read while files are fetched. A lazy restore takes a lease on the files, too.
        """
        archive_ms = self.times.line(READ, 0.0).request_ms if archives else 0.0
        requests = 2 + _LEASE_REQUESTS * is_lazy
        return requests * self.times.line(LIST, 0.0).request_ms + archive_ms

    def files_ms(self, sizes: Iterable[int], stream_mib_ms: float) -> float:
        """Return the time to fetch files of these sizes (bytes) as a whole."""
        file_sizes = list(sizes)
        large = [size for size in file_sizes if size > self.part_bytes]
        small = [size for size in file_sizes if size <= self.part_bytes]
        parts = sum(max(1, (size + self.part_bytes // 2) // self.part_bytes) for size in large)
        part, file = (self.times.line(kind, stream_mib_ms) for kind in (PART, DOWNLOAD))
        part_ms, small_ms = part.ms(sum(large) / max(1, parts)), file.ms(sum(small) / max(1, len(small)))
        longest_ms = part.ms(self.part_bytes) if large else file.ms(max(small, default=0)) if small else 0.0
        return max(longest_ms, _rounds_ms(self.threads, parts, part_ms, len(small), small_ms))

    def ends_ms(
        self,
        tables: Sequence[int],
        deltas: Sequence[int],
        end_bytes: Callable[[int], int],
        stream_mib_ms: float,
    ) -> float:
        """Return the time to fetch the ends of files of these sizes (bytes), and small deltas as a whole."""
        sparse = [*tables, *(size for size in deltas if size >= self.min_sparse_bytes)]
        small = [size for size in deltas if size < self.min_sparse_bytes]
        line, more = self.times.line(PART, stream_mib_ms), self.times.requests_per_end - 1
        ends_ms = [line.ms(end_bytes(size)) + more * line.request_ms for size in sparse]
        average_ms = sum(ends_ms) / max(1, len(ends_ms))
        at_once = SMALL_AT_ONCE * self.threads
        small_ms = self.files_ms(small, stream_mib_ms) if small else 0.0
        return max(_rounds_ms(at_once, len(sparse), average_ms, 0, 0.0), small_ms, *ends_ms)


def _rounds_ms(threads: int, large: int, large_ms: float, small: int, small_ms: float) -> float:
    """Return the time until all requests are done, `threads` at a time, the large ones first."""
    rounds, rest = divmod(large, threads)
    taken_ms = rounds * large_ms
    if rest:
        meanwhile = (threads - rest) * round(large_ms / small_ms) if small and small_ms > 0 else small
        taken_ms += large_ms
        small = max(0, small - meanwhile)
    return taken_ms + -(-small // threads) * small_ms


class Rate:
    """A decaying average of milliseconds per unit; the prior weighs as much as `prior_units` units."""

    def __init__(self, prior_ms: float, prior_units: float) -> None:
        self._ms = prior_ms * prior_units
        self._units = prior_units

    def observe(self, units: float, ms: float) -> None:
        """Note that `units` took `ms`; 0 units change nothing."""
        if units > 0 and ms >= 0:
            self._ms = self._ms * _DECAY + ms
            self._units = self._units * _DECAY + units

    @property
    def ms_per_unit(self) -> float:
        """The average now."""
        return self._ms / self._units


@dataclass(frozen=True)
class LazyPolicy:
    """Rule by which a restore is lazy: it fetches only the ends of files before the first batch.

    Attributes:
        objective_ms: time to fetch everything above which it is lazy; 0: always.
        end_bytes: returns the bytes of an end, given the size of its file.
    """

    objective_ms: int
    end_bytes: Callable[[int], int]

    @classmethod
    def of(cls, options: Options, end_bytes: Callable[[int], int]) -> LazyPolicy | None:
        """Return the rule of a query's options, or None if no restore is lazy."""
        objective_ms = {LAZY: 0, AUTO: options.restore_objective_ms or None}.get(options.restore_mode)
        return None if objective_ms is None else cls(objective_ms, end_bytes)


class CostModel:
    """Model that predicts the time of a restore that finds no local files.

    Args:
        thorough: restores verify each file as a whole, not block by block later.
        is_local: storage is on this machine, so that bytes are not moved.
        transfers: prior of the time that storage takes; None: that of its kind.
        remote: how files are fetched if requests are measured one by one. Once there were requests, they
            predict transfers.

    Attributes:
        lazy_policy: rule by which restores are lazy; None: none is.
    """

    def __init__(
        self,
        *,
        thorough: bool = False,
        is_local: bool = False,
        transfers: Transfers | None = None,
        remote: RemoteTransfers | None = None,
    ) -> None:
        self._is_local = is_local
        self._remote = remote
        self._expected = transfers or (LINKED if is_local else FETCHED)
        self.thorough = thorough
        self.lazy_policy: LazyPolicy | None = None
        self._has_fetched = False
        self._choose = Rate(2.0, 1)
        self._expect_transfers()
        self._check_file = Rate(0.006, 4)
        self._verify_mib = Rate(2.5, 1)

    def follow(self, options: Options, end_bytes: Callable[[int], int]) -> None:
        """Predict restores of a query with these options; `end_bytes` is that of `LazyPolicy`."""
        self.thorough = options.restore_verification == FILES
        self.lazy_policy = LazyPolicy.of(options, end_bytes)

    def frozen(self) -> CostModel:
        """Return a copy of the model that requests to come do not change."""
        model = copy.copy(self)
        if self._remote is not None:
            model._remote = replace(self._remote, times=self._remote.times.copy())
        return model

    def predict_restore_ms(self, work: RestoreWork) -> float:
        """Return the predicted milliseconds from the listing to the database."""
        requests_ms = self._choice_requests_ms(work.archives, is_lazy=self.is_lazy(work))
        predicted_ms = requests_ms + self._choose.ms_per_unit + self._fetch_ms(work)
        if self.thorough:
            predicted_ms += work.size_bytes / _MIB * self._verify_mib.ms_per_unit
        else:
            predicted_ms += work.files * self._check_file.ms_per_unit
        return predicted_ms

    def is_lazy(self, work: RestoreWork) -> bool:
        """Return True if a restore that has to fetch these files fetches only their ends at first."""
        policy = None if self.thorough or self._is_local else self.lazy_policy
        if policy is None or not work.files:
            return False
        return not policy.objective_ms or self._fetch_all_ms(work) > policy.objective_ms

    def _fetch_ms(self, work: RestoreWork) -> float:
        policy = self.lazy_policy
        if policy is None or not self.is_lazy(work):
            return self._fetch_all_ms(work)
        if (remote := self._measured) is not None:
            return remote.ends_ms(*work.sizes, policy.end_bytes, self._stream_mib_ms(remote))
        ends_bytes = work.files * policy.end_bytes(work.size_bytes // work.files)
        return self._transfer_ms(work.files, ends_bytes)

    def _fetch_all_ms(self, work: RestoreWork) -> float:
        if (remote := self._measured) is not None:
            tables, deltas = work.sizes
            return remote.files_ms((*tables, *deltas), self._stream_mib_ms(remote))
        return self._transfer_ms(work.files, work.size_bytes)

    def _transfer_ms(self, files: int, size_bytes: int) -> float:
        return files * self._file.ms_per_unit + size_bytes / _MIB * self._fetch_mib.ms_per_unit

    @property
    def _measured(self) -> RemoteTransfers | None:
        return self._remote if self._remote is not None and self._remote.times.are_known else None

    def _stream_mib_ms(self, remote: RemoteTransfers) -> float:
        """Return the prior time per MiB of one of the streams that share the bandwidth."""
        return remote.threads * self._fetch_mib.ms_per_unit

    def _choice_requests_ms(self, archives: int, *, is_lazy: bool) -> float:
        remote = self._measured
        return 0.0 if remote is None else remote.choice_ms(archives, is_lazy=is_lazy)

    def observe_choice(self, ms: float, archives: int = 1, *, is_lazy: bool = False) -> None:
        """Note that listings, this many snapshots' archives and, if lazy, the lease on files took `ms`."""
        self._choose.observe(1, max(0.0, ms - self._choice_requests_ms(archives, is_lazy=is_lazy)))

    def observe_upload(self, files: int, size_bytes: int, ms: float) -> None:
        """Note an upload: until the first fetch, uploads predict fetches best."""
        if not self._has_fetched and not self._is_local:
            self._observe_transfer(files, size_bytes, ms)

    def _expect_transfers(self) -> None:
        """Go back to the prior."""
        self._file = Rate(self._expected.file_ms, 4)
        self._fetch_mib = Rate(self._expected.mib_ms, 1)

    def observe_fetch(self, files: int, size_bytes: int, ms: float) -> None:
        """Note that `files` files were fetched from storage."""
        if files == 0:
            return
        if not self._has_fetched:
            self._has_fetched = True
            self._expect_transfers()
        self._observe_transfer(files, size_bytes, ms)

    def _observe_transfer(self, files: int, size_bytes: int, ms: float) -> None:
        """Split the time between files and bytes in the proportion that the model has now."""
        mib = size_bytes / _MIB
        by_file, by_byte = files * self._file.ms_per_unit, mib * self._fetch_mib.ms_per_unit
        if by_file + by_byte > 0:
            share = by_file / (by_file + by_byte)
            self._file.observe(files, ms * share)
            self._fetch_mib.observe(mib, ms * (1 - share))

    def observe_verification(self, files: int, size_bytes: int, ms: float, *, thorough: bool) -> None:
        """Note that verifying `files` files took `ms`; all their bytes were read if `thorough`."""
        if thorough:
            self._verify_mib.observe(size_bytes / _MIB, ms)
        else:
            self._check_file.observe(files, ms)
