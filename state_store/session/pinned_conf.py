"""The configuration that Spark pins in a checkpoint, and the check of the store that it names."""

from __future__ import annotations

import json
from collections.abc import Mapping

from state_store.core.settings.session import PROVIDER_CLASS, PROVIDER_KEY
from state_store.errors import OptionError

_SPARK_PREFIX = "org.apache.spark.sql.execution.streaming."
_SPARK_STORES = {"HDFSBackedStateStoreProvider": "HDFS-backed", "RocksDBStateStoreProvider": "RocksDB"}
"""Spark's own state stores by the simple names of their providers, whose package differs by version."""


def pinned_conf(offset_log_entry: str) -> dict[str, str]:
    """Return the configuration that Spark pinned when the query began, from a file of its offset log.

    The layout is Spark's: a line with the version, a line of JSON with the metadata, then a line for each
    source. Entries without metadata give an empty result.
    """
    lines = offset_log_entry.splitlines()
    if len(lines) < 2 or not lines[1].startswith("{"):
        return {}
    conf = json.loads(lines[1]).get("conf", {})
    return {str(key): str(value) for key, value in conf.items()}


def check_pinned(conf: Mapping[str, str], checkpoint: str) -> None:
    """Raise OptionError if a pinned configuration names another provider than this one."""
    pinned = conf.get(PROVIDER_KEY)
    if pinned is None or pinned == PROVIDER_CLASS:
        return
    name = _SPARK_STORES.get(pinned.rpartition(".")[2]) if pinned.startswith(_SPARK_PREFIX) else None
    store = f"the state store {pinned}" if name is None else f"Spark's {name} state store, {pinned}"
    raise OptionError(
        f"the query of {checkpoint} was started with {store}. Spark keeps a query's first "
        f"state store for good: it ignores {PROVIDER_KEY} for this checkpoint. To use the incremental store, "
        "stop the query and move it: `state-store migrate` writes its checkpoint anew, with its state, to a "
        "new checkpoint directory. To read its rows as it is, use Spark's own reader of states: "
        "spark.read.format('statestore').",
        option=PROVIDER_KEY,
    )
