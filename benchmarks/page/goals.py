"""The page of goals, each computed from a run: measured, met or missed by how much.

`goals_page.txt` declares a goal a row: setting, peer, aim and, in braces, its figure, an expression of
templates. Below the rows it has the reasons for missed goals by their settings, results of profiles of this
store (JFR at 5 ms, clocks around each phase of a commit). The page shows those whose goals a run misses.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from benchmarks.page.page_rows import PEERS
from benchmarks.page.rendering import TEMPLATES, UNITS, computed, in_pages
from benchmarks.results import CHANGELOG, HDFS, OURS, Ratio, Results

_TEMPLATE = (TEMPLATES / "goals_page.txt").read_text(encoding="utf-8")
_HEAD, _TABLE, _WHY, *_REASONS = re.split(r"\n\n(?=\||Why|\*)", _TEMPLATE)
_GOALS = re.findall(r"(?m)^\| (.+) \| (.+) \| (.+) \| \{\{ (.+) \}\} \|$", _TABLE)
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
        return self.verdict == "met" if self.verdict else None


def page(results: Results, earlier: str = "") -> str:
    """Return the page. An unmeasured goal stays as an earlier page has it, if its aim is the same."""
    if results.bench == "quick":
        return f"{_HEAD}\n\nThe goals are for states that this extent is too small for.\n"
    former = {cells[:3]: Outcome(*cells) for cells in _OUTCOME.findall(earlier)}
    judged = [former.get(goal[:3], goal) if goal.met is None else goal for goal in outcomes(results)]
    missed = {outcome.setting for outcome in judged if outcome.met is False}
    rows = [*_TABLE.splitlines()[:2], *(f"| {' | '.join(outcome)} |" for outcome in judged)]
    reasons = [f"- *{setting}*: {text}" for setting, text in REASONS.items() if setting in missed]
    return "\n".join([_HEAD, "", *rows, *(["", _WHY, "", *reasons] if reasons else []), ""])


def outcomes(results: Results) -> list[Outcome]:
    """Return every goal, in the order of the table."""
    return [_outcome(*goal, computed(figure, results)) for *goal, figure in _GOALS]


@in_pages
def speeds(results: Results) -> list[tuple[str, str, Ratio]]:
    """Return the measured goals that compare times with a peer: setting, peer, and the ratio."""
    figures = [(*goal[:2], computed(goal[3], results)) for goal in _GOALS if goal[3].startswith("ratio(")]
    return [(setting, peer, ratio) for setting, peer, ratio in figures if ratio]


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
    verdict = "met" if over <= 1 else f"**missed** {over:.1f}x {'short' if is_least else 'over'}"
    return Outcome(setting, against, aim, text or f"{number:.3g}{space}{unit}", verdict)


# ---- figures that goals and tables name ------------------------------------------------------------------


@in_pages
def median(results: Results, path: str) -> float:
    """Return the median of `scenario/case/step/store/kind/name`."""
    *step, kind, name = path.split("/")
    return float(results.stats(*step)[kind][name]["median"])


@in_pages
def ratio(results: Results, path: str) -> Ratio | None:
    """Return the ratio of `scenario/case/step/kind/store/peers`."""
    *where, kind, ours, peers = path.split("/")
    return results.ratio(tuple(where), PEERS[peers], kind, ours)


@in_pages
def at_every_age(results: Results, kind: str) -> tuple[float, str] | None:
    """Return the ratio at the age at which the quickest peer comes closest, and that age."""
    ratios = [
        (ratio.value, f"{ratio.value:.1f}x at least ({where[2]})")
        for where, measured_kind in results.measured()
        for ours in results.step(*where)
        if where[0] == "age" and measured_kind == kind and ours.startswith(OURS)
        if (ratio := results.ratio(where, (HDFS, *CHANGELOG), kind, ours))
    ]
    return min(ratios, default=None)


@in_pages
def predicted(results: Results, near_ms: int) -> tuple[float, str] | None:
    """Return how far the worst prediction is off, as a share, over all restores without local files.

    One that is no more than `near_ms` apart is not off.
    """
    apart: list[tuple[float, str]] = []
    for where, _ in results.measured():
        for stats in results.step(*where).values():
            metrics = stats.get("restore", {}).get("custom", {})
            predicted_ms = metrics.get("incrementalRestorePredictedMs")
            if predicted_ms is not None and not metrics.get("incrementalRestoreLocalFiles"):
                phases = (f"incrementalRestore{phase}Ms" for phase in ("Choose", "Fetch", "Verify"))
                measured_ms = sum(metrics.get(phase, 0) for phase in phases)
                off_ms = abs(predicted_ms - measured_ms)
                share = off_ms / max(1, measured_ms) if off_ms > near_ms else 0.0
                text = f"{predicted_ms:.0f} ms, was {measured_ms:.0f} ms: {where[1]}, {where[2]}"
                apart.append((share, f"{share * 100:.0f} % at most ({text})"))
    share, text = max(apart, default=(None, ""))
    return None if share is None else (share, f"{text}, {len(apart)} restores")


@in_pages
def native(results: Results, scenario: str, case: str, label: str, subject: str) -> float:
    """Return the growth of the JVM beyond its resident heap, and of the agent, since the step `empty`."""
    empty, full = (results.stats(scenario, case, name, subject)["memory"] for name in ("empty", label))
    growth = full["jvm_anonymous_bytes"]["median"] - empty["jvm_anonymous_bytes"]["median"]
    return float(growth + full["children_pss_bytes"]["median"])


@in_pages
def cpu(results: Results, *step: str) -> float:
    """Return CPU seconds of JVM and agent for each batch, maintenance included."""
    segments = results.stats(*step)["segments"]
    return float(segments["cpu_jvm_s"]["median"] + segments["cpu_children_s"]["median"])


@in_pages
def share(results: Results, *query: str) -> float:
    """Return the store's part of a micro-batch.

    It is the time of commits as the query reports them, plus for each written key the time of get and put at
    store level, divided by the time of the tasks: the batch's time on each of two partitions.
    """
    times = results.stats(*query)
    batch = results.stats("store", "base", "uniform 1k", query[-1])["batch"]  # the most a key: a small one
    operators = {name: stats["median"] for name, stats in times["operators"].items()}
    rows_ms = operators["numRowsUpdated"] * batch["row_us"]["median"] / 1000
    open_ms = operators.get("numStateStoreInstances", 2) * batch["open_ms"]["median"]
    tasks_ms = times["durations_ms"]["addBatch"]["median"] * 2
    return float((operators["commitTimeMs"] + rows_ms + open_ms) / tasks_ms)
