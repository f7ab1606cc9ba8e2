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
 * The changes of one column family, read from the deltas of consecutive versions: (put, merge or delete, key, value
 * or null, batch id). Of each batch first what its own later changes replaced, then the last change of each key; a
 * list of values is a put of each, and each value that was appended to a list is a merge, in order of time. One
 * thread; rows are reused.
 *
 * @param deltas version and local file, oldest first
 * @param release called once, when the files are of no use any more
 */
final class ChangeFeed(deltas: Seq[(Long, Path)], codec: RowCodec, release: () => Unit)
  extends NextIterator[(RecordType.Value, UnsafeRow, UnsafeRow, Long)] {
  private val from = ColumnFamilies.from(codec.family.id)
  private val left = deltas.iterator
  private var version = 0L
  private var reader: DeltaReader = _
  private var values: Iterator[UnsafeRow] = Iterator.empty
  private var kindOfValues = RecordType.PUT_RECORD

  override protected def getNext(): (RecordType.Value, UnsafeRow, UnsafeRow, Long) = {
    if (values.hasNext) return change(kindOfValues, values.next())
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
      kindOfValues = if (reader.isAppended) RecordType.MERGE_RECORD else RecordType.PUT_RECORD
      change(kindOfValues, values.next())
    }

  private def change(kind: RecordType.Value, value: UnsafeRow): (RecordType.Value, UnsafeRow, UnsafeRow, Long) =
    (kind, codec.decodeKey(reader.key), value, version - 1)

  private def advance(): Boolean = {
    while (reader == null || !reader.advance()) {
      closeReader()
      if (!left.hasNext) return false
      val (next, file) = left.next()
      version = next
      reader =
        try new DeltaReader(file.toFile)
        catch { case e: UnknownFormatException => throw AgentException.of(e) }
    }
    true
  }
}
