"""The goals of this store, each computed from a run: measured, met or missed by how much.

`goals_page.txt` declares a goal a row: setting, peer, aim and, in braces, its figure. That is a name of
`_FIGURES` with its arguments, or two of them as a quotient (`:`) or a difference (`-`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.results import CHANGELOG, HDFS, OURS, Ratio, Results
from benchmarks.scenarios import executors, large_store

MISSED = "**missed**"
UNITS = {"GiB": 1 << 30, "MB": 1 << 20, "M": 1e6, "%": 0.01}
"""The units of figures that are not in them already."""
_PEERS = {"hdfs": (HDFS,), "changelog": CHANGELOG}
_ROW = re.compile(r"(?m)^\| (.+) \| (.+) \| (.+) \| \{(.+)\} \|  \|$")


class Outcome(NamedTuple):
    """A goal and its measurement, as the cells of the table; the verdict is empty if there is none."""

    setting: str
    against: str
    aim: str
    measured: str = "not measured"
    verdict: str = ""

    @property
    def met(self) -> bool | None:
        return None if not self.verdict else not self.verdict.startswith(MISSED)


def outcomes(results: Results) -> list[Outcome]:
    """Return every goal, in the order of the table."""
    return [_outcome(*goal, _figure(results, text)) for *goal, text in _declared()]


def _declared() -> list[tuple[str, str, str, str]]:
    return _ROW.findall(Path(__file__).with_name("goals_page.txt").read_text(encoding="utf-8"))


def _outcome(setting: str, against: str, aim: str, figure: Any) -> Outcome:
    """Return the outcome of a goal: its figure is a number, a ratio, or a number with its text."""
    value, text = figure if isinstance(figure, tuple) else (figure, "")
    if value is None:
        return Outcome(setting, against, aim)
    number = value.value if isinstance(value, Ratio) else value
    limit, space, unit = re.findall(r"= ([\d.e+]+)( ?)([^\s\d)]*)", aim)[0]
    number /= UNITS.get(unit, 1)
    is_least = aim.startswith(">=")
    over = float(limit) / number if is_least and number else number / float(limit)
    measured = text or (str(value) if isinstance(value, Ratio) else f"{number:.3g}{space}{unit}")
    verdict = "met" if over <= 1 else f"{MISSED} {over:.1f}x {'short' if is_least else 'over'}"
    return Outcome(setting, against, aim, measured, verdict)


def _figure(results: Results, text: str) -> Any:
    for sign in (" : ", " - "):
        if sign in text:
            first, second = (_figure(results, part) for part in text.split(sign))
            if first is None or second is None:
                return None
            return first - second if sign == " - " else first / second if second else None
    name, _, arguments = text.partition(" ")
    return _FIGURES[name](results, *arguments.split("/"))


def speeds(results: Results) -> Iterator[tuple[str, str, Ratio | None]]:
    """Yield the comparisons of the short page: setting, peer, and the ratio if it was measured."""
    for setting, _, _, text in _declared():
        if text.startswith("speed "):
            yield setting, _PEERS[text.rpartition("/")[2]][0], _figure(results, text)


def _ratio(
    results: Results, scenario: str, case: str, label: str, kind: str, ours: str, peers: str
) -> Ratio | None:
    return results.ratio((scenario, case, label), _PEERS[peers], kind, ours)


def _beyond_copy(results: Results, *step: str) -> tuple[float | None, str]:
    """Return the time of a restore beyond 100 ms as a multiple of a copy, and the time as text."""
    own, copied = (results.median(*step, name) for name in ("total_ms", "copy_ms"))
    return ((own - 100) / copied, f"{own:.3g} ms") if own and copied else (None, "")


def _at_every_age(results: Results, kind: str) -> tuple[float | None, str]:
    """Return the ratio at the age at which the quickest peer comes closest, and that age."""
    ratios = [
        (ratio.value, where[2])
        for where, measured in results.measured()
        for ours in results.step(*where)
        if where[0] == "age" and measured == kind and ours.startswith(OURS)
        if (ratio := results.ratio(where, (HDFS, *CHANGELOG), kind, ours))
    ]
    least, label = min(ratios, default=(None, ""))
    return least, f"{least or 0:.1f}x at least ({label})"


def _predicted(results: Results, near_ms: str) -> tuple[float | None, str]:
    """Return how far the worst prediction is off, in percent, over all restores without local files."""
    apart: list[tuple[float, str]] = []
    for where, kind in results.measured():
        for subject, stats in results.step(*where).items() if kind == "restore" else ():
            metrics = stats.get("restore", {}).get("custom", {}) if subject.startswith(OURS) else {}
            predicted_ms = metrics.get("incrementalRestorePredictedMs")
            if predicted_ms is not None and not metrics.get("incrementalRestoreLocalFiles"):
                phases = (f"incrementalRestore{phase}Ms" for phase in ("Choose", "Fetch", "Verify"))
                measured_ms = sum(metrics.get(phase, 0) for phase in phases)
                off_ms = abs(predicted_ms - measured_ms)
                text = f"{predicted_ms:.0f} ms, was {measured_ms:.0f} ms: {where[1]}, {where[2]}"
                apart.append((0 if off_ms <= float(near_ms) else off_ms / max(1, measured_ms), text))
    largest, text = max(apart, default=(None, ""))
    if largest:
        return largest, f"{largest * 100:.0f} % at most ({text}), {len(apart)} restores"
    return largest, f"{near_ms} ms apart or less in all {len(apart)}"


def native_bytes(results: Results, subject: str, label: str) -> float | None:
    """Return the growth of the JVM beyond its resident heap, and of the agent."""
    empty, full = (results.step("memory", "memory", name).get(subject, {}) for name in ("empty", label))
    if "memory" not in empty or "memory" not in full:
        return None
    before, after = (step["memory"]["jvm_anonymous_bytes"]["median"] for step in (empty, full))
    return float(after - before + full["memory"]["children_pss_bytes"]["median"])


def written_per_changed_byte(results: Results, subject: str, size: str) -> float | None:
    """Return bytes written to checkpoint storage per byte of row written, over the measured batches."""
    case = f"batches of {size}"
    step = results.step("storage", case, f"uniform {size}").get(subject, {})
    if "segments" not in step:
        return None
    rows = step["batch"]["operations"]["median"] * step["segments"]["batches"]
    return float(step["segments"]["total"]["written_bytes"] / (rows * results.row_bytes("storage", case)))


def cpu_seconds(results: Results, scenario: str, case: str, label: str, subject: str) -> float | None:
    """Return CPU seconds of JVM and agent for each batch, maintenance included."""
    segments = results.step(scenario, case, label).get(subject, {}).get("segments")
    return segments and segments["cpu_jvm_s"]["median"] + segments["cpu_children_s"]["median"]


def store_share(results: Results, query: str, subject: str) -> float | None:
    """Return the store's part of a micro-batch.

    It is the time of commits as the query reports them, plus for each written key the time of get and put at
    store level, divided by the time of the tasks: the batch's time on each of two partitions.
    """
    measured = results.scenarios.get("queries", {}).get("queries", {}).get(query, {}).get(subject, {})
    # the smallest batches at store level have the highest figures per key
    steps = (results.step("store", "base", label).get(subject, {}) for label in ("uniform 1k", "uniform 2k"))
    batch = next((step["batch"] for step in steps if "batch" in step), None)
    if "operators" not in measured or batch is None:
        return None
    operators = {name: stats["median"] for name, stats in measured["operators"].items()}
    rows_ms = operators["numRowsUpdated"] * batch["row_us"]["median"] / 1000
    open_ms = operators.get("numStateStoreInstances", 2) * batch["open_ms"]["median"]
    tasks_ms = measured["durations_ms"]["addBatch"]["median"] * 2
    return float((operators["commitTimeMs"] + rows_ms + open_ms) / tasks_ms)


def _of_each(results: Results, name: str, stores: str) -> float | None:
    floor = executors.floor(results, OURS, int(stores))
    figures = floor and {
        "bytes": floor.total_bytes,
        "threads": floor.threads,
        "descriptors": floor.descriptors,
    }
    return figures and figures[name]


_FIGURES: Mapping[str, Callable[..., Any]] = {
    "speed": _ratio,
    "ratio": _ratio,
    "median": Results.median,
    "copy": _beyond_copy,
    "age": _at_every_age,
    "predicted": _predicted,
    "native": native_bytes,
    "written": written_per_changed_byte,
    "cpu": cpu_seconds,
    "share": store_share,
    "of_each": _of_each,
    "agent": lambda results, count: executors.agent_share(results, OURS, int(count)),
    "growth": lambda results, _: large_store.growth(results),
}
