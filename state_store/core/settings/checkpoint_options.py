"""Options of merges, full checkpoints and retention."""

from __future__ import annotations

from dataclasses import dataclass

from state_store.core.settings.option import EXECUTOR, option
from state_store.core.settings.option_types import (
    BYTES,
    CRON,
    DURATION,
    FLOAT,
    INT,
    TIME_ZONE,
    at_least,
    one_of,
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
    merge_threads: int = option(
        "mergeThreads",
        at_least(INT, 1),
        "2",
        group="Merges",
        doc="Threads that RocksDB may use for the compaction within one merge.",
        trade_off="More shorten full checkpoints of large partitions at the cost of cores.",
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
        lease.""",
        trade_off="""Must be longer than mergeTimeout. Shorter frees the files of dead processes sooner; a
        slow writer has to check its files again, and readers renew their leases more often.""",
    )
    temporary_expiry_ms: int = option(
        "temporaryExpiry",
        at_least(DURATION, 60_000),
        "1d",
        group="Retention",
        doc="""Age after which unfinished files in checkpoint storage, and files that no checkpoint names, are
        swept.""",
        trade_off="Shorter frees space sooner after crashes; must be longer than any upload takes.",
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
