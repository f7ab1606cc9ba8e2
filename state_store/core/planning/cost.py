"""What restores cost, learned from the measured restores and merges of one store.

Each figure starts from a prior that suits a local disk and moves with what is measured, recent measurements
counting most; the prior fades with them. Not thread-safe: the caller locks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

from state_store.core.planning.requests import FarStorage
from state_store.core.planning.restore_work import RestoreWork
from state_store.core.settings.options import AUTO, LAZY, Options

_DECAY = 0.8
_MIB = 1 << 20


class Rate:
    """Milliseconds (or another count) per unit: a decaying average whose prior counts as `prior_units`."""

    def __init__(self, prior_ms: float, prior_units: float) -> None:
        self._ms = prior_ms * prior_units
        self._units = prior_units

    def observe(self, units: float, ms: float) -> None:
        """Notes that `units` took `ms`; none tell nothing."""
        if units > 0 and ms >= 0:
            self._ms = self._ms * _DECAY + ms
            self._units = self._units * _DECAY + units

    @property
    def ms_per_unit(self) -> float:
        """The average now, in milliseconds."""
        return self._ms / self._units


@dataclass(frozen=True)
class Transfers:
    """What storage takes for each file and for each MiB, in milliseconds."""

    file_ms: float
    mib_ms: float


@dataclass(frozen=True)
class Laziness:
    """Restores of `least_bytes` bytes or more fetch only ends of files, where fetching all would take longer
    than `within_ms`; `end_bytes`: how much of a file that is, by its size.
    """

    least_bytes: int
    within_ms: int
    end_bytes: Callable[[int], int]

    @classmethod
    def of(cls, options: Options, end_bytes: Callable[[int], int]) -> Laziness | None:
        """As a query's options say; None where no restore is lazy."""
        within_ms = {LAZY: 0, AUTO: options.restore_objective_ms or None}.get(options.restore_mode)
        return None if within_ms is None else cls(options.lazy_restore_threshold_bytes, within_ms, end_bytes)


LINKED, COPIED, FETCHED = Transfers(0.06, 0.0005), Transfers(0.1, 0.7), Transfers(0.5, 5.0)
"""What is expected of storage of this machine, on the disk that restores work on or another, and of another
machine's."""


class CostModel:
    """Predicts the time of a restore that finds no local files.

    `is_local`: storage is of this machine, so that bytes are not moved; `transfers`: what storage takes,
    where that is known before anything was measured. `thorough`: restores verify each
    file as a whole, and not block by block later. `ingests`: they make the deltas part of the database, and
    do not leave them beside it; as the last one did. `laziness`: which of them only fetch what the first row
    takes, and what that is; None: none does. `far`: how files come from there, where requests are measured
    one by one: once there were some, these tell what a transfer takes.
    """

    def __init__(
        self,
        *,
        thorough: bool = False,
        is_local: bool = False,
        transfers: Transfers | None = None,
        far: FarStorage | None = None,
    ) -> None:
        self._is_local = is_local
        self._far = far
        self._expected = transfers or (LINKED if is_local else FETCHED)
        self.thorough = thorough
        self.ingests = False
        self.laziness: Laziness | None = None
        self._has_fetched = False
        self._choose = Rate(2.0, 1)
        self._expect_transfers()
        self._check_file = Rate(0.02, 4)
        self._verify_mib = Rate(2.5, 1)
        self._open = Rate(8.0, 1)
        self._delta = Rate(1.5, 4)

    def frozen(self) -> CostModel:
        """As it is before the next restore, whose requests do not move it."""
        model = copy.copy(self)
        if self._far is not None:
            model._far = replace(self._far, times=self._far.times.copy())
        return model

    def predict_restore_ms(self, work: RestoreWork) -> float:
        """Milliseconds from the listing to the database."""
        predicted_ms = (
            self._choice_requests_ms(work.archives) + self._choose.ms_per_unit + self._fetch_ms(work)
        )
        if self.thorough:
            predicted_ms += work.size_bytes / _MIB * self._verify_mib.ms_per_unit
        else:
            predicted_ms += work.files * self._check_file.ms_per_unit
        if self.ingests and work.deltas:
            predicted_ms += self._open.ms_per_unit + work.deltas * self._delta.ms_per_unit
        return predicted_ms

    def is_lazy(self, work: RestoreWork) -> bool:
        """Whether a restore that has to fetch these files only fetches what the first row takes."""
        lazily = None if self.thorough or self._is_local else self.laziness
        if lazily is None or not work.files or work.size_bytes < lazily.least_bytes:
            return False
        return not lazily.within_ms or self._fetch_all_ms(work) > lazily.within_ms

    def _fetch_ms(self, work: RestoreWork) -> float:
        lazily = self.laziness
        if lazily is None or not self.is_lazy(work):
            return self._fetch_all_ms(work)
        if (far := self._measured) is not None:
            return far.ends_ms(*work.sizes, lazily.end_bytes, self._stream_mib_ms(far))
        ends_bytes = work.files * lazily.end_bytes(work.size_bytes // work.files)
        return self._transfer_ms(work.files, ends_bytes)

    def _fetch_all_ms(self, work: RestoreWork) -> float:
        if (far := self._measured) is not None:
            tables, deltas = work.sizes
            return far.files_ms((*tables, *deltas), self._stream_mib_ms(far))
        return self._transfer_ms(work.files, work.size_bytes)

    def _transfer_ms(self, files: int, size_bytes: int) -> float:
        return files * self._file.ms_per_unit + size_bytes / _MIB * self._fetch_mib.ms_per_unit

    @property
    def _measured(self) -> FarStorage | None:
        return self._far if self._far is not None and self._far.times.are_known else None

    def _stream_mib_ms(self, far: FarStorage) -> float:
        """What is expected of one of the streams that are under way together."""
        return far.threads * self._fetch_mib.ms_per_unit

    def _choice_requests_ms(self, archives: int) -> float:
        far = self._measured
        return 0.0 if far is None else far.choice_ms(archives)

    def observe_choice(self, ms: float, archives: int = 1) -> None:
        """Listings and the reading of this many snapshots' archives took `ms`."""
        self._choose.observe(1, max(0.0, ms - self._choice_requests_ms(archives)))

    def observe_upload(self, files: int, size_bytes: int, ms: float) -> None:
        """This many files went to storage: until one has come back, that tells best what it will cost."""
        if not self._has_fetched and not self._is_local:
            self._observe_transfer(files, size_bytes, ms)

    def _expect_transfers(self) -> None:
        """Starts from the prior."""
        self._file = Rate(self._expected.file_ms, 4)
        self._fetch_mib = Rate(self._expected.mib_ms, 1)

    def observe_fetch(self, files: int, size_bytes: int, ms: float) -> None:
        """This many files came from storage."""
        if files == 0:
            return
        if not self._has_fetched:
            self._has_fetched = True
            self._expect_transfers()
        self._observe_transfer(files, size_bytes, ms)

    def _observe_transfer(self, files: int, size_bytes: int, ms: float) -> None:
        """The time is split between files and bytes as the model splits it so far."""
        mib = size_bytes / _MIB
        by_file, by_byte = files * self._file.ms_per_unit, mib * self._fetch_mib.ms_per_unit
        if by_file + by_byte > 0:
            share = by_file / (by_file + by_byte)
            self._file.observe(files, ms * share)
            self._fetch_mib.observe(mib, ms * (1 - share))

    def observe_verification(self, files: int, size_bytes: int, ms: float, *, thorough: bool) -> None:
        """The checksums of this many files took `ms`, of all their bytes where `thorough`."""
        if thorough:
            self._verify_mib.observe(size_bytes / _MIB, ms)
        else:
            self._check_file.observe(files, ms)

    def observe_ingestion(self, deltas: int, ms: float) -> None:
        """A database was opened and this many deltas ingested."""
        if deltas > 0:
            by_delta = max(0.0, ms - self._open.ms_per_unit)
            self._delta.observe(deltas, by_delta)
            self._open.observe(1, ms - by_delta)
