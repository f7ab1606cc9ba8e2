"""Rules of the verdict: conditions on figures of a query or a store, as data.

A rule names a field of an answer, a limit, the sentence and the remedy. `observe.verdict` evaluates the rules
for `state-store doctor` and `serve`; the tab in Spark's UI reads the same rules from the jar; alert rules for
Prometheus are written from them. `tests/observe/cases/verdict.json` has cases that every evaluator must pass.
"""

from __future__ import annotations

from dataclasses import dataclass

CRITICAL, WARNING, NOTE, FINE = "critical", "warning", "note", "fine"

SEVERITIES = (CRITICAL, WARNING, NOTE)
"""Severities, worst first."""

ALERT_SEVERITIES = {CRITICAL: "page", WARNING: "ticket", NOTE: "info"}
"""Severities of alerts by that of their finding: wake somebody, tell somebody at work, or tell nobody."""

QUERY, STORE, GROUP = "query", "store", "group"
"""Subjects of a rule: a query's totals, one store, or the stores of an operator that have one name."""

DURATION, BYTES, NUMBER, RATIO = "duration", "bytes", "number", "ratio"
"""Units of figures in sentences. A duration is in milliseconds."""


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
SKEW_LEAST_BYTES = 64 << 20
UNNEEDED_RATIO = 1.0
UNNEEDED_LEAST_BYTES = 1 << 30
FAILURES_IN_ROW = 2
RESTARTS = 3

RULES: tuple[Rule, ...] = (
    Rule(
        "unreadable",
        CRITICAL,
        QUERY,
        "unreadable",
        NUMBER,
        "The checkpoint cannot be read: {error}",
        "Look at the storage and at this service's rights; the figures below are those of the last "
        "successful read.",
        "docs/alerts.md#alert-statestoreunreadable",
        alert=Alert(
            "StateStoreUnreadable",
            "min by (query) (state_store_up) == 0",
            "5m",
            "The checkpoint of {{ $labels.query }} cannot be read.",
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
            "sum by (query) (increase(state_store_damaged_files_total[1h])) > 0",
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
            f"max by (query, operator, store) (state_store_largest_store_bytes) > {SKEW_LEAST_BYTES} and "
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
            f"sum by (query) (state_store_unneeded_bytes) > {UNNEEDED_LEAST_BYTES} and sum by (query) "
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
            f"sum by (query) (increase(state_store_agent_restarts_total[1h])) > {RESTARTS}",
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
