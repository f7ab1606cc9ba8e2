"""The verdict on a query: figures, rules as data, and the findings of the rules on the figures.

A rule names a field of the figures, a limit, the sentence and the remedy. `judge` evaluates the rules for
`state-store doctor` and `serve`, as a pure function of the figures and the time. The tab in Spark's UI reads
the same rules from the jar and evaluates them in Scala; alert rules for Prometheus are written from them.
`tests/observe/cases/verdict.json` has cases that every evaluator must pass.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from state_store.observe.rest_answers import DRIVER, SERVE, Failure, Finding, Store, Verdict, declared

CRITICAL, WARNING, NOTE, FINE = "critical", "warning", "note", "fine"


SEVERITIES = (CRITICAL, WARNING, NOTE)
"""Severities, worst first."""


ALERT_SEVERITIES = {CRITICAL: "page", WARNING: "ticket", NOTE: "info"}
"""Severities of alerts by that of their finding: wake somebody, tell somebody at work, or tell nobody."""


QUERY, STORE, GROUP = "query", "store", "group"
"""Subjects of a rule: a query's totals, one store, or the stores of an operator that have one name."""


DURATION, BYTES, NUMBER, RATIO = "duration", "bytes", "number", "ratio"
"""Units of figures in sentences. A duration is in milliseconds."""


LEVELS = {FINE: 0, WARNING: 1, CRITICAL: 2}
"""Values of the metric `state_store_verdict`."""


@dataclass(frozen=True)
class Totals:
    """Figures of a query."""

    unreadable: int = declared("1 if the last look at the checkpoint failed, else 0.")
    failed: int | None = declared(
        "1 if the query has ended with an error, else 0; without a driver nothing says it.",
        sources=(DRIVER,),
        default=None,
    )
    damaged_stores: int | None = declared(
        "Stores that cannot be restored; a driver, which reads no files, does not know.",
        sources=(SERVE,),
        default=None,
    )
    start_problems: int | None = declared(
        "Files of Spark's without which the query cannot start again; a driver does not look at them.",
        sources=(SERVE,),
        default=None,
    )
    verify_problems: int | None = declared(
        "Problems that the last `state-store verify` found and whose files are still there as they were.",
        sources=(SERVE,),
        default=None,
    )
    verified_ms: int | None = declared(
        "When `state-store verify` last checked the whole query, since 1970 UTC; absent if it never did.",
        sources=(SERVE,),
        default=None,
    )
    unverified_since_ms: int | None = declared(
        "The same or, if it never did, when the query began.", sources=(SERVE,), default=None
    )
    committed_ms: int | None = declared("When the newest version was written, since 1970 UTC.", default=None)
    idle_executors: int | None = declared(
        "Executors that have none of its stores five minutes after their start, while another has more "
        "partitions of an operator than cores; absent in local mode.",
        sources=(DRIVER,),
        default=None,
    )
    wasted_ratio: float | None = declared(
        "Bytes in storage that no restorable version needs, per byte that one needs; absent below 1 GiB.",
        sources=(SERVE,),
        default=None,
    )


@dataclass(frozen=True)
class Group:
    """Figures over the partitions of one store of one operator."""

    operator: int = declared("Number of the operator.")
    store: str = declared("Name of the store.")
    operator_name: str | None = declared("Spark's name of the operator.", default=None)
    largest_partition: int | None = declared("The partition with the most bytes.", default=None)
    largest_bytes: int | None = declared("Bytes of the largest partition.", default=None)
    largest_ratio: float | None = declared(
        "Bytes of the largest partition, per byte of the median; absent if that is 0.", default=None
    )
    skewed_ratio: float | None = declared(
        "The same, absent with fewer than three partitions or less than 64 MiB in the largest.", default=None
    )


@dataclass(frozen=True)
class Alert:
    """An alert of Prometheus that a rule makes.

    Attributes:
        name: name of the alert.
        expression: PromQL; it yields a series for each query that the rule is true of.
        lasts: how long the expression must hold before the alert fires.
        summary: sentence with Prometheus's placeholders.
    """

    name: str
    expression: str
    lasts: str
    summary: str


@dataclass(frozen=True)
class Rule:
    """A condition, and the words of the finding that it makes.

    The condition holds if `field` is present and greater than the limit: `above`, or `times` the field
    `above_field`. With `is_age`, the figure is the time from `field` (milliseconds since 1970 UTC) until now.

    Attributes:
        code: name of the finding.
        severity: severity of the finding, which decides that of its alert, too.
        subject: `query` (the field is one of `Totals`), `store` (of `Store`), or `group` (of `Group`).
        field: field whose value is compared.
        above: constant limit, in the field's unit.
        above_field: field of the same subject that is the limit; the rule is skipped where it is absent.
        times: factor of `above_field`.
        is_age: compare the age of the time in `field`.
        unit: unit of the figure, for its words.
        sentence: template with `{value}`, `{limit}`, `{stores}`, `{group}` and `{error}`.
        remedy: what to do.
        link: page and heading, relative to the documentation.
        alert: the alert that belongs to it; None: there is none.
    """

    code: str
    severity: str
    subject: str
    field: str
    unit: str
    sentence: str
    remedy: str
    link: str
    above: float = 0
    above_field: str | None = None
    times: float = 1
    is_age: bool = False
    alert: Alert | None = None


MINUTE_MS = 60_000


DAY_MS = 86_400_000


STALE_MS = 15 * MINUTE_MS


FULL_OLD_MS = 7 * DAY_MS


UNVERIFIED_MS = 7 * DAY_MS


CHAIN_DELTAS = 200


SKEW = 4


SKEW_MIN_BYTES = 64 << 20


UNNEEDED_RATIO = 1.0


UNNEEDED_MIN_BYTES = 1 << 30


FAILURES_IN_ROW = 2


RESTARTS = 3


def _grown(counter: str, above: int) -> str:
    """Return PromQL that holds where a counter has grown by more than a number within an hour.

    `increase` does not see what a new series begins with: a driver shows a query after its first batch, with
    everything that its restores have counted.
    """
    return (
        f"sum by (query) (increase({counter}[1h])) > {above} or "
        f"sum by (query) ({counter} unless {counter} offset 1h) > {above}"
    )


RULES: tuple[Rule, ...] = (
    Rule(
        "unreadable",
        CRITICAL,
        QUERY,
        "unreadable",
        NUMBER,
        "The checkpoint cannot be read: {error}",
        "Do what the message says, or look at the storage and at the rights to read it. The page and the API "
        "of `serve` go on with the figures of the last successful read, if there was one.",
        "docs/alerts.md#alert-statestoreunreadable",
        alert=Alert(
            "StateStoreUnreadable",
            "min by (query) (state_store_up) == 0",
            "5m",
            "The checkpoint of {{ $labels.query }} cannot be read.",
        ),
    ),
    Rule(
        "query-failed",
        CRITICAL,
        QUERY,
        "failed",
        NUMBER,
        "The query has ended with an error: {error}",
        "Remove the cause, and start the query again with the same checkpoint directory: it goes on after "
        "the batch that Spark committed last.",
        "docs/alerts.md#alert-statestorequeryfailed",
        alert=Alert(
            "StateStoreQueryFailed",
            "max by (query) (state_store_failed) > 0",
            "1m",
            "{{ $labels.query }} has ended with an error.",
        ),
    ),
    Rule(
        "store-damaged",
        CRITICAL,
        QUERY,
        "damaged_stores",
        NUMBER,
        "{value} of the stores cannot be restored at the version that Spark committed last: {error}",
        "Run `state-store verify DIR`, then `state-store repair DIR`.",
        "docs/alerts.md#alert-statestoredamaged",
        alert=Alert(
            "StateStoreDamaged",
            "max by (query) (state_store_damaged_stores) > 0",
            "2m",
            "{{ $value }} stores of {{ $labels.query }} cannot be restored.",
        ),
    ),
    Rule(
        "verify-found-damage",
        CRITICAL,
        QUERY,
        "verify_problems",
        NUMBER,
        "Problems that `state-store verify` found, and whose files are still there: {value}. The first: "
        "{error}",
        "Run `state-store repair DIR`, then `state-store verify DIR` again.",
        "docs/alerts.md#alert-statestoreverifyfounddamage",
        alert=Alert(
            "StateStoreVerifyFoundDamage",
            "max by (query) (state_store_verify_problems) > 0",
            "2m",
            "The last verification of {{ $labels.query }} found {{ $value }} problems.",
        ),
    ),
    Rule(
        "cannot-start",
        CRITICAL,
        QUERY,
        "start_problems",
        NUMBER,
        "Spark could not start the query again: {error}",
        "A query that runs goes on. `state-store verify DIR` lists the files of Spark's that are lost or "
        "damaged, and what to do about each.",
        "docs/alerts.md#alert-statestorecannotstart",
        alert=Alert(
            "StateStoreCannotStart",
            "max by (query) (state_store_start_problems) > 0",
            "5m",
            "Spark could not start {{ $labels.query }} again.",
        ),
    ),
    Rule(
        "merges-fail",
        CRITICAL,
        STORE,
        "failures_in_row",
        NUMBER,
        "Merges of {stores} failed {value} times in a row: {error}",
        "The message says which file or service refused; until merges succeed, every restart takes longer.",
        "docs/alerts.md#alert-statestoremergesfail",
        above=FAILURES_IN_ROW,
        alert=Alert(
            "StateStoreMergesFail",
            f"max by (query) (state_store_merge_failures_in_row) > {FAILURES_IN_ROW}",
            "5m",
            "Merges of {{ $labels.query }} failed {{ $value }} times in a row.",
        ),
    ),
    Rule(
        "damaged-files",
        CRITICAL,
        STORE,
        "damaged_files",
        NUMBER,
        "{value} files of {stores} were found damaged in this run.",
        "The next restore reads them again from checkpoint storage; look at that machine's disk.",
        "docs/alerts.md#alert-statestoredamagedfiles",
        alert=Alert(
            "StateStoreDamagedFiles",
            _grown("state_store_damaged_files_total", 0),
            "0m",
            "Files of {{ $labels.query }} were found damaged.",
        ),
    ),
    Rule(
        "restore-above-objective",
        WARNING,
        STORE,
        "restore_predicted_ms",
        DURATION,
        "A restore of {stores} is expected to take {value}; restoreObjective is {limit}.",
        "Make a full checkpoint. If that does not help, the state is too large for the objective: use "
        "more partitions, "
        "or raise restoreObjective.",
        "docs/alerts.md#alert-statestorerestoreaboveobjective",
        above_field="restore_objective_ms",
        alert=Alert(
            "StateStoreRestoreAboveObjective",
            "max by (query) (state_store_restore_predicted_seconds) > on (query) "
            "(max by (query) (state_store_restore_objective_seconds) > 0)",
            "15m",
            "A restore of {{ $labels.query }} is expected to take {{ $value | humanizeDuration }}.",
        ),
    ),
    Rule(
        "chain-long",
        WARNING,
        STORE,
        "deltas",
        NUMBER,
        "The chain of {stores} has {value} deltas after its snapshot.",
        "Merges fail or do not keep up: the executors' logs say why. A full checkpoint cuts the chain.",
        "docs/alerts.md#alert-statestorechaingrows",
        above=CHAIN_DELTAS,
        alert=Alert(
            "StateStoreChainGrows",
            f"max by (query) (state_store_chain_deltas) > {CHAIN_DELTAS}",
            "15m",
            "{{ $labels.query }} has a chain of {{ $value }} deltas.",
        ),
    ),
    Rule(
        "skew",
        WARNING,
        GROUP,
        "skewed_ratio",
        RATIO,
        "The largest store of {group} has {value} times the bytes of the median.",
        "Look for a hot key, or use more partitions: `state-store repartition`.",
        "docs/alerts.md#alert-statestoreskew",
        above=SKEW,
        alert=Alert(
            "StateStoreSkew",
            f"max by (query, operator, store) (state_store_largest_store_bytes) > {SKEW_MIN_BYTES} and "
            f"max by (query, operator, store) (state_store_largest_store_ratio) > {SKEW}",
            "1h",
            "The largest store of {{ $labels.query }} operator {{ $labels.operator }} has more than "
            f"{SKEW} times the bytes of the median.",
        ),
    ),
    Rule(
        "unneeded-bytes",
        WARNING,
        QUERY,
        "wasted_ratio",
        RATIO,
        "Storage has {value} times as many bytes that no restorable version needs as bytes that are needed.",
        "Clean-ups fail or the query was stopped before one: look for warnings in the executors' logs.",
        "docs/alerts.md#alert-statestoreunneededbytes",
        above=UNNEEDED_RATIO,
        alert=Alert(
            "StateStoreUnneededBytes",
            f"sum by (query) (state_store_unneeded_bytes) > {UNNEEDED_MIN_BYTES} and sum by (query) "
            "(state_store_unneeded_bytes) > 0.5 * sum by (query) (state_store_stored_bytes)",
            "6h",
            "More than half of the bytes of {{ $labels.query }} in storage are not needed.",
        ),
    ),
    Rule(
        "undeletable-files",
        WARNING,
        STORE,
        "undeletable_files",
        NUMBER,
        "{value} files of {stores} are still there two hours of commits after a clean-up was to delete them.",
        "The storage does not let them go, or a reader holds them. The executors' logs name them with the "
        "reason: rights, an immutable flag, a retention lock, a program that has them open. "
        "`state-store files DIR --unneeded` lists them, and `state-store repair DIR --apply` tries again and "
        "says why.",
        "docs/alerts.md#alert-statestoreundeletablefiles",
        alert=Alert(
            "StateStoreUndeletableFiles",
            "sum by (query) (state_store_undeletable_files) > 0",
            "1h",
            "{{ $value }} files of {{ $labels.query }} cannot be deleted.",
        ),
    ),
    Rule(
        "agent-restarts",
        WARNING,
        STORE,
        "agent_restarts",
        NUMBER,
        "The agent of {stores} was started again {value} times in this run.",
        "The executor's log says why it ended; most often its memory: see `spark.executor.memoryOverhead`.",
        "docs/alerts.md#alert-statestoreagentrestarts",
        above=RESTARTS,
        alert=Alert(
            "StateStoreAgentRestarts",
            _grown("state_store_agent_restarts_total", RESTARTS),
            "0m",
            "Agents of {{ $labels.query }} were started again {{ $value }} times within an hour.",
        ),
    ),
    Rule(
        "no-checkpoint",
        WARNING,
        QUERY,
        "committed_ms",
        DURATION,
        "The last checkpoint was made {value} ago: the query is stopped, stands still, or has no input.",
        "If it should run: look at the driver, then at its source.",
        "docs/alerts.md#alert-statestorenocheckpoint",
        above=STALE_MS,
        is_age=True,
        alert=Alert(
            "StateStoreNoCheckpoint",
            f"time() - max by (query) (state_store_last_checkpoint_timestamp_seconds) > {STALE_MS // 1000}",
            "5m",
            "{{ $labels.query }} has made no checkpoint for {{ $value | humanizeDuration }}.",
        ),
    ),
    Rule(
        "idle-executors",
        NOTE,
        QUERY,
        "idle_executors",
        NUMBER,
        "Executors that have no store of the query, while another one has more partitions than cores: "
        "{value}.",
        "Spark leaves stores where they are: set `placement` to `balanced`, or have as many partitions as "
        "the executors have cores.",
        "docs/alerts.md#alert-statestoreidleexecutors",
        alert=Alert(
            "StateStoreIdleExecutors",
            "max by (query) (state_store_idle_executors) > 0",
            "15m",
            "{{ $value }} executors have no store of {{ $labels.query }}.",
        ),
    ),
    Rule(
        "full-old",
        NOTE,
        STORE,
        "chain_since_ms",
        DURATION,
        "The newest checkpoint of {stores} depends on files that are up to {value} old.",
        "Make a full checkpoint, or set fullInterval or fullSchedule, if you want it to depend on nothing "
        "older.",
        "docs/alerts.md#alert-statestorefullcheckpointold",
        above=FULL_OLD_MS,
        is_age=True,
        alert=Alert(
            "StateStoreFullCheckpointOld",
            f"time() - min by (query) (state_store_chain_start_timestamp_seconds) > {FULL_OLD_MS // 1000}",
            "1h",
            "The newest checkpoint of {{ $labels.query }} depends on files that are "
            "{{ $value | humanizeDuration }} old.",
        ),
    ),
    Rule(
        "not-verified",
        NOTE,
        QUERY,
        "unverified_since_ms",
        DURATION,
        "No `state-store verify` of the whole query has ended for {value}: damage of a file would be found "
        "when it is needed.",
        "Run `state-store verify DIR`, at best by a schedule, on a machine that reaches the checkpoint.",
        "docs/alerts.md#alert-statestorenotverified",
        above=UNVERIFIED_MS,
        is_age=True,
        alert=Alert(
            "StateStoreNotVerified",
            "time() - max by (query) (state_store_unverified_since_timestamp_seconds) > "
            f"{UNVERIFIED_MS // 1000}",
            "1h",
            "The files of {{ $labels.query }} were not verified for {{ $value | humanizeDuration }}.",
        ),
    ),
)
"""The rules, in the order in which findings of one severity are shown."""


_MIN_PARTITIONS = 3


_PLACEHOLDER = re.compile(r"\{(\w+)\}")


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
    needed_bytes = sum(s.stored_bytes or 0 for s in stores) - unneeded
    return Totals(
        unreadable=int(unreadable),
        damaged_stores=sum(s.error is not None for s in stores),
        start_problems=start_problems,
        verify_problems=verify_problems,
        verified_ms=verified_ms,
        unverified_since_ms=began_ms if verified_ms is None else verified_ms,
        committed_ms=committed_ms,
        wasted_ratio=unneeded / needed_bytes if unneeded > UNNEEDED_MIN_BYTES and needed_bytes > 0 else None,
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
    is_large = len(sized) >= _MIN_PARTITIONS and largest > SKEW_MIN_BYTES
    return Group(
        first.operator,
        first.store,
        first.operator_name,
        -partition,
        largest,
        ratio,
        ratio if is_large else None,
    )


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
    reasons = {"start_problems": start, "verify_problems": verify, "damaged_stores": damaged}
    findings = []
    for rule in rules:
        if rule.subject == QUERY:
            finding = _of_query(rule, totals, now_ms, reasons.get(rule.field, error))
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
    excess = _excess(rule, totals, now_ms)
    return None if excess is None else _finding(rule, *excess, error=error)


def _of_stores(rule: Rule, stores: Sequence[Store], now_ms: int) -> Finding | None:
    hits = [(excess, store) for store in stores if (excess := _excess(rule, store, now_ms)) is not None]
    if not hits:
        return None
    (figure, limit), worst = max(hits, key=lambda hit: hit[0][0])
    place = f"store {worst.operator}/{worst.partition}/{worst.store}"
    place_text = place if len(hits) == 1 else f"{len(hits)} stores (the worst is {place})"
    return _finding(
        rule, figure, limit, stores=place_text, error=worst.last_failure, count=len(hits), at=worst
    )


def _of_groups(rule: Rule, groups: Sequence[Group], now_ms: int) -> Finding | None:
    hits = [(excess, group) for group in groups if (excess := _excess(rule, group, now_ms)) is not None]
    if not hits:
        return None
    (figure, limit), worst = max(hits, key=lambda hit: hit[0][0])
    at = Store(worst.operator, worst.largest_partition or 0, worst.store)
    group_text = f"operator {worst.operator} ({worst.operator_name or worst.store}, partition {at.partition})"
    return _finding(rule, figure, limit, group=group_text, count=len(hits), at=at)


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
    sentence = _PLACEHOLDER.sub(lambda match: words[match[1]], rule.sentence)
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
        unit: `DURATION`, `BYTES`, `NUMBER` or `RATIO`.
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
