"""The ratios of the last recorded run, and a warning for each that has fallen to less than half since."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.results import Results

FILE = Path(__file__).resolve().parent / "recorded.json"
FALL = 0.5


def write(results: Results, file: Path = FILE) -> None:
    """Keep all ratios of these results by extent, so that quick runs are compared with quick runs."""
    recorded_ratios = read(file)
    recorded_ratios[results.bench] = results.all_ratios()
    file.write_text(json.dumps(recorded_ratios, indent=1, sort_keys=True) + "\n")


def read(file: Path = FILE) -> dict[str, dict[str, float]]:
    return json.loads(file.read_text()) if file.exists() else {}


def warnings(results: Results, file: Path = FILE) -> list[str]:
    """Return a sentence for each ratio that is less than half of the recorded ratio."""
    before = read(file).get(results.bench, {})
    now = results.all_ratios()
    return [
        f"{name} was {before[name]:g}x and is {now[name]:g}x now"
        for name in sorted(before.keys() & now.keys())
        if now[name] < before[name] * FALL
    ]
