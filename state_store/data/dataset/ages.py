"""Since when keys have not been changed, as far as deltas tell."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass

from state_store.core.engine.table import read_records
from state_store.data.dataset.columns import FAMILY_BYTES
from state_store.data.dataset.partitions import Partitions
from state_store.data.dataset.pinned import PinnedVersion

MOST_DELTAS = 100
MOST_BYTES = 64 << 20
"""Of the deltas of one partition that are read."""


@dataclass(frozen=True)
class LastChanges:
    """Keys that a version wrote and none since; `committed_ms` by the storage's clock, of the first partition
    that was looked at.
    """

    version: int
    committed_ms: int
    keys: int


@dataclass(frozen=True)
class Ages:
    """When the keys of some partitions were written last: `last_changes` by version, oldest first, and
    `older` keys that none of these versions wrote.
    """

    last_changes: tuple[LastChanges, ...]
    older: int

    @property
    def keys(self) -> int:
        return self.older + sum(one.keys for one in self.last_changes)


def ages(partitions: Partitions, chosen: Iterable[int]) -> Ages:
    """Of the view's keys in the chosen partitions. Reads their last deltas, newest first, as far as they
    follow each other. Raises DamagedError, and StorageError as the storage does.
    """
    keys: dict[int, int] = {}
    times_ms: dict[int, int] = {}
    rows = 0
    since = max(0, partitions.version - MOST_DELTAS)
    with partitions.pinned(partitions.version, since) as pins:
        for number in chosen:
            rows += partitions.count(number)
            family = partitions.family_id(number)
            if family is None:
                continue
            prefix = family.to_bytes(FAMILY_BYTES, "big")
            found = _last_written(partitions, pins[number], prefix, times_ms)
            for version, count in found.items():
                keys[version] = keys.get(version, 0) + count
    changes = tuple(LastChanges(version, times_ms[version], keys[version]) for version in sorted(keys))
    return Ages(changes, rows - sum(keys.values()))


def _last_written(
    partitions: Partitions, pin: PinnedVersion, prefix: bytes, times_ms: dict[int, int]
) -> dict[int, int]:
    """Return how many keys each version wrote that no later one wrote or removed."""
    directory = partitions.directory / "ages"
    seen: set[bytes] = set()
    counts: dict[int, int] = {}
    expected, left = pin.version.number, MOST_BYTES
    for delta in reversed(pin.lineage):
        left -= pin.delta_bytes(delta)
        if delta.version != expected or left < 0:
            break
        expected -= 1
        try:
            records = [one for one in read_records(pin.fetch(delta, directory)) if one[0].startswith(prefix)]
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        times_ms.setdefault(delta.version, partitions.committed_ms(pin, delta))
        counts[delta.version] = sum(value is not None and key not in seen for key, value in records)
        seen.update(key for key, _ in records)
    return counts
