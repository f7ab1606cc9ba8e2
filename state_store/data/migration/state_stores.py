"""The state stores that a query can be moved between, and the check that a version still exists.

The stores are Spark's two and this project's: values, safe for any thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass

from state_store.core.checkpoint.names import VersionId
from state_store.core.deletion.contents import read_listing
from state_store.core.files.transfer import parallel
from state_store.core.settings.session import FORMAT_KEY, PROVIDER_CLASS, PROVIDER_KEY
from state_store.data.dataset.reading.versions import identified
from state_store.data.query import LISTED_AT_ONCE, Query, StoreKey
from state_store.errors import MissingError, OptionError
from state_store.session.releases import minor_of

_SPARKS = "org.apache.spark.sql.execution.streaming.state"


@dataclass(frozen=True)
class StateStore:
    """A state store.

    Attributes:
        name: its short name.
        provider: its class.
        formats: its checkpoint formats, the preferred one first.
        families: True if a store of it can have several column families.
        conf: settings that its provider gets in addition to those that the query pinned.
    """

    name: str
    provider: str
    formats: tuple[int, ...]
    families: bool
    conf: tuple[tuple[str, str], ...] = ()

    def conf_of(self, checkpoint_format: int) -> dict[str, str]:
        """Return the settings of a session that reads or writes a checkpoint of a format."""
        return {**dict(self.conf), FORMAT_KEY: str(checkpoint_format)}


HDFS = StateStore("hdfs", f"{_SPARKS}.HDFSBackedStateStoreProvider", formats=(1,), families=False)
ROCKSDB = StateStore(
    "rocksdb",
    f"{_SPARKS}.RocksDBStateStoreProvider",
    formats=(2, 1),
    families=True,
    # Off: a commit uploads a snapshot, and opening a version writes nothing.
    conf=(("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "false"),),
)
INCREMENTAL = StateStore("incremental", PROVIDER_CLASS, formats=(2, 1), families=True)
STORES = {store.name: store for store in (INCREMENTAL, HDFS, ROCKSDB)}


def joins_with_delimiter(spark: str) -> bool:
    """Return True if a release of Spark knows only one way to join values in RocksDB: with a delimiter."""
    return minor_of(spark) in ("4.0", "4.1")


def of_provider(provider: str | None, checkpoint: str) -> StateStore:
    """Return the state store of a provider class. Raises OptionError if it is unknown."""
    for store in STORES.values():
        if store.provider == provider:
            return store
    found = f"has the state store {provider}" if provider else "does not say which state store it has"
    raise OptionError(
        f"the query of {checkpoint} {found}; a query can be moved between "
        + " and ".join([", ".join(list(STORES)[:-1]), list(STORES)[-1]]),
        option=PROVIDER_KEY,
    )


def check_present(query: Query, store: StateStore, versions: Mapping[StoreKey, VersionId]) -> None:
    """Check by the names of files that versions exist, before anything is read or written.

    Of a version with an id in Spark's RocksDB store only the last file is checked: the names of the others
    are in that file.

    Args:
        query: the query.
        store: its state store.
        versions: the version of each store.

    Raises:
        MissingError: a version, or a file of it, does not exist.
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


def _check_chain(key: StoreKey, names: Collection[str], version: int, snapshot: str, change: str) -> None:
    """Follow a version back to a snapshot; each version between has a file with its changes."""
    for number in range(version, 0, -1):
        if f"{number}.{snapshot}" in names:
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
