"""Counts of the harms done to files in a run, and of their outcomes."""

from __future__ import annotations

from collections import Counter

harms: Counter[tuple[str, str]] = Counter()
"""By kind of file and kind of harm."""

outcomes: Counter[str] = Counter()
"""Counts by outcome. Restores end `exact`, `exact by another way` or `refused`; tests name the others."""


def lines() -> list[str]:
    """For people; none where nothing was harmed."""
    if not harms:
        return []
    by_harm: Counter[str] = Counter()
    for (_, harm), count in harms.items():
        by_harm[harm] += count
    kinds = sorted({kind for kind, _ in harms})
    return [
        f"{sum(harms.values())} harms on {len(kinds)} kinds of files ({', '.join(kinds)}): "
        + ", ".join(f"{count} {harm}" for harm, count in sorted(by_harm.items())),
        "outcomes: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())),
    ]
