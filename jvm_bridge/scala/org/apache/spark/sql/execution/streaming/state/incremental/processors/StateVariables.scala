package org.apache.spark.sql.execution.streaming.state.incremental.processors

import java.util.{ArrayList, List => JavaList}

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.incremental.release.ProcessorHandles.Handle
import org.apache.spark.sql.streaming.TTLConfig

/**
 * A state variable of a processor under the present key: Spark's own variable, with the worker's values.
 *
 * Each kind has the calls of Spark's variables of its kind; the worker makes no others.
 */
private[processors] abstract class StateVariable(val name: String) {
  def exists: Boolean
  def clear(): Unit

  def value: Any = unknown
  def update(sent: AnyRef): Unit = unknown

  def list(maxEntries: Int, maxBytes: Long): Any = unknown
  def append(sent: JavaList[AnyRef]): Unit = unknown
  def appendOne(sent: AnyRef): Unit = unknown
  def put(sent: JavaList[AnyRef]): Unit = unknown

  def entry(key: AnyRef): Any = unknown
  def hasEntry(key: AnyRef): Boolean = unknown
  def updateEntry(key: AnyRef, sent: AnyRef): Unit = unknown
  def removeEntry(key: AnyRef): Unit = unknown
  def entries(maxEntries: Int, maxBytes: Long): Any = unknown

  /**
   * Returns an iterator over the variable, or a part of it (0 entries, 1 keys, 2 values), and a function that encodes
   * its elements for the worker.
   */
  def iterator(part: Int): (Iterator[Any], Any => Any) = unknown

  private def unknown: Nothing = throw new UnsupportedOperationException(s"state variable $name has no such call")
}

private[processors] object StateVariable {

  /** Returns the first entries, about `maxBytes` and `maxEntries` at most, and true if there are no others. */
  def first(entries: Iterator[Any], maxEntries: Int, maxBytes: Long): Any = {
    val found = new ArrayList[Any]
    var bytes = 0L
    while (found.size < maxEntries && bytes < maxBytes && entries.hasNext) {
      val entry = entries.next()
      bytes += WorkerRowCodec.roughSize(entry)
      found.add(entry)
    }
    Array[Any](found, !entries.hasNext)
  }
}

private[processors] final class ValueVariable(handle: Handle, name: String, codec: WorkerRowCodec, ttl: TTLConfig)
    extends StateVariable(name) {
  private val state = handle.getValueState[UnsafeRow](name, codec.encoder, ttl)

  override def exists: Boolean = state.exists()
  override def clear(): Unit = state.clear()
  override def value: Any = codec.toPython(state.get())
  override def update(sent: AnyRef): Unit = state.update(codec.toUnsafe(sent))
}

private[processors] final class ListVariable(handle: Handle, name: String, codec: WorkerRowCodec, ttl: TTLConfig)
    extends StateVariable(name) {
  private val state = handle.getListState[UnsafeRow](name, codec.encoder, ttl)

  override def exists: Boolean = state.exists()
  override def clear(): Unit = state.clear()
  override def append(sent: JavaList[AnyRef]): Unit = state.appendList(codec.toUnsafeRows(sent))
  override def appendOne(sent: AnyRef): Unit = state.appendValue(codec.toUnsafe(sent))
  override def put(sent: JavaList[AnyRef]): Unit = state.put(codec.toUnsafeRows(sent))

  override def list(maxEntries: Int, maxBytes: Long): Any =
    StateVariable.first(state.get().map(codec.toPython), maxEntries, maxBytes)

  override def iterator(part: Int): (Iterator[Any], Any => Any) =
    (state.get(), row => codec.toPython(row.asInstanceOf[UnsafeRow]))
}

private[processors] final class MapVariable(
    handle: Handle, name: String, keys: WorkerRowCodec, values: WorkerRowCodec, ttl: TTLConfig)
    extends StateVariable(name) {
  private val state = handle.getMapState[UnsafeRow, UnsafeRow](name, keys.encoder, values.encoder, ttl)

  override def exists: Boolean = state.exists()
  override def clear(): Unit = state.clear()
  override def entry(key: AnyRef): Any = values.toPython(state.getValue(keys.toUnsafe(key)))
  override def hasEntry(key: AnyRef): Boolean = state.containsKey(keys.toUnsafe(key))
  override def updateEntry(key: AnyRef, sent: AnyRef): Unit = state.updateValue(keys.toUnsafe(key),
    values.toUnsafe(sent))
  override def removeEntry(key: AnyRef): Unit = state.removeKey(keys.toUnsafe(key))

  override def entries(maxEntries: Int, maxBytes: Long): Any =
    StateVariable.first(state.iterator().map(pair), maxEntries, maxBytes)

  override def iterator(part: Int): (Iterator[Any], Any => Any) = part match {
    case 0 => (state.iterator(), pair)
    case 1 => (state.keys(), row => keys.toPython(row.asInstanceOf[UnsafeRow]))
    case 2 => (state.values(), row => values.toPython(row.asInstanceOf[UnsafeRow]))
  }

  private def pair(entry: Any): Any = {
    val (key, value) = entry.asInstanceOf[(UnsafeRow, UnsafeRow)]
    Array[Any](keys.toPython(key), values.toPython(value))
  }
}
