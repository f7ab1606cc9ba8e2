"""All options of the state store, each declared once, and their values as a query sets them.

An option is a field made with `option`: its name below `PREFIX`, type, default, meaning and trade-off. To add
one, add a field to its group (`LocalOptions`, `CheckpointOptions` or `Options`); run `make docs`. The
reference page (docs/options.md), the template (conf/spark-defaults.conf) and `state-store options` are
generated from them. `parse` reads the texts that Spark hands over; `ExecutorOptions` lets the queries of an
executor agree on what they share.

Values: sizes are `int` bytes, durations are `int` milliseconds. Texts follow Spark: `512m`, `1g`, `500ms`,
`30s`, `10min`, `1h`, `7d`. But for `ExecutorOptions`, everything here is immutable. All is safe for any
thread.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from typing import Any

from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.settings.option import (
    BOOL,
    BYTES,
    CRON,
    DURATION,
    EXECUTOR,
    FLOAT,
    INT,
    PREFIX,
    TEXT,
    TIME_ZONE,
    Option,
    at_least,
    one_of,
    option,
)
from state_store.errors import OptionError

BLOCKS, FILES = "blocks", "files"
"""Values of `restoreVerification`: the parts of files that restores verify."""

EAGER, LAZY, AUTO = "eager", "lazy", "auto"
"""Values of `restoreMode`: restores fetch remote files before, or while they are read."""

BALANCED, SPARK = "balanced", "spark"
"""Values of `placement`: stores follow the executors, or stay where Spark runs their tasks."""


@dataclass(frozen=True)
class LocalOptions:
    """Options of the memory and the disk that an executor gives, and of restores onto them."""

    memory_budget_bytes: int = option(
        "memoryBudget",
        at_least(BYTES, 16 << 20),
        "512m",
        scope=EXECUTOR,
        group="Memory and local disk",
        doc="""Memory that all state stores of one executor share: recent changes, their index, with
        snapshotCompression=lz4 the indexes of files, and 64 MiB (a quarter, if that is less) for the
        agent's process and for code. It is taken outside the Java heap: count it into
        spark.executor.memoryOverhead.""",
        trade_off="""More keeps more of the working set in memory, where a get costs less than in files. Less
        leaves room for Python workers. State may be many times larger than this.""",
    )
    local_dir: str = option(
        "localDir",
        TEXT,
        "",
        group="Memory and local disk",
        doc="""Directory on the executor's own disk for databases and files on their way to checkpoint
        storage. Empty: a directory below Spark's own local directories. Only the user of the executor can
        open the directories made in it.""",
        trade_off="""A fast disk on the same file system as a local checkpoint directory saves copies (files
        are hard-linked); a disk that survives executors makes local recovery possible.""",
    )
    local_recovery: bool = option(
        "localRecovery",
        BOOL,
        "true",
        group="Memory and local disk",
        doc="""Keep the files of the newest checkpoint on the executor's disk, so that a restore links them
        instead of reading them from checkpoint storage.""",
        trade_off="Faster restores against local disk space of about the live state.",
    )
    local_recovery_budget_bytes: int = option(
        "localRecoveryBudget",
        BYTES,
        "20g",
        scope=EXECUTOR,
        group="Memory and local disk",
        doc="""Local disk that files kept for local recovery may take, over all stores of one executor. The
        oldest files are removed first.""",
        trade_off="More disk against more files to read again from checkpoint storage after a restart.",
    )
    restore_verification: str = option(
        "restoreVerification",
        one_of(BLOCKS, FILES),
        BLOCKS,
        group="Memory and local disk",
        doc="""The part of the files that a restore verifies before the first row is read. With blocks it
        makes sure that each file is the right one, and the checksum of a block is verified when the block is
        first read. Such a restore takes a time by the number of files, not by their size. A damaged block
        fails the batch that reads it; the next restore verifies everything, and reads damaged files again
        from checkpoint storage or does without them. With files, every restore verifies everything.""",
        trade_off="""With files no batch fails because of a damaged file, but a restore reads all of the
        state: about a second for each GB, and a multiple of that if storage is remote.""",
    )
    verification_rate_limit_bytes_per_s: int = option(
        "verificationRateLimit",
        BYTES,
        "0",
        scope=EXECUTOR,
        group="Memory and local disk",
        doc="""Bytes a second that one executor reads and verifies in the background, of restored files that
        no batch has read yet. The log names damage with file and offset. The next batch begins with a restore
        that reads the file again from checkpoint storage, or does without it.
        0: nothing is verified before it is read.""",
        trade_off="""Damage is found before a batch fails because of it, while older files can still mend it.
        Every restore then reads all of the state after all, beside the batches.""",
    )
    restore_mode: str = option(
        "restoreMode",
        one_of(AUTO, EAGER, LAZY),
        AUTO,
        group="Memory and local disk",
        doc="""The time at which a restore fetches files. With eager it fetches all of them before the first
        row is read. With lazy it fetches the tails of remote files. Rows are then read from checkpoint
        storage as they are needed, and whole files are fetched in the background, the files that are read
        first. Merges wait until the files that they build on are whole. With auto a restore is lazy if
        fetching all files is expected to take longer than restoreObjective, by the measured transfers of this
        store (before the first, at 200 MiB a second). Restores are eager if checkpoint storage is on a local
        disk.""",
        trade_off="""With lazy the first batch starts at once, and a look-up of a missing row waits for a
        request to checkpoint storage. That pays if a batch touches few rows, or rows that lie together, or if
        the state is large. A batch fails if storage cannot be reached meanwhile.""",
    )
    look_ahead: bool = option(
        "lookAhead",
        BOOL,
        "true",
        group="Memory and local disk",
        doc="""After a lazy restore, take up to 16,384 rows of an operator's input at a time, and fetch the
        blocks of their keys together. Aggregations, deduplication, functions of groups with state,
        processors in Python and joins of streams do so. Needs the session extension.""",
        trade_off="""If off, an operator waits for one block after the other. The rows are held in memory,
        8 MiB of them at most. Without a lazy restore nothing is taken ahead.""",
    )
    hydration_rate_limit_bytes_per_s: int = option(
        "hydrationRateLimit",
        BYTES,
        "0",
        scope=EXECUTOR,
        group="Memory and local disk",
        doc="""Bytes a second that all stores of one executor fetch in the background after lazy restores.
        0: no limit.""",
        trade_off="""A limit leaves bandwidth to batches when many partitions are restored at a time. Merges
        wait longer.""",
    )
    local_disk_limit_bytes: int = option(
        "localDiskLimit",
        BYTES,
        "0",
        scope=EXECUTOR,
        group="Memory and local disk",
        doc="""Local disk that states in remote checkpoint storage may take, over all stores of one executor.
        Stores have all of their files there as long as these take half of the limit together. Of other stores
        there are pages: their blocks are fetched when they are read, and those that were not read for long
        are evicted. Indexes and filters, about 3 % of a state, are never evicted. A merge takes about another
        quarter of the limit while it runs, and the indexes and filters of its store once more. With a limit
        local recovery keeps deltas alone; localRecoveryBudget is another limit. 0: all files are local.""",
        trade_off="""Executors with small disks run on a larger state. Look-ups of blocks that are not there
        wait for checkpoint storage. Needs Linux and a file system with sparse files.""",
    )


@dataclass(frozen=True)
class CheckpointOptions:
    """Options of the files in checkpoint storage: when they are merged, rewritten and deleted."""

    restore_objective_ms: int = option(
        "restoreObjective",
        DURATION,
        "10s",
        group="Merges",
        doc="""Longest time that the restore of one store should take, as predicted from its measured restores
        and merges; of a lazy restore, the time until the first row can be read. If the prediction is longer,
        an incremental merge is made if that is enough; or else a full checkpoint, if that is enough and saves
        at least half of the bytes that it uploads. A state that takes longer by itself is not rewritten for
        this reason. 0 switches this trigger off.""",
        trade_off="""A shorter objective merges more often: more CPU and more bytes uploaded per byte of
        change.""",
    )
    max_deltas: int = option(
        "maxDeltas",
        at_least(INT, 1),
        "100",
        group="Merges",
        doc="""Most deltas that may follow the newest snapshot before an incremental merge is made, even if
        the prediction asks for none. Twice as many may follow in a store of more than 1 GiB if deltas and
        files of younger merges have grown to half of maxDeltaShare: everything is rewritten soon then.""",
        trade_off="Fewer files to open at restore against more merges.",
    )
    max_delta_share: float = option(
        "maxDeltaShare",
        FLOAT,
        "0.8",
        group="Merges",
        doc="""An incremental merge is made when the deltas and the files of younger merges have grown to this
        share of the oldest part of the state. At that size it rewrites all of the state. 0: never for this
        reason.""",
        trade_off="""A larger share uploads fewer bytes per byte of change (at 0.8 about 2 in all) and takes
        more space in checkpoint storage meanwhile.""",
    )
    snapshot_compression: str = option(
        "snapshotCompression",
        one_of("none", "lz4"),
        "none",
        group="Merges",
        doc="Compression of the files that merges write.",
        trade_off="""With none, rows outside the memory budget are read straight from mapped files. lz4
        roughly halves the space of typical rows in checkpoint storage and on local disk, and makes those
        reads several times slower.""",
    )
    min_pause_between_merges_ms: int = option(
        "minPauseBetweenMerges",
        DURATION,
        "1s",
        group="Merges",
        doc="Least time between the end of one merge of a store and the start of its next.",
        trade_off="""A longer pause bounds the load of merging under a high rate of batches; the chain may
        then grow past maxDeltas meanwhile.""",
    )
    merge_timeout_ms: int = option(
        "mergeTimeout",
        at_least(DURATION, 1000),
        "10min",
        group="Merges",
        doc="""A merge that takes longer than this, from the first file that it reads to the last that it
        uploads, is given up and counts as failed; nothing of it is left. Merges that are due when a query
        stops are made within this time, too, so that its next start is quick.""",
        trade_off="""Must be longer than a full rewrite of the largest partition, or full checkpoints never
        succeed.""",
    )
    max_concurrent_merges: int = option(
        "maxConcurrentMerges",
        at_least(INT, 1),
        "1",
        scope=EXECUTOR,
        group="Merges",
        doc="Merges that one executor runs at the same time, over all its stores and queries.",
        trade_off="""More finish sooner if many partitions are due, and take more cores from tasks
        meanwhile.""",
    )
    merge_rate_limit_bytes_per_s: int = option(
        "mergeRateLimit",
        BYTES,
        "0",
        group="Merges",
        doc="Bytes per second that one merge may write to local disk. 0: no limit.",
        trade_off="A limit protects the latency of tasks on a busy disk and makes merges longer.",
    )
    tolerable_failed_merges: int = option(
        "tolerableFailedMerges",
        at_least(INT, -1),
        "10",
        group="Merges",
        doc="""Merges of a store that may fail in a row before the query fails. A failed merge loses nothing,
        only the chain grows. 0: the first failure fails the query. -1: none does.""",
        trade_off="A small number makes a broken storage visible early; a large one rides out long outages.",
    )
    transfer_threads: int = option(
        "transferThreads",
        at_least(INT, 1),
        "16",
        group="Merges",
        doc="""Files that one store uploads or downloads at the same time, in merges and restores. A file of
        more than 8 MiB is downloaded in parts of about that size, each of which counts as one.""",
        trade_off="More hide the latency of object stores; each takes a connection.",
    )
    full_after_deltas: int = option(
        "fullAfterDeltas",
        at_least(INT, 0),
        "2000",
        group="Full checkpoints",
        doc="""A full checkpoint is made when this many deltas were committed since the last one, or up to a
        tenth fewer, each partition by its own number, unless fullScheduleJitter is 0. 0: never for this
        reason.""",
        trade_off="A shorter chain depends on fewer old files; each full checkpoint uploads the whole state.",
    )
    full_after_merges: int = option(
        "fullAfterMerges",
        at_least(INT, 0),
        "100",
        group="Full checkpoints",
        doc="""A full checkpoint is made when this many incremental merges followed the last one. 0: never for
        this reason.""",
        trade_off="As fullAfterDeltas, counted in merges.",
    )
    full_after_files: int = option(
        "fullAfterFiles",
        at_least(INT, 0),
        "500",
        group="Full checkpoints",
        doc="""A full checkpoint is made when the newest checkpoint needs more files than this. 0: never for
        this reason.""",
        trade_off="Fewer files restore faster from object stores and cost fewer requests.",
    )
    full_space_amplification: float = option(
        "fullSpaceAmplification",
        FLOAT,
        "3.0",
        group="Full checkpoints",
        doc="""A full checkpoint is made when the files of the newest checkpoint are larger than the live
        state by more than this factor. 0: never for this reason.""",
        trade_off="A smaller factor keeps storage and restore small and rewrites more often.",
    )
    full_interval_ms: int = option(
        "fullInterval",
        DURATION,
        "0",
        group="Full checkpoints",
        doc="A full checkpoint is made when the last one is older than this. 0: never for this reason.",
        trade_off="""Bounds the age of the oldest file that a checkpoint depends on, at the price of regular
        rewrites.""",
    )
    full_schedule: str = option(
        "fullSchedule",
        CRON,
        "",
        group="Full checkpoints",
        doc="""Times at which full checkpoints are made, as five cron fields (minute, hour, day of month,
        month, day of week), for example '0 3 * * 0' for Sundays at three. Empty: none.""",
        trade_off="Puts rewrites into quiet hours, whatever the length of the chain.",
    )
    full_schedule_time_zone: str = option(
        "fullScheduleTimeZone",
        TIME_ZONE,
        "UTC",
        group="Full checkpoints",
        doc="Time zone of fullSchedule, as an IANA name such as Europe/Berlin.",
        trade_off="Zones with daylight saving skip or repeat an hour twice a year; UTC does not.",
    )
    full_schedule_jitter_ms: int = option(
        "fullScheduleJitter",
        DURATION,
        "10min",
        group="Full checkpoints",
        doc="""Longest delay of a partition's full checkpoint after fullInterval or fullSchedule make it due.
        Each partition has its own delay, always the same. 0 also makes fullAfterDeltas and fullAfterMerges
        exact.""",
        trade_off="Longer spreads the load of many partitions; 0 rewrites all at once.",
    )
    retained_checkpoints: int = option(
        "retainedCheckpoints",
        at_least(INT, 0),
        "0",
        group="Retention",
        doc="""Checkpoints (versions of a store) that can still be restored. Older ones are deleted, with the
        files that nothing else needs. 0: as many as spark.sql.streaming.minBatchesToRetain; a larger number
        has no effect.""",
        trade_off="""More make older versions readable and hold files longer. The newest restorable one is
        always kept.""",
    )
    retained_age_ms: int = option(
        "retainedAge",
        DURATION,
        "0",
        group="Retention",
        doc="""Checkpoints older than this are deleted even if retainedCheckpoints would keep them. 0: age
        does not matter.""",
        trade_off="As retainedCheckpoints. The newest restorable one is always kept.",
    )
    retained_older_bytes: int = option(
        "retainedOlderBytes",
        BYTES,
        "1g",
        group="Retention",
        doc="""Bytes of a store in checkpoint storage that only versions before the newest full checkpoint
        need. If there are more, these versions are deleted as soon as that full checkpoint is the tenth
        newest version, even if spark.sql.streaming.minBatchesToRetain would keep them. The newest ten
        versions always stay. 0: no limit.""",
        trade_off="""Without a limit every retained version can be restored, and a large state takes its
        space in storage twice, for as long as its oldest retained version is from before a full checkpoint.
        Restarts need none of these versions; rolling back by hand and reading old versions do.""",
    )
    lease_expiry_ms: int = option(
        "leaseExpiry",
        at_least(DURATION, 60_000),
        "1h",
        group="Retention",
        doc="""Age after which the lease of a process that died while it wrote a snapshot, or read stored
        files, counts as abandoned. Each lease has this age in it, and every clean-up goes by the age in the
        lease. Unfinished files in checkpoint storage, and files that no checkpoint names, are swept when they
        are 24 times as old.""",
        trade_off="""Must be longer than mergeTimeout. Shorter frees the files of dead processes sooner; a
        slow writer has to check its files again, and readers renew their leases more often.""",
    )
    cleanup_timeout_ms: int = option(
        "cleanupTimeout",
        at_least(DURATION, 1000),
        "10min",
        group="Retention",
        doc="""A clean-up that takes longer than this ends; the next one goes on with the remaining files.""",
        trade_off="""Longer gets more done at once if deleting is slow. Clean-ups run beside the tasks and
        take no part in a batch.""",
    )


@dataclass(frozen=True)
class Options(CheckpointOptions, LocalOptions):
    """The parsed options of one query, an attribute each: durations in milliseconds, sizes in bytes."""

    vectorized_enabled: bool = option(
        "vectorized.enabled",
        BOOL,
        "true",
        group="Vectorised functions",
        doc="""Run functions marked with state_store.vectorized, state_store.per_group or
        state_store.accelerate on the vectorised operator, which gets many groups at a time. Needs the
        session extension.""",
        trade_off="""If off, no operator in Python is replaced, marked or not, whatever the two options below
        say: all run on Spark's own operators, with the same results.""",
    )
    vectorized_accelerate: bool = option(
        "vectorized.accelerate",
        BOOL,
        "true",
        group="Vectorised functions",
        doc="""Run functions that are passed to applyInPandasWithState, unchanged, as if marked
        state_store.accelerate, on this store and on Spark's RocksDB store. Needs the session extension.""",
        trade_off="""If off, they run on Spark's own operator, with the same results and a conversion for each
        group.""",
    )
    vectorized_processors: bool = option(
        "vectorized.processors",
        BOOL,
        "true",
        group="Vectorised functions",
        doc="""Run processors of transformWithState in Python, unchanged, in a worker whose calls on state
        travel for many groups in one message, on this store and on Spark's RocksDB store (Spark 4.1 and
        later). Needs the session extension.""",
        trade_off="""If off, they run in Spark's own worker, with the same results and a message for each
        call.""",
    )
    vectorized_max_batch_bytes: int = option(
        "vectorized.maxBatchBytes",
        at_least(BYTES, 1),
        "64m",
        group="Vectorised functions",
        doc="Bytes of rows and states after which no further group joins a call of a marked function.",
        trade_off="""More groups in a call cost less each; a call is held in memory whole, in the JVM and in
        Python.""",
    )
    vectorized_max_group_bytes: int = option(
        "vectorized.maxGroupBytes",
        at_least(BYTES, 1),
        "256m",
        group="Vectorised functions",
        doc="""Bytes of rows up to which a group is handed over whole. A function marked with split_groups
        gets a larger group in pieces; otherwise such a group fails the query.""",
        trade_off="Higher lets larger groups through and needs that much memory in the worker.",
    )
    placement: str = option(
        "placement",
        one_of(BALANCED, SPARK),
        SPARK,
        group="Executors",
        doc="""The executors on which the stores of a query are. With balanced, stores move when executors
        join, leave, are excluded or are being decommissioned, so that each executor has a share by its cores
        and by the time of the tasks. All stores of a partition move together, between two batches. With
        spark, a task runs where its store was, and a store moves only if its task waits for longer than
        spark.locality.wait. Needs the session extension.""",
        trade_off="""A store that moves is restored on its new executor: a few milliseconds, or lazily if the
        state is large and remote. With spark, executors that join get no store if the tasks of a batch end
        within twice spark.locality.wait.""",
    )
    placement_moves: int = option(
        "placementMoves",
        at_least(INT, 0),
        "0",
        group="Executors",
        doc="""Most partitions of a stage that move from one executor to another in one batch. Stores of
        executors that are gone or are being decommissioned are not counted. 0: no limit, but an executor
        without a store of the stage gets one partition for each of its cores first, and more in the next
        batch.""",
        trade_off="""With a limit fewer stores are restored in one batch, and the load is even some batches
        later.""",
    )
    agent_python: str = option(
        "agentPython",
        TEXT,
        "",
        group="Agent",
        doc="""Python interpreter on the executors that runs the agent; it needs the package rocksdict. Empty:
        the one that PySpark uses there (spark.pyspark.python, PYSPARK_PYTHON, or python3).""",
        trade_off="Set it if the Python of the workers lacks rocksdict and cannot be given it.",
    )
    agent_start_timeout_ms: int = option(
        "agentStartTimeout",
        at_least(DURATION, 1000),
        "60s",
        scope=EXECUTOR,
        group="Agent",
        doc="Longest time that an agent may take from its start until it answers.",
        trade_off="Longer tolerates slow disks and loaded machines; shorter reports a broken Python sooner.",
    )
    call_timeout_ms: int = option(
        "callTimeout",
        at_least(DURATION, 1000),
        "120s",
        group="Agent",
        doc="""Longest time that a task waits for a call to the agent (open, commit, restore) before it
        fails. The agent goes on. If it does not even answer a ping, it is replaced, and the call is made
        again. Merges and clean-ups have time-outs of their own.""",
        trade_off="Must be longer than a restore of the largest partition takes.",
    )
    log_level: str = option(
        "logLevel",
        one_of("DEBUG", "INFO", "WARNING", "ERROR"),
        "INFO",
        scope=EXECUTOR,
        group="Agent",
        doc="Least level of the agent's log lines that reach the executor's log.",
        trade_off="DEBUG explains every decision of merging and retention, a few lines per batch and store.",
    )

    @property
    def temporary_expiry_ms(self) -> int:
        """Age from which unfinished files, and files that no checkpoint names, are swept.

        It has to be longer than any upload takes, and a lease is longer than a merge with its uploads.
        """
        return _LEASES_OF_LEFTOVERS * self.lease_expiry_ms

    @property
    def merge_threads(self) -> int:
        """Threads that RocksDB may use for the compaction within one merge."""
        return _THREADS_OF_A_MERGE


_LEASES_OF_LEFTOVERS = 24
_THREADS_OF_A_MERGE = 2

OPTIONS: tuple[Option, ...] = tuple(attribute.metadata["option"] for attribute in fields(Options))

_ATTRIBUTES: dict[str, tuple[str, Option]] = {
    attribute.metadata["option"].name: (attribute.name, attribute.metadata["option"])
    for attribute in fields(Options)
}


_DISK_LIMIT = (
    f"Set {PREFIX}localDiskLimit to the local disk that states in remote checkpoint storage may take: files "
    "that fit are local as a whole, and pages of the others."
)

REMOVED = {
    "hydrationDiskBudget": _DISK_LIMIT,
    "pageCacheLimit": _DISK_LIMIT,
    "lazyRestoreThreshold": "Leave it out: with restoreMode=lazy restores are lazy however small the state "
    "is, and with auto if eager ones would take longer than restoreObjective.",
    "temporaryExpiry": "Leftovers are swept when they are 24 times as old as leaseExpiry: set that.",
    "mergeThreads": "A merge has two threads. maxConcurrentMerges is the number of merges at a time, and "
    "more partitions are smaller ones.",
}
"""Options of earlier releases, each with what to set in its place."""


def parse(texts: Mapping[str, str]) -> Options:
    """Return the options from texts by name, with or without `PREFIX`; others have their defaults.

    Raises:
        OptionError: A name does not exist (the message has the nearest one) or not any more (it says what to
            set instead), a text is not of the type of its option, or values contradict each other.
    """
    values: dict[str, Any] = {}
    for name, text in texts.items():
        attribute, declared = _find(name.removeprefix(PREFIX))
        values[attribute] = declared.parse(text)
    options = Options(**values)
    _check(options)
    return options


def options(*names: str) -> tuple[Option, ...]:
    """Return the declarations of options: name, type, unit, default, meaning and trade-off of each.

    Args:
        names: options by name, with or without the prefix that they have in Spark. `NAME=VALUE` checks a
            value, as the start of a query does. Default: all options.

    Raises:
        OptionError: there is no such option, or the value is not of its type.
    """
    return tuple(map(_declared, names)) if names else OPTIONS


def _declared(text: str) -> Option:
    if not isinstance(text, str):
        raise OptionError(f"the name of an option is a text, not {text!r}")
    name, equals, value = text.partition("=")
    name = name.removeprefix(PREFIX)
    _, option = _find(name)
    if equals:
        parse({name: value})
    return option


def by_name(options: Options) -> dict[str, Any]:
    """Return the values by the names of options, as the agent's answer to `open` has them."""
    return {name: getattr(options, attribute) for name, (attribute, _) in _ATTRIBUTES.items()}


def changed_texts(options: Options) -> dict[str, str]:
    """Return those that differ from their defaults, as texts that `parse` takes, by name."""
    defaults = Options()
    values = {
        name: (declared, getattr(options, attribute), getattr(defaults, attribute))
        for name, (attribute, declared) in _ATTRIBUTES.items()
    }
    return {
        name: _text(declared, value)
        for name, (declared, value, default) in values.items()
        if value != default
    }


def _text(declared: Option, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{Decimal(repr(value)):f}"  # without an exponent
    return f"{value}ms" if declared.unit == "milliseconds" else str(value)


def _find(name: str) -> tuple[str, Option]:
    if name in _ATTRIBUTES:
        return _ATTRIBUTES[name]
    if name in REMOVED:
        message = f"the option {PREFIX}{name} was removed. {REMOVED[name]}"
        raise OptionError(message, option=PREFIX + name)
    lowered = {name_of_option.lower(): name_of_option for name_of_option in _ATTRIBUTES}
    nearest = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    hint = (
        f"The nearest is {PREFIX}{lowered[nearest[0]]}."
        if nearest
        else "`state-store options` lists all that exist."
    )
    raise OptionError(f"there is no option {PREFIX}{name}. {hint}", option=PREFIX + name)


def _check(options: Options) -> None:
    if options.lease_expiry_ms <= options.merge_timeout_ms:
        raise OptionError(
            f"option {PREFIX}leaseExpiry ({options.lease_expiry_ms} ms) must be longer than "
            f"{PREFIX}mergeTimeout ({options.merge_timeout_ms} ms), or the files of a running merge could be "
            "deleted. Raise the first or lower the second.",
            option=PREFIX + "leaseExpiry",
        )


_SHARED = {
    field.name: field.metadata["option"]
    for field in fields(Options)
    if field.metadata["option"].scope == EXECUTOR
}


class ExecutorOptions:
    """Options of the scope *executor*. Safe for any thread.

    The first query sets them for all, until no store of the executor is open any more.
    """

    def __init__(self, runtime: Runtime = SYSTEM) -> None:
        self._lock = runtime.lock()
        self._first: dict[str, Any] = {}
        self._refused: set[tuple[str, Any]] = set()

    def in_force(self, options: Options) -> tuple[Options, list[str]]:
        """Return options with those of the scope *executor* that are in force.

        Args:
            options: The options of a query.

        Returns:
            The options in force for the query, and a warning for each one that has no effect. The same value
            is warned of once.
        """
        own_values = {attribute: getattr(options, attribute) for attribute in _SHARED}
        with self._lock:
            self._first = self._first or own_values
            first = self._first
            refused = [
                item for item in own_values.items() if item[1] != first[item[0]] and item not in self._refused
            ]
            self._refused.update(refused)
        warnings = [_no_effect_warning(attribute, value, first[attribute]) for attribute, value in refused]
        return replace(options, **first), warnings

    def forget(self) -> None:
        """Note that no store is open any more: the next query is the first again."""
        with self._lock:
            self._first = {}
            self._refused.clear()


def _no_effect_warning(attribute: str, asked_value: Any, first: Any) -> str:
    option = _SHARED[attribute]
    unit = f" {option.unit}" if option.unit else ""
    return (
        f"option {option.key} counts for the whole executor, where another query set it to {first}{unit} "
        f"first: {asked_value}{unit} has no effect here. Set it alike for all queries of a session."
    )


PROCESS_BYTES, PROCESS_SHARE = 64 << 20, 0.25
"""Part of the memory budget that is not for rows, in bytes and as a share. The agent's process takes 20 to
55 MiB, most while it merges; the JVM takes about 10 MiB for compiled code and for the C library.
"""


def row_memory_bytes(budget_bytes: int) -> int:
    """Return the part of a memory budget that is for rows and their indexes."""
    return budget_bytes - min(PROCESS_BYTES, int(budget_bytes * PROCESS_SHARE))
