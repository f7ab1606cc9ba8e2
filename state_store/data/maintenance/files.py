"""The files of a query's state, and the checkpoints that need each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from state_store.core.checkpoint.names import VersionId, origin_of
from state_store.core.checkpoint.registry import REASONS, reason_of
from state_store.core.codec import fields_to_json
from state_store.core.compat import zip
from state_store.core.storage import Storage
from state_store.data.dataset.checkpoints import FoundStore
from state_store.data.dataset.moments import table
from state_store.data.jobs import on_stores, workers
from state_store.data.query import Filter, Progress, ProgressOption, Query, StoreKey, reporting
from state_store.data.query.arguments import Location, check_flag, check_number, counted
from state_store.errors import MissingError


@dataclass(frozen=True)
class HeldFile:
    """A file of a store and the checkpoints that keep it alive.

    Attributes:
        key: the store.
        path: its path below the store's directory.
        bytes: its size.
        origin: the version that it was written at.
        holders: the versions that can be restored and need it; none: no checkpoint needs it.
        reason: why it is there, one of `REASONS`.
    """

    key: StoreKey
    path: str
    bytes: int
    origin: int
    holders: tuple[VersionId, ...]
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return the file as values for JSON."""
        return {
            "path": self.path,
            "bytes": self.bytes,
            "origin": self.origin,
            "count": len(self.holders),
            "reason": self.reason,
            "holders": [fields_to_json(holder) for holder in self.holders],
        }


class Files(Mapping[StoreKey, "tuple[HeldFile, ...]"]):
    """The files of each store, by path. Notebooks show a line for each file."""

    def __init__(self, checkpoint: str, found: Mapping[StoreKey, tuple[HeldFile, ...]]) -> None:
        self.checkpoint = checkpoint
        self._found = dict(sorted(found.items()))

    def __getitem__(self, key: StoreKey) -> tuple[HeldFile, ...]:
        return self._found[key]

    def __iter__(self) -> Iterator[StoreKey]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def all(self) -> tuple[HeldFile, ...]:
        """The files of all stores, one after the other."""
        return tuple(file for files in self._found.values() for file in files)

    def by_reason(self) -> dict[str, tuple[int, int]]:
        """Return the bytes and the number of the files of all stores, by the reason why they are there."""
        sizes_by_reason = {
            reason: [file.bytes for file in self.all if file.reason == reason] for reason in REASONS
        }
        return {reason: (sum(sizes), len(sizes)) for reason, sizes in sizes_by_reason.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the files as values for JSON."""
        return {
            "checkpoint": self.checkpoint,
            "stores": [
                {**fields_to_json(key), "files": [file.to_json() for file in files]}
                for key, files in self.items()
            ],
        }

    def __repr__(self) -> str:
        size_bytes = sum(file.bytes for file in self.all)
        files = counted(len(self.all), "file")
        return f"Files({counted(len(self), 'store')}: {files}, {size_bytes} bytes)"

    def _repr_html_(self) -> str:
        rows = [
            (
                file.key,
                file.path,
                file.bytes,
                file.origin,
                ", ".join(str(holder.number) for holder in file.holders),
            )
            for file in self.all
        ]
        return table(repr(self), ("store", "file", "bytes", "written at", "needed by versions"), rows)


def files(
    checkpoint: Location,
    operator: int | None = None,
    partition: int | None = None,
    store: str | None = None,
    *,
    unneeded: bool = False,
    needed_by: int | None = None,
    spark: Any = None,
    progress: ProgressOption = None,
) -> Files:
    """Return the files of a query's state with the restorable checkpoints that need each.

    A file that no checkpoint needs was written by an attempt that Spark never committed, or waits for the
    next clean-up.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        operator: only the stores of this stateful operator.
        partition: only the stores of this partition.
        store: only this store: a side of a join, a state variable, or Spark's name of a store.
        unneeded: only files that no checkpoint needs.
        needed_by: only files that this version needs.
        spark: a SparkSession, whose executors then do the work, a task a store; None: this process.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.

    Raises:
        MissingError: there is no such query or store, or the version cannot be restored.
        OptionError: another provider keeps the query's state, or `needed_by` is not a number.
    """
    check_number("needed_by", needed_by, optional=True)
    check_flag("unneeded", unneeded)
    query = Query.open(checkpoint)
    keys = query.stores(Filter(operator, partition, store))
    tasks = workers(spark)
    with reporting(progress, "listed", len(keys)) as meter:
        files_by_store = on_stores(query, keys, _held_in, meter=meter, workers=tasks)
    restorable = sorted(set().union(*(numbers for numbers, _ in files_by_store)))
    if needed_by is not None and needed_by not in restorable:
        numbers_text = runs(restorable) or "none"
        raise MissingError(f"version {needed_by} cannot be restored; versions that can be: {numbers_text}")

    def is_chosen(file: HeldFile) -> bool:
        if unneeded and file.holders:
            return False
        return needed_by is None or any(version.number == needed_by for version in file.holders)

    return Files(
        query.location,
        {
            key: tuple(file for file in held if is_chosen(file))
            for key, (_, held) in zip(keys, files_by_store, strict=True)
        },
    )


def _held_in(
    key: StoreKey, storage: Storage, _meter: Progress | None
) -> tuple[set[int], tuple[HeldFile, ...]]:
    """Return the numbers of the versions of a store that can be restored, and its files."""
    store = FoundStore.read(key, storage)
    return {version.number for version in store.registry.checkpoints()}, tuple(held_files(store))


def held_files(store: FoundStore) -> Iterator[HeldFile]:
    """Yield every SST file and snapshot archive of a store, by path."""
    sizes = store.contents.listing.sst_bytes()
    sizes.update({snapshot.path: size for snapshot, size in store.contents.listing.snapshots.items()})
    origins = {snapshot.path: snapshot.version for snapshot in store.contents.listing.snapshots}
    newest = max((version.number for version in store.registry.checkpoints()), default=0)
    for path in sorted(sizes):
        origin = origins[path] if path in origins else origin_of(path)
        holders = tuple(store.registry.holders(path))
        by_newest = any(holder.number == newest for holder in holders)
        reason = reason_of(path, by_newest=by_newest, by_older=bool(holders))
        yield HeldFile(store.key, path, sizes[path], origin, holders, reason)


def runs(versions: Sequence[int]) -> str:
    """Return ascending numbers with runs folded: `3-7 9`."""
    parts: list[list[int]] = []
    for version in versions:
        if parts and version == parts[-1][-1] + 1:
            parts[-1].append(version)
        else:
            parts.append([version])
    return " ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
