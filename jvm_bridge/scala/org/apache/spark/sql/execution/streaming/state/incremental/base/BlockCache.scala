package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.util.IdentityHashMap

import org.rocksdb.LRUCache

import org.apache.spark.sql.execution.streaming.state.incremental.memory.StoreMemory

/**
 * The block cache of all bases in one memory budget that RocksDB itself reads: an eighth of it, at most 64 MiB, taken
 * while there are such bases, however many. Any number of threads.
 */
private[base] final class BlockCache private (memory: StoreMemory) {
  private var users = 0
  private val bytes = math.max(1L << 20, math.min(memory.budgetBytes / 8, 64L << 20))
  val cache = new LRUCache(bytes)
  memory.take(bytes)

  /** For each of its users the same share. */
  def shareBytes: Long = BlockCache.all.synchronized(bytes / math.max(1, users))

  /** For a user who holds it no more, and has closed what uses the cache. */
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

  /** The one of that budget, until each user has released it. RocksDB's library is loaded. */
  def hold(memory: StoreMemory): BlockCache = all.synchronized {
    val one = all.computeIfAbsent(memory, new BlockCache(_))
    one.users += 1
    one
  }
}
