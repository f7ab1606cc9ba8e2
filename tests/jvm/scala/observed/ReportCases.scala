package org.apache.spark.sql.execution.streaming.state.incremental.observed

import java.io.IOException

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import scala.util.Random

import com.fasterxml.jackson.databind.ObjectMapper
import com.fasterxml.jackson.databind.node.{ArrayNode, ObjectNode}

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.MissingFieldException

/**
 * Tests that reports of stores are read as they were written, for all texts and numbers, and that other messages are
 * refused; that records of batches keep their bound; that the sums of a run survive providers whose counters begin at 0;
 * and that a batch is shown when the stores of all partitions have reported it. Argument: seed.
 */
object ReportCases {
  def main(arguments: Array[String]): Unit = {
    val cases = new ReportCases(new Random(arguments(0).toLong))
    cases.messagesAreReadAsTheyWereWritten()
    cases.otherMessagesAreRefused()
    cases.recordsKeepTheirBound()
    cases.recordsOfEarlierReleasesAreRead()
    cases.missingFieldsAreNamed()
    cases.damageAndRestartsAreCountedOnce()
    cases.executorsWithoutStoresAreIdle()
    cases.tooManyStoresAreLeftOut()
    cases.batchesAreShownWhenTheirStoresHaveReported()
    println("reports are as they should be")
  }
}

final class ReportCases(random: Random) {
  private val Hostile = Seq("", "ünïcode \u0000\n\u001b[31m", "\",\"stores\":[", "<b>{}</b>", "x" * 1000)

  def messagesAreReadAsTheyWereWritten(): Unit = for (_ <- 1 to 200) {
    val commits = Seq.fill(random.nextInt(20))(report())
    val (executor, host) = (text(), text())
    val read = CommitMessages.read(CommitMessages.write(executor, host, commits))
    require(read.contains((executor, host, commits)), s"$commits was read as $read")
  }

  def otherMessagesAreRefused(): Unit = {
    val message = CommitMessages.write("1", "host", Seq(report(), report()))
    require(CommitMessages.read(message.updated(7, 9.toByte)).isEmpty, "a message of another release was read")
    for (length <- 0 until message.length by 7) {
      val refused =
        try { CommitMessages.read(message.take(length)); false }
        catch { case _: IOException => true }
      require(refused, s"$length of ${message.length} bytes were read")
    }
    for (_ <- 1 to 2000) {
      val broken = message.updated(random.nextInt(message.length), random.nextInt().toByte)
      try CommitMessages.read(broken)
      catch { case NonFatal(_) => () } // no length that was read makes an array that is too long
    }
  }

  def recordsKeepTheirBound(): Unit = for (count <- Seq(0, 1, 2, 300, 3000)) {
    val stores = Seq.tabulate(count) { n =>
      val ofStore = report().copy(key = StoreKey("run", 0, n, text()), failuresInRow = if (n == count / 2) 7 else 0)
      StoreView(ofStore, "1", "host", StoreSums(1, 2, Some(LastRestore(3, 5, 6, 7)), 4),
        Some(8L).filter(_ => n % 2 == 0))
    }
    val record = recordOf(stores)
    val written = BatchRecord.text(record)
    require(written.length <= BatchRecord.LongestText, s"${written.length} characters")
    val read = BatchRecord.read(written)
    require(read.stores.size + read.omitted == count, s"${read.stores.size} and ${read.omitted} are not $count")
    require(read.totals == record.totals && read.facts == record.facts && read.version == record.version)
    require(count < 2 || read.stores.head.report.failuresInRow == 7, "the store whose merges fail does not come first")
    read.stores.foreach { store =>
      val before = stores.find(_.key == store.key).get
      require(
        store.sums == before.sums && Documents.store(store, record.facts) == Documents.store(before, record.facts),
        s"${Documents.store(before, record.facts)} was read as ${Documents.store(store, record.facts)}")
    }
    val brief = BatchRecord.read(BatchRecord.briefText(written))
    require(brief.stores.isEmpty && brief.omitted == count && brief.totals == record.totals)
    require(BatchRecord.label(written) == RecordLabel("run", record.facts.id, 5, record.atMs))
    require(BatchRecord.label(BatchRecord.briefText(written)) == BatchRecord.label(written))
  }

  /** A record of an earlier release has the duration of a store's last restore, and not its time. */
  def recordsOfEarlierReleasesAreRead(): Unit = {
    val restored = StoreView(report(), "1", "host", StoreSums(1, 2, Some(LastRestore(3, 5, 6, 7)), 4))
    val record = new ObjectMapper().readTree(BatchRecord.text(recordOf(Seq(restored)))).asInstanceOf[ObjectNode]
    val row = record.withArray[ArrayNode]("stores").get(0).asInstanceOf[ArrayNode]
    while (row.size > 39) row.remove(row.size - 1)
    record.remove("titles")
    record.remove("longest")
    record.remove("gained")
    record.remove("batch_ms")
    require(BatchRecord.read(record.toString).tookMs.isEmpty, "a record without its duration has one")
    val read = BatchRecord.read(record.toString).stores
    require(read.map(_.sums.restored.map(_.tookMs)) == Seq(Some(5L)), s"${read.map(_.sums)}")
    require(Documents.latestRestore(Seq(restored)).isDefined && Documents.latestRestore(read).isEmpty)
  }

  /** No figure is 0 because a record or a message does not have it. */
  def missingFieldsAreNamed(): Unit = {
    val text = BatchRecord.text(recordOf(Seq(StoreView(report(), "1", "host"))))
    val optional = Set("v", "name", "titles", "longest", "gained", "error", "objective_ms", "batch_ms")
    def refused(node: ObjectNode, field: String)(read: => Any): Unit = {
      val value = node.remove(field)
      try { read; require(optional(field), s"a record without '$field' was read") }
      catch { case e: MissingFieldException => require(e.field == field && !optional(field), e.getMessage) }
      node.set[ObjectNode](field, value)
    }
    val record = new ObjectMapper().readTree(text).asInstanceOf[ObjectNode]
    for (node <- Seq(record, record.withObject("/totals")); field <- node.fieldNames.asScala.toList)
      refused(node, field)(BatchRecord.read(record.toString))
    val row = record.withArray[ArrayNode]("stores").get(0).asInstanceOf[ArrayNode]
    while (row.size > 38) row.remove(row.size - 1)
    val message =
      try BatchRecord.read(record.toString).toString
      catch { case e: MissingFieldException => e.getMessage }
    require(message == "no field 'agent_restarts' with a number", message)

    val merge = MergeReport(StoreKey("run", 0, 0, "default"), 1, 2, "full", "reason", 3, 4, 5, 6, 7, 8, 9, None)
    val reports = new ObjectMapper().readTree(Messages.reports("1", "host", Seq(merge))).asInstanceOf[ObjectNode]
    require(Messages.readReports(reports.toString) == ("1", "host", Seq(merge)))
    reports.withArray[ArrayNode]("reports").get(0).asInstanceOf[ObjectNode].remove("own_files")
    require(
      try { Messages.readReports(reports.toString); false }
      catch { case e: MissingFieldException => e.field == "own_files" },
      "a report without a field was read")
  }

  def damageAndRestartsAreCountedOnce(): Unit = {
    val runs = new ReportedRuns
    def commit(executor: String, version: Long, damaged: Long, restarts: Long, before: Long): StoreView = {
      runs.committed(executor, "host",
        Seq(report().copy(
          key = StoreKey("run", 0, 0, "default"), version = version, deltaBytes = 10, damagedFiles = damaged,
          agentRestarts = restarts, agentRestartsBefore = before, restored = None)))
      runs.view("run").get.stores.head
    }
    def counted(metric: String): Long = runs.view("run").get.metricValues.counters((metric, ""))
    commit("1", 1, damaged = 0, restarts = 5, before = 5)
    require(counted("state_store_agent_restarts_total") == 0, "restarts before the run count")
    commit("1", 2, damaged = 2, restarts = 6, before = 5)
    commit("1", 3, damaged = 2, restarts = 6, before = 5)
    require(counted("state_store_damaged_files_total") == 2 && counted("state_store_agent_restarts_total") == 1)
    require(counted("state_store_moved_total") == 0, "a store that stays has moved")
    commit("2", 4, damaged = 2, restarts = 1, before = 0) // another provider, whose counters begin at 0
    val last = commit("2", 5, damaged = 3, restarts = 1, before = 0)
    require(counted("state_store_damaged_files_total") == 5 && counted("state_store_agent_restarts_total") == 2)
    require(last.sums == StoreSums(50, 0, None, 5), s"${last.sums}")
    commit("1", 5, damaged = 0, restarts = 6, before = 5) // another attempt of the task
    require(counted("state_store_moved_total") == 1, "a store that moved once has not, or another attempt is a move")
    commit("2", 6, damaged = 3, restarts = 1, before = 0) // back at a provider that is still open
    require(counted("state_store_damaged_files_total") == 5, "damage counts again when the store comes back")
  }

  def executorsWithoutStoresAreIdle(): Unit = {
    val late = StoresByExecutor.SettledMs + 1
    def view(operator: Long, partition: Int, store: String, executor: String): StoreView =
      StoreView(report().copy(key = StoreKey("run", operator, partition, store)), executor, s"host$executor")
    val two = Seq("left", "right").flatMap(store => (0 until 2).map(view(0, _, store, "1")))
    val living = Seq(TakesTasks("1", "host1", 2, 0), TakesTasks("2", "host2", 2, 0),
      TakesTasks("10", "host10", 2, late))
    require(StoresByExecutor.idle(two, living, late) == 0, "two partitions keep two cores busy at once")
    require(StoresByExecutor.idle(two :+ view(1, 5, "a", "1"), living, late) == 0, "operators count together")
    val three = two :+ view(0, 2, "left", "1")
    require(StoresByExecutor.idle(three, living, late) == 1, "an executor that just started is idle, or none is")
    require(StoresByExecutor.idle(three, living, 2 * late) == 2)
    require(StoresByExecutor.idle(three, living, late - 1) == 0, "executors of five minutes are idle")
    require(StoresByExecutor.idle(three :+ view(1, 0, "a", "2"), living, late) == 0, "it has a store of an operator")
    require(StoresByExecutor.idle(three, living.tail, 2 * late) == 0, "the busy executor is gone")
    val found = StoresByExecutor.of(three :+ view(0, 3, "left", "9"), living)
    require(
      found == Seq(
        ExecutorStores("1", "host1", 5), ExecutorStores("2", "host2", 0), ExecutorStores("9", "host9", 1),
        ExecutorStores("10", "host10", 0)),
      s"$found")
  }

  def tooManyStoresAreLeftOut(): Unit = {
    val runs = new ReportedRuns
    for (first <- 0 until ReportedRuns.MaxStores + 500 by 500) runs.committed("1", "host",
      Seq.tabulate(500) { n =>
        report().copy(key = StoreKey("run", 0, first + n, "default"))
      })
    require(runs.view("run").get.stores.size == ReportedRuns.MaxStores)
    for (run <- 0 until 2 * ReportedRuns.MaxRuns) runs.learned(QueryFacts(s"q$run", s"r$run", None, 0))
    require(runs.views.size == ReportedRuns.MaxRuns, "runs are not forgotten")
  }

  def batchesAreShownWhenTheirStoresHaveReported(): Unit = {
    val runs = new ReportedRuns
    runs.learned(QueryFacts("id", "run", None, 0, partitions = Map(0L -> 2, 1L -> 1)))
    def commit(operator: Long, partition: Int, version: Long): Unit = runs.committed("1", "host",
      Seq(report().copy(key = StoreKey("run", operator, partition, "default"), version = version)))
    for ((operator, partition) <- Seq((0L, 0), (0L, 1), (1L, 0))) {
      require(!runs.isComplete("run", 1), s"complete before ($operator, $partition) has reported")
      commit(operator, partition, 1)
    }
    require(runs.isComplete("run", 1) && !runs.isComplete("run", 2))
    runs.progressed("run", CommittedBatch(0, 10, 7))
    require(runs.view("run").get.version.isEmpty, "the batch is shown too early")
    runs.reported("run", CommittedBatch(0, 10, 7))
    runs.progressed("run", CommittedBatch(1, 20, 8))
    require(runs.view("run").get.version.contains(1L))
    runs.reported("run", CommittedBatch(1, 20, 8))
    runs.reported("run", CommittedBatch(0, 10, 7)) // the last look for an older batch
    val shown = runs.view("run").get
    require(shown.batch.contains(CommittedBatch(1, 20, 8)), "an older batch replaced a newer one")
    runs.progressed("run", CommittedBatch(2, 30, 9))
    runs.terminated("run", None)
    require(runs.view("run").get.version.contains(3L), "the last batch of an ended run is not shown")
  }

  private def recordOf(stores: Seq[StoreView]): BatchRecord = BatchRecord(
    "app", QueryFacts("id", "run", Some(text()), 1, Map("maxDeltas" -> text()), Map(0L -> text())), text(), 5,
    123456789, maybe(number()), BatchTotals.of(stores), stores, 0,
    MergesBetween(Map((5L, "full", true) -> 2L), Set(5L -> text()), Nil, gained = Map(5L -> -3L)), ended = false,
    error = Some(text()))

  private def report(): StoreReport = StoreReport(
    key = StoreKey(text(), number(), random.nextInt(1000), text()), atMs = number(), root = text(), version = number(),
    id = maybe(text()), keys = number(),
    variables = Seq.tabulate(random.nextInt(4))(n => Variable(s"$n${text()}", internal = n > 1, number())),
    deltaBytes = number(), writeMs = number(), storeMs = number(), memoryBytes = number(), chainDeltas = number(),
    deltasSinceFull = number(), mergesSinceFull = number(), chainFiles = number(), chainBytes = number(),
    sharedFiles = number(), sharedBytes = number(), snapshotVersion = maybe(number()),
    snapshotKind = maybe(if (random.nextBoolean()) "full" else "incremental"), fullVersion = maybe(number()),
    sinceSnapshotMs = maybe(number()), sinceFullMs = maybe(number()), predictedMs = maybe(number()),
    objectiveMs = maybe(number()), merges = MergeCounts(number(), number(), number(), number()),
    failuresInRow = random.nextInt(3), lastFailure = maybe(Failed("storage", text().take(400))),
    damagedFiles = number(), agentRestarts = number(), agentRestartsBefore = 0,
    restored = maybe(RestoreReport(random.nextBoolean(), number(), number(), number(), number(), number())))

  private def maybe[T](value: => T): Option[T] = if (random.nextBoolean()) Some(value) else None
  private def number(): Long = random.nextLong(1L << random.nextInt(50))
  private def text(): String = Hostile(random.nextInt(Hostile.size))
}
