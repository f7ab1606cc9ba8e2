"""Cost model of restores, fitted to the measured restores and merges of one store.

Each figure starts from a prior that suits a local disk and follows the measurements. Recent measurements
weigh most, and the prior fades with them. Not safe for threads: the caller locks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

from state_store.core.planning.request_costs import RemoteTransfers
from state_store.core.planning.restore_work import RestoreWork
from state_store.core.settings.options import AUTO, LAZY, Options

_DECAY = 0.8
_MIB = 1 << 20


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
class Transfers:
    """Time that storage takes for each file and for each MiB, in milliseconds."""

    file_ms: float
    mib_ms: float


@dataclass(frozen=True)
class LazyPolicy:
    """Rule by which a restore is lazy: it fetches only the ends of files before the first batch.

    Attributes:
        least_bytes: bytes of a restore below which it is never lazy.
        objective_ms: time to fetch everything above which it is lazy; 0: always.
        end_bytes: returns the bytes of an end, given the size of its file.
    """

    least_bytes: int
    objective_ms: int
    end_bytes: Callable[[int], int]

    @classmethod
    def of(cls, options: Options, end_bytes: Callable[[int], int]) -> LazyPolicy | None:
        """Return the rule of a query's options, or None if no restore is lazy."""
        objective_ms = {LAZY: 0, AUTO: options.restore_objective_ms or None}.get(options.restore_mode)
        return (
            None
            if objective_ms is None
            else cls(options.lazy_restore_threshold_bytes, objective_ms, end_bytes)
        )


LINKED, COPIED, FETCHED = Transfers(0.015, 0.0005), Transfers(0.1, 0.7), Transfers(0.5, 5.0)
"""Priors for storage on the disk that restores work on, on another disk of this machine, and for remote
storage."""


class CostModel:
    """Model that predicts the time of a restore that finds no local files.

    Args:
        thorough: restores verify each file as a whole, not block by block later.
        is_local: storage is on this machine, so that bytes are not moved.
        transfers: prior of the time that storage takes; None: that of its kind.
        remote: how files are fetched if requests are measured one by one. Once there were requests, they
            predict transfers.

    Attributes:
        ingests: whether restores ingest the deltas into the database; as the last one did.
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
        self.ingests = False
        self.lazy_policy: LazyPolicy | None = None
        self._has_fetched = False
        self._choose = Rate(2.0, 1)
        self._expect_transfers()
        self._check_file = Rate(0.006, 4)
        self._verify_mib = Rate(2.5, 1)
        self._open = Rate(8.0, 1)
        self._delta = Rate(1.5, 4)

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
        if self.ingests and work.deltas:
            predicted_ms += self._open.ms_per_unit + work.deltas * self._delta.ms_per_unit
        return predicted_ms

    def is_lazy(self, work: RestoreWork) -> bool:
        """Return True if a restore that has to fetch these files fetches only their ends at first."""
        policy = None if self.thorough or self._is_local else self.lazy_policy
        if policy is None or not work.files or work.size_bytes < policy.least_bytes:
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

    def observe_ingestion(self, deltas: int, ms: float) -> None:
        """Note that opening a database and ingesting `deltas` deltas took `ms`."""
        if deltas > 0:
            by_delta = max(0.0, ms - self._open.ms_per_unit)
            self._delta.observe(deltas, by_delta)
            self._open.observe(1, ms - by_delta)
