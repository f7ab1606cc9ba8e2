"""Whether a store still has a version, by the names of its files: before anything is read or written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing

from state_store.core.checkpoint.names import VersionId
from state_store.core.deletion.reading import read_listing
from state_store.core.files.transfer import parallel
from state_store.data.dataset.versions import identified
from state_store.data.migration.stores import HDFS, INCREMENTAL, StateStore
from state_store.data.query import LISTED_AT_ONCE, Query, StoreKey
from state_store.errors import MissingError


def check_present(query: Query, store: StateStore, versions: Mapping[StoreKey, VersionId]) -> None:
    """Raises MissingError where a version, or a file that it is made of, is not in the state store `store`.

    The files of a version with an id are named in the files of Spark's RocksDB store themselves: of those
    only the last is looked for.
    """
    parallel(LISTED_AT_ONCE, lambda key: _check(query, store, key, versions[key]), versions)


def _check(query: Query, store: StateStore, key: StoreKey, version: VersionId) -> None:
    if store is INCREMENTAL:
        with closing(query.storage(key)) as storage:
            identified(read_listing(storage), version.number, version, f"store {key}")
        return
    names = {entry.name for entry in query.list_files(key.path)}
    if store is HDFS:
        _check_chain(key, names, version.number, "snapshot", "delta")
    elif version.checkpoint_id is None:
        _check_chain(key, names, version.number, "zip", "changelog")
    else:
        file = f"{version.number}_{version.checkpoint_id}"
        if not {f"{file}.zip", f"{file}.changelog"} & names:
            raise _gone(key, version.number, f"{file}.zip")


def _check_chain(key: StoreKey, names: Collection[str], version: int, whole: str, change: str) -> None:
    """A version is whole in one file, or it is the version before with the changes of a file."""
    for number in range(version, 0, -1):
        if f"{number}.{whole}" in names:
            return
        if f"{number}.{change}" not in names:
            raise _gone(key, version, f"{number}.{change}")


def _gone(key: StoreKey, version: int, file: str) -> MissingError:
    path = f"{key.path}/{file}"
    return MissingError(
        f"version {version}, which Spark committed last, is not in store {key} any more: '{path}' does not "
        "exist",
        file=path,
    )
