"""What restores cost, learned from the measured restores and merges of one store.

Each figure starts from a prior that suits a local disk and moves with what is measured, recent measurements
counting most; the prior fades with them. Not thread-safe: the caller locks.
"""

from __future__ import annotations

from dataclasses import dataclass

_DECAY = 0.8
_MIB = 1 << 20


class Rate:
    """Milliseconds per unit: a decaying average whose prior counts as `prior_units` measured at first."""

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
class RestoreWork:
    """What a restore has to do: SST files and their bytes, and how many of them are deltas to ingest."""

    files: int
    size_bytes: int
    deltas: int


@dataclass(frozen=True)
class Transfers:
    """What storage takes for each file and for each MiB, in milliseconds."""

    file_ms: float
    mib_ms: float


LINKED, COPIED, FETCHED = Transfers(0.1, 0.005), Transfers(0.1, 0.7), Transfers(0.5, 5.0)
"""What is expected of storage of this machine, on the disk that restores work on or another, and of another
machine's."""


class CostModel:
    """Predicts the time of a restore that finds no local files.

    `is_local`: storage is of this machine, so that bytes are not moved; `transfers`: what storage takes,
    where that is known before anything was measured. `thorough`: restores verify each
    file as a whole, and not block by block later. `ingests`: they make the deltas part of the database, and
    do not leave them beside it; as the last one did.
    """

    def __init__(
        self, *, thorough: bool = False, is_local: bool = False, transfers: Transfers | None = None
    ) -> None:
        self._is_local = is_local
        self._expected = transfers or (LINKED if is_local else FETCHED)
        self.thorough = thorough
        self.ingests = False
        self._has_fetched = False
        self._choose = Rate(4.0, 1)
        self._expect_transfers()
        self._check_file = Rate(0.1, 4)
        self._verify_mib = Rate(2.5, 1)
        self._open = Rate(8.0, 1)
        self._delta = Rate(1.5, 4)

    def predict_restore_ms(self, work: RestoreWork) -> float:
        """Milliseconds from the listing to the database."""
        mib = work.size_bytes / _MIB
        predicted_ms = (
            self._choose.ms_per_unit + work.files * self._file.ms_per_unit + mib * self._fetch_mib.ms_per_unit
        )
        if self.thorough:
            predicted_ms += mib * self._verify_mib.ms_per_unit
        else:
            predicted_ms += work.files * self._check_file.ms_per_unit
        if self.ingests and work.deltas:
            predicted_ms += self._open.ms_per_unit + work.deltas * self._delta.ms_per_unit
        return predicted_ms

    def observe_choice(self, ms: float) -> None:
        """A listing and the reading of a snapshot's archive took `ms`."""
        self._choose.observe(1, ms)

    def observe_upload(self, files: int, size_bytes: int, ms: float) -> None:
        """So many files went to storage: until one has come from there, that tells best what it will cost."""
        if not self._has_fetched and not self._is_local:
            self._observe_transfer(files, size_bytes, ms)

    def _expect_transfers(self) -> None:
        """Starts from the prior."""
        self._file = Rate(self._expected.file_ms, 4)
        self._fetch_mib = Rate(self._expected.mib_ms, 1)

    def observe_fetch(self, files: int, size_bytes: int, ms: float) -> None:
        """So many files came from storage."""
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
        """The checksums of so many files took `ms`, of all their bytes where `thorough`."""
        if thorough:
            self._verify_mib.observe(size_bytes / _MIB, ms)
        else:
            self._check_file.observe(files, ms)

    def observe_ingestion(self, deltas: int, ms: float) -> None:
        """A database was opened and so many deltas ingested."""
        if deltas > 0:
            by_delta = max(0.0, ms - self._open.ms_per_unit)
            self._delta.observe(deltas, by_delta)
            self._open.observe(1, ms - by_delta)
