package org.apache.spark.sql.execution.streaming.state.incremental.processors

import java.time.Duration
import java.util.{ArrayList, List => JavaList, Objects}

import scala.collection.mutable

import org.apache.spark.sql.catalyst.parser.CatalystSqlParser
import org.apache.spark.sql.execution.streaming.state.incremental.release.ProcessorHandles
import org.apache.spark.sql.execution.streaming.state.incremental.release.ProcessorHandles.Handle
import org.apache.spark.sql.streaming.TTLConfig
import org.apache.spark.sql.types.StructType

/**
 * The answers to the worker's messages, made with Spark's own handle of a processor and its state variables: timers,
 * times to live, formats and metrics are Spark's. For one thread.
 *
 * A message is a tuple whose first element names it:
 * {{{
 *   run      operations, keys, fetches   runs the operations in order; then fetches for each key
 *   declare  kind, name, schema, value schema, time to live in ms
 *   delete   name                        deletes a variable of an earlier run of the query
 *   parse    schema as DDL
 *   state    of the handle, by Spark's name
 *   no_key   forgets the implicit key
 *   expired  moment in ms, max entries   (timers that have expired by then, true if there are more)
 * }}}
 * Operations are one flat list: a code of [[StateAnswers]] and its arguments. Fetches are a flat list of code, variable
 * and largest number of entries for each fetch. The answer to `run` has the results of the operations that have one,
 * and the results of the fetches key by key; [[StateAnswers.NotFetched]] stands for a result that did not fit into an
 * answer.
 */
private[processors] final class StateAnswers(handle: Handle, keys: WorkerRowCodec, maxMessageBytes: Long) {
  import StateAnswers._

  private val variables = new mutable.ArrayBuffer[StateVariable]
  private val names = new mutable.HashSet[String]
  private val iterators = new mutable.HashMap[Int, (Iterator[Any], Any => Any)]
  private var present: AnyRef = _
  private var expired: Iterator[(Any, Long)] = _

  def isClosed: Boolean = ProcessorHandles.isClosed(handle)

  def close(): Unit = {
    ProcessorHandles.forgetKey()
    ProcessorHandles.setState(handle, "CLOSED")
  }

  def to(message: Array[AnyRef]): Any = message(0) match {
    case "run" =>
      val results = execute(message(1).asInstanceOf[JavaList[AnyRef]])
      val wanted = message(3).asInstanceOf[JavaList[AnyRef]]
      val fetched =
        if (wanted.isEmpty) new ArrayList[Any]
        else fetch(message(2).asInstanceOf[JavaList[AnyRef]], wanted)
      Array[Any](results, fetched)
    case "declare" => declare(message)
    case "delete" =>
      handle.deleteIfExists(message(1).toString)
      names.remove(message(1).toString)
      null
    case "parse" => CatalystSqlParser.parseTableSchema(message(1).toString).json
    case "state" => ProcessorHandles.setState(handle, message(1).toString)
    case "no_key" => forgetKey()
    case "expired" => expiredTimers(long(message(1)), int(message(2)))
  }

  private def declare(message: Array[AnyRef]): Int = {
    val name = message(2).toString
    val schema = StructType.fromString(message(3).toString)
    val ttl = if (message(5) == null) TTLConfig.NONE else TTLConfig(Duration.ofMillis(long(message(5))))
    val kind = message(1).toString
    if (names(name)) throw new RefusedException(s"${kind.capitalize} state $name already exists.")
    variables += (kind match {
      case "value" => new ValueVariable(handle, name, new WorkerRowCodec(schema), ttl)
      case "list" => new ListVariable(handle, name, new WorkerRowCodec(schema), ttl)
      case "map" =>
        val values = StructType.fromString(message(4).toString)
        new MapVariable(handle, name, new WorkerRowCodec(schema), new WorkerRowCodec(values), ttl)
    })
    names += name
    variables.length - 1
  }

  private def expiredTimers(momentMs: Long, maxEntries: Int): Any = {
    if (expired == null) expired = handle.getExpiredTimers(momentMs)
    val found = new ArrayList[Any]
    while (found.size < maxEntries && expired.hasNext) {
      val (key, at) = expired.next()
      found.add(Array[Any](keys.toPython(key.asInstanceOf[GroupingKey].row), at))
    }
    Array[Any](found, expired.hasNext)
  }

  /** Sets the implicit key. Iterators of another key end, as in Spark's state server. */
  private def setKey(key: AnyRef): Unit = if (!Objects.deepEquals(key, present)) {
    present = key
    ProcessorHandles.setKey(new GroupingKey(keys.toUnsafe(key), keys))
    iterators.clear()
  }

  private def forgetKey(): Unit = {
    present = null
    ProcessorHandles.forgetKey()
    iterators.clear()
  }

  private def fetch(fetchKeys: JavaList[AnyRef], wanted: JavaList[AnyRef]): JavaList[Any] = {
    val results = new ArrayList[Any](fetchKeys.size * wanted.size / 3)
    var bytes = 0L
    fetchKeys.forEach { key =>
      if (bytes < maxMessageBytes) setKey(key)
      var i = 0
      while (i < wanted.size) {
        val result =
          if (bytes >= maxMessageBytes) NotFetched
          else read(int(wanted.get(i)), int(wanted.get(i + 1)), int(wanted.get(i + 2)))
        bytes += WorkerRowCodec.roughSize(result)
        results.add(result)
        i += 3
      }
    }
    results
  }

  private def read(code: Int, variable: Int, maxEntries: Int): Any = code match {
    case ValueGet => variables(variable).value
    case ListGet => variables(variable).list(maxEntries, maxMessageBytes)
    case MapEntries => variables(variable).entries(maxEntries, maxMessageBytes)
    case TimerList => StateVariable.first(handle.listTimers(), maxEntries, maxMessageBytes)
  }

  private def execute(operations: JavaList[AnyRef]): JavaList[Any] = {
    val results = new ArrayList[Any]
    var i = 0
    var name = ""
    def next(): AnyRef = {
      i += 1
      operations.get(i - 1)
    }
    def variable(): StateVariable = {
      val found = variables(int(next()))
      name = found.name
      found
    }
    while (i < operations.size) {
      int(next()) match {
        case Key => setKey(next())
        case ValueUpdate => variable().update(next())
        case Clear => variable().clear()
        case ListAppend => variable().append(next().asInstanceOf[JavaList[AnyRef]])
        case ListAppendOne => variable().appendOne(next())
        case ListPut => variable().put(next().asInstanceOf[JavaList[AnyRef]])
        case MapUpdate => variable().updateEntry(next(), next())
        case MapRemove => variable().removeEntry(next())
        case TimerRegister => handle.registerTimer(long(next()))
        case TimerDelete => handle.deleteTimer(long(next()))
        case MapGet => results.add(variable().entry(next()))
        case MapContains => results.add(variable().hasEntry(next()))
        case Exists => results.add(variable().exists)
        case Iterate => results.add(iterate(int(next()), int(next()), int(next()), int(next())))
        case reading => results.add(read(reading, int(next()), int(next())))
      }
    }
    results
  }

  /**
   * Returns the next entries of iterator `id`, and true if there are more. Makes the iterator if the present key has
   * none.
   *
   * @param index the index of the variable; -1 for the timers
   * @param part the part of a map: 0 its entries, 1 its keys, 2 its values
   */
  private def iterate(index: Int, part: Int, id: Int, maxEntries: Int): Any = {
    val (iterator, convert) = iterators.getOrElseUpdate(id,
      if (index < 0) (handle.listTimers(), (timer: Any) => timer) else variables(index).iterator(part))
    val found = new ArrayList[Any]
    while (found.size < maxEntries && iterator.hasNext) found.add(convert(iterator.next()))
    Array[Any](found, iterator.hasNext)
  }
}

private[processors] object StateAnswers {
  final val Key = 0
  final val ValueGet = 1
  final val ValueUpdate = 2
  final val Clear = 3
  final val ListGet = 4
  final val ListAppend = 5
  final val ListAppendOne = 6
  final val ListPut = 7
  final val MapGet = 8
  final val MapContains = 9
  final val MapUpdate = 10
  final val MapRemove = 11
  final val MapEntries = 12
  final val TimerRegister = 13
  final val TimerDelete = 14
  final val TimerList = 15
  final val Exists = 16
  final val Iterate = 17

  /** The result that stands for a state that did not fit into an answer. */
  final val NotFetched = 0

  private[processors] def int(value: AnyRef): Int = value.asInstanceOf[Number].intValue

  private[processors] def long(value: AnyRef): Long = value.asInstanceOf[Number].longValue
}
