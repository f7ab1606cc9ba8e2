"""What restores cost, learned from the measured restores and merges of one store.

Each figure starts from a prior that suits a local disk and moves with what is measured, recent measurements
counting most. Not thread-safe: the caller locks.
"""

from __future__ import annotations

from dataclasses import dataclass

_DECAY = 0.8
_MIB = 1 << 20


class Rate:
    """Milliseconds per unit: a decaying average whose prior counts as `prior_units` of measurement."""

    def __init__(self, prior_ms: float, prior_units: float) -> None:
        self._prior_ms = prior_ms * prior_units
        self._prior_units = prior_units
        self._ms = 0.0
        self._units = 0.0

    def observe(self, units: float, ms: float) -> None:
        """Notes that `units` took `ms`; none tell nothing."""
        if units > 0 and ms >= 0:
            self._ms = self._ms * _DECAY + ms
            self._units = self._units * _DECAY + units

    @property
    def ms_per_unit(self) -> float:
        """The average now, in milliseconds."""
        return (self._prior_ms + self._ms) / (self._prior_units + self._units)


@dataclass(frozen=True)
class RestoreWork:
    """What a restore has to do: SST files and their bytes, and how many of them are deltas to ingest."""

    files: int
    size_bytes: int
    deltas: int


class CostModel:
    """Predicts the time of a restore that finds no local files."""

    def __init__(self) -> None:
        self._choose = Rate(4.0, 1)
        self._file = Rate(0.5, 32)
        self._fetch_mib = Rate(5.0, 16)
        self._verify_mib = Rate(2.5, 16)
        self._open = Rate(8.0, 1)
        self._delta = Rate(1.5, 16)

    def predict_restore_ms(self, work: RestoreWork) -> float:
        """Milliseconds from the listing to the database."""
        mib = work.size_bytes / _MIB
        ingest_ms = self._open.ms_per_unit + work.deltas * self._delta.ms_per_unit if work.deltas else 0.0
        return (
            self._choose.ms_per_unit
            + work.files * self._file.ms_per_unit
            + mib * (self._fetch_mib.ms_per_unit + self._verify_mib.ms_per_unit)
            + ingest_ms
        )

    def observe_choice(self, ms: float) -> None:
        """A listing and the reading of a snapshot's archive took `ms`."""
        self._choose.observe(1, ms)

    def observe_fetch(self, files: int, size_bytes: int, ms: float) -> None:
        """So many files came from storage (or went there, which costs about the same). The time is split
        between files and bytes as the model splits it so far."""
        mib = size_bytes / _MIB
        by_file, by_byte = files * self._file.ms_per_unit, mib * self._fetch_mib.ms_per_unit
        if by_file + by_byte > 0:
            share = by_file / (by_file + by_byte)
            self._file.observe(files, ms * share)
            self._fetch_mib.observe(mib, ms * (1 - share))

    def observe_verification(self, size_bytes: int, ms: float) -> None:
        """The checksums of so many bytes took `ms`."""
        self._verify_mib.observe(size_bytes / _MIB, ms)

    def observe_ingestion(self, deltas: int, ms: float) -> None:
        """A database was opened and so many deltas ingested."""
        if deltas > 0:
            by_delta = max(0.0, ms - self._open.ms_per_unit)
            self._delta.observe(deltas, by_delta)
            self._open.observe(1, ms - by_delta)
