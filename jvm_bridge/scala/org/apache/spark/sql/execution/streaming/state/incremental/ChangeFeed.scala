package org.apache.spark.sql.execution.streaming.state.incremental

import java.nio.file.Path
import java.util.Arrays

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.incremental.agent.AgentException
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{ColumnFamilies, UnknownFormatException}
import org.apache.spark.sql.execution.streaming.state.incremental.delta.DeltaReader
import org.apache.spark.sql.execution.streaming.state.incremental.rows.RowCodec
import org.apache.spark.sql.execution.streaming.state.RecordType
import org.apache.spark.util.NextIterator

/**
 * The changes of one column family, read from the deltas of consecutive versions: (put, merge or delete, key, value or
 * null, batch id). Each batch shows first the changes that its own later changes replaced, then the last change of each
 * key. A list of values is one put for each value; each value that was appended to a list is a merge. Both come in
 * order of time. For one thread, which gets the same row objects again.
 *
 * @param deltas versions and local files of the deltas, oldest first
 * @param codec the codec of the column family
 * @param release called once, when the files are not needed any more
 */
final class ChangeFeed(deltas: Seq[(Long, Path)], codec: RowCodec, release: () => Unit)
    extends NextIterator[(RecordType.Value, UnsafeRow, UnsafeRow, Long)] {
  private val from = ColumnFamilies.from(codec.family.id)
  private val unread = deltas.iterator
  private var version = 0L
  private var reader: DeltaReader = _
  private var values: Iterator[UnsafeRow] = Iterator.empty
  private var valuesKind = RecordType.PUT_RECORD

  override protected def getNext(): (RecordType.Value, UnsafeRow, UnsafeRow, Long) = {
    if (values.hasNext) return change(valuesKind, values.next())
    while (advance()) {
      if (Arrays.equals(reader.key, 0, RowCodec.PrefixBytes, from, 0, RowCodec.PrefixBytes)) return change()
    }
    finished = true
    null
  }

  override protected def close(): Unit =
    try closeReader()
    finally release()

  private def closeReader(): Unit = {
    if (reader != null) reader.close()
    reader = null
  }

  private def change(): (RecordType.Value, UnsafeRow, UnsafeRow, Long) =
    if (reader.value == null) (RecordType.DELETE_RECORD, codec.decodeKey(reader.key), null, version - 1)
    else if (!codec.multipleValues) change(RecordType.PUT_RECORD, codec.decodeValue(reader.value))
    else {
      values = codec.decodeValues(reader.value)
      valuesKind = if (reader.isAppended) RecordType.MERGE_RECORD else RecordType.PUT_RECORD
      change(valuesKind, values.next())
    }

  private def change(kind: RecordType.Value, value: UnsafeRow): (RecordType.Value, UnsafeRow, UnsafeRow, Long) =
    (kind, codec.decodeKey(reader.key), value, version - 1)

  private def advance(): Boolean = {
    while (reader == null || !reader.advance()) {
      closeReader()
      if (!unread.hasNext) return false
      val (next, file) = unread.next()
      version = next
      reader =
        try new DeltaReader(file.toFile)
        catch { case e: UnknownFormatException => throw AgentException.of(e) }
    }
    true
  }
}
