package org.apache.spark.sql.execution.streaming.state.incremental.migration

import java.io.IOException
import java.util.UUID

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.incremental.IncrementalStateStoreProvider
import org.apache.spark.sql.execution.streaming.state.incremental.release.{Encoders, RowChecksums, SparkNames}
import org.apache.spark.sql.internal.SQLConf

/**
 * A side of a migration, source or target: the directory of its checkpoint, its provider, and the configuration that
 * the provider gets. Safe for any thread.
 *
 * @param stateRoot the directory `state` of the checkpoint
 */
private[migration] final class Side(val stateRoot: String, conf: SQLConf, configuration: Configuration) {

  /**
   * Makes Spark's RocksDB store write and read the archives of this side's checkpoint format: Spark 4.0 reads the
   * format once in the life of a JVM, from the configuration that is active at that time.
   */
  def fixArchiveFormat(): Unit =
    if (StateStoreConf(conf).providerClass == classOf[RocksDBStateStoreProvider].getName) {
      SQLConf.withExistingConf(conf) {
        Class.forName("org.apache.spark.sql.execution.streaming.state.RocksDBCheckpointMetadata$")
      }
    }

  /** Returns the number of bytes between the values of a key in the checkpoint, if it is one of Spark's RocksDB store. */
  def delimiterBytes: Int = Encoders.rocksDelimiterBytes(StateStoreConf(conf))

  /** Returns true if each value in the checkpoint has a checksum, which Spark checks when it reads the value. */
  def hasRowChecksums: Boolean = RowChecksums.areEnabled(StateStoreConf(conf))

  /** Returns a new copy of the configuration, since each provider changes its own. */
  def hadoop: Configuration = new Configuration(configuration)

  /** Opens the provider of one store, which the caller closes. */
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
  /** Returns a side whose configuration is what its offset log says, unless the session says otherwise. */
  def of(request: SideRequest, hadoop: Configuration): Side = {
    val conf = pinned(new SQLConf, request)
    (request.pins ++ request.conf).foreach { case (name, value) => conf.setConfString(name, value) }
    new Side(request.stateRoot, conf, hadoop)
  }

  /** Returns a side with the configuration that a query of its checkpoint has, whatever the session says. */
  def ofQuery(request: SideRequest, hadoop: Configuration): Side = {
    val conf = new SQLConf
    request.conf.foreach { case (name, value) => conf.setConfString(name, value) }
    new Side(request.stateRoot, pinned(conf, request), hadoop)
  }

  /** Sets what Spark itself sets for a query: an option that its log lacks gets the value from before the option. */
  private def pinned(conf: SQLConf, request: SideRequest): SQLConf = {
    SparkNames.OffsetSeqMetadata.setSessionConf(SparkNames.OffsetSeqMetadata(0, 0, request.pins.toMap), conf)
    conf
  }

  /**
   * Opens a version of a store to read from, with its column families. Writes nothing to the checkpoint, as long as
   * Spark's changelog is switched off in the provider's configuration.
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
          try store.abort()
          catch { case other: Throwable => e.addSuppressed(other) }
          throw e
      }
    }
  }

  /** Opens an empty store whose first commit gets the number of a version, at once or by [[Renumbering]]. */
  def writer(provider: StateStoreProvider, version: Long, schemas: StoreSchemas): StateStore = {
    val store = provider match {
      case own: IncrementalStateStoreProvider => own.getEmptyStore(version - 1)
      case other => other.getStore(0, None)
    }
    if (schemas.usesFamilies) register(store, schemas)
    store
  }

  /** Registers the column families with a store, which makes their encoders. */
  private def register(store: StateStore, schemas: StoreSchemas): Unit =
    schemas.others.foreach { family =>
      store.createColFamilyIfAbsent(
        family.name, family.keys, family.values, family.keySpec, family.isList, family.isInternal)
    }

  /** Refuses a store that has more column families than its schemas describe. */
  private def checkDescribed(provider: StateStoreProvider, store: StateStore, schemas: StoreSchemas): Unit = {
    val described = (schemas.families :+ schemas.default).map(_.name).toSet
    val familiesInStore = provider match {
      case rocks: RocksDBStateStoreProvider =>
        rocks.rocksDB.getColFamilyCount(isInternal = true) + rocks.rocksDB.getColFamilyCount(isInternal = false)
      case _ => described.size.toLong
    }
    if (familiesInStore > described.size) {
      throw new MigrationException("format",
        s"store ${store.id} has $familiesInStore column families, of which Spark's " +
          s"schema files describe ${described.size}: ${described.toSeq.sorted.mkString(", ")}")
    }
  }
}

/**
 * Gives the first version of one of Spark's own stores another number.
 *
 * Spark's stores make version 1 of an empty store and then the versions after it, one by one. Only the names of the
 * files have the number of the version: RocksDB's archive is `1.zip`, or `1_<id>.zip`; the delta of the HDFS-backed
 * store, which begins with nothing, has the same bytes as a snapshot.
 */
private[migration] object Renumbering {
  /** The name of a file of version 1: the id of the version, the kind, and the rest of a file that belongs to it. */
  private val First = """1(_[^.]*)?\.(zip|delta)(\..*)?""".r

  /** @throws java.io.IOException if there is no such file, or it cannot be renamed */
  def renumber(store: Path, version: Long, hadoop: Configuration): Unit = {
    val files = store.getFileSystem(hadoop)
    val renames = files.listStatus(store).map(_.getPath).collect {
      case path @ Named(id, kind, rest) => (path, new Path(store, newName(version, id, kind, rest)), rest)
    }
    if (renames.isEmpty) throw new IOException(s"the state store wrote no version into $store")
    if (version > 1) {
      // The files that belong to another file are renamed before it: a version that is visible is complete.
      renames.sortBy { case (_, _, rest) => if (rest.isEmpty) 1 else 0 }.foreach { case (from, to, _) =>
        if (!files.rename(from, to)) throw new IOException(s"$from cannot be renamed to $to")
      }
    }
  }

  private object Named {
    def unapply(path: Path): Option[(String, String, String)] = path.getName match {
      case First(id, kind, rest) => Some((Option(id).getOrElse(""), kind, Option(rest).getOrElse("")))
      case _ => None
    }
  }

  private def newName(version: Long, id: String, kind: String, rest: String): String = {
    val becomes = if (kind == "delta") "snapshot" else kind
    s"$version$id.$becomes$rest"
  }
}
