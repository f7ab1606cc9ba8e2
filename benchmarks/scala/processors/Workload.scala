package statestore.benchmark.processors

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** The rows of the shapes that state variables and timers have. */
private object Rows {
  val keySchema: StructType = new StructType().add("key", StringType)
  val valueSchema: StructType = new StructType().add("n", LongType).add("text", StringType)
  val mapSchema: StructType = new StructType().add("key", StringType).add("field", LongType)
  val countSchema: StructType = new StructType().add("count", LongType)
  val keyAndTime: StructType = new StructType().add("key", StringType).add("at", LongType)
  val timeAndKey: StructType = new StructType().add("at", LongType).add("key", StringType)
  val nothing: StructType = new StructType().add("nothing", NullType)

  private val text = UTF8String.fromString("x" * 24)

  private var names = Array.empty[UTF8String]

  /** Makes the names of this number of keys, which a query finds in its input. */
  def makeNames(keys: Int): Unit = names = Array.tabulate(keys)(key => UTF8String.fromString(f"customer-$key%08d"))

  def name(key: Int): UTF8String = names(key)
  def projection(schema: StructType): UnsafeProjection = UnsafeProjection.create(schema)
  def value(of: UnsafeProjection, n: Long): UnsafeRow = of(InternalRow(n, text))
}

/** The calls of a batch of one kind of state variable on a store, as Spark's classes make them. */
private trait Workload {
  /** Touches keys; returns a number made of all rows that it read. */
  def batch(number: Int, touched: Array[Int]): Long
}

private object Workload {
  val all: Map[String, StateStore => Workload] = scala.collection.immutable.ListMap(
    "value" -> (new ValueWorkload(_)),
    "list" -> (new ListWorkload(_)),
    "map" -> (new MapWorkload(_)),
    "timers" -> (new TimerWorkload(_)))
}

/** A workload that reads the value of a key and writes another. */
private final class ValueWorkload(store: StateStore) extends Workload {
  private val (keys, values) = (Rows.projection(Rows.keySchema), Rows.projection(Rows.valueSchema))
  store.createColFamilyIfAbsent("value", Rows.keySchema, Rows.valueSchema, NoPrefixKeyStateEncoderSpec(Rows.keySchema))

  override def batch(number: Int, touched: Array[Int]): Long = {
    var read = 0L
    touched.foreach { key =>
      val row = keys(InternalRow(Rows.name(key)))
      val old = store.get(row, "value")
      val n = if (old == null) 0L else old.getLong(0)
      read += n * key
      store.put(row, Rows.value(values, n + number), "value")
    }
    read
  }
}

/**
 * A workload that reads the list of a key and appends to it; restarts the list at 32 entries. Spark counts the entries
 * apart.
 */
private final class ListWorkload(store: StateStore) extends Workload {
  private val (keys, values, counts) =
    (Rows.projection(Rows.keySchema), Rows.projection(Rows.valueSchema), Rows.projection(Rows.countSchema))
  private val plain = NoPrefixKeyStateEncoderSpec(Rows.keySchema)
  store.createColFamilyIfAbsent("list", Rows.keySchema, Rows.valueSchema, plain, useMultipleValuesPerKey = true)
  store.createColFamilyIfAbsent("$rowCounter_list", Rows.keySchema, Rows.countSchema, plain, isInternal = true)

  override def batch(number: Int, touched: Array[Int]): Long = {
    var read = 0L
    touched.foreach { key =>
      val row = keys(InternalRow(Rows.name(key)))
      store.valuesIterator(row, "list").foreach(value => read += value.getLong(0) * key)
      val before = store.get(row, "$rowCounter_list")
      val count = if (before == null) 0L else before.getLong(0)
      val value = Rows.value(values, number.toLong)
      if (count < 32) store.merge(row, value, "list") else store.put(row, value, "list")
      store.put(row, counts(InternalRow(if (count < 32) count + 1 else 1L)), "$rowCounter_list")
    }
    read
  }
}

/** A workload that iterates over the map of a key and changes one of its eight fields. */
private final class MapWorkload(store: StateStore) extends Workload {
  private val (keys, fields, values) =
    (Rows.projection(Rows.keySchema), Rows.projection(Rows.mapSchema), Rows.projection(Rows.valueSchema))
  store.createColFamilyIfAbsent(
    "map", Rows.mapSchema, Rows.valueSchema, PrefixKeyScanStateEncoderSpec(Rows.mapSchema, 1))

  override def batch(number: Int, touched: Array[Int]): Long = {
    var read = 0L
    touched.foreach { key =>
      val name = Rows.name(key)
      val all = store.prefixScan(keys(InternalRow(name)), "map")
      all.foreach(pair => read = read * 31 + pair.key.getLong(1) * pair.value.getLong(0))
      all.close()
      val field = fields(InternalRow(name, (key + number) % 8L))
      val old = store.get(field, "map")
      store.put(field, Rows.value(values, (if (old == null) 0L else old.getLong(0)) + number), "map")
    }
    read
  }
}

/** A workload that moves the timer of each key to some batches later, and lets due timers expire. */
private final class TimerWorkload(store: StateStore) extends Workload {
  private val (keys, byKey, byTime) =
    (Rows.projection(Rows.keySchema), Rows.projection(Rows.keyAndTime), Rows.projection(Rows.timeAndKey))
  private val empty = Rows.projection(Rows.nothing)(InternalRow(null)).copy()
  store.createColFamilyIfAbsent("$timers_keyToTimestamp", Rows.keyAndTime, Rows.nothing,
    PrefixKeyScanStateEncoderSpec(Rows.keyAndTime, 1), isInternal = true)
  store.createColFamilyIfAbsent("$timers_timestampToKey", Rows.timeAndKey, Rows.nothing,
    RangeKeyScanStateEncoderSpec(Rows.timeAndKey, Seq(0)), isInternal = true)

  override def batch(number: Int, touched: Array[Int]): Long = {
    var read = 0L
    touched.foreach { key =>
      val name = Rows.name(key)
      val timers = store.prefixScan(keys(InternalRow(name)), "$timers_keyToTimestamp")
      val old = timers.map(_.key.getLong(1)).toList
      timers.close()
      old.foreach(at => remove(name, at))
      read += old.sum * key
      register(name, TimerWorkload.beginMs + (number + 3L + key % 5) * 1000 + key % 1000)
    }
    read + expire(TimerWorkload.beginMs + number * 1000L)
  }

  private def register(name: UTF8String, at: Long): Unit =
    if (store.get(byKey(InternalRow(name, at)), "$timers_keyToTimestamp") == null) {
      store.put(byKey(InternalRow(name, at)), empty, "$timers_keyToTimestamp")
      store.put(byTime(InternalRow(at, name)), empty, "$timers_timestampToKey")
    }

  private def remove(name: UTF8String, at: Long): Unit =
    if (store.get(byKey(InternalRow(name, at)), "$timers_keyToTimestamp") != null) {
      store.remove(byKey(InternalRow(name, at)), "$timers_keyToTimestamp")
      store.remove(byTime(InternalRow(at, name)), "$timers_timestampToKey")
    }

  private def expire(untilMs: Long): Long = {
    var expired = 0L
    val timers = store.iterator("$timers_timestampToKey")
    timers.takeWhile(_.key.getLong(0) <= untilMs).foreach { pair =>
      val (at, name) = (pair.key.getLong(0), pair.key.getUTF8String(1).clone())
      remove(name, at)
      expired = expired * 31 + at
    }
    timers.close()
    expired
  }
}

private object TimerWorkload {
  private val beginMs = 1700000000000L
}
