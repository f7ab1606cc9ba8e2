"""The state stores that a query can be moved between: Spark's two and this project's. Values, safe for
any thread.
"""

from __future__ import annotations

from dataclasses import dataclass

from state_store.core.settings.session import PROVIDER_CLASS, PROVIDER_KEY
from state_store.errors import OptionError

_SPARKS = "org.apache.spark.sql.execution.streaming.state"


@dataclass(frozen=True)
class StateStore:
    """A state store by its short name.

    formats: the checkpoint formats that it has, the preferred one first. families: whether a store of it can
    have several column families. conf: what its provider is told, beside what the query pinned.
    """

    name: str
    provider: str
    formats: tuple[int, ...]
    families: bool
    conf: tuple[tuple[str, str], ...] = ()


HDFS = StateStore("hdfs", f"{_SPARKS}.HDFSBackedStateStoreProvider", formats=(1,), families=False)
ROCKSDB = StateStore(
    "rocksdb",
    f"{_SPARKS}.RocksDBStateStoreProvider",
    formats=(2, 1),
    families=True,
    # Where it is off, a commit uploads a snapshot, and opening a version writes nothing.
    conf=(("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "false"),),
)
INCREMENTAL = StateStore("incremental", PROVIDER_CLASS, formats=(2, 1), families=True)
STORES = {one.name: one for one in (INCREMENTAL, HDFS, ROCKSDB)}


def of_provider(provider: str | None, checkpoint: str) -> StateStore:
    """The store of a provider class; raises OptionError for any other."""
    for one in STORES.values():
        if one.provider == provider:
            return one
    found = f"has the state store {provider}" if provider else "does not say which state store it has"
    raise OptionError(
        f"the query of {checkpoint} {found}; a query can be moved between "
        + " and ".join([", ".join(list(STORES)[:-1]), list(STORES)[-1]]),
        option=PROVIDER_KEY,
    )
