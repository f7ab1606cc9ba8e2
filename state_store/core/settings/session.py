"""Names by which a Spark session knows the store, and what it pins of them in a checkpoint.

The names are the store's classes and the keys that take them. Spark writes some of a session's options into
the offset log with each batch, and a query keeps those with which it began.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from state_store.errors import OptionError

_PACKAGE = "org.apache.spark.sql.execution.streaming.state.incremental"

PROVIDER_CLASS = f"{_PACKAGE}.IncrementalStateStoreProvider"
EXTENSION_CLASS = f"{_PACKAGE}.vectorized.VectorizedExtension"
LISTENER_CLASS = f"{_PACKAGE}.PinnedProviderListener"

PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"
FORMAT_KEY = "spark.sql.streaming.stateStore.checkpointFormatVersion"
EXTENSIONS_KEY = "spark.sql.extensions"
FILE_MANAGER_CLASS = f"{_PACKAGE}.CheckpointFiles"
FILE_MANAGER_KEY = "spark.sql.streaming.checkpointFileManagerClass"
LISTENERS_KEY = "spark.sql.streaming.streamingQueryListeners"

ENCODING_KEY = "spark.sql.streaming.stateStore.encodingFormat"
ROW_CHECKSUMS_KEY = "spark.sql.streaming.stateStore.rowChecksum.enabled"
MERGE_OPERATOR_KEY = "spark.sql.streaming.stateStore.rocksdb.mergeOperatorVersion"
"""Key of the way in which Spark's RocksDB store joins the values of a key."""
WITH_DELIMITER = "1"
"""The way to join values that Spark 4.0 and 4.1 know alone."""

UNNAMED = {ENCODING_KEY: "unsaferow", ROW_CHECKSUMS_KEY: "false", MERGE_OPERATOR_KEY: WITH_DELIMITER}
"""Values of pinned options that an offset log does not name, because its query began before there were any.

They are Spark's own (`OffsetSeqMetadata.relevantSQLConfDefaultValues`), and not the defaults of new queries.
"""

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
    source = checkpoint.rstrip("/") or checkpoint
    words = ("state-store", "migrate", source, f"{source}-incremental", "--to", "incremental")
    raise OptionError(
        f"the query of {checkpoint} was started with {store}. Spark keeps a query's first "
        f"state store for good: it ignores {PROVIDER_KEY} for this checkpoint. To use the incremental store, "
        f"stop the query and move it: `{shlex.join(words)}` writes its checkpoint anew, with its state, to a "
        "new checkpoint directory, with which the query goes on. To read its rows as it is, use Spark's own "
        "reader of states: spark.read.format('statestore').",
        option=PROVIDER_KEY,
    )
