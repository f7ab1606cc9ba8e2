"""The page of goals, each computed from a run: measured, met or missed by how much.

`goals_page.txt` declares a goal a row: setting, peer, aim and, in braces, its figure. That is a name of
`_FIGURES` with its arguments, or two of them as a quotient (`:`) or a difference (`-`). Below the rows it has
the reasons for missed goals by their settings, results of profiles of this store (JFR at 5 ms, clocks around
each phase of a commit). The page shows those whose goals a run misses.
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
_HEAD, _TABLE, _WHY, *_REASONS = re.split(
    r"\n\n(?=\||Why|\*)", Path(__file__).with_name("goals_page.txt").read_text(encoding="utf-8")
)
_GOALS: list[tuple[str, str, str, str]] = re.findall(
    r"(?m)^\| (.+) \| (.+) \| (.+) \| \{(.+)\} \|  \|$", _TABLE
)
_OUTCOME = re.compile(r"(?m)^\| (.+) \| (.+) \| (.+) \| (.+) \| ((?:met|\*\*missed\*\*).*) \|$")
REASONS = dict(re.findall(r"\*(.+?)\*: (.+)", "\n".join(" ".join(text.split()) for text in _REASONS)))
"""The reasons for missed goals by setting."""


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


def page(results: Results, earlier: str = "") -> str:
    """Return the page. An unmeasured goal stays as an earlier page has it, if its aim is the same."""
    if results.bench == "quick":
        return f"{_HEAD}\n\nThe goals are for states that this extent is too small for.\n"
    earlier_outcomes = {cells[:3]: Outcome(*cells) for cells in _OUTCOME.findall(earlier)}
    judged = [
        earlier_outcomes.get(outcome[:3], outcome) if outcome.met is None else outcome
        for outcome in outcomes(results)
    ]
    rows = [*_TABLE.splitlines()[:2], *(f"| {' | '.join(outcome)} |" for outcome in judged)]
    missed = {outcome.setting for outcome in judged if outcome.met is False}
    reasons = [f"- *{setting}*: {text}" for setting, text in REASONS.items() if setting in missed]
    return "\n".join([_HEAD, "", *rows, *(["", _WHY, "", *reasons] if reasons else []), ""])


def outcomes(results: Results) -> list[Outcome]:
    """Return every goal, in the order of the table."""
    return [_outcome(*goal, _figure(results, text)) for *goal, text in _GOALS]


def speeds(results: Results) -> Iterator[tuple[str, str, Ratio | None]]:
    """Yield the comparisons of the short page: setting, peer, and the ratio if it was measured."""
    for setting, _, _, text in _GOALS:
        if text.startswith("speed "):
            yield setting, _PEERS[text.rpartition("/")[2]][0], _figure(results, text)


def _outcome(setting: str, against: str, aim: str, figure: Any) -> Outcome:
    if figure is None:
        return Outcome(setting, against, aim)
    number, text = figure if isinstance(figure, tuple) else (figure, "")
    if isinstance(number, Ratio):
        number, text = number.value, str(number)
    limit, space, unit = re.findall(r"= ([\d.e+]+)( ?)([^\s\d)]*)", aim)[0]
    number /= UNITS.get(unit, 1)
    is_least = aim.startswith(">=")
    over = float(limit) / number if is_least and number else number / float(limit)
    verdict = "met" if over <= 1 else f"{MISSED} {over:.1f}x {'short' if is_least else 'over'}"
    return Outcome(setting, against, aim, text or f"{number:.3g}{space}{unit}", verdict)


def _figure(results: Results, text: str) -> Any:
    """Return a figure: a number, a ratio, or a number with its text; None if a part was not measured."""
    for sign in (" : ", " - "):
        if sign in text:
            first, second = (_figure(results, part) for part in text.split(sign))
            if first is None or second is None:
                return None
            return first - second if sign == " - " else first / second if second else None
    name, _, arguments = text.partition(" ")
    return measured(_FIGURES[name], results, *arguments.split("/"))


def measured(figure: Callable[..., Any], *arguments: Any) -> Any:
    """Return a figure; None if the results lack a number that it needs."""
    try:
        return figure(*arguments)
    except KeyError:
        return None


def _ratio(
    results: Results, scenario: str, case: str, label: str, kind: str, ours: str, peers: str
) -> Ratio | None:
    return results.ratio((scenario, case, label), _PEERS[peers], kind, ours)


def _beyond_copy(results: Results, *step: str) -> tuple[float, str] | None:
    """Return the time of a restore beyond 100 ms as a multiple of a copy, and the time as text."""
    own, copied = (results.median(*step, name) for name in ("total_ms", "copy_ms"))
    return ((own - 100) / copied, f"{own:.3g} ms") if own and copied else None


def _at_every_age(results: Results, kind: str) -> tuple[float, str] | None:
    """Return the ratio at the age at which the quickest peer comes closest, and that age."""
    ratios = [
        (ratio.value, f"{ratio.value:.1f}x at least ({where[2]})")
        for where, measured_kind in results.measured()
        for ours in results.step(*where)
        if where[0] == "age" and measured_kind == kind and ours.startswith(OURS)
        if (ratio := results.ratio(where, (HDFS, *CHANGELOG), kind, ours))
    ]
    return min(ratios, default=None)


def _predicted(results: Results, near_ms: str) -> tuple[float, str] | None:
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
    return None if largest is None else (largest, f"{near_ms} ms apart or less in all {len(apart)}")


def _native_bytes(results: Results, scenario: str, case: str, label: str, subject: str) -> float:
    """Return the growth of the JVM beyond its resident heap, and of the agent, since the step `empty`."""
    empty, full = (results.stats(scenario, case, name, subject)["memory"] for name in ("empty", label))
    growth = full["jvm_anonymous_bytes"]["median"] - empty["jvm_anonymous_bytes"]["median"]
    return float(growth + full["children_pss_bytes"]["median"])


def _cpu_seconds(results: Results, *step: str) -> float:
    """Return CPU seconds of JVM and agent for each batch, maintenance included."""
    segments = results.stats(*step)["segments"]
    return float(segments["cpu_jvm_s"]["median"] + segments["cpu_children_s"]["median"])


def _store_share(results: Results, *query: str) -> float:
    """Return the store's part of a micro-batch.

    It is the time of commits as the query reports them, plus for each written key the time of get and put at
    store level, divided by the time of the tasks: the batch's time on each of two partitions.
    """
    times, subject = results.stats(*query), query[-1]
    # the smallest batches at store level have the highest figures per key
    smallest = (results.step("store", "base", label) for label in ("uniform 1k", "uniform 2k"))
    batch = next((step for step in smallest if subject in step), {})[subject]["batch"]
    operators = {name: stats["median"] for name, stats in times["operators"].items()}
    rows_ms = operators["numRowsUpdated"] * batch["row_us"]["median"] / 1000
    open_ms = operators.get("numStateStoreInstances", 2) * batch["open_ms"]["median"]
    tasks_ms = times["durations_ms"]["addBatch"]["median"] * 2
    return float((operators["commitTimeMs"] + rows_ms + open_ms) / tasks_ms)


OF_STEPS: Mapping[str, Callable[..., float]] = {
    "native": _native_bytes,
    "written": Results.written,
    "cpu": _cpu_seconds,
    "share": _store_share,
}
"""Figures that are computed from those of a step and store."""

_FIGURES: Mapping[str, Callable[..., Any]] = {
    **OF_STEPS,
    "speed": _ratio,
    "ratio": _ratio,
    "median": Results.median,
    "copy": _beyond_copy,
    "age": _at_every_age,
    "predicted": _predicted,
    "of_each": lambda results, figure, stores: executors.floor(results, OURS, int(stores))[figure],
    "agent": lambda results, stores: executors.agent_share(results, OURS, int(stores)),
    "growth": lambda results, _: large_store.growth(results),
}
