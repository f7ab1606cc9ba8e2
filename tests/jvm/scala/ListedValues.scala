package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state.{NoPrefixKeyStateEncoderSpec, RecordType}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{ColumnFamilies, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.rows.{
  Codecs, FamilySchema, RowCodec, ThreadCodecs, ValuesIterator
}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Keys with lists of values: scans, of which a thread may have several open on a family, and the change feed. */
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

  /** A reader that takes a put for a new list, and a merge for a value more, gets the list. */
  def areFedAsAPutAndMerges(directory: File): Unit = withState(directory, 1L << 20) { (state, _) =>
    val codec = new Codecs("unsaferow", None, columnFamilies = true).make("default", ColumnFamilies.Default, schema)
    def key(name: String): Array[Byte] = codec.encodeKey(row(keys, UTF8String.fromString(name)))
    def list(numbers: Long*): Array[Byte] = codec.encodeValues(numbers.map(row(values, _)).toArray)
    val transaction = begin(state, VersionId.empty)
    transaction.put(key("a"), list(1, 2, 3))
    transaction.put(key("b"), list(1, 2))
    transaction.append(key("b"), list(3, 4), RowCodec.Delimiter)
    transaction.append(key("c"), list(1, 2), RowCodec.Delimiter)
    val delta = new File(directory, "lists.sst")
    transaction.writeDelta(delta, bytes(TestBases.meta(VersionId(1, Some("id")), 3)))
    transaction.abort()
    val found = new ChangeFeed(Seq(1L -> delta.toPath), codec, () => ()).map { case (kind, key, value, _) =>
      (key.getString(0), kind == RecordType.PUT_RECORD, value.getLong(0))
    }.toSeq
    val wanted = for {
      (name, isPut) <- Seq("a" -> true, "b" -> true, "c" -> false)
      number <- 1 to (if (name == "a") 3 else if (name == "b") 4 else 2)
    } yield (name, isPut && number == 1, number.toLong)
    expect(found.sorted == wanted.sorted, s"the changes are $found")
  }

  private def row(types: StructType, value: Any): UnsafeRow = UnsafeProjection.create(types)(InternalRow(value)).copy()
}
