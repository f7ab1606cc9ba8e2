package org.apache.spark.sql.execution.streaming.state.incremental

/**
 * A local RocksDB directory that holds all of a store's rows at a version; nobody writes to it any more.
 *
 * @param path    the directory
 * @param at      the version that it holds
 * @param keys    number of keys at that version, the reserved record not counted
 * @param onClose called once, when the data plane has closed it (or never opened it): it may be deleted
 */
final case class BaseDirectory(path: String, at: VersionId, keys: Long, onClose: () => Unit)
