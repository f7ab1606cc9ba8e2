package org.apache.spark.sql.execution.streaming.state.incremental

import java.nio.file.Path
import java.util.Arrays

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.RecordType
import org.apache.spark.util.NextIterator

/**
 * The changes of one column family, read from the deltas of consecutive versions: (put or delete, key, value
 * or null, batch id). A batch changes a key once: its last change. One thread; rows are reused.
 *
 * @param deltas version and local file, oldest first
 */
final class ChangeFeed(deltas: Seq[(Long, Path)], codec: RowCodec)
  extends NextIterator[(RecordType.Value, UnsafeRow, UnsafeRow, Long)] {
  private val from = ColumnFamilies.from(codec.family.id)
  private val left = deltas.iterator
  private var version = 0L
  private var reader: DeltaReader = _

  override protected def getNext(): (RecordType.Value, UnsafeRow, UnsafeRow, Long) = {
    while (advance()) {
      if (Arrays.equals(reader.key, 0, RowCodec.PrefixBytes, from, 0, RowCodec.PrefixBytes)) return change()
    }
    finished = true
    null
  }

  override protected def close(): Unit = if (reader != null) reader.close()

  private def change(): (RecordType.Value, UnsafeRow, UnsafeRow, Long) = {
    val kind = if (reader.value == null) RecordType.DELETE_RECORD else RecordType.PUT_RECORD
    (kind, codec.decodeKey(reader.key), codec.decodeValue(reader.value), version - 1)
  }

  private def advance(): Boolean = {
    while (reader == null || !reader.advance()) {
      close()
      reader = null
      if (!left.hasNext) return false
      val (next, file) = left.next()
      version = next
      reader = new DeltaReader(file.toFile)
    }
    true
  }
}
