"""Names by which a Spark session knows the store: its classes, and the keys that take them."""

from __future__ import annotations

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
