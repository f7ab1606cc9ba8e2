"""Options of memory, local disk and restores."""

from __future__ import annotations

from dataclasses import dataclass

from state_store.core.settings.option import EXECUTOR, option
from state_store.core.settings.option_types import (
    BOOL,
    BYTES,
    TEXT,
    at_least,
    one_of,
)

BLOCKS, FILES = "blocks", "files"
"""Values of `restoreVerification`: the parts of files that restores verify."""

EAGER, LAZY, AUTO = "eager", "lazy", "auto"
"""Values of `restoreMode`: restores fetch remote files before, or while they are read."""


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
        snapshotCompression=lz4 the cache of RocksDB blocks, and 64 MiB (a quarter, if that is less) for the
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
        that reads the file again from checkpoint storage, or does without it. Compressed files are left out.
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
        row is read. With lazy it fetches the tails of remote files, if those have lazyRestoreThreshold bytes
        or more. Rows are then read from checkpoint storage as they are needed, and whole files are fetched
        in the background, the files that are read first. Merges wait until the files that they build on are
        whole. With auto a restore is lazy if fetching all files is expected to take longer than
        restoreObjective, by the measured transfers of this store (before the first, at 200 MiB a second).
        Restores are eager if checkpoint storage is on a local disk, or files are compressed.""",
        trade_off="""With lazy the first batch starts at once, and a look-up of a missing row waits for a
        request to checkpoint storage. That pays if a batch touches few rows, or rows that lie together, or if
        the state is large. A batch fails if storage cannot be reached meanwhile.""",
    )
    lazy_restore_threshold_bytes: int = option(
        "lazyRestoreThreshold",
        BYTES,
        "64m",
        group="Memory and local disk",
        doc="""Least bytes of remote files for which a restore is lazy, if restoreMode is lazy or auto.""",
        trade_off="Files that can be fetched within a second are better fetched at once.",
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
    hydration_disk_budget_bytes: int = option(
        "hydrationDiskBudget",
        BYTES,
        "0",
        scope=EXECUTOR,
        group="Memory and local disk",
        doc="""Local disk that the background fetching of lazy restores may take, over all stores of one
        executor. A file without room stays in checkpoint storage, and its rows are read from there as they
        are needed. Bytes fetched for such rows count, too, and are never refused. A merge fetches the files
        that it builds on, even without room. 0: no limit.""",
        trade_off="""A budget lets executors with small disks run on a larger state. Look-ups go on waiting
        for requests to checkpoint storage.""",
    )
    page_cache_limit_bytes: int = option(
        "pageCacheLimit",
        BYTES,
        "0",
        scope=EXECUTOR,
        group="Memory and local disk",
        doc="""Local disk that states in remote checkpoint storage may take, over all stores of one executor.
        Their blocks are fetched when they are read, and those that were not read for long are evicted.
        Indexes and filters, about 3 % of a state, are never evicted. A merge takes about another quarter of
        the limit while it runs, and the indexes and filters of its store once more. localRecoveryBudget is
        another limit. 0: files are local as a whole.""",
        trade_off="""Executors with small disks run on a larger state. Look-ups of blocks that are not there
        wait for checkpoint storage. Needs Linux, a file system with sparse files, and snapshotCompression
        none.""",
    )
