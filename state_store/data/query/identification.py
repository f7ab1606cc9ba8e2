"""The judgement on a directory that is not the checkpoint of a stateful query: its name, and what to do.

Every command and function that takes a checkpoint gets its sentence here. The directory is listed once; more
is read only of directories that look like parts of a checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from state_store.core.storage import Storage, open_storage
from state_store.core.storage.local import LocalStorage
from state_store.data.query.logs import BatchLogs
from state_store.errors import MissingError, StateStoreError, StorageError

DESCRIPTION = "state/0/_metadata/metadata"
"""Spark's description of the first stateful operator, which makes a directory the checkpoint of one."""

_GIVE = "Give the directory that the query has as checkpointLocation"
_PARTS = frozenset({"commits", "metadata", "offsets", "sources", "state"})
"""The names in the checkpoint directory of a query."""

_FLINK = re.compile(r"(chk|savepoint)-[0-9a-f-]+")
_COLUMN_VALUE = re.compile(r"[^=/]+=[^/]*")
_PARQUET = (".parquet", ".parq")
_SEARCHED = 50
"""Directories that are looked into for checkpoints, at most."""

_SHOWN = 5


def not_committed(location: str) -> MissingError:
    """Return the error of a query without a version of its state."""
    return MissingError(
        f"{location} has no state yet: the query has not committed a batch yet. Try again when it has.",
        file=f"{location}/commits",
    )


def absence(storage: Storage, location: str) -> MissingError:
    """Return the error that says what a directory is instead of a stateful query's checkpoint.

    Args:
        storage: the directory, in which Spark does not describe a stateful operator.
        location: its path or URI.

    Raises:
        DamagedError: it is a query's, and Spark's logs are lost.
    """
    if isinstance(storage, LocalStorage) and not storage.directory.is_dir():
        kind = "is a file" if storage.directory.is_file() else "does not exist"
        return _error(location, f"the directory {location} {kind}", _GIVE)
    files = root_files(storage, location)
    directories: list[str] = []
    with suppress(StorageError):  # some storages cannot list directories
        directories = storage.directories()
    if "metadata" in files or "offsets" in directories or storage.list_files("offsets"):
        return _of_a_query(storage, location, directories)
    if not files and not directories:
        empty = f"the directory {location} is empty"
        if not isinstance(storage, LocalStorage):
            empty += ", or does not exist"
        return _error(location, empty, f"No query has started there, or another is meant. {_GIVE}")
    above = _checkpoint_above(storage, location)
    if above is not None:
        return _error(location, f"{location} is a part of the checkpoint directory {above}", f"Give {above}")
    named = _named(files, directories)
    if named is not None:
        kind, advice = named
        return _error(location, f"{location} is {kind}, not the checkpoint directory of a query", advice)
    below = [name for name in directories[:_SEARCHED] if name[0] not in "._" and _is_query(storage, name)]
    if below:
        more = "" if len(below) <= _SHOWN else f" and {len(below) - _SHOWN} more"
        listed = ", ".join(f"{location}/{name}" for name in below[:_SHOWN])
        return _error(
            location, f"{location} has the checkpoint directories {listed}{more}", "Give one of them"
        )
    return _error(
        location,
        f"{location} is not the checkpoint directory of a stateful query: it lacks {DESCRIPTION}",
        _GIVE,
    )


def root_files(storage: Storage, location: str) -> list[str]:
    """Return the names of the files directly in the directory of a storage, which is at `location`.

    At the root of a bucket, which has no directory above it, only Spark's `metadata` is looked for.
    """
    if isinstance(storage, LocalStorage):
        if not storage.directory.exists():
            return []
        return sorted(path.name for path in storage.directory.iterdir() if path.is_file())
    parent, _, name = location.rpartition("/")
    if not parent or parent.endswith("/"):
        return ["metadata"] if storage.exists("metadata") else []
    above = open_storage(parent)
    try:
        return [entry.name for entry in above.list_files(name)]
    finally:
        above.close()


def _error(location: str, fact: str, advice: str) -> MissingError:
    return MissingError(f"{fact}. {advice}.", file=f"{location}/{DESCRIPTION}")


def _of_a_query(storage: Storage, location: str, directories: list[str]) -> MissingError:
    """Return the error of a query of which Spark describes no stateful operator."""
    if BatchLogs(storage).newest_committed() is None:
        return not_committed(location)
    if "state" in directories:
        with suppress(StorageError):
            if any(name.isdigit() for name in storage.directories("state/0")):
                return _error(
                    location,
                    f"{location} has state of operator 0, but Spark's description of it, '{DESCRIPTION}', is "
                    "missing, so that no tool can read its state",
                    "The query goes on, and writes the file again when it starts; or put it back from a copy "
                    "of the checkpoint",
                )
    return _error(
        location,
        f"{location} is the checkpoint of a query that has no stateful operator, so it keeps no state",
        "Give that of a query with an aggregation, a join, a deduplication or a function with state",
    )


def _named(files: list[str], directories: list[str]) -> tuple[str, str] | None:
    """Return what a directory is by the names in it, and what to do; None if they say nothing."""
    names = {*files, *directories}
    of_query = f"{_GIVE}, which is not that of its sink"
    if "_delta_log" in names:
        return "a Delta table", of_query
    if ".hoodie" in names:
        return "a Hudi table", of_query
    if {"metadata", "data"} <= {*directories}:
        return "an Iceberg table", of_query
    if "_spark_metadata" in names:
        return "the output of a query's file sink", of_query
    if "_metadata" in files or any(_FLINK.fullmatch(name) for name in directories):
        return "a checkpoint of Flink", "Flink's State Processor API reads it; no tool of this store does"
    if "CURRENT" in files and any(name.startswith("MANIFEST-") for name in files):
        return "a RocksDB database", _GIVE
    is_split = bool(directories) and all(
        _COLUMN_VALUE.fullmatch(name) for name in directories if name[0] not in "._"
    )
    if is_split or any(name.endswith(_PARQUET) for name in files):
        return ("a table in directories by column" if is_split else "a directory of Parquet files"), (
            f"{of_query}; `import` takes such rows after the checkpoint"
        )
    return None


def _is_query(storage: Storage, directory: str) -> bool:
    return storage.exists(f"{directory}/metadata") or bool(storage.list_files(f"{directory}/offsets"))


def _checkpoint_above(storage: Storage, location: str) -> str | None:
    """Return the checkpoint directory that has a directory as `state`, `offsets` or below these."""
    path = str(storage.directory.absolute()) if isinstance(storage, LocalStorage) else location
    for above in _above(path):
        with suppress(StateStoreError):
            parent = open_storage(above)
            try:
                if parent.exists("metadata") or parent.list_files("offsets"):
                    return above
            finally:
                parent.close()
    return None


def _above(path: str) -> Iterator[str]:
    """Yield the directories above a path that may be checkpoints, by the names below them, nearest first."""
    parts = path.split("/")
    for place in range(len(parts) - 1, 0, -1):
        above = "/".join(parts[:place])
        if parts[place] in _PARTS and above.rstrip("/") and not above.endswith(":/"):
            yield above
