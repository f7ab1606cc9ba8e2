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
