package org.apache.spark.sql.execution.streaming.state.incremental.rows

import java.util.concurrent.ConcurrentHashMap

/**
 * The codecs of one store, a set of them for each thread: Spark's encoders reuse buffers and rows, and a row
 * that a thread was given stays what it is until that thread asks for the next. Any thread.
 *
 * @param make makes the codec of a column family, or throws; is also given the operation that needs it
 */
private[incremental] final class ThreadCodecs(make: (String, String) => RowCodec) {
  import ThreadCodecs._

  private val sets = new ConcurrentHashMap[Thread, CodecSet]

  /** The set that was used last: one thread by itself pays for a comparison only. */
  private var latest: CodecSet = _

  /** The codec of a family for this thread. */
  def apply(operation: String, name: String): RowCodec = {
    val set = ofThisThread
    if (set.latest == null || (name ne set.latest.name)) {
      val known = set.byName.get(name)
      set.latest = if (known != null) known else make(operation, name)
      if (known == null) set.byName.put(name, set.latest)
    }
    set.latest
  }

  /** The codec for this thread of the family that another thread's codec may be of. */
  def own(codec: RowCodec): RowCodec = if (codec.isOfThisThread) codec else apply("iterator", codec.name)

  /** Forgets all; while no other thread uses any. */
  def clear(): Unit = {
    latest = null
    sets.clear()
  }

  private def ofThisThread: CodecSet = {
    val known = latest
    if (known != null && (known.thread eq Thread.currentThread)) known
    else {
      val own = sets.computeIfAbsent(Thread.currentThread, new CodecSet(_))
      latest = own
      own
    }
  }
}

private object ThreadCodecs {
  private final class CodecSet(val thread: Thread) {
    val byName = new java.util.HashMap[String, RowCodec]
    var latest: RowCodec = _
  }
}
