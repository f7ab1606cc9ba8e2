package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{ColumnFamilies, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.rows.{
  Codecs, FamilySchema, RowCodec, ThreadCodecs, ValuesIterator
}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Scans of keys with lists of values: a thread may have several open on a family. */
private[incremental] object ListedValues extends StoreCases {
  private val keys = new StructType().add("key", StringType)
  private val values = new StructType().add("value", LongType)
  private val schema = FamilySchema(NoPrefixKeyStateEncoderSpec(keys), values, multipleValues = true)

  def haveTheirOwnKeys(directory: File): Unit = withState(directory, 1L << 20) { (state, _) =>
    val made = new Codecs("unsaferow", None, columnFamilies = true)
    val codecs = new ThreadCodecs((_, name) => made.make(name, ColumnFamilies.Default, schema))
    val codec = codecs("put", "default")
    val transaction = begin(state, VersionId.empty)
    for (name <- Seq("a", "b")) {
      transaction.put(codec.encodeKey(row(keys, UTF8String.fromString(name))),
        codec.encodeValues(Array(row(values, 1L), row(values, 2L))))
    }
    def open(): ValuesIterator = {
      val scan = transaction.scan(ColumnFamilies.from(0), ColumnFamilies.until(0), ordered = true,
        skip = RowCodec.PrefixBytes)
      new ValuesIterator(scan, codec, codecs, _ => ())
    }
    def next(rows: ValuesIterator): String = {
      val pair = rows.next()
      s"${pair.key.getString(0)}${pair.value.getLong(0)}"
    }
    val (slow, quick) = (open(), open())
    val found = Seq(next(slow), next(quick), next(quick), next(quick), next(slow))
    expect(found == Seq("a1", "a1", "a2", "b1", "a2"), s"two scans in turn show $found")
    next(slow)
    val last = slow.next()
    expect(!slow.hasNext && last.key.getString(0) == "b" && last.value.getLong(0) == 2, "a row changes before the next")
    val again = open()
    next(again)
    val held = again.next()
    expect(again.hasNext && held.key.getString(0) == "a", s"${held.key.getString(0)} is shown for the key before")
    transaction.abort()
  }

  private def row(types: StructType, value: Any): UnsafeRow = UnsafeProjection.create(types)(InternalRow(value)).copy()
}
