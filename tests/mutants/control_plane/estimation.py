"""Breaks of `state_store/data/estimation`, and of what `stats` tells."""

from __future__ import annotations

from mutants.mutant import Mutant

_ESTIMATION = "state_store/data/estimation"
_HISTORIES = ("tests/data/estimation/test_estimate.py",)
_RUNS = ("tests/data/estimation/test_lsm_model.py",)
_TOUCHES = ("tests/data/estimation/test_touches.py",)
_STATS = ("tests/cli/test_ages.py", "tests/data/dataset/test_expiry.py")

MUTANTS = [
    Mutant(
        "the newest runs of level 0 are compacted with all others",
        f"{_ESTIMATION}/lsm_model.py",
        "        start += 1\n",
        "        pass\n",
        _RUNS,
    ),
    Mutant(
        "runs are merged that are far larger than the younger ones",
        f"{_ESTIMATION}/lsm_model.py",
        "together * (100 + SIZE_RATIO_PERCENT)",
        "together * (200 + SIZE_RATIO_PERCENT)",
        _RUNS,
    ),
    Mutant(
        "deltas are ingested into level 0 alone",
        f"{_ESTIMATION}/lsm_model.py",
        "level = max(0, result[0].level - 1) if result else DEEPEST",
        "level = 0",
        _RUNS,
    ),
    Mutant(
        "the oldest run has only the writes of its batches",
        f"{_ESTIMATION}/simulation.py",
        "puts, removals = (self._keys, 0.0) if oldest else self._last_changes(batches)",
        "puts, removals = self._last_changes(batches)",
        _HISTORIES,
    ),
    Mutant(
        "clean-ups take the deltas of retained versions that have a snapshot",
        f"{_ESTIMATION}/simulation.py",
        "if file.origin < floor or not file.path.startswith(DELTA_DIRECTORY)",
        "if True",
        _HISTORIES,
    ),
    Mutant(
        "no key is written twice in the batches of a run",
        f"{_ESTIMATION}/simulation.py",
        "written = self._touches.distinct(batches)",
        "written = self._touches.distinct(1) * batches",
        _HISTORIES,
    ),
    Mutant(
        "keys are all written alike, whatever the exponent is",
        f"{_ESTIMATION}/touches.py",
        "if exponent == 0 or updates <= 0:",
        "if True:",
        _TOUCHES,
    ),
    Mutant(
        "a key that is removed later counts as written",
        "state_store/data/dataset/stats.py",
        "value is not None and key not in seen",
        "key not in seen",
        _STATS,
    ),
    Mutant(
        "a key counts for every version that wrote it",
        "state_store/data/dataset/stats.py",
        "value is not None and key not in seen",
        "value is not None",
        _STATS,
    ),
    Mutant(
        "rows without a time-out have had their time",
        "state_store/data/dataset/expiry.py",
        "at, least = at - 1, 0",
        "at, least = at - 1, -1",
        _STATS,
    ),
]
