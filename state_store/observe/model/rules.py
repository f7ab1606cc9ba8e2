"""Rules of the verdict: conditions on figures of a query or a store, as data.

A rule names a field of an answer, a limit, the sentence and the remedy. `observe.verdict` evaluates the rules
for `state-store doctor` and `serve`; the tab in Spark's UI reads the same rules from the jar; alert rules for
Prometheus are written from them. `tests/observe/cases/verdict.json` has cases that every evaluator must pass.

Totals are figures over the stores of a query that rules and metrics are about. The words of the page say what
each figure and column shows, and what operators are called. The page has the first as hints over its
headings, and the page of help that travels with it has all of them; `make docs` writes both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from state_store.observe.model.rest_answers import SERVE, declared

CRITICAL, WARNING, NOTE, FINE = "critical", "warning", "note", "fine"

SEVERITIES = (CRITICAL, WARNING, NOTE)
"""Severities, worst first."""

ALERT_SEVERITIES = {CRITICAL: "page", WARNING: "ticket", NOTE: "info"}
"""Severities of alerts by that of their finding: wake somebody, tell somebody at work, or tell nobody."""

QUERY, STORE, GROUP = "query", "store", "group"
"""Subjects of a rule: a query's totals, one store, or the stores of an operator that have one name."""

DURATION, BYTES, NUMBER, RATIO = "duration", "bytes", "number", "ratio"
"""Units of figures in sentences. A duration is in milliseconds."""

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

WORDS: dict[str, dict[str, str]] = {
    "The figures at the top": {
        "Slowest restore": "How long the slowest store is expected to take if a task must restore it without "
        "local files, beside the query's `restoreObjective`.",
        "A checkpoint has": "Bytes of all files that the newest checkpoint needs, and the share of them that "
        "older versions wrote, so that they were not uploaded again.",
        "The last one wrote": "Bytes that the newest version wrote itself, in all stores.",
        "Longest chain": "Deltas that a restore reads after the snapshot, of the store with the most. Merges "
        "cut it.",
        "Full checkpoint": "When the newest full checkpoint was made that each store has; of the stores, the "
        "oldest. Older files are not needed for a restore of it. `never`: a store has none.",
        "In storage": "Bytes of all files in checkpoint storage, and how many versions can be restored.",
        "Merges failed": "Merges of this run that failed.",
        "Stores restored": "Restores of stores in this run: one a task without local files to go on with.",
        "Last batch took": "From the entry of the batch in Spark's offset log to that in the commit log.",
        "Last commit took": "The longest commit of a store in the newest batch: writing the delta, "
        "and storing it.",
        "Verified": "When `state-store verify` last read all files of the query. Listings show lost files, "
        "not changed bytes.",
    },
    "All queries": {
        "Query": "The name of the query, else its id or its directory. Choose one to see it.",
        "Verdict": "The worst severity of its findings: critical, warning or fine. The list asks again "
        "every few seconds.",
        "What it says": "The verdict in one sentence.",
        "Last checkpoint": "When Spark committed the newest batch.",
        "Stores": "How many stores it has: partitions of its stateful operators, each with the stores of "
        "its side or kind.",
    },
    "Latest": {
        "Latest failure": "The newest merge that failed, or the error that ended the query, in "
        "its own words.",
        "Latest restore": "The newest restore of a store: how long it took. Known to the Spark UI "
        "of the query.",
    },
    "Summary": {
        "Figure": "A figure over the stores, at the newest checkpoint, or over the checkpoints of the "
        "history.",
        "Median": "Half of the stores, or checkpoints, have at most this.",
        "95 %": "95 of 100 have at most this.",
        "Largest": "The largest value.",
        "All": "The sum, where a sum says something.",
    },
    "Stores": {
        "Store": "Number of the operator, number of the partition, name of the store; and what the "
        "operator does.",
        "Bytes, by age of the files": "The files that a restore of the store reads, by the number of "
        "versions since they were written. Old bytes are shared by many checkpoints.",
        "Bytes": "Bytes of the files that a restore needs.",
        "Keys": "Rows of the store, where they are known without reading it.",
        "Deltas": "Deltas that a restore reads after the snapshot.",
        "Files": "SST files that a restore needs.",
        "Restore": "How long a restore without local files is expected to take; red if longer than "
        "`restoreObjective`.",
        "Full checkpoint": "When the newest full checkpoint of the store was made.",
    },
    "Merges": {
        "State": "running, waiting or failed.",
        "Store": "Number of the operator, number of the partition, name of the store.",
        "Kind": "`ingest` frees memory, `incremental` rewrites young files, `full` rewrites all of them.",
        "Since": "Since when it runs or waits, or when it failed.",
        "Why, or what it waits for": "The option that caused it, or what it waits for, or why it failed.",
    },
    "Checkpoints": {
        "Version": "The state after batch version - 1. Open it to see its stores, its files and its reasons.",
        "Made": "When Spark committed it.",
        "Wrote": "Each store writes a delta. A merge or a full checkpoint was made of it later, with "
        "the reason.",
        "Batch": "How long the whole batch took, from Spark's offset log to its commit log.",
        "Commit": "The longest commit of a store: writing the delta, then storing it. A part of the batch.",
        "Merge": "The longest merge of it that was published. Merges run beside batches.",
        "Stores": "Stores that have it.",
        "Deltas": "Longest chain of deltas of a store.",
        "Files": "Files that it needs, in all stores.",
        "Bytes": "Bytes of these.",
        "New bytes": "Bytes that it wrote itself.",
        "Restore": "How long the slowest store is expected to take to restore it.",
    },
    "Configuration": {
        "Option": "Name of the option, below `spark.sql.streaming.stateStore.incremental.`.",
        "Value": "The value in force.",
        "Default": "The value if it is not set.",
        "Meaning": "What the option does.",
    },
}
"""Sentences on figures and columns, by the part of the page and its heading."""

OPERATOR_WORDS = {
    "stateStoreSave": "aggregation",
    "sessionWindowStateStoreSaveExec": "aggregation in session windows",
    "dedupe": "deduplication",
    "dedupeWithinWatermark": "deduplication within the watermark",
    "symmetricHashJoin": "join of two streams",
    "flatMapGroupsWithState": "flatMapGroupsWithState",
    "applyInPandasWithState": "applyInPandasWithState",
    "transformWithStateExec": "transformWithState",
    "transformWithStateInPandasExec": "transformWithState in Python",
    "transformWithStateInPySparkExec": "transformWithState in Python",
    "globalLimit": "limit",
}
"""Words for what a stateful operator does, by Spark's name of it. The tab reads them from the jar."""

MAX_KEYS = 3
"""Columns that a title names; more of them are counted."""


@dataclass(frozen=True)
class Totals:
    """Figures of a query."""

    unreadable: int = declared("1 if the last look at the checkpoint failed, else 0.")
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


def title_of(name: str, keys: Sequence[str]) -> str:
    """Return the name of an operator for people, such as "aggregation on user".

    Args:
        name: Spark's name of the operator.
        keys: the columns by which it groups its rows; empty: none, or they are not known.
    """
    words = OPERATOR_WORDS.get(name, name)
    more = f" and {len(keys) - MAX_KEYS} more" if len(keys) > MAX_KEYS else ""
    return f"{words} on {', '.join(keys[:MAX_KEYS])}{more}" if keys else words
