package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.ArrowUtils

/** Spark's encoders of rows. */
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
    RocksDBStateEncoder.getValueEncoder(data, schema, multipleValues, delimiterBytes)

  /** Returns the number of bytes between the values of a key in Spark's RocksDB store. */
  def rocksDelimiterBytes(conf: StateStoreConf): Int = if (RocksDBConf(conf).mergeOperatorVersion == 1) 1 else 0

  /** Returns true if the bytes of encoded keys have the order of the keys. */
  def scansRanges(keys: RocksDBKeyStateEncoder, spec: KeyStateEncoderSpec): Boolean =
    keys.supportsRangeScan

  def deletesRanges(keys: RocksDBKeyStateEncoder, spec: KeyStateEncoderSpec): Boolean =
    keys.supportsDeleteRange
}

/** The Arrow types of Spark's types. */
object ArrowTypes {
  /** Throws an error if a type of the schema has no Arrow type. */
  def check(schema: StructType, timeZoneId: String): Unit =
    ArrowUtils.toArrowSchema(schema, timeZoneId, largeVarTypes = false)

  /** Throws an error if a struct of the schema has two fields of one name. */
  def failDuplicatedFieldNames(schema: StructType): Unit = ArrowUtils.failDuplicatedFieldNames(schema)
}

/** Look-ups of many keys at once. */
object Lookups {
  /**
   * Returns the values of keys, in the order of the keys.
   *
   * @throws java.lang.UnsupportedOperationException if the store has only single look-ups
   */
  def multiGet(store: StateStore, keys: Array[UnsafeRow]): Iterator[UnsafeRow] =
    store.multiGet(keys, StateStore.DEFAULT_COL_FAMILY_NAME)
}

/** Spark's checksums of single rows. */
object RowChecksums {
  def areEnabled(conf: StateStoreConf): Boolean = conf.rowChecksumEnabled
}

/** The state of a task. */
object Tasks {
  /** Returns the error of the task, if it has failed. */
  def failure(task: TaskContext): Option[Throwable] = task.getTaskFailure
}
