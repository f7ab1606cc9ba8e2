package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.ArrowUtils

/** Spark's encoders of rows. Before 4.2 they do not show their order, and one byte divides values. */
object Encoders {
  /**
   * Returns an encoder of values.
   *
   * @param delimiterBytes number of bytes between the values of a key
   */
  def values(
      data: RocksDBDataEncoder,
      schema: StructType,
      multipleValues: Boolean,
      delimiterBytes: Int): RocksDBValueStateEncoder =
    RocksDBStateEncoder.getValueEncoder(data, schema, multipleValues)

  /** Returns the number of bytes between the values of a key in Spark's RocksDB store. */
  def rocksDelimiterBytes(conf: StateStoreConf): Int = 1

  /** Returns true if the bytes of encoded keys have the order of the keys. */
  def scansRanges(keys: RocksDBKeyStateEncoder, spec: KeyStateEncoderSpec): Boolean =
    spec.isInstanceOf[RangeKeyScanStateEncoderSpec]

  def deletesRanges(keys: RocksDBKeyStateEncoder, spec: KeyStateEncoderSpec): Boolean =
    scansRanges(keys, spec)
}

/** The Arrow types of Spark's types. */
object ArrowTypes {
  /** Throws an error if a type of the schema has no Arrow type. */
  def check(schema: StructType, timeZoneId: String): Unit =
    ArrowUtils.toArrowSchema(schema, timeZoneId, errorOnDuplicatedFieldNames = false, largeVarTypes = false)

  /**
   * Does nothing: Spark's operators take structs with two fields of one name. The flag that would refuse them is set
   * after the trait that reads it has made the Arrow schema.
   */
  def failDuplicatedFieldNames(schema: StructType): Unit = ()
}

/** Look-ups of many keys at once: before Spark 4.2 only this project's stores have them. */
object Lookups {
  /**
   * Returns the values of keys, in the order of the keys.
   *
   * @throws java.lang.UnsupportedOperationException if the store has only single look-ups
   */
  def multiGet(store: StateStore, keys: Array[UnsafeRow]): Iterator[UnsafeRow] = store match {
    case own: SparkStateStore => own.multiGet(keys, StateStore.DEFAULT_COL_FAMILY_NAME)
    case _ => throw new UnsupportedOperationException("multiGet")
  }
}

/** Spark's checksums of single rows, which 4.2 introduced. */
object RowChecksums {
  def areEnabled(conf: StateStoreConf): Boolean = false
}

/** The state of a task. Before 4.2 Spark does not show why a task failed. */
object Tasks {
  def failure(task: TaskContext): Option[Throwable] = None
}

/** The calls that Spark makes on a store from 4.2 on. Earlier releases make none of them. */
trait LaterCalls {
  def keyExists(key: UnsafeRow, colFamilyName: String): Boolean

  def multiGet(keys: Array[UnsafeRow], colFamilyName: String): Iterator[UnsafeRow]

  def deleteRange(beginKey: UnsafeRow, endKey: UnsafeRow, colFamilyName: String): Unit

  def iteratorWithMultiValues(colFamilyName: String): StateStoreIterator[UnsafeRowPair]

  def prefixScanWithMultiValues(
      prefixKey: UnsafeRow, colFamilyName: String): StateStoreIterator[UnsafeRowPair]

  def rangeScan(
      startKey: Option[UnsafeRow],
      endKey: Option[UnsafeRow],
      colFamilyName: String): StateStoreIterator[UnsafeRowPair]

  def rangeScanWithMultiValues(
      startKey: Option[UnsafeRow],
      endKey: Option[UnsafeRow],
      colFamilyName: String): StateStoreIterator[UnsafeRowPair]

  def allColumnFamilyNames: Set[String]
}
