"""The verdict on a query: every rule of `model.rules`, evaluated on its figures.

A pure function of the figures and the time. The tab in Spark's UI evaluates the same rules in Scala;
`tests/observe/cases/verdict.json` holds both to the same findings.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from state_store.observe.model.rest_answers import Failure, Finding, Store, Verdict
from state_store.observe.model.rules import (
    BYTES,
    CRITICAL,
    DURATION,
    FINE,
    NOTE,
    QUERY,
    RATIO,
    RULES,
    SEVERITIES,
    SKEW_LEAST_BYTES,
    STORE,
    UNNEEDED_LEAST_BYTES,
    WARNING,
    Group,
    Rule,
    Totals,
)

LEVELS = {FINE: 0, WARNING: 1, CRITICAL: 2}
"""Values of the metric `state_store_verdict`."""

_LEAST_PARTITIONS = 3
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def judge(
    totals: Totals,
    stores: Sequence[Store],
    now_ms: int,
    *,
    error: Failure | None = None,
    start: Failure | None = None,
    verify: Failure | None = None,
    batch: int | None = None,
    rules: Sequence[Rule] = RULES,
) -> Verdict:
    """Return the verdict on a query.

    Args:
        totals: figures of the query.
        stores: its stores, at the version that Spark committed last.
        now_ms: the time, milliseconds since 1970 UTC.
        error: why the query cannot be read, if that is so.
        start: why Spark could not start the query again, if that is so.
        verify: a problem that verifications have found and that is still there, if there is one.
        batch: the batch that Spark committed last.
        rules: the rules.

    Returns:
        The findings, worst first, and one sentence.
    """
    groups = grouped(stores)
    damaged = next((store.error for store in stores if store.error is not None), None)
    reasons = {"start_problems": start, "verify_problems": verify}
    findings = []
    for rule in rules:
        if rule.subject == QUERY:
            finding = _of_query(rule, totals, now_ms, reasons.get(rule.field, error or damaged))
        elif rule.subject == STORE:
            finding = _of_stores(rule, stores, now_ms)
        else:
            finding = _of_groups(rule, groups, now_ms)
        if finding is not None:
            findings.append(finding)
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    worst = findings[0].severity if findings else FINE
    severity = FINE if worst == NOTE else worst
    if severity != FINE:
        return Verdict(severity, _worst(findings), findings)
    return Verdict(severity, _fine(totals, stores, batch, now_ms), findings)


def totals_of(
    stores: Sequence[Store],
    *,
    unreadable: bool = False,
    committed_ms: int | None = None,
    start_problems: int = 0,
    verify_problems: int = 0,
    verified_ms: int | None = None,
    began_ms: int | None = None,
) -> Totals:
    """Return the figures of a query from those of its stores.

    Args:
        stores: its stores.
        unreadable: the last look failed.
        committed_ms: when the newest version was written; None: the latest time of a store.
        start_problems: files of Spark's without which the query cannot start again.
        verify_problems: problems that verifications have found.
        verified_ms: when the whole query was verified; None: it never was.
        began_ms: when the query began.
    """
    if committed_ms is None:
        committed_ms = max((s.committed_ms for s in stores if s.committed_ms is not None), default=None)
    unneeded = sum(s.unneeded_bytes or 0 for s in stores)
    needed = sum(s.stored_bytes or 0 for s in stores) - unneeded
    return Totals(
        unreadable=int(unreadable),
        damaged_stores=sum(s.error is not None for s in stores),
        start_problems=start_problems,
        verify_problems=verify_problems,
        verified_ms=verified_ms,
        unverified_since_ms=began_ms if verified_ms is None else verified_ms,
        committed_ms=committed_ms,
        wasted_ratio=unneeded / needed if unneeded > UNNEEDED_LEAST_BYTES and needed > 0 else None,
    )


def grouped(stores: Iterable[Store]) -> list[Group]:
    """Return figures over the partitions of each store of each operator, in order."""
    by_group: dict[tuple[int, str], list[Store]] = {}
    for store in stores:
        by_group.setdefault((store.operator, store.store), []).append(store)
    return [_group(members) for _, members in sorted(by_group.items())]


def _group(members: Sequence[Store]) -> Group:
    sized = [(store.bytes, -store.partition) for store in members if store.bytes is not None]
    first = members[0]
    if not sized:
        return Group(first.operator, first.store, first.operator_name)
    largest, partition = max(sized)
    median = statistics.median(size for size, _ in sized)
    ratio = largest / median if median else None
    is_large = len(sized) >= _LEAST_PARTITIONS and largest > SKEW_LEAST_BYTES
    return Group(
        first.operator,
        first.store,
        first.operator_name,
        -partition,
        largest,
        ratio,
        ratio if is_large else None,
    )


def _excess(rule: Rule, subject: Any, now_ms: int) -> tuple[float, float] | None:
    """Return the figure and its limit if the rule's condition holds; None otherwise."""
    value = getattr(subject, rule.field)
    if value is None:
        return None
    limit = rule.above
    if rule.above_field is not None:
        other = getattr(subject, rule.above_field)
        if not other:
            return None
        limit = other * rule.times
    figure = now_ms - value if rule.is_age else value
    return (figure, limit) if figure > limit else None


def _of_query(rule: Rule, totals: Totals, now_ms: int, error: Failure | None) -> Finding | None:
    found = _excess(rule, totals, now_ms)
    return None if found is None else _finding(rule, *found, error=error)


def _of_stores(rule: Rule, stores: Sequence[Store], now_ms: int) -> Finding | None:
    hits = [(found, store) for store in stores if (found := _excess(rule, store, now_ms)) is not None]
    if not hits:
        return None
    (figure, limit), worst = max(hits, key=lambda hit: hit[0][0])
    place = f"store {worst.operator}/{worst.partition}/{worst.store}"
    shown = place if len(hits) == 1 else f"{len(hits)} stores (the worst is {place})"
    return _finding(rule, figure, limit, stores=shown, error=worst.last_failure, count=len(hits), at=worst)


def _of_groups(rule: Rule, groups: Sequence[Group], now_ms: int) -> Finding | None:
    hits = [(found, group) for group in groups if (found := _excess(rule, group, now_ms)) is not None]
    if not hits:
        return None
    (figure, limit), worst = max(hits, key=lambda hit: hit[0][0])
    at = Store(worst.operator, worst.largest_partition or 0, worst.store)
    shown = f"operator {worst.operator} ({worst.operator_name or worst.store}, partition {at.partition})"
    return _finding(rule, figure, limit, group=shown, count=len(hits), at=at)


def _finding(
    rule: Rule,
    figure: float,
    limit: float,
    *,
    stores: str = "",
    group: str = "",
    error: Failure | None = None,
    count: int | None = None,
    at: Store | None = None,
) -> Finding:
    words = {
        "value": in_words(figure, rule.unit),
        "limit": in_words(limit, rule.unit),
        "stores": stores,
        "group": group,
        "error": error.message if error is not None else "no reason is known",
    }
    sentence = _PLACEHOLDER.sub(lambda found: words[found[1]], rule.sentence)
    return Finding(
        rule.code,
        rule.severity,
        sentence,
        rule.remedy,
        rule.link,
        count,
        at.operator if at else None,
        at.partition if at else None,
        at.store if at else None,
    )


def _worst(findings: Sequence[Finding]) -> str:
    others = sum(finding.severity != NOTE for finding in findings) - 1
    return findings[0].sentence + (f" (and {others} more)" if others else "")


def _fine(totals: Totals, stores: Sequence[Store], batch: int | None, now_ms: int) -> str:
    """Return the sentence on a query of which nothing is wrong, with what was looked at and what was not."""
    is_listed = totals.damaged_stores is not None
    at = "no batch was committed yet" if batch is None else f"batch {batch} was committed last"
    size = in_words(sum(store.bytes or 0 for store in stores), BYTES)
    slowest = max(
        (s.restore_predicted_ms for s in stores if s.restore_predicted_ms is not None), default=None
    )
    restore = ""
    if slowest is not None:
        restore = f", the slowest restore is expected to take {in_words(slowest, DURATION)}"
    plural = "store has" if len(stores) == 1 else "stores have"
    looked = "listings show" if is_listed else "executors report"
    return f"Fine as far as {looked}: {at}; {len(stores)} {plural} {size}{restore}. {_unread(totals, now_ms)}"


def _unread(totals: Totals, now_ms: int) -> str:
    if totals.damaged_stores is None:
        return "Files in storage are not read here."
    if totals.verified_ms is None:
        return "The files were never verified."
    return f"The files were last verified {in_words(max(0, now_ms - totals.verified_ms), DURATION)} ago."


def in_words(figure: float, unit: str) -> str:
    """Return a figure for people: `1.2 GB`, `340 ms`, `12.5 s`, `3 min`, `2 h`, `5 d`, `4.1`, `17`.

    Args:
        figure: the figure; a duration in milliseconds.
        unit: one of the units of `model.rules`.
    """
    if unit == BYTES:
        for factor, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
            if figure >= factor:
                return f"{figure / factor:.1f} {name}"
        return f"{figure:.0f} bytes"
    if unit == DURATION:
        if figure < 1000:
            return f"{figure:.0f} ms"
        for limit, factor, name, digits in (
            (120_000, 1000, "s", 1),
            (7_200_000, 60_000, "min", 0),
            (172_800_000, 3_600_000, "h", 0),
        ):
            if figure < limit:
                return f"{figure / factor:.{digits}f} {name}"
        return f"{figure / 86_400_000:.0f} d"
    return f"{figure:.1f}" if unit == RATIO else f"{figure:.0f}"
