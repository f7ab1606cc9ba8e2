package org.apache.spark.sql.execution.streaming.state.incremental.rows

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.ColumnFamily
import org.apache.spark.sql.execution.streaming.state.incremental.release.Encoders
import org.apache.spark.sql.types.StructType

/**
 * The schema of a column family, as Spark gives it. Immutable.
 *
 * @param multipleValues true if a key has a list of values
 */
final case class FamilySchema(keySpec: KeyStateEncoderSpec, values: StructType, multipleValues: Boolean)

/**
 * Makes codecs. Spark's encoders reuse buffers, so each store has its own.
 *
 * @param encoding "unsaferow" or "avro"
 */
final class Codecs(encoding: String, schemas: Option[StateSchemaProvider], columnFamilies: Boolean) {
  def make(name: String, family: ColumnFamily, schema: FamilySchema): RowCodec = {
    val avro = encoding == StateStoreEncoding.Avro.toString
    val data =
      if (avro) new AvroStateEncoder(schema.keySpec, schema.values, schemas, name)
      else new UnsafeRowDataEncoder(schema.keySpec, schema.values)
    new RowCodec(name, family, schema,
      RocksDBStateEncoder.getKeyEncoder(data, schema.keySpec, columnFamilies),
      Encoders.values(data, schema.values, schema.multipleValues, RowCodec.DelimiterBytes),
      isPlain = !avro)
  }
}

/**
 * The codecs of one store, a set for each thread. Spark's encoders reuse buffers and rows: a row that a thread was
 * given is valid until that thread asks for the next. Any thread.
 *
 * @param make makes the codec of a column family, or throws; its arguments are the operation and the family's name
 */
private[incremental] final class ThreadCodecs(make: (String, String) => RowCodec) {
  import ThreadCodecs._

  private val sets = new ConcurrentHashMap[Thread, CodecSet]

  /** The set that was used last: a single thread pays for one comparison. */
  private var latest: CodecSet = _

  /**
   * Returns the codec of a family for this thread.
   *
   * @param operation the calling operation, for the message of an exception
   */
  def apply(operation: String, name: String): RowCodec = {
    val set = ofThisThread
    if (set.latest == null || (name ne set.latest.name)) {
      val known = set.byName.get(name)
      set.latest = if (known != null) known else make(operation, name)
      if (known == null) set.byName.put(name, set.latest)
    }
    set.latest
  }

  /** Returns this thread's codec of the family of a codec, which may be another thread's. */
  def own(codec: RowCodec): RowCodec = if (codec.isOfThisThread) codec else apply("iterator", codec.name)

  /** Forgets all codecs. No other thread may use a codec meanwhile. */
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
