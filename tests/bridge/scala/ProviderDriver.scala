package org.apache.spark.sql.execution.streaming.state.incremental.probe

import java.io.{BufferedReader, InputStreamReader, PrintStream}
import java.lang.management.ManagementFactory
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths}
import java.security.PrivilegedExceptionAction
import java.util.UUID
import java.util.concurrent.{ConcurrentHashMap, CountDownLatch}

import scala.jdk.CollectionConverters._

import javax.management.ObjectName

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.security.UserGroupInformation

import org.apache.spark.{SparkConf, TaskContext, TaskContextImpl}
import org.apache.spark.deploy.SparkHadoopUtil
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.incremental.agent.{Agent, Interpreter}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json
import org.apache.spark.sql.execution.streaming.state.incremental.memory.StoreMemory
import org.apache.spark.sql.execution.streaming.state.incremental.{IncrementalStateStore, IncrementalStateStoreProvider}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * A JVM without Spark around it that drives providers on command: one JSON object a line on standard input,
 * one answer a line on standard output. Each command may name a `thread` to run in; the next one does not
 * wait for it: `is_in` tells whether it is in a method, `await` collects its answer. Each may name a `user` to run as;
 * the others run as the user of the process or, with the argument `as-spark-user`, as the user of an executor.
 */
object ProviderDriver {
  private val keys = new StructType().add("key", StringType)
  private val values = new StructType().add("value", StringType)
  // A projection reuses its row, so each thread has its own.
  private val toKey = ThreadLocal.withInitial[UnsafeProjection](() => UnsafeProjection.create(keys))
  private val toValue = ThreadLocal.withInitial[UnsafeProjection](() => UnsafeProjection.create(values))
  private val providers = new ConcurrentHashMap[String, StateStoreProvider]
  private val stores = new ConcurrentHashMap[String, StateStore]
  private val tasks = new ConcurrentHashMap[String, TaskContextImpl]
  private val scans = new ConcurrentHashMap[String, Iterator[UnsafeRowPair]]
  private val users = new ConcurrentHashMap[String, UserGroupInformation]
  private val background = new ConcurrentHashMap[String, (Thread, Array[ObjectNode])]

  def main(args: Array[String]): Unit =
    if (args.contains("as-spark-user")) SparkHadoopUtil.get.runAsSparkUser(() => answerAll()) else answerAll()

  private def answerAll(): Unit = {
    val answers = new PrintStream(System.out, true, UTF_8) // whatever the locale is
    System.setOut(new PrintStream(System.err, true))
    val lines = new BufferedReader(new InputStreamReader(System.in, UTF_8))
    Iterator.continually(lines.readLine()).takeWhile(_ != null).foreach { line =>
      val command = Json.parse(line)
      answers.println(answer(command).toString)
      answers.flush()
    }
  }

  private def answer(command: ObjectNode): ObjectNode = command.path("cmd").asText match {
    case "await" =>
      val (thread, result) = background.remove(text(command, "thread"))
      thread.join(command.path("ms").asLong(60000))
      if (result(0) == null) Json.obj("running" -> true) else result(0)
    case "interrupt" =>
      background.get(text(command, "thread"))._1.interrupt()
      Json.obj("ok" -> true)
    case "is_in" =>
      val frames = background.get(text(command, "thread"))._1.getStackTrace
      val method = text(command, "method")
      Json.obj("ok" -> frames.exists(frame => s"${frame.getClassName}.${frame.getMethodName}".endsWith(method)))
    case _ if command.has("thread") =>
      val result = new Array[ObjectNode](1)
      val thread = new Thread(() => result(0) = guarded(command))
      thread.setDaemon(true)
      thread.start()
      background.put(text(command, "thread"), thread -> result)
      Json.obj("ok" -> true)
    case _ => guarded(command)
  }

  private def guarded(command: ObjectNode): ObjectNode =
    try {
      Json.text(command, "user").map(users.computeIfAbsent(_, UserGroupInformation.createRemoteUser(_))) match {
        case Some(user) =>
          val action: PrivilegedExceptionAction[ObjectNode] = () => perform(command)
          user.doAs(action)
        case None => perform(command)
      }
    } catch { case e: Throwable => Json.obj("error" -> describe(e)) }

  private def describe(e: Throwable): ObjectNode = {
    val chain = Iterator.iterate(e)(_.getCause).takeWhile(_ != null).toSeq
    val text = chain.map(c => s"${c.getClass.getSimpleName}: ${c.getMessage}").mkString("\n")
    Json.obj("class" -> e.getClass.getName, "text" -> text)
  }

  private def perform(c: ObjectNode): ObjectNode = c.path("cmd").asText match {
    case "provider" => ok(providers.put(text(c, "provider"), newProvider(c)))
    case "begin" =>
      val id = Json.text(c, "id")
      val provider = providers.get(text(c, "provider"))
      def store =
        if (c.path("read").asBoolean) {
          provider.getReadStore(c.path("version").asLong, id).asInstanceOf[StateStore]
        } else provider.getStore(c.path("version").asLong, id, c.path("force").asBoolean)
      ok(stores.put(text(c, "store"), if (c.path("first").asBoolean) inFirstTask(c, store) else store))
    case "upgrade" =>
      val read = stores.get(text(c, "store"))
      val provider = providers.get(text(c, "provider"))
      val write = provider.upgradeReadStoreToWriteStore(read, read.version, Json.text(c, "id"))
      ok(stores.put(text(c, "store"), write))
    case "put" => ok(c.path("rows").properties.asScala.foreach { row =>
        store(c).put(key(row.getKey), value(row.getValue.asText),
          Json.text(c, "family").getOrElse(StateStore.DEFAULT_COL_FAMILY_NAME))
      })
    case "fill" => ok((c.path("from").asInt until c.path("until").asInt).foreach { i =>
        store(c).put(key(s"k$i"), value(s"${text(c, "value")}-$i"), family(c, i))
      })
    case "fill_families" => ok((0 until c.path("families").asInt).foreach { family =>
        store(c).createColFamilyIfAbsent(s"family-$family", keys, values, NoPrefixKeyStateEncoderSpec(keys))
        store(c).put(key(text(c, "key")), value(s"$family"), s"family-$family")
      })
    case "remove" => ok(store(c).remove(key(text(c, "key"))))
    case "drop" => ok((c.path("from").asInt until c.path("until").asInt).foreach { i =>
        store(c).remove(key(s"k$i"), family(c, i))
      })
    case "families" =>
      text(c, "create").split(',').foreach { name =>
        store(c).createColFamilyIfAbsent(name, keys, values, NoPrefixKeyStateEncoderSpec(keys))
      }
      ok(Json.text(c, "remove").foreach(store(c).removeColFamilyIfExists))
    case "get" => Json.obj("ok" -> Option(store(c).get(key(text(c, "key")))).map(_.getString(0)))
    case "expect" =>
      val announced = c.path("keys").elements.asScala.map(name => key(name.asText).copy()).toArray
      ok(store(c).asInstanceOf[IncrementalStateStore].expect(announced, keys.map(_.dataType)))
    case "scan" =>
      val rows = (0 until math.max(1, c.path("families").asInt)).flatMap { n =>
        store(c).iterator(family(c, n)).map(pair => pair.key.getString(0) -> pair.value.getString(0)).toMap
      }
      Json.obj("ok" -> rows.toMap)
    case "open_scan" => ok(scans.put(text(c, "store"), store(c).iterator()))
    case "next" => Json.obj("ok" -> scans.get(text(c, "store")).next().key.getString(0))
    case "commit" =>
      val version = store(c).commit()
      Json.obj("ok" -> Json.obj("version" -> version,
        "id" -> store(c).getStateStoreCheckpointInfo().stateStoreCkptId,
        "base" -> store(c).getStateStoreCheckpointInfo().baseStateStoreCkptId))
    case "abort" => ok(store(c).abort())
    case "release" => ok(store(c).release())
    case "fail_task" => ok(tasks.get(text(c, "store")).markTaskFailed(new IllegalStateException("the test says so")))
    case "metrics" =>
      val metrics = store(c).metrics
      val custom = metrics.customMetrics.map { case (metric, value) => metric.name -> value } ++
        metrics.instanceMetrics.map { case (metric, value) => metric.name -> value }
      Json.obj("ok" -> Json.obj(
        "keys" -> metrics.numKeys, "memory" -> metrics.memoryUsedBytes, "custom" -> custom))
    case "memory" =>
      System.gc()
      val beans = ManagementFactory.getMemoryMXBean
      Json.obj("ok" -> Json.obj("heap" -> beans.getHeapMemoryUsage.getUsed,
        "used" -> StoreMemory.shared.usedBytes, "budget" -> StoreMemory.shared.budgetBytes))
    case "instances" =>
      val histogram = ManagementFactory.getPlatformMBeanServer.invoke(
        new ObjectName("com.sun.management:type=DiagnosticCommand"), "gcClassHistogram",
        Array[AnyRef](Array.empty[String]), Array(classOf[Array[String]].getName)).toString
      val lines = histogram.linesIterator.map(_.trim.split("\\s+")).filter(_.length > 3)
      Json.obj("ok" -> lines.find(_(3).endsWith(text(c, "class"))).fold(0L)(_(1).toLong))
    case "maintain" => ok(providers.get(text(c, "provider")).doMaintenance())
    case "close_all" =>
      stores.values.forEach(store =>
        try store.abort()
        catch { case _: Exception => () }) // most have ended
      stores.clear()
      providers.values.forEach(_.close())
      ok(providers.clear())
    case "close" => ok(providers.get(text(c, "provider")).close())
    case "replay" =>
      val provider = providers.get(text(c, "provider")).asInstanceOf[IncrementalStateStoreProvider]
      val replayed = provider.replayStateFromSnapshot(
        c.path("from").asLong, c.path("to").asLong, readOnly = true, Json.text(c, "from_id"),
        Json.text(c, "to_id"))
      ok(stores.put(text(c, "store"), replayed))
    case "changes" =>
      val provider = providers.get(text(c, "provider")).asInstanceOf[IncrementalStateStoreProvider]
      val feed = provider.getStateStoreChangeDataReader(
        c.path("from").asLong, c.path("to").asLong, Json.text(c, "family"), Json.text(c, "id"))
      Json.obj("ok" -> Json.array(feed.map { case (kind, key, value, batch) =>
        Json.obj("kind" -> RecordType.getRecordTypeAsString(kind), "key" -> key.getString(0),
          "value" -> Option(value).map(_.getString(0)), "batch" -> batch)
      }.toSeq))
    case "tokens" => // as an executor takes those that its driver sends
      ok(SparkHadoopUtil.get.addDelegationTokens(Files.readAllBytes(Paths.get(text(c, "path"))), new SparkConf))
    case "agent" => Json.obj("ok" -> Agent.of(Interpreter.choose(Json.text(c, "python"))).pid)
    case "on_fs" =>
      val times = c.path("times").asInt(1)
      val together = new CountDownLatch(times)
      ProbeFileSystem.on(text(c, "operation"), c.path("nth").asInt(1), times)(act(c, together))
      ok(())
    case "actions" => Json.obj("ok" -> ProbeFileSystem.actions)
    case "halt" =>
      Runtime.getRuntime.halt(1)
      ok(())
  }

  /** As a task does it that Spark launches for the first time, for a streaming query. */
  private def inFirstTask[T](c: JsonNode, body: => T): T = {
    val task = TaskContext.empty()
    tasks.put(text(c, "store"), task)
    task.getLocalProperties.setProperty("sql.streaming.queryId", "query")
    TaskContext.setTaskContext(task)
    try body
    finally TaskContext.unset()
  }

  private def act(c: JsonNode, together: CountDownLatch): Unit = {
    def agent = Agent.of(Interpreter.choose(Json.text(c, "python"))).pid.get
    text(c, "action") match {
      case "kill" => signal("KILL", agent)
      case "stop" => signal("STOP", agent)
      case "fail" => ProbeFileSystem.fail()
      case "fail_later" => ProbeFileSystem.failOnceThere(Paths.get(text(c, "until")))
      case "meet" => ProbeFileSystem.meet(together)
      case "sleep" => Thread.sleep(c.path("ms").asLong)
    }
  }

  private def signal(name: String, pid: Long): Unit =
    new ProcessBuilder("kill", s"-$name", pid.toString).inheritIO().start().waitFor()

  private def newProvider(c: JsonNode): StateStoreProvider = {
    val sql = new SQLConf
    sql.setConfString(
      "spark.sql.streaming.stateStore.providerClass", classOf[IncrementalStateStoreProvider].getName)
    c.path("conf").properties.asScala.foreach(one => sql.setConfString(one.getKey, one.getValue.asText))
    val hadoop = if (c.path("lost_driver").asBoolean) new LostDriver else new Configuration
    hadoop.set("fs.probe.impl", classOf[ProbeFileSystem].getName)
    val id = StateStoreProviderId(
      StateStoreId(text(c, "location"), 0, c.path("partition").asInt),
      UUID.fromString(
        Json.text(c, "run").getOrElse(UUID.randomUUID.toString)))
    StateStoreProvider.createAndInit(
      id, keys, values, NoPrefixKeyStateEncoderSpec(keys), c.path("families").asBoolean, StateStoreConf(sql),
      hadoop, useMultipleValuesPerKey = false, None)
  }

  /** The configuration of a query with whose driver the threads of this store cannot speak. */
  private final class LostDriver extends Configuration {
    override def get(name: String): String =
      if (name == "sql.streaming.runId" && Thread.currentThread.getName.startsWith("state-store-")) {
        throw new IllegalStateException("the driver is lost")
      } else super.get(name)
  }

  /** Returns the column family of a numbered row: one of so many, or the default one. */
  private def family(c: JsonNode, row: Int): String = c.path("families").asInt match {
    case 0 => StateStore.DEFAULT_COL_FAMILY_NAME
    case count => s"family-${row % count}"
  }

  private def key(text: String): UnsafeRow = toKey.get()(InternalRow(UTF8String.fromString(text)))

  private def value(text: String): UnsafeRow = toValue.get()(InternalRow(UTF8String.fromString(text)))

  private def store(c: JsonNode): StateStore = stores.get(text(c, "store"))

  private def text(c: JsonNode, field: String): String = c.path(field).asText

  private def ok(ignored: Any): ObjectNode = Json.obj("ok" -> true)
}
