package org.apache.spark.sql.execution.streaming.state.incremental.migration

import java.util.UUID

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.incremental.IncrementalStateStoreProvider
import org.apache.spark.sql.internal.SQLConf

/**
 * One of the two state stores of a migration: where its checkpoint is, its provider, and the configuration that
 * the provider gets. Safe for any thread.
 *
 * @param stateRoot the directory `state` of the checkpoint
 */
private[migration] final class Side(val stateRoot: String, conf: SQLConf, configuration: Configuration) {

  /**
   * Has Spark's RocksDB store write and read the archives of this side's checkpoint format: Spark 4.0 looks that up
   * once in the life of a JVM, in whatever configuration is active then.
   */
  def settleArchives(): Unit =
    if (StateStoreConf(conf).providerClass == classOf[RocksDBStateStoreProvider].getName) {
      SQLConf.withExistingConf(conf) {
        Class.forName("org.apache.spark.sql.execution.streaming.state.RocksDBCheckpointMetadata$")
      }
    }

  /** Of one's own: providers write into theirs. */
  def hadoop: Configuration = new Configuration(configuration)

  /** The provider of one store, which the caller closes. */
  def provider(schemas: StoreSchemas, partition: Int): StateStoreProvider = {
    val id = StateStoreId(stateRoot, schemas.operator, partition, schemas.store)
    val default = schemas.default
    StateStoreProvider.createAndInit(
      StateStoreProviderId(id, UUID.randomUUID), default.keys, default.values, default.keySpec,
      useColumnFamilies = schemas.usesFamilies, StateStoreConf(conf), hadoop, useMultipleValuesPerKey = false,
      schemas.evolution)
  }
}

private[migration] object Side {
  def of(request: SideRequest, hadoop: Configuration): Side = {
    val conf = new SQLConf
    request.conf.foreach { case (name, value) => conf.setConfString(name, value) }
    new Side(request.stateRoot, conf, hadoop)
  }

  /**
   * A version of a store to read from, with its column families. Nothing is written to the checkpoint, as long
   * as Spark's changelog is switched off in the provider's configuration.
   */
  def reader(
      provider: StateStoreProvider, version: Long, id: Option[String], schemas: StoreSchemas): ReadStateStore = {
    if (!schemas.usesFamilies) provider.getReadStore(version, id)
    else {
      val store = provider match {
        case own: IncrementalStateStoreProvider => own.getReadStore(version, id).asInstanceOf[StateStore]
        case other => other.getStore(version, id)
      }
      try {
        register(store, schemas)
        checkDescribed(provider, store, schemas)
        store
      } catch {
        case e: Throwable =>
          store.abort()
          throw e
      }
    }
  }

  /** An empty store whose first commit is given the number of a version, at once or by [[Renumbering]]. */
  def writer(provider: StateStoreProvider, version: Long, schemas: StoreSchemas): StateStore = {
    val store = provider match {
      case own: IncrementalStateStoreProvider => own.getEmptyStore(version - 1)
      case other => other.getStore(0, None)
    }
    if (schemas.usesFamilies) register(store, schemas)
    store
  }

  /** Makes the column families known to a store, with their encoders. */
  private def register(store: StateStore, schemas: StoreSchemas): Unit =
    schemas.others.foreach { family =>
      store.createColFamilyIfAbsent(
        family.name, family.keys, family.values, family.keySpec, family.isList, family.isInternal)
    }

  /** Refuses a store that has more column families than its schemas tell of. */
  private def checkDescribed(provider: StateStoreProvider, store: StateStore, schemas: StoreSchemas): Unit = {
    val known = (schemas.families :+ schemas.default).map(_.name).toSet
    val there = provider match {
      case rocks: RocksDBStateStoreProvider =>
        rocks.rocksDB.getColFamilyCount(isInternal = true) + rocks.rocksDB.getColFamilyCount(isInternal = false)
      case _ => known.size.toLong
    }
    if (there > known.size) {
      throw new MigrationException("format", s"store ${store.id} has $there column families, of which Spark's " +
        s"schema files describe ${known.size}: ${known.toSeq.sorted.mkString(", ")}")
    }
  }
}
