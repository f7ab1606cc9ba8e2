package org.apache.spark.sql.execution.streaming.state.incremental.migration

import java.io.{BufferedReader, FileNotFoundException, InputStreamReader, IOException, PrintStream}
import java.nio.charset.StandardCharsets
import java.util.concurrent.{Callable, ExecutionException, ExecutorCompletionService, Executors, TimeUnit}
import java.util.concurrent.atomic.AtomicLong

import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.hadoop.conf.Configuration

import org.apache.spark.SparkThrowable
import org.apache.spark.sql.execution.streaming.state.incremental.agent.AgentException
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json
import org.apache.spark.sql.execution.streaming.state.incremental.rows.DamagedListException

/**
 * Copies one version of the stores of a stopped query from one state store to another: a program of its own,
 * which `state-store migrate` starts.
 *
 * The first line of standard input is a JSON object with the request; the program ends when standard input does.
 * Standard output has one JSON object a line: `expected` and `rows` (so far), `done` (a store), `error` (kind and
 * message). The exit code is 0 if everything was copied.
 */
object Migration {
  private val ReportedEveryMs = 200L

  def main(args: Array[String]): Unit = {
    val out = System.out
    System.setOut(new PrintStream(System.err, true))
    val in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))
    val line = in.readLine()
    endWith(in)
    val events = new Events(out)
    val code =
      try {
        run(MigrationRequest.parse(line), events)
        0
      } catch {
        case e: Throwable =>
          e.printStackTrace()
          events.failed(e)
          1
      }
    System.exit(code)
  }

  private def run(request: MigrationRequest, events: Events): Unit = {
    val hadoop = new Configuration
    request.hadoop.foreach { case (name, value) => hadoop.set(name, value) }
    val source = Side.of(request.source, hadoop)
    val target = Side.of(request.target, hadoop)
    val queried = Side.ofQuery(request.target, hadoop)
    Seq(source, target).foreach(_.fixArchiveFormat())
    val copies = request.stores.flatMap { store =>
      val schemas = StoreSchemas.read(target, store)
      store.partitions.map { partition =>
        new StoreCopy(source, target, queried, schemas, partition.number, request.version, partition.id, events)
      }
    }
    copyAll(copies, request.threads, events)
  }

  private def copyAll(copies: Seq[StoreCopy], threads: Int, events: Events): Unit = {
    val pool = Executors.newFixedThreadPool(threads)
    val clock = Executors.newSingleThreadScheduledExecutor()
    clock.scheduleWithFixedDelay(() => events.reportRows(), ReportedEveryMs, ReportedEveryMs, TimeUnit.MILLISECONDS)
    try {
      val ended = new ExecutorCompletionService[Unit](pool)
      copies.foreach(copy => ended.submit((() => copy.run()): Callable[Unit]))
      copies.foreach(_ => ended.take().get())
    } catch {
      case e: ExecutionException => throw e.getCause
    } finally {
      pool.shutdownNow()
      clock.shutdownNow()
    }
    events.reportRows()
  }

  /** Ends this process together with its parent process. */
  private def endWith(in: BufferedReader): Unit = {
    val watching = new Thread(
      () => {
        while (in.readLine() != null) {}
        Runtime.getRuntime.halt(2)
      },
      "end-of-input")
    watching.setDaemon(true)
    watching.start()
  }
}

/** The events that the program writes to standard output. Safe for any thread. */
private[migration] final class Events(out: PrintStream) {
  private val rows = new AtomicLong
  private var reported = 0L

  /** Reports that the copy of a store begins, and its number of keys. */
  def expected(keys: Long): Unit = write(Json.obj("expected" -> keys))

  def copied(count: Long): Unit = rows.addAndGet(count)

  def reportRows(): Unit = synchronized {
    val now = rows.get
    if (now != reported) write(Json.obj("rows" -> now))
    reported = now
  }

  def done(operator: Long, partition: Int, name: String, copied: Long, id: Option[String]): Unit =
    write(Json.obj("done" -> Json.obj(
      "operator" -> operator, "partition" -> partition, "name" -> name, "rows" -> copied, "id" -> id)))

  def failed(e: Throwable): Unit =
    write(Json.obj("error" -> Json.obj("kind" -> Failures.kind(e), "message" -> Failures.message(e))))

  private def write(event: ObjectNode): Unit = synchronized {
    out.println(event.toString)
    out.flush()
  }
}

/** The failure of a migration that this checkpoint does not allow. */
private[migration] final class MigrationException(val kind: String, message: String) extends Exception(message)

/** The failure of one store, whose message names the store. The cause has the reason. */
private[migration] final class CopyException(message: String, cause: Throwable) extends Exception(message, cause)

/** Kinds and messages of failures, as the control plane sorts errors (docs/protocol.md). */
private[migration] object Failures {
  def kind(e: Throwable): String = {
    val all = chain(e)
    all.collectFirst {
      case known: MigrationException => known.kind
      case agent: AgentException => agent.kind
      case _: DamagedListException => "damaged"
    }.orElse {
      if (all.exists(_.isInstanceOf[FileNotFoundException])) Some("missing")
      else if (all.exists(cannotLoad)) Some("damaged")
      else if (all.exists(_.isInstanceOf[IOException])) Some("storage")
      else None
    }.getOrElse("internal")
  }

  private def cannotLoad(e: Throwable): Boolean = e match {
    case spark: SparkThrowable => Option(spark.getCondition).exists(_.startsWith("CANNOT_LOAD_STATE_STORE"))
    case _ => false
  }

  /** Returns the messages of the exception and its causes in one line, each once. */
  def message(e: Throwable): String =
    chain(e).map { cause =>
      Option(cause.getMessage).getOrElse(cause.getClass.getName).replaceAll("\\s+", " ").trim
    }.foldLeft(Vector.empty[String]) {
      (messages, next) => if (messages.exists(_.contains(next))) messages else messages :+ next
    }.mkString(": ")

  private def chain(e: Throwable): Seq[Throwable] =
    Iterator.iterate(e)(_.getCause).takeWhile(_ != null).take(16).toSeq
}
