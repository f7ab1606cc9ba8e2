package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.nio.ByteBuffer
import java.util.IdentityHashMap

import org.rocksdb.{
  BlockBasedTableConfig, BloomFilter, InfoLogLevel, LRUCache, Options, ReadOptions, RocksDB, RocksDBException,
  RocksIterator
}

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, OffHeap, RowSizes, StoreMemory}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.Cursor

/**
 * A base that RocksDB itself reads, since it can read all that it has written: compressed blocks, any kind of index.
 */
private[base] final class RocksBase(directory: BaseDirectory, memory: StoreMemory) extends Base(directory) {
  RocksDB.loadLibrary()
  private val blocks = BlockCache.hold(memory)
  private val filter = new BloomFilter(10, false)
  private val table =
    new BlockBasedTableConfig().setBlockCache(blocks.cache).setFilterPolicy(filter).setFormatVersion(5)
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

  private val tableBytes = db.getLongProperty("rocksdb.estimate-table-readers-mem")
  memory.take(tableBytes)

  @volatile private var open = true

  /** Bytes of the tables and of this base's share of the block cache, which all such bases have in common. */
  def bytes: Long = tableBytes + blocks.shareBytes

  def reader(): BaseReader = {
    if (!open) throw new IllegalStateException(s"The local copy of the state in ${directory.path} is closed")
    new RocksBaseReader(db, readOptions, noteFailure)
  }

  protected def close(): Unit = {
    open = false
    db.close()
    closeOptions()
    memory.release(tableBytes)
  }

  private def closeOptions(): Unit = {
    readOptions.close()
    options.close()
    filter.close()
    blocks.release()
  }
}

/** A reader of a RocksDB database through direct buffers. It must be closed before the database is. */
private[base] final class RocksBaseReader(db: RocksDB, options: ReadOptions, failed: Throwable => Throwable)
    extends BaseReader {
  import RocksBaseReader.room

  private var keys = OffHeap.buffer(1 << 10)
  private var values = OffHeap.buffer(1 << 14)
  private val cursors = new java.util.ArrayList[RocksCursor]
  private var open = true

  private def check(): Unit = if (!open) throw new IllegalStateException("A reader of a base is closed")

  def get(hash: Long, key: Array[Byte]): Array[Byte] = {
    val length = find(key)
    if (length < 0) null
    else {
      if (length > values.capacity) {
        values = room(values, length)
        find(key)
      }
      Bytes.array(OffHeap.addressOf(values), length)
    }
  }

  def contains(hash: Long, key: Array[Byte]): Boolean = find(key) >= 0

  /** Reads as much of a value as the buffer has room for. Returns the value's length, negative if there is none. */
  private def find(key: Array[Byte]): Int = {
    check()
    keys = room(keys, key.length)
    keys.put(key).flip()
    values.clear()
    try db.get(options, keys, values)
    catch { case e: RocksDBException => throw failed(e) }
  }

  def cursor(from: Array[Byte], until: Array[Byte]): Cursor = {
    check()
    val cursor = new RocksCursor(db.newIterator(options))
    cursors.add(cursor)
    cursor.seek(from)
    cursor
  }

  /** Closes the reader and its cursors: no cursor may outlive the database. */
  def close(): Unit = {
    open = false
    new java.util.ArrayList(cursors).forEach(_.close())
  }

  private final class RocksCursor(iterator: RocksIterator) extends Cursor {
    private var key = OffHeap.buffer(1 << 10)
    private var value = OffHeap.buffer(1 << 14)
    private var open = true
    private var atRow = false
    private var failure: Throwable = _
    var keyLength = 0
    var valueLength = 0

    def seek(from: Array[Byte]): Unit = {
      iterator.seek(from)
      load()
    }

    def valid: Boolean = {
      if (failure != null) throw failure
      atRow
    }

    def keyAddress: Long = OffHeap.addressOf(key)
    def valueAddress: Long = OffHeap.addressOf(value)

    /**
     * Loads the row at the iterator. After a failure each use throws the same exception: there is neither a next row
     * nor an end.
     */
    private def load(): Unit = {
      atRow = iterator.isValid
      if (!atRow) {
        try iterator.status()
        catch {
          case e: RocksDBException =>
            failure = failed(e)
            throw failure
        }
      }
      if (atRow) {
        keyLength = iterator.key(key.clear())
        if (keyLength > key.capacity) {
          key = room(key, keyLength)
          iterator.key(key)
        }
        atRow = !(keyLength >= 2 && key.get(0) == -1 && key.get(1) == -1)
        valueLength = iterator.value(value.clear())
        if (valueLength > value.capacity) {
          value = room(value, valueLength)
          iterator.value(value)
        }
      }
    }

    def next(): Unit = {
      if (!open) throw new IllegalStateException("A scan of a base is closed")
      if (failure != null) throw failure
      iterator.next()
      load()
    }

    def close(): Unit = if (open) {
      open = false
      atRow = false
      iterator.close()
      cursors.remove(this)
    }
  }
}

private object RocksBaseReader {

  /** Returns a cleared buffer with room for this many bytes. */
  private def room(buffer: ByteBuffer, bytes: Int): ByteBuffer = {
    if (buffer.capacity < bytes) OffHeap.buffer(math.max(bytes, RowSizes.doubled(buffer.capacity)))
    else buffer.clear()
  }
}

/**
 * The block cache of all bases in one memory budget that RocksDB itself reads: an eighth of the budget, at most 64 MiB,
 * taken while there are such bases, however many. Any number of threads.
 */
private[base] final class BlockCache private (memory: StoreMemory) {
  private var users = 0
  private val bytes = math.max(1L << 20, math.min(memory.budgetBytes / 8, 64L << 20))
  val cache = new LRUCache(bytes)
  memory.take(bytes)

  /** Bytes of the cache, divided by its users. */
  def shareBytes: Long = BlockCache.all.synchronized(bytes / math.max(1, users))

  /** Gives the cache up. The user has closed all that uses it. */
  def release(): Unit = BlockCache.all.synchronized {
    users -= 1
    if (users == 0) {
      BlockCache.all.remove(memory)
      cache.close()
      memory.release(bytes)
    }
  }
}

private[base] object BlockCache {
  private val all = new IdentityHashMap[StoreMemory, BlockCache]

  /**
   * Returns the cache of a budget, for one more user; it lives until each user has released it. RocksDB's library is
   * loaded.
   */
  def hold(memory: StoreMemory): BlockCache = all.synchronized {
    val cache = all.computeIfAbsent(memory, new BlockCache(_))
    cache.users += 1
    cache
  }
}
