package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File

import scala.util.Random

import org.apache.spark.sql.execution.streaming.state.incremental.base.BaseDirectory
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.{StoreVersions, Transaction}

/** Cases of batches that run a second time on the same version, as `foreachBatch` with two actions makes them. */
private[incremental] object SecondRuns extends StoreCases {
  val cases: Seq[(String, File => Unit)] = Seq(
    "second run" -> theVersionBeforeTheNewestIsInMemory,
    "either run" -> eachAttemptIsInMemoryUntilTheNextBatch,
    "run without room" -> otherAttemptsGiveWayWhenMemoryRunsOut,
    "second run while memory goes" -> evictedRowsAreInTheBase,
    "second run of no changes" -> aBatchWithoutChangesRunsAgain,
    "second run after a scan" -> theOrderThatAScanMadeIsTakenBack)

  private val until = bytes("\u0000\u0001")
  private def key(i: Int): Array[Byte] = bytes(f"\u0000\u0000\u0003\u0000\u0000\u0000$i%06d")
  private def version(n: Int, id: String): VersionId =
    if (n == 0) VersionId.empty else VersionId(n.toLong, Some(s"$id$n"))

  /** Reads all rows in each possible way. */
  private def check(transaction: Transaction, rows: Map[Int, String], message: String): Unit = {
    def scanned(from: Array[Byte], ordered: Boolean): Map[Int, String] = {
      val scan = transaction.scan(from, until, ordered)
      val found = Iterator.continually(scan.advance()).takeWhile(identity)
        .map(_ => StateModel.text(scan.key).takeRight(6).toInt -> StateModel.text(scan.value)).toMap
      scan.close()
      found
    }
    for (ordered <- Seq(false, true)) {
      val found = scanned(bytes("\u0000\u0000"), ordered)
      expect(found == rows,
        s"$message: ${found.size} rows where there are ${rows.size}, or other ones (ordered: $ordered)")
    }
    rows.foreach { case (i, value) => expect(StateModel.text(transaction.get(key(i))) == value, s"$message: row $i") }
    for (hundred <- 0 until 3) {
      val prefix = bytes(f"\u0000\u0000\u0003\u0000\u0000\u0000${hundred * 1000}%06d").dropRight(3)
      val scan = transaction.scan(prefix, prefix.init :+ (prefix.last + 1).toByte, ordered = true)
      val found = Iterator.continually(scan.advance()).takeWhile(identity).size
      scan.close()
      expect(found == rows.count(_._1 / 1000 == hundred), s"$message: a prefix has $found rows")
    }
    expect(transaction.keys == rows.size, s"$message: ${transaction.keys} keys")
  }

  /** Changes, removes and adds rows, different ones in each run. */
  private def change(transaction: Transaction, rows: Map[Int, String], random: Random): Map[Int, String] =
    (0 until 300).foldLeft(rows) { (rows, _) =>
      val i = random.nextInt(3000)
      if (random.nextInt(4) == 0) {
        transaction.remove(key(i))
        rows - i
      } else {
        val value = s"$i is ${random.nextInt()}"
        if (random.nextBoolean()) transaction.get(key(i))
        transaction.put(key(i), bytes(value))
        rows.updated(i, value)
      }
    }

  /** @param take chooses the run that Spark commits */
  private def batches(
      state: StoreVersions,
      count: Int,
      scans: Boolean,
      base: (Int, Map[Int, String]) => Unit,
      take: Seq[String] => String = _.last): Unit = {
    val random = new Random(7)
    var rows = Map.empty[Int, String]
    for (batch <- 0 until count) {
      val runs = Seq("first", "second", "third").take(1 + random.nextInt(3))
      val taken = take(runs)
      var after = rows
      val before = rows
      runs.foreach { run =>
        val at = version(batch, if (batch == 0) "" else lastRun)
        val reader = state.tryBegin(at, readOnly = true)
        expect(reader.isDefined, s"batch $batch cannot be read in memory in its $run run")
        if (scans) check(reader.get, before, s"batch $batch, $run run")
        val writer = begin(state, at)
        after = change(writer, before, random)
        check(writer, after, s"changes of batch $batch, $run run")
        if (run == taken) rows = after
        writer.committed(version(batch + 1, run))
        reader.get.abort()
        state.indexCommitted()
      }
      lastRun = taken
      base(batch + 1, rows)
    }
    val last = begin(state, version(count, lastRun))
    check(last, rows, "the last version")
    last.abort()
  }

  private var lastRun = ""

  private def theVersionBeforeTheNewestIsInMemory(directory: File): Unit =
    for (scans <- Seq(true, false)) withState(directory, 64L << 20) { (state, _) =>
      batches(state, 30, scans, (_, _) => ())
    }

  /** Spark commits the first attempt of a batch with two actions, and the last of a task that failed. */
  private def eachAttemptIsInMemoryUntilTheNextBatch(directory: File): Unit = {
    val random = new Random(3)
    val choices: Seq[Seq[String] => String] = Seq(_.head, _.last, runs => runs(random.nextInt(runs.size)))
    for (scans <- Seq(true, false); take <- choices) withState(directory, 64L << 20) { (state, _) =>
      batches(state, 30, scans, (_, _) => (), take)
    }
  }

  private def otherAttemptsGiveWayWhenMemoryRunsOut(directory: File): Unit =
    withState(directory, 400L << 10) { (state, memory) =>
      for (run <- Seq("first", "second")) {
        val writer = begin(state, VersionId.empty)
        (0 until 1000).foreach(i => writer.put(key(i), bytes(s"$i of the $run")))
        writer.committed(version(1, run))
      }
      val filled = memory.usedBytes
      val large = begin(state, version(1, "second"))
      (1000 until 4000).foreach(i => large.put(key(i), bytes("large")))
      expect(state.tryBegin(version(1, "first"), readOnly = true).isEmpty, s"$filled bytes give way to nothing")
      expect(StateModel.text(large.get(key(0))) == "0 of the second", "the newest version lost a row")
      large.abort()
    }

  /** Bases come, and so little memory is left that rows are evicted between the two runs. */
  private def evictedRowsAreInTheBase(directory: File): Unit =
    for (budget <- Seq(64L << 20, 200L << 10, 120L << 10)) withState(directory, budget) { (state, memory) =>
      var built = 0
      batches(state, 24, scans = true,
        { (number, rows) =>
          if (number % 4 == 0) {
            built += 1
            val at = version(number, lastRun)
            val maker = new StoreVersions(memory, transaction.StateConf(new File(directory, "spill")))
            val all = begin(maker, VersionId.empty)
            rows.foreach { case (i, value) => all.put(key(i), bytes(value)) }
            val delta = new File(directory, s"delta-$budget-$built.sst")
            all.writeDelta(delta, bytes(TestBases.meta(at, rows.size)))
            all.abort()
            maker.close()
            val path = new File(directory, s"base-$budget-$built")
            TestBases.build(path, Seq(delta), new Random(built), compressed = false)
            // The next batch begins on a newer version. Like the agent, the test merges no version that is not certain.
            offered = Some(BaseDirectory(path.getPath, at, rows.size, () => ()))
          } else if (number % 4 == 1) {
            offered.foreach(state.offerBase)
            offered = None
          }
        })
    }

  private var offered: Option[BaseDirectory] = None

  /** The first of all scans puts the newest rows in order, and the next run takes them back. */
  private def theOrderThatAScanMadeIsTakenBack(directory: File): Unit = withState(directory, 8L << 20) { (state, _) =>
    Seq("first" -> Map(1 -> "a", 2 -> "b"), "second" -> Map(2 -> "c", 3 -> "d"), "third" -> Map(4 -> "e")).foreach {
      case (run, rows) =>
        val writer = begin(state, VersionId.empty)
        rows.foreach { case (i, value) => writer.put(key(i), bytes(value)) }
        writer.committed(version(1, run))
        state.indexCommitted()
        val reader = state.tryBegin(version(1, run), readOnly = true).get
        check(reader, rows, s"the version of the $run run")
        reader.abort()
    }
  }

  private def aBatchWithoutChangesRunsAgain(directory: File): Unit = withState(directory, 8L << 20) { (state, _) =>
    begin(state, VersionId.empty).committed(version(1, "a"))
    state.indexCommitted()
    begin(state, VersionId.empty).committed(version(1, "b"))
    state.indexCommitted()
    val next = begin(state, version(1, "b"))
    expect(next.keys == 0, s"${next.keys} keys")
    next.abort()
  }
}
