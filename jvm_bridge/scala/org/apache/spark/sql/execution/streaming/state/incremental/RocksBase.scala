package org.apache.spark.sql.execution.streaming.state.incremental

import org.rocksdb.{BlockBasedTableConfig, BloomFilter, InfoLogLevel, LRUCache, Options, ReadOptions, RocksDB}

/**
 * A base read by RocksDB itself, which can read whatever it has written: compressed blocks, any kind of
 * index.
 */
private[incremental] final class RocksBase(directory: BaseDirectory, memory: StoreMemory) extends Base(directory) {
  RocksDB.loadLibrary()
  private val cacheBytes = math.max(1L << 20, math.min(memory.budgetBytes / 8, 64L << 20))
  private val cache = new LRUCache(cacheBytes)
  private val filter = new BloomFilter(10, false)
  private val table = new BlockBasedTableConfig().setBlockCache(cache).setFilterPolicy(filter).setFormatVersion(5)
  private val options =
    new Options().setTableFormatConfig(table).setInfoLogLevel(InfoLogLevel.FATAL_LEVEL).setMaxOpenFiles(-1)
  private val readOptions = new ReadOptions
  private val db =
    try RocksDB.openReadOnly(options, directory.path)
    catch {
      case e: Throwable =>
        closeOptions()
        throw e
    }

  val bytes: Long = cacheBytes + db.getLongProperty("rocksdb.estimate-table-readers-mem")
  memory.take(bytes)

  def reader(): BaseReader = new RocksBaseReader(db, readOptions)

  protected def close(): Unit = {
    db.close()
    closeOptions()
    memory.release(bytes)
  }

  private def closeOptions(): Unit = {
    readOptions.close()
    options.close()
    filter.close()
    cache.close()
  }
}
