"""Metrics, each declared once: those in the progress of Spark's queries, and those for Prometheus.

A metric in the progress names the series for Prometheus that tells of the same fact, and says why the numbers
differ where they do. The Scala side reads both declarations from the jar.

A gauge for Prometheus names the field of the answers that it shows, so that `serve` and the tab in Spark's UI
write it from the same declaration. The driver counts counters and histograms itself, since it hears of each
event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from state_store.observe.rest_answers import DRIVER, SERVE

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"

OF_SERVICE, OF_QUERY, OF_GROUP, OF_STORE = "service", "query", "group", "store"
"""Subjects: the service, a query (`Query`, `Totals`), the partitions of a store together (`Group`), one store
(`Store`).
"""

LABELS = {
    OF_SERVICE: (),
    OF_QUERY: ("query",),
    OF_GROUP: ("query", "operator", "store"),
    OF_STORE: ("query", "operator", "store", "partition"),
}
"""Labels of the metrics of each subject, before those that a metric has of its own."""

MAX_STORES = 500
"""Above so many stores in a query, metrics of stores are aggregated over partitions and have no label
`partition`.
"""

SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
"""Buckets of durations."""

BOTH = (DRIVER, SERVE)


@dataclass(frozen=True)
class Metric:
    """A metric.

    Attributes:
        name: name in Prometheus, with its unit.
        kind: `gauge`, `counter` or `histogram`.
        subject: the thing that it is a figure of; it decides the labels.
        meaning: help text.
        question: the question that it answers.
        sources: `driver`, `serve`, or both.
        field: field of the answers that a gauge or counter shows; None: the source counts it.
        scale: factor from the field to the metric (milliseconds to seconds: 0.001).
        over: aggregation over partitions above 500 stores: `max`, `min` or `sum`.
        labels: labels beside those of the subject.
        buckets: upper bounds of a histogram.
    """

    name: str
    kind: str
    subject: str
    meaning: str
    question: str
    sources: tuple[str, ...] = BOTH
    field: str | None = None
    scale: float = 1
    over: str = "max"
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def _gauge(name: str, subject: str, field: str, meaning: str, question: str, **more: Any) -> Metric:
    scale = 0.001 if name.endswith("_seconds") else 1
    return Metric(name, GAUGE, subject, meaning, question, field=field, scale=scale, **more)


def _counter(name: str, subject: str, field: str | None, meaning: str, question: str, **more: Any) -> Metric:
    return Metric(name, COUNTER, subject, meaning, question, field=field, over="sum", **more)


METRICS: tuple[Metric, ...] = (
    _gauge(
        "state_store_up", OF_QUERY, "up", "1 if the last look at the query was successful.", "Can it be read?"
    ),
    Metric(
        "state_store_query_info",
        GAUGE,
        OF_QUERY,
        "1, with names of the query as labels.",
        "Which application and run is it?",
        labels=("id", "run", "application", "checkpoint"),
    ),
    _gauge(
        "state_store_verdict",
        OF_QUERY,
        "severity",
        "Verdict: 0 fine, 1 warning, 2 critical.",
        "Is anything wrong?",
    ),
    _gauge(
        "state_store_committed_batch", OF_QUERY, "batch", "Batch that Spark committed last.", "Does it go on?"
    ),
    _gauge("state_store_stores", OF_QUERY, "stores", "Number of stores.", "How large is the query?"),
    _gauge(
        "state_store_damaged_stores",
        OF_QUERY,
        "damaged_stores",
        "Stores that cannot be restored at the version that Spark committed last. The driver reads no files.",
        "Would a restart work?",
        sources=(SERVE,),
    ),
    _gauge(
        "state_store_start_problems",
        OF_QUERY,
        "start_problems",
        "Files of Spark's that are lost or damaged, so that the query cannot start again.",
        "Would a restart work?",
        sources=(SERVE,),
    ),
    _gauge(
        "state_store_verify_problems",
        OF_QUERY,
        "verify_problems",
        "Problems that the last `state-store verify` found and whose files are still there as they were.",
        "Is anything known to be damaged?",
        sources=(SERVE,),
    ),
    _gauge(
        "state_store_verified_timestamp_seconds",
        OF_QUERY,
        "verified_ms",
        "When `state-store verify` last checked the whole query; absent if it never did.",
        "When were the files read last?",
        sources=(SERVE,),
    ),
    _gauge(
        "state_store_unverified_since_timestamp_seconds",
        OF_QUERY,
        "unverified_since_ms",
        "The same or, if it never did, when the query began.",
        "For how long may damage lie undetected?",
        sources=(SERVE,),
    ),
    _gauge(
        "state_store_restore_objective_seconds",
        OF_QUERY,
        "restore_objective_ms",
        "The query's restoreObjective; 0 if it is switched off.",
        "How long may a restore take?",
    ),
    _gauge(
        "state_store_failed",
        OF_QUERY,
        "failed",
        "1 if the query has ended with an error, until it has committed a batch again, else 0.",
        "Which query has failed?",
        sources=(DRIVER,),
    ),
    _gauge(
        "state_store_idle_executors",
        OF_QUERY,
        "idle_executors",
        "Executors that have none of the query's stores five minutes after their start, while another has "
        "more partitions of an operator than cores; absent in local mode.",
        "Do all executors work?",
        sources=(DRIVER,),
    ),
    _gauge(
        "state_store_scan_duration_seconds",
        OF_QUERY,
        "scan_ms",
        "How long the last look at storage took.",
        "Is storage slow?",
        sources=(SERVE,),
    ),
    _counter(
        "state_store_scan_errors_total",
        OF_QUERY,
        "scan_errors",
        "Looks at storage that failed.",
        "Does storage refuse?",
        sources=(SERVE,),
    ),
    _counter(
        "state_store_storage_requests_total",
        OF_QUERY,
        None,
        "Requests to storage that this service made.",
        "What does looking cost?",
        sources=(SERVE,),
        labels=("kind",),
    ),
    _gauge(
        "state_store_largest_store_bytes",
        OF_GROUP,
        "largest_bytes",
        "Bytes of the largest partition.",
        "Which partition is slowest to restore?",
    ),
    _gauge(
        "state_store_largest_store_ratio",
        OF_GROUP,
        "largest_ratio",
        "Bytes of the largest partition, per byte of the median.",
        "Is the state skewed?",
    ),
    _gauge("state_store_keys", OF_STORE, "keys", "Keys.", "How much state is there?", over="sum"),
    _gauge(
        "state_store_last_checkpoint_timestamp_seconds",
        OF_STORE,
        "committed_ms",
        "When the newest version was written.",
        "When was the last checkpoint?",
    ),
    _gauge(
        "state_store_last_merge_timestamp_seconds",
        OF_STORE,
        "snapshot_ms",
        "When the snapshot that a restore starts from was made.",
        "Do merges keep up?",
        over="min",
    ),
    _gauge(
        "state_store_last_full_checkpoint_timestamp_seconds",
        OF_STORE,
        "full_ms",
        "When the newest full checkpoint was made; absent if there never was one.",
        "When was the last full checkpoint?",
        over="min",
    ),
    _gauge(
        "state_store_chain_start_timestamp_seconds",
        OF_STORE,
        "chain_since_ms",
        "When the newest full checkpoint was made or, if there never was one, the oldest file that is "
        "needed.",
        "How old are the files that the newest checkpoint depends on? It exists even if there never was a "
        "full one.",
        over="min",
    ),
    _gauge(
        "state_store_chain_deltas",
        OF_STORE,
        "deltas",
        "Deltas that a restore reads.",
        "Is the chain cut in time?",
    ),
    _gauge(
        "state_store_chain_deltas_since_full",
        OF_STORE,
        "deltas_since_full",
        "Deltas since the newest full checkpoint.",
        "How much history does the newest checkpoint depend on?",
    ),
    _gauge(
        "state_store_chain_merges_since_full",
        OF_STORE,
        "merges_since_full",
        "Merges since the newest full checkpoint.",
        "How much history does the newest checkpoint depend on?",
    ),
    _gauge(
        "state_store_chain_files",
        OF_STORE,
        "files",
        "Files that a restore needs.",
        "What does a restore read?",
        over="sum",
    ),
    _gauge(
        "state_store_chain_bytes",
        OF_STORE,
        "bytes",
        "Bytes of the files that a restore needs.",
        "What does a restore read?",
        over="sum",
    ),
    _gauge(
        "state_store_chain_shared_bytes",
        OF_STORE,
        "shared_bytes",
        "Bytes among them that older versions wrote.",
        "Is incremental incremental?",
        over="sum",
    ),
    _gauge(
        "state_store_restore_predicted_seconds",
        OF_STORE,
        "restore_predicted_ms",
        "How long a restore without local files is expected to take.",
        "How long would a restart take?",
    ),
    _gauge(
        "state_store_stored_bytes",
        OF_STORE,
        "stored_bytes",
        "Bytes in storage, of all versions.",
        "What does storage hold?",
        sources=(SERVE,),
        over="sum",
    ),
    _gauge(
        "state_store_stored_files",
        OF_STORE,
        "stored_files",
        "Files in storage, of all versions.",
        "What does storage hold?",
        sources=(SERVE,),
        over="sum",
    ),
    _gauge(
        "state_store_unneeded_bytes",
        OF_STORE,
        "unneeded_bytes",
        "Bytes in storage that no restorable version needs.",
        "Do clean-ups work?",
        sources=(SERVE,),
        over="sum",
    ),
    _gauge(
        "state_store_undeletable_files",
        OF_STORE,
        "undeletable_files",
        "Files that no restorable version needs, and that are there two hours of commits after a clean-up "
        "was to delete them.",
        "Does the storage refuse to delete files?",
        sources=(SERVE,),
        over="sum",
    ),
    _gauge(
        "state_store_restorable_checkpoints",
        OF_STORE,
        "restorable",
        "Versions that can be restored.",
        "How far back can it go?",
        sources=(SERVE,),
        over="min",
    ),
    _gauge(
        "state_store_merge_failures_in_row",
        OF_STORE,
        "failures_in_row",
        "Merges that failed since the last success.",
        "Do merges fail?",
        sources=(DRIVER,),
    ),
    _gauge(
        "state_store_memory_bytes",
        OF_STORE,
        "memory_bytes",
        "Memory outside the heap: changes, recent versions, their index, and RocksDB's cache.",
        "How much memory does state take?",
        sources=(DRIVER,),
        over="sum",
    ),
    _counter(
        "state_store_merges_total",
        OF_QUERY,
        None,
        "Merges that were made, by kind; all but `ingest` publish a snapshot.",
        "Are there merges?",
        sources=(DRIVER,),
        labels=("kind",),
    ),
    _counter(
        "state_store_merge_failures_total",
        OF_QUERY,
        None,
        "Merges that failed, by kind.",
        "Do merges fail?",
        sources=(DRIVER,),
        labels=("kind",),
    ),
    Metric(
        "state_store_merge_duration_seconds",
        HISTOGRAM,
        OF_QUERY,
        "Duration of merges, by kind.",
        "How long do merges take?",
        sources=(DRIVER,),
        labels=("kind",),
        buckets=SECONDS,
    ),
    _gauge(
        "state_store_merges_waiting",
        OF_QUERY,
        "merges_waiting",
        "Merges that wait.",
        "Do merges keep up?",
        sources=(DRIVER,),
    ),
    _gauge(
        "state_store_merges_running",
        OF_QUERY,
        "merges_running",
        "Merges that run.",
        "What is going on?",
        sources=(DRIVER,),
    ),
    _counter(
        "state_store_uploaded_bytes_total",
        OF_QUERY,
        None,
        "Bytes uploaded, by `delta`, `merge` and `full`.",
        "What do checkpoints cost?",
        sources=(DRIVER,),
        labels=("part",),
    ),
    _counter(
        "state_store_restores_total",
        OF_QUERY,
        None,
        "Restores.",
        "Do tasks move between executors?",
        sources=(DRIVER,),
    ),
    Metric(
        "state_store_restore_duration_seconds",
        HISTOGRAM,
        OF_QUERY,
        "Duration of restores.",
        "How long do restores take, compared with the prediction?",
        sources=(DRIVER,),
        buckets=SECONDS,
    ),
    Metric(
        "state_store_commit_duration_seconds",
        HISTOGRAM,
        OF_QUERY,
        "Duration of commits: writing the delta and storing it.",
        "What do checkpoints cost a batch?",
        sources=(DRIVER,),
        buckets=SECONDS,
    ),
    _counter(
        "state_store_damaged_files_total",
        OF_QUERY,
        None,
        "Files in which a batch, or the verification in the background, found damage.",
        "Does a disk rot?",
        sources=(DRIVER,),
    ),
    _counter(
        "state_store_agent_restarts_total",
        OF_QUERY,
        None,
        "Agents that were started again.",
        "Do agents die?",
        sources=(DRIVER,),
    ),
    _counter(
        "state_store_moved_total",
        OF_QUERY,
        None,
        "Commits of stores by another executor than the one that made the commit before.",
        "Do stores move?",
        sources=(DRIVER,),
    ),
    _counter(
        "state_store_full_checkpoint_requests_total",
        OF_QUERY,
        None,
        "Full checkpoints that were requested here and have ended, by outcome: `completed` or `failed`.",
        "Do requests for full checkpoints succeed?",
        labels=("outcome",),
    ),
)
"""The metrics, in the order of the exposition."""


SUM, BYTES, TIME, LARGEST, OLDEST = "sum", "bytes", "time", "largest", "oldest"
"""Kinds of metrics in Spark's progress: a number, bytes and milliseconds that are summed over the stores of
an operator, and the largest number and the largest age, in milliseconds, of them.
"""

SAME = "the same number"
"""A gauge has the number of the newest batch; durations are in seconds."""

ADDED_UP = "the sum over the batches of the run"
"""A counter has the sum of the numbers of all batches; durations are in seconds."""


@dataclass(frozen=True)
class ProgressMetric:
    """A custom metric in Spark's progress, in whole numbers of one batch.

    Attributes:
        name: name in the progress, with its unit.
        kind: its unit and aggregation over the stores of an operator: `SUM`, `BYTES`, `TIME`, `LARGEST` or
            `OLDEST`.
        meaning: description; Spark's UI has it after "State store: ".
        series: series for Prometheus of the same fact, in PromQL; None: there is none. Metrics in the
            progress that have the same series are its parts.
        relation: `SAME`, `ADDED_UP`, or the reason why the numbers differ.
    """

    name: str
    kind: str
    meaning: str
    series: str | None = None
    relation: str | None = None


PROGRESS: dict[str, tuple[ProgressMetric, ...]] = {
    "Commits": (
        ProgressMetric(
            "incrementalDeltaBytes",
            BYTES,
            "bytes of the deltas that the batch committed",
            'state_store_uploaded_bytes_total{part="delta"}',
            ADDED_UP,
        ),
        ProgressMetric("incrementalDeltaPuts", SUM, "records that put in these deltas"),
        ProgressMetric("incrementalDeltaRemoves", SUM, "records that remove in these deltas"),
        ProgressMetric(
            "incrementalCommitWriteMs",
            TIME,
            "commit - time to sort and write the delta locally",
            "state_store_commit_duration_seconds_sum",
            ADDED_UP,
        ),
        ProgressMetric(
            "incrementalCommitStoreMs",
            TIME,
            "commit - time until the delta is in checkpoint storage",
            "state_store_commit_duration_seconds_sum",
            ADDED_UP,
        ),
        ProgressMetric("incrementalForcedSnapshots", SUM, "stores whose snapshot Spark forced at the commit"),
    ),
    "The chain of files": (
        ProgressMetric(
            "incrementalChainDeltas",
            LARGEST,
            "deltas since the newest snapshot (maximum over stores)",
            "state_store_chain_deltas",
            SAME,
        ),
        ProgressMetric(
            "incrementalDeltasSinceFull",
            LARGEST,
            "deltas since the newest full checkpoint (maximum over stores)",
            "state_store_chain_deltas_since_full",
            SAME,
        ),
        ProgressMetric(
            "incrementalMergesSinceFull",
            LARGEST,
            "merges since the newest full checkpoint (maximum over stores)",
            "state_store_chain_merges_since_full",
            SAME,
        ),
        ProgressMetric(
            "incrementalChainFiles",
            SUM,
            "files that the newest checkpoint needs",
            "state_store_chain_files",
            SAME,
        ),
        ProgressMetric(
            "incrementalChainBytes", BYTES, "bytes of these files", "state_store_chain_bytes", SAME
        ),
        ProgressMetric(
            "incrementalSinceSnapshotMs",
            OLDEST,
            "time since the newest snapshot (maximum over stores)",
            "state_store_last_merge_timestamp_seconds",
            "an age when the batch ended; for Prometheus the time of the snapshot",
        ),
        ProgressMetric(
            "incrementalSinceFullMs",
            OLDEST,
            "time since the newest full checkpoint (maximum over stores)",
            "state_store_last_full_checkpoint_timestamp_seconds",
            "an age when the batch ended, 0 if there never was one; for Prometheus its time, then absent",
        ),
    ),
    "Merges": (
        ProgressMetric(
            "incrementalMergeCount",
            SUM,
            "merges that published since the batch before",
            'state_store_merges_total{kind!="ingest"}',
            ADDED_UP,
        ),
        ProgressMetric(
            "incrementalMergeMs",
            TIME,
            "duration of these merges",
            'state_store_merge_duration_seconds_sum{kind!="ingest"}',
            ADDED_UP,
        ),
        ProgressMetric(
            "incrementalFullCount",
            SUM,
            "full checkpoints among them",
            'state_store_merges_total{kind="full"}',
            ADDED_UP,
        ),
        ProgressMetric(
            "incrementalFullMs",
            TIME,
            "duration of these full checkpoints",
            'state_store_merge_duration_seconds_sum{kind="full"}',
            ADDED_UP,
        ),
        ProgressMetric(
            "incrementalIngestCount",
            SUM,
            "merges that only freed memory since then",
            'state_store_merges_total{kind="ingest"}',
            ADDED_UP,
        ),
        ProgressMetric(
            "incrementalMergeFailures",
            SUM,
            "merges that failed since then",
            "state_store_merge_failures_total",
            ADDED_UP,
        ),
        ProgressMetric(
            "incrementalUploadedBytes",
            BYTES,
            "bytes uploaded by deltas and merges since then",
            "state_store_uploaded_bytes_total",
            ADDED_UP,
        ),
        ProgressMetric(
            "incrementalSharedFiles", SUM, "files that the newest snapshot shares with older ones"
        ),
        ProgressMetric("incrementalNewFiles", SUM, "files that the newest snapshot uploaded"),
        ProgressMetric("incrementalOwnFiles", SUM, "files that only the newest snapshot needs"),
    ),
    "Loads and restores": (
        ProgressMetric(
            "incrementalLoadMs",
            TIME,
            "load - time to open the version that the batch began on",
            "state_store_restore_duration_seconds_sum",
            "of all stores; for Prometheus only of those that were restored",
        ),
        ProgressMetric(
            "incrementalRestoreCount",
            SUM,
            "load - stores restored from checkpoint storage",
            "state_store_restores_total",
            ADDED_UP,
        ),
        ProgressMetric("incrementalRestoreChooseMs", TIME, "restore - time to choose the files"),
        ProgressMetric("incrementalRestoreFetchMs", TIME, "restore - time to fetch them"),
        ProgressMetric("incrementalRestoreVerifyMs", TIME, "restore - time to verify their checksums"),
        ProgressMetric(
            "incrementalRestorePredictedMs",
            TIME,
            "restore - time that was predicted for it",
            "state_store_restore_predicted_seconds",
            "of restores that took place; for Prometheus of one of the newest version without local files",
        ),
        ProgressMetric("incrementalRestoreDeltas", SUM, "restore - deltas after the snapshot"),
        ProgressMetric("incrementalRestoreLocalFiles", SUM, "restore - files found on local disk"),
        ProgressMetric("incrementalRestoreFetchedFiles", SUM, "restore - files read from checkpoint storage"),
        ProgressMetric(
            "incrementalRestoreFetchedBytes", BYTES, "restore - bytes read from checkpoint storage"
        ),
        ProgressMetric(
            "incrementalOnDemandBytes", BYTES, "lazy restore - bytes fetched because a row was read"
        ),
        ProgressMetric("incrementalHydratedBytes", BYTES, "lazy restore - bytes fetched in the background"),
        ProgressMetric("incrementalHydrationLeftBytes", BYTES, "lazy restore - bytes still to be fetched"),
        ProgressMetric(
            "incrementalVerifiedBytes", BYTES, "background verification - bytes since the batch before"
        ),
        ProgressMetric(
            "incrementalVerificationLeftBytes", BYTES, "background verification - bytes still to be read"
        ),
        ProgressMetric(
            "incrementalDamagedFiles",
            SUM,
            "background verification - files found damaged since the batch before",
            "state_store_damaged_files_total",
            "found by the verification alone; for Prometheus also found by batches",
        ),
    ),
    "Memory and look-ups": (
        ProgressMetric("incrementalIndexHits", SUM, "look-ups answered from memory"),
        ProgressMetric("incrementalIndexMisses", SUM, "look-ups that went to the base"),
        ProgressMetric("incrementalBaseFilters", SUM, "filters of the base's files that these asked"),
        ProgressMetric("incrementalBaseBlocks", SUM, "blocks of the base's files that these read"),
        ProgressMetric(
            "incrementalBlocksAhead", SUM, "lazy restore - blocks fetched together, before they were read"
        ),
        ProgressMetric("incrementalOverlayBytes", BYTES, "memory of changes not yet committed"),
        ProgressMetric("incrementalRecentBytes", BYTES, "memory of recent versions"),
        ProgressMetric("incrementalIndexBytes", BYTES, "memory of the index over them"),
        ProgressMetric("incrementalBaseBytes", BYTES, "memory of the indexes of compressed files"),
        ProgressMetric("incrementalSpilledBytes", BYTES, "recent versions in memory-mapped files"),
        ProgressMetric("incrementalInternalKeys", SUM, "keys of internal column families"),
        ProgressMetric("incrementalColumnFamilies", SUM, "external column families"),
        ProgressMetric("incrementalInternalColumnFamilies", SUM, "internal column families"),
    ),
}
"""The custom metrics in Spark's progress, by headings of docs/metrics.md. `StoreMetrics.scala` reads them."""


def progress_metrics() -> tuple[ProgressMetric, ...]:
    """Return the metrics in Spark's progress without their headings."""
    return tuple(metric for metrics in PROGRESS.values() for metric in metrics)


OF_SPARK = (
    (
        "numRowsTotal",
        "state_store_keys",
        "without rows of internal column families, which `incrementalInternalKeys` counts",
    ),
    (
        "memoryUsedBytes",
        "state_store_memory_bytes",
        "read when the task ends; for Prometheus when the commit is reported",
    ),
    (
        "numStateStoreInstances",
        "state_store_stores",
        "of one operator; for Prometheus of all operators of a query",
    ),
)
"""Spark's own figures of an operator: name in the progress, series for Prometheus, why the numbers differ."""
