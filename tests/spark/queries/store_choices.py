"""The state stores that a query is moved between, each with a checkpoint format."""

from __future__ import annotations

from dataclasses import dataclass

from queries import session_settings


@dataclass(frozen=True)
class Store:
    """A state store with a checkpoint format; `changelog` is RocksDB's."""

    name: str
    format: int
    changelog: bool = False

    def __str__(self) -> str:
        return f"{self.name}-{self.format}{'-changelog' if self.changelog else ''}"

    def conf(self) -> dict[str, str]:
        return {
            f"{session_settings.PREFIX}providerClass": session_settings.PROVIDERS[self.name],
            f"{session_settings.PREFIX}checkpointFormatVersion": str(self.format),
            f"{session_settings.PREFIX}rocksdb.changelogCheckpointing.enabled": str(self.changelog).lower(),
        }


HDFS = Store("hdfs", 1)
ROCKSDB, ROCKSDB_IDS = Store("rocksdb", 1, True), Store("rocksdb", 2, True)
ROCKSDB_SNAPSHOTS = Store("rocksdb", 2)
OURS, OURS_IDS = Store("incremental", 1), Store("incremental", 2)
