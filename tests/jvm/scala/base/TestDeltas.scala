package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.File

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{
  Arena, Bytes, KeyHash, Record, SortedRuns, StoreMemory
}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{DeltaWriter, OverwrittenChanges}

/** Deltas of numbered keys, whose values are those of a round; a change without a round removes the key. */
private[base] final class TestDeltas(
    memory: StoreMemory,
    directory: File,
    key: Int => Array[Byte],
    value: (Int, Int) => Array[Byte]) {

  /**
   * Writes a delta.
   *
   * @param replaced keys, and the rounds of values that they had in the batch before they were changed again
   */
  def write(file: File, meta: String, changes: Seq[(Int, Option[Int])], replaced: Seq[(Int, Int)] = Nil): File = {
    val arena = new Arena(memory, directory)
    val overwritten = new OverwrittenChanges(memory, directory)
    replaced.foreach { case (n, round) => overwritten.add(record(arena, n, Some(round))) }
    val records = new SortedRuns(memory, directory)
    records.addUnsorted(use => changes.foreach { case (n, round) => use(record(arena, n, round)) }, _ => true)
    new DeltaWriter(records, changes.length, overwritten, memory, directory)
      .write(file, meta.getBytes("US-ASCII"), changes.count(_._2.isDefined), changes.count(_._2.isEmpty))
    records.free()
    arena.free()
    overwritten.free()
    file
  }

  /** Returns a record of a key and its value, or of its removal. */
  def record(arena: Arena, n: Int, round: Option[Int]): Long = {
    val bytes = round.map(value(n, _)).orNull
    val room = if (bytes == null) 0 else bytes.length
    val record = arena.allocate(Record.size(key(n).length, room))
    Record.setHeader(record, KeyHash.of(key(n)).toInt, key(n).length, if (bytes == null) Record.removed else room, room)
    Bytes.put(key(n), Record.keyAddress(record))
    if (bytes != null) Bytes.put(bytes, Record.valueAddress(record))
    record
  }
}
