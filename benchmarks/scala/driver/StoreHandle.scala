package statestore.benchmark

import java.util.UUID

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state._

/**
 * A store of a provider: its provider instance and its present version, with checkpoint id if the provider
 * has them. For one thread at a time.
 */
final class StoreHandle(
    id: StateStoreId,
    keys: KeyLayout,
    values: ValueLayout,
    storeConf: StateStoreConf,
    hadoopConf: Configuration) {

  private var instance: StateStoreProvider = _
  private var checkpointId: Option[String] = None
  var version = 0L

  def provider: StateStoreProvider = instance

  /** A fresh provider instance, as a task on a new executor makes it. */
  def start(): Unit =
    instance = StateStoreProvider.createAndInit(
      StateStoreProviderId(id, UUID.randomUUID()), keys.schema, values.schema,
      keys.encoderSpec, useColumnFamilies = false, storeConf, new Configuration(hadoopConf),
      useMultipleValuesPerKey = false, None)

  def open(): StateStore = instance.getStore(version, checkpointId)

  def commit(store: StateStore): Unit = {
    version = store.commit()
    if (storeConf.enableStateStoreCheckpointIds)
      checkpointId = store.getStateStoreCheckpointInfo().stateStoreCkptId
  }

  def stop(): Unit = if (instance != null) {
    instance.close()
    instance = null
  }
}
