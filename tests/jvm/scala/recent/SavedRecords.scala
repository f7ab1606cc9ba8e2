package org.apache.spark.sql.execution.streaming.state.incremental.recent

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Arena, Record, StoreMemory}

/** A case that saves records from evicted memory: they take exactly the room that was reserved for them. */
object SavedRecords {
  def main(arguments: Array[String]): Unit = {
    val memory = new StoreMemory(1L << 20)
    val arena = new Arena(memory, null)
    val record = arena.allocate(Record.size(10, 20))
    Record.setHeader(record, 0, 10, 20, 20)
    val saved = EvictableSegment.reserve(Record.size(record), 1, memory).get
    saved.add(record)
    val refused =
      try {
        saved.add(record)
        false
      } catch { case _: InconsistentStateException => true }
    if (!refused) throw new AssertionError("a record is written behind the memory that was reserved")
    saved.free()
    arena.free()
    println("no record has too little room")
  }
}
