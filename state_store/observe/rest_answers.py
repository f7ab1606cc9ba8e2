"""Answers of the REST API: queries, checkpoints, stores, files, merges and the configuration.

An answer is a frozen dataclass whose fields are made with `declared`: a type, a unit and a meaning each,
declared once. A field that a source does not know is None in Python and absent in JSON, never 0.

Names end in their unit: `_ms` is milliseconds (durations, and times since 1970 UTC where the meaning says
so), `_bytes` is bytes. Words that Flink's REST API has are Flink's.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any

DRIVER = "driver"
"""The tab of a running application, which hears of each commit and merge from the executors."""


HISTORY = "history"
"""The History Server, which reads the events of an application that has ended."""


SERVE = "serve"
"""`state-store serve` and `state-store doctor`, which read the files in checkpoint storage."""


EVERYWHERE = (DRIVER, HISTORY, SERVE)


RUNNING = (DRIVER, HISTORY)


def declared(
    meaning: str,
    *,
    sources: tuple[str, ...] = EVERYWHERE,
    name: str | None = None,
    default: Any = MISSING,
) -> Any:
    """Declare a field of an answer.

    Args:
        meaning: a sentence for the reference page.
        sources: the sources that can know the field; it is absent in answers of the others.
        name: the name in JSON; None: the name in Python.
        default: the value where none is given. A field without one is in every answer.

    Returns:
        A dataclass field.
    """
    metadata = {"meaning": meaning, "sources": sources, "name": name}
    if default is MISSING:
        return field(metadata=metadata)
    if isinstance(default, (list, dict)):
        container = type(default)
        return field(default_factory=container, metadata=metadata)
    return field(default=default, metadata=metadata)


def to_json(value: Any) -> Any:
    """Return an answer as JSON values; fields that are None are left out.

    Args:
        value: a dataclass of this model, or a list, dict, number, text or None.

    Returns:
        Dicts, lists and plain values, which `json.dumps` takes.
    """
    if is_dataclass(value):
        members = {
            (entry.metadata.get("name") or entry.name): getattr(value, entry.name) for entry in fields(value)
        }
        return {name: to_json(inner) for name, inner in members.items() if inner is not None}
    if isinstance(value, (list, tuple)):
        return [to_json(inner) for inner in value]
    if isinstance(value, dict):
        return {name: to_json(inner) for name, inner in value.items() if inner is not None}
    return value


@dataclass(frozen=True)
class Service:
    """The service that answers, and what it can do."""

    api: str = declared("Version of this API: `v1`.")
    release: str = declared("Release of the state store.")
    source: str = declared("The program that answers: `driver`, `history` or `serve`.")
    full_checkpoints: bool = declared("Full checkpoints can be requested here.")
    documentation: str | None = declared(
        "Address of the documentation, to which links of remedies are relative.", default=None
    )
    full_checkpoints_because: str | None = declared(
        "Why full checkpoints cannot be requested here, and what to do instead.", default=None
    )


@dataclass(frozen=True)
class Failure:
    """An error, with the kind that the command line gives it."""

    kind: str = declared(
        "One of the kinds of docs/protocol.md: `option`, `missing`, `damaged`, `storage`, ..."
    )
    message: str = declared("What happened, to what, and what to do.")
    file: str | None = declared("The file that the message is about.", default=None)
    option: str | None = declared("The option that the message is about.", default=None)


@dataclass(frozen=True)
class Problem:
    """An error of a request (RFC 9457), as `application/problem+json`."""

    status: int = declared("The HTTP status.")
    title: str = declared("The status in words.")
    kind: str = declared("One of the kinds of docs/protocol.md.")
    detail: str = declared("What happened, to what, and what to do.")
    type: str = declared(
        "Address of a page about the problem; `about:blank` if there is none.", default="about:blank"
    )


@dataclass(frozen=True)
class Finding:
    """A thing that is wrong with a query, or that its operator should know."""

    code: str = declared("Name of the rule that found it; alerts carry it as the label `finding`.")
    severity: str = declared("`critical`: act now; `warning`: act soon; `note`: know it.")
    sentence: str = declared("What is wrong, with figures.")
    remedy: str = declared("What to do.")
    link: str = declared("Page and heading about it, relative to the documentation.")
    count: int | None = declared("How many stores it is true of.", default=None)
    operator: int | None = declared("Operator of the worst of these stores.", default=None)
    partition: int | None = declared("Partition of the worst of these stores.", default=None)
    store: str | None = declared("Name of the worst of these stores.", default=None)


@dataclass(frozen=True)
class Verdict:
    """A judgement on a query, worst finding first."""

    severity: str = declared("The worst severity of the findings; `fine` if there is none, or only notes.")
    sentence: str = declared("The whole verdict in one sentence.")
    findings: list[Finding] = declared("The findings, worst first.")


@dataclass(frozen=True)
class OperatorNames:
    """A stateful operator and the names of its stores."""

    operator: int = declared("Number of the operator in the query.")
    name: str = declared("Spark's name of the operator, or the user's name of its processor.")
    stores: list[str] = declared("Names of its stores; a join of some formats has four.")
    title: str | None = declared(
        "Its name for people, with its grouping columns where they are known: `aggregation on user`.",
        default=None,
    )
    variables: list[str] = declared(
        "State variables of `transformWithState` and other column families, the user's before internal ones.",
        default=[],
    )


@dataclass(frozen=True)
class ExecutorStores:
    """An executor, and how many of a query's stores are on it."""

    executor: str = declared("Spark's id of the executor.")
    host: str = declared("Its host.")
    stores: int = declared("Number of the stores; 0 if it takes tasks and has none.")


@dataclass(frozen=True)
class Query:
    """A query and the condition of its state."""

    name: str = declared("Name in addresses of this API: the query's name, else its id or directory.")
    checkpoint: str = declared("The checkpoint directory.")
    verdict: str = declared("Severity of the verdict: `fine`, `warning` or `critical`.")
    read_ms: int | None = declared("When the figures were read, since 1970 UTC.", default=None)
    id: str | None = declared("Spark's id of the query, which survives restarts.", default=None)
    run: str | None = declared("Spark's id of this run of the query.", sources=RUNNING, default=None)
    application: str | None = declared("Spark's id of the application.", sources=RUNNING, default=None)
    running: bool | None = declared(
        "The query is running; absent where only its files are known.", sources=RUNNING, default=None
    )
    batch: int | None = declared("The batch that Spark committed last.", default=None)
    version: int | None = declared("The version of the state after it: batch + 1.", default=None)
    committed_ms: int | None = declared("When it was committed, since 1970 UTC.", default=None)
    stores: int | None = declared("Number of stores.", default=None)
    sentence: str | None = declared("The verdict in one sentence.", default=None)
    verified_ms: int | None = declared(
        "When `state-store verify` last checked the whole query, since 1970 UTC; absent if it never did.",
        sources=(SERVE,),
        default=None,
    )
    verified_version: int | None = declared("The version that it restored.", sources=(SERVE,), default=None)
    verify_problems: int | None = declared(
        "Problems that it found and whose files are still there as they were.", sources=(SERVE,), default=None
    )
    error: Failure | None = declared("Why the checkpoint cannot be read.", sources=(SERVE,), default=None)
    operators: list[OperatorNames] = declared("The stateful operators.", default=[])
    executors: list[ExecutorStores] | None = declared(
        "The executors that have stores or take tasks.", sources=RUNNING, default=None
    )


@dataclass(frozen=True)
class Queries:
    """All queries that this service knows."""

    queries: list[Query] = declared("The queries, those with the worst verdict first.")


@dataclass(frozen=True)
class AgeBytes:
    """Bytes of a store's files of one age."""

    versions: str = declared("Age of the files: `0-9`, `10-99`, `100-999` or `1000+` versions.")
    bytes: int = declared("Bytes of these files.")


@dataclass(frozen=True)
class Store:
    """A store: a partition of a stateful operator, at the version that Spark committed last."""

    operator: int = declared("Number of the operator.")
    partition: int = declared("Number of the partition.")
    store: str = declared("Name of the store; `default` for most operators.")
    operator_name: str | None = declared("Spark's name of the operator.", default=None)
    version: int | None = declared("The version that the figures are of.", default=None)
    checkpoint_id: str | None = declared("Spark's id of that version (checkpoint format 2).", default=None)
    committed_ms: int | None = declared("When that version was committed, since 1970 UTC.", default=None)
    keys: int | None = declared("Number of keys.", default=None)
    deltas: int | None = declared("Deltas that a restore reads after the snapshot.", default=None)
    deltas_since_full: int | None = declared("Deltas since the newest full checkpoint.", default=None)
    merges_since_full: int | None = declared("Merges since the newest full checkpoint.", default=None)
    files: int | None = declared("SST files that a restore needs.", default=None)
    bytes: int | None = declared("Bytes of these files.", default=None)
    shared_files: int | None = declared(
        "Files among them that an older snapshot or delta wrote.", default=None
    )
    shared_bytes: int | None = declared("Bytes of these.", default=None)
    own_files: int | None = declared("The other files: written by the snapshot or later.", default=None)
    own_bytes: int | None = declared("Bytes of these.", default=None)
    new_bytes: int | None = declared(
        "Bytes of the files that this version needs and no older one does. Of an older version a driver says "
        "what they were when it was recorded, before later merges of it.",
        default=None,
    )
    bytes_by_age: list[AgeBytes] = declared("Bytes by the age of the files.", sources=(SERVE,), default=[])
    snapshot_kind: str | None = declared("Kind of the snapshot: `merge` or `full`.", default=None)
    snapshot_version: int | None = declared(
        "Version of the snapshot that a restore starts from.", default=None
    )
    snapshot_ms: int | None = declared("When that snapshot was made, since 1970 UTC.", default=None)
    snapshot_reason: str | None = declared(
        "Why that snapshot was made; absent for snapshots of older releases.", sources=(SERVE,), default=None
    )
    snapshot_predicted_ms: int | None = declared(
        "How long a restore was expected to take before that snapshot was made, by what restores of the "
        "store had taken.",
        sources=(SERVE,),
        default=None,
    )
    full_ms: int | None = declared("When the newest full checkpoint was made, since 1970 UTC.", default=None)
    full_version: int | None = declared("Version of the newest full checkpoint.", default=None)
    chain_since_ms: int | None = declared(
        "Since when the chain has grown, since 1970 UTC: the newest full checkpoint, or, if there never "
        "was one, the "
        "oldest file that is needed.",
        default=None,
    )
    restore_predicted_ms: float | None = declared(
        "How long a restore without local files is expected to take.", default=None
    )
    restore_objective_ms: int | None = declared("The query's `restoreObjective`.", default=None)
    restore_basis: str | None = declared(
        "Basis of the prediction: `measured` on this store, or `assumed` for the kind of storage.",
        default=None,
    )
    stored_files: int | None = declared("Files of all versions in storage.", sources=(SERVE,), default=None)
    stored_bytes: int | None = declared("Bytes of these.", sources=(SERVE,), default=None)
    unneeded_files: int | None = declared(
        "Files among them that no restorable version needs.", sources=(SERVE,), default=None
    )
    unneeded_bytes: int | None = declared("Bytes of these.", sources=(SERVE,), default=None)
    undeletable_files: int | None = declared(
        "Files that no restorable version needs, and that are there two hours of commits after a clean-up "
        "was to delete them.",
        sources=(SERVE,),
        default=None,
    )
    restorable: int | None = declared("Versions that can be restored.", sources=(SERVE,), default=None)
    error: Failure | None = declared(
        "Why the store cannot be read or restored; the other figures are then absent. A driver reads no "
        "files: there the batch fails.",
        sources=(SERVE,),
        default=None,
    )
    verify_problem: Failure | None = declared(
        "A problem of it that `state-store verify` found and whose file is still there as it was.",
        sources=(SERVE,),
        default=None,
    )
    executor: str | None = declared("Id of the executor that has the store.", sources=RUNNING, default=None)
    host: str | None = declared("Host of that executor.", sources=RUNNING, default=None)
    merges: int | None = declared("Merges in this run, full ones among them.", sources=RUNNING, default=None)
    fulls: int | None = declared("Full checkpoints in this run.", sources=RUNNING, default=None)
    merge_failures: int | None = declared("Merges that failed in this run.", sources=RUNNING, default=None)
    failures_in_row: int | None = declared(
        "Merges that failed since the last success.", sources=RUNNING, default=None
    )
    last_failure: Failure | None = declared("Why the last of these failed.", sources=RUNNING, default=None)
    uploaded_bytes: int | None = declared("Bytes uploaded in this run.", sources=RUNNING, default=None)
    restores: int | None = declared("Restores in this run.", sources=RUNNING, default=None)
    restored_ms: int | None = declared("How long the last restore took.", sources=RUNNING, default=None)
    memory_bytes: int | None = declared(
        "Memory of recent versions and of their index.", sources=RUNNING, default=None
    )
    damaged_files: int | None = declared(
        "Files in which a batch, or the verification in the background, found damage in this run.",
        sources=RUNNING,
        default=None,
    )
    agent_restarts: int | None = declared(
        "How often the executor's agent was started again in this run.", sources=RUNNING, default=None
    )


@dataclass(frozen=True)
class Stores:
    """A page of stores."""

    total: int = declared("Number of stores that match.")
    offset: int = declared("How many of them come before this page.")
    stores: list[Store] = declared("The stores of this page, in the order that was asked for.")
    version: int | None = declared("The version that Spark committed last.", default=None)


@dataclass(frozen=True)
class Spread:
    """A figure over the stores of a query."""

    p50: float = declared("Median.")
    p95: float = declared("95th percentile.")
    max: float = declared("Largest value.")
    sum: float = declared("Sum.")


@dataclass(frozen=True)
class Summary:
    """Figures over the stores of a query."""

    bytes: Spread | None = declared("Bytes of the files that a restore needs.", default=None)
    files: Spread | None = declared("Files that a restore needs.", default=None)
    keys: Spread | None = declared("Keys.", default=None)
    deltas: Spread | None = declared("Deltas after the snapshot.", default=None)
    restore_predicted_ms: Spread | None = declared("Predicted duration of a restore.", default=None)
    stored_bytes: Spread | None = declared(
        "Bytes in storage, of all versions.", sources=(SERVE,), default=None
    )
    commit_ms: Spread | None = declared(
        "Duration of the commit: writing the delta and storing it.", sources=RUNNING, default=None
    )
    write_ms: Spread | None = declared(
        "The part of it in which the delta was sorted and written.", sources=RUNNING, default=None
    )
    store_ms: Spread | None = declared(
        "The part of it until the delta was in checkpoint storage.", sources=RUNNING, default=None
    )


@dataclass(frozen=True)
class Counts:
    """Numbers of checkpoints, by kind."""

    delta: int = declared("Versions of the history with a delta alone.")
    merge: int = declared("Versions of the history at which a merge was published.")
    full: int = declared("Versions of the history at which a full checkpoint was published.")
    restorable: int | None = declared(
        "Versions that every store can restore.", sources=(SERVE,), default=None
    )
    failed: int | None = declared("Merges that failed in this run.", sources=RUNNING, default=None)
    restored: int | None = declared("Restores of stores in this run.", sources=RUNNING, default=None)


@dataclass(frozen=True)
class Checkpoint:
    """A version of a query, all its stores together."""

    version: int = declared("The version: the state after batch version - 1.")
    batch: int = declared("The batch that made it.")
    stores: int = declared("Stores that have it.")
    wrote: dict[str, int] = declared("Stores that wrote a `delta`, a `merge` and a `full` snapshot at it.")
    deltas: int = declared("Longest chain of deltas of a store.")
    files: int = declared("Files that it needs, in all stores.")
    bytes: int = declared("Bytes of these.")
    new_bytes: int = declared("Bytes of the files that it needs and no older version does.")
    made_ms: int | None = declared(
        "When it was committed, since 1970 UTC; absent if nothing says it but the time at which the "
        "checkpoint was copied.",
        default=None,
    )
    deltas_since_full: int | None = declared(
        "Most deltas of a store since its full checkpoint.", default=None
    )
    shared_bytes: int | None = declared("Bytes that older versions wrote.", default=None)
    restorable: bool | None = declared(
        "Every store can restore it; absent where storage was not read.", sources=(SERVE,), default=None
    )
    restore_predicted_ms: float | None = declared("Longest predicted restore of a store.", default=None)
    restore_objective_ms: int | None = declared("The query's `restoreObjective`.", default=None)
    merge_failures: int | None = declared(
        "Merges that failed since the batch before.", sources=RUNNING, default=None
    )
    reasons: list[str] = declared("Why merges were made, as far as it is known.", default=[])
    batch_ms: int | None = declared(
        "How long its batch took: by Spark's progress in a running query, and for `serve` from the entry in "
        "Spark's offset log to that in the commit log; absent in a copy of a checkpoint, and in records of "
        "earlier releases.",
        default=None,
    )
    commit_ms: int | None = declared(
        "The longest commit of a store: writing the delta and storing it.", sources=RUNNING, default=None
    )
    write_ms: int | None = declared(
        "The longest time in which a store sorted and wrote its delta.", sources=RUNNING, default=None
    )
    store_ms: int | None = declared(
        "The longest time until the delta of a store was in checkpoint storage.",
        sources=RUNNING,
        default=None,
    )
    merge_ms: int | None = declared(
        "The longest merge of it that was published.", sources=RUNNING, default=None
    )


@dataclass(frozen=True)
class Happening:
    """The latest failure, or the latest restore, of a query."""

    at_ms: int = declared("When it ended, since 1970 UTC.")
    message: str = declared("What happened, in a sentence.")
    operator: int | None = declared("Number of the operator.", default=None)
    partition: int | None = declared("Number of the partition.", default=None)
    store: str | None = declared("Name of the store.", default=None)
    version: int | None = declared("The version that it is about.", default=None)
    took_ms: int | None = declared("How long it took.", default=None)


@dataclass(frozen=True)
class Checkpoints:
    """The history of a query's checkpoints."""

    counts: Counts = declared("How many there are.")
    summary: Summary = declared("Figures over the stores, at the newest checkpoint.")
    history: list[Checkpoint] = declared("Checkpoints, newest first: at most `limit`, older than `before`.")
    more: bool = declared("There are older ones: ask again with `before` the oldest version of this answer.")
    latest: Checkpoint | None = declared("The newest checkpoint.", default=None)
    full_version: int | None = declared(
        "The newest full checkpoint that each store has: its version, of the store with the oldest; absent "
        "if a store never had one.",
        default=None,
    )
    full_ms: int | None = declared("When it was made, since 1970 UTC.", default=None)
    latest_failure: Happening | None = declared(
        "The latest merge that failed, or the error that ended the query.", default=None
    )
    latest_restore: Happening | None = declared(
        "The latest restore of a store, in this run.", sources=RUNNING, default=None
    )


@dataclass(frozen=True)
class CheckpointDetails:
    """A version of a query, store by store."""

    checkpoint: Checkpoint = declared("The version, all stores together.")
    total: int = declared("Number of stores that match.")
    offset: int = declared("How many of them come before this page.")
    stores: list[Store] = declared("The stores of this page.")


@dataclass(frozen=True)
class File:
    """A file in checkpoint storage, and the checkpoints that need it."""

    path: str = declared("Path below the store's directory.")
    kind: str = declared("`delta`, `shared` (written by a merge) or `snapshot` (an archive).")
    bytes: int = declared("Size.")
    origin: int = declared("The version that wrote it.")
    count: int = declared("Number of restorable checkpoints that need it.")
    first: int | None = declared("Oldest version that needs it.", default=None)
    last: int | None = declared("Newest version that needs it.", default=None)


@dataclass(frozen=True)
class StoreFiles:
    """Files of a store, and the checkpoints that need each: a picture of the shared-state registry."""

    operator: int = declared("Number of the operator.")
    partition: int = declared("Number of the partition.")
    store: str = declared("Name of the store.")
    versions: list[int] = declared("Versions that can be restored, oldest first.")
    snapshots: dict[str, str] = declared("Versions with a snapshot: its kind, `merge` or `full`, by version.")
    files: list[File] = declared("The files, in the order in which they were written.")
    omitted: int = declared("How many older files are left out, because the answer is bounded.")
    version: int | None = declared(
        "The version whose files these are; absent: of all versions.", default=None
    )


@dataclass(frozen=True)
class Merge:
    """A merge that waits, runs, or failed."""

    operator: int = declared("Number of the operator.")
    partition: int = declared("Number of the partition.")
    store: str = declared("Name of the store.")
    kind: str = declared("`incremental`, `full` or `ingest`.")
    state: str = declared("`waiting`, `running` or `failed`.")
    reason: str | None = declared("Why it is made.", default=None)
    since_ms: int | None = declared("Since when it waits, runs, or has failed, since 1970 UTC.", default=None)
    version: int | None = declared("The version that it is of.", default=None)
    executor: str | None = declared("Id of the executor that has the store.", sources=RUNNING, default=None)
    waits_for: str | None = declared("What it waits for.", default=None)
    failures_in_row: int | None = declared("How often it failed since the last success.", default=None)
    failure: Failure | None = declared("Why it failed.", default=None)


@dataclass(frozen=True)
class Merges:
    """Merges of a query. `serve` knows only those that it was asked for."""

    waiting: list[Merge] = declared("Merges that wait, longest first.")
    running: list[Merge] = declared("Merges that run, longest first.")
    failed: list[Merge] = declared("The last failures, newest first, at most 100.")


@dataclass(frozen=True)
class Setting:
    """An option of the query."""

    name: str = declared("Name of the option, below `spark.sql.streaming.stateStore.incremental.`.")
    value: str = declared("Value in force.")
    default: str = declared("Value if it is not set.")
    meaning: str = declared("What the option does.")


@dataclass(frozen=True)
class Configuration:
    """The configuration in force."""

    options: list[Setting] = declared("Options of this store that are known here.")
    provider: str | None = declared(
        "Class of the state store provider that the query is pinned to.", default=None
    )
    checkpoint_format: int | None = declared("Spark's checkpoint format: 1 or 2.", default=None)


@dataclass(frozen=True)
class FullCheckpointRequest:
    """A request for a full checkpoint; the body of a POST, `application/json`."""

    checkpoint_type: str = declared("Must be `FULL`.", name="checkpointType", default="FULL")
    operator: int | None = declared("Only stores of this operator.", default=None)
    partition: int | None = declared("Only this partition.", default=None)
    store: str | None = declared("Only stores of this name.", default=None)
    trigger_id: str | None = declared(
        "The caller's own id, 1 to 64 of `A-Za-z0-9._-`: a second request with it gets the first one's "
        "answer.",
        name="triggerId",
        default=None,
    )


@dataclass(frozen=True)
class Accepted:
    """The answer to a request for a full checkpoint."""

    request_id: str = declared("Id to poll, at `checkpoints/triggers/{id}`.", name="request-id")


@dataclass(frozen=True)
class StoreOutcome:
    """The full checkpoint of one store, or why there is none."""

    operator: int = declared("Number of the operator.")
    partition: int = declared("Number of the partition.")
    store: str = declared("Name of the store.")
    outcome: str = declared("`made`, `already` (the version was full before) or `failed`.")
    version: int | None = declared("The version of which it was made.", default=None)
    files: int | None = declared("Files of it.", default=None)
    bytes: int | None = declared("Bytes of these.", default=None)
    duration_ms: int | None = declared("How long it took.", default=None)
    failure: Failure | None = declared("Why there is none.", default=None)


@dataclass(frozen=True)
class Status:
    """The state of a request, in Flink's words."""

    id: str = declared("`IN_PROGRESS` or `COMPLETED`; a request that failed is `COMPLETED`, with a failure.")


@dataclass(frozen=True)
class Made:
    """The result of a request that has ended, in Flink's words."""

    checkpoint_id: int | None = declared(
        "The newest version that was made.", name="checkpointId", default=None
    )
    failure_cause: str | None = declared("Why it failed.", name="failureCause", default=None)


@dataclass(frozen=True)
class Operation:
    """A full checkpoint that was requested."""

    request_id: str = declared("Id of the request.", name="request-id")
    status: Status = declared("Its state.")
    query: str = declared("Name of the query.")
    asked_ms: int = declared("When it was requested, since 1970 UTC.")
    made: int = declared("Stores that are done.")
    failed: int = declared("Stores that failed.")
    stores: list[StoreOutcome] = declared("Outcomes so far, failures first; at most 1,000.")
    operation: Made | None = declared("Its result; absent while it runs.", default=None)
    ended_ms: int | None = declared("When it ended, since 1970 UTC.", default=None)
    wanted: int | None = declared("Number of stores that it is about.", default=None)
    failure: Failure | None = declared("Why nothing, or not everything, was made.", default=None)
