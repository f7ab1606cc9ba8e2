"""Options of every RocksDB database and SST file that this program makes.

Settings that both planes rely on are fixed (docs/format.md): block-based tables of `format_version` 5, full
bloom filters of 10 bits over whole keys, the bytewise comparator. The others were measured (docs/decisions).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

FORMAT_VERSION = 5
BLOOM_BITS_PER_KEY = 10
SIZE_RATIO_PERCENT = 20
"""Percent by which a sorted run may exceed the younger ones together and still be compacted with them."""

FILES_OF_A_STORE = 32
"""Files of the usual size that the merges of a store have together, once that is large."""
MOST_FILE_BYTES = 512 << 20

_NEVER_STALL = 1 << 30


@dataclass(frozen=True)
class DatabaseSettings:
    """Settings with which databases are written. Immutable; safe for any thread.

    Attributes:
        compression: `none`, `lz4`, or None: as the database was written last, `none` for a new one.
        block_bytes: bytes of a data block.
        file_bytes: bytes of a table at which the next one is begun, in a small store.
        threads: threads of a compaction.
        max_runs: sorted runs above which an incremental merge compacts.
        size_amplification_percent: size of all younger runs, in percent of the oldest, at which everything
            is rewritten.
        rate_limit_bytes: bytes per second that compactions write at most; 0: no limit.
        max_open_files: tables that an open database keeps open at most; -1: all.
    """

    compression: str | None = None
    block_bytes: int = 4 << 10
    file_bytes: int = 32 << 20
    threads: int = 2
    max_runs: int = 4
    size_amplification_percent: int = 80
    rate_limit_bytes: int = 0
    max_open_files: int = -1

    def for_store(self, size_bytes: int) -> DatabaseSettings:
        """Return the settings with which a store of this size is merged: the larger, the larger its files."""
        by_size = min(size_bytes // FILES_OF_A_STORE, MOST_FILE_BYTES)
        return replace(self, file_bytes=max(self.file_bytes, by_size))


def rocks_options(settings: DatabaseSettings, *, create: bool = False) -> Any:
    """Return the `rocksdict.Options` of a database or an SST writer, with automatic compaction off."""
    import rocksdict

    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(create)
    options.set_block_based_table_factory(_table(settings))
    options.set_compression_type(getattr(rocksdict.DBCompressionType, settings.compression or "none")())
    options.set_compaction_style(rocksdict.DBCompactionStyle.universal())
    options.set_universal_compaction_options(_universal(settings))
    options.set_level_zero_file_num_compaction_trigger(settings.max_runs)
    options.set_level_zero_slowdown_writes_trigger(_NEVER_STALL)
    options.set_level_zero_stop_writes_trigger(_NEVER_STALL)
    options.set_target_file_size_base(settings.file_bytes)
    options.set_disable_auto_compactions(True)
    options.set_max_background_jobs(max(2, settings.threads))
    options.set_max_subcompactions(settings.threads)
    options.set_keep_log_file_num(1)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_skip_stats_update_on_db_open(True)
    options.set_max_open_files(settings.max_open_files)
    if settings.rate_limit_bytes:
        options.set_ratelimiter(settings.rate_limit_bytes, 100_000, 10)
    return options


def _table(settings: DatabaseSettings) -> Any:
    import rocksdict

    table = rocksdict.BlockBasedOptions()
    table.set_format_version(FORMAT_VERSION)
    table.set_checksum_type(rocksdict.ChecksumType.crc32c())  # the data plane verifies it in hardware
    table.set_bloom_filter(BLOOM_BITS_PER_KEY, False)
    table.set_block_size(settings.block_bytes)
    table.set_block_cache(rocksdict.Cache(4 << 20))
    return table


def _universal(settings: DatabaseSettings) -> Any:
    import rocksdict

    universal = rocksdict.UniversalCompactOptions()
    universal.size_ratio = SIZE_RATIO_PERCENT
    universal.min_merge_width = 2
    universal.max_size_amplification_percent = settings.size_amplification_percent
    return universal
