package org.apache.spark.sql.execution.streaming.state.incremental
package transaction

import java.io.{File, IOException}
import java.nio.file.Files
import java.util.concurrent.{CountDownLatch, TimeUnit}
import java.util.concurrent.atomic.AtomicInteger

import scala.collection.immutable.TreeMap
import scala.util.{Random, Try}

import org.apache.spark.sql.execution.streaming.state.incremental.base.{
  BaseDirectory, RemoteRowsException, RestoredDelta, RestoredFiles, StoredRanges
}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{DiskFailure, MemoryShortage}

/**
 * Cases in which a call of a transaction fails: the transaction neither shows nor commits a part of the rows, it can
 * only be aborted, all its memory is freed, and the version that it began on has all rows again.
 */
private[incremental] object FailedCalls extends StoreCases {
  private type Rows = TreeMap[String, String]

  val cases: Seq[(String, File => Unit)] = Seq(
    "memory" -> eachUseOfMemoryMayFail,
    "disk" -> eachPlaceOnDiskMayBeRefused,
    "files" -> eachUseOfFilesMayFail,
    "remote" -> eachRequestMayFail,
    "pages" -> eachUseOfFilesThatAreCachedByPagesMayFail,
    "blind" -> keysThatWerePutBlindlyComeSeveralAtATime,
    "pins" -> aScanThatCannotBeginPinsNothing,
    "commit" -> noChangeIsMadeWhileTheChangesAreCommitted,
    "lock" -> nobodyWaitsForAnOwnerOfABase)

  private val groups = 12
  private val rowsEach = 12

  private def key(group: Int, i: Int): String =
    s"\u0000\u0000\u0002\u0000\u0000\u0000g${('a' + group).toChar}${('a' + i).toChar}"

  private val first: Rows =
    TreeMap.from(
      for (group <- 0 until groups; i <- 0 until rowsEach) yield key(group, i) -> (s"first $group $i " + "x" * 3000))
  private val at = VersionId(1, Some("first"))

  private def after(prefix: String): String = prefix.init + (prefix.last + 1).toChar

  private def read(transaction: Transaction, from: String, until: String, ordered: Boolean): Seq[(String, String)] = {
    val scan = transaction.scan(bytes(from), bytes(until), ordered)
    try
      Iterator.continually(scan.advance()).takeWhile(identity)
        .map(_ => StateModel.text(scan.key) -> StateModel.text(scan.value)).toList.sortBy(_._1)
    finally scan.close()
  }

  private val family = "\u0000\u0000" -> "\u0000\u0001"

  /** The steps of a batch: each takes the transaction and its rows, checks them, and returns the rows after it. */
  private val steps: Seq[(Transaction, Rows) => Rows] = {
    def prefix(group: Int)(transaction: Transaction, rows: Rows): Rows = {
      val from = key(group, 0).dropRight(1)
      val found = read(transaction, from, after(from), ordered = true)
      expect(found == rows.range(from, after(from)).toList, s"group $group has ${found.size} rows")
      rows
    }
    def range(ordered: Boolean)(transaction: Transaction, rows: Rows): Rows = {
      val found = read(transaction, family._1 + "\u0001", family._2, ordered)
      expect(found == rows.toList, s"a range has ${found.size} rows of ${rows.size}")
      rows
    }
    def wholeScan(transaction: Transaction, rows: Rows): Rows = {
      val found = read(transaction, family._1, family._2, ordered = false)
      expect(found == rows.toList, s"a scan has ${found.size} rows of ${rows.size}")
      rows
    }
    def put(transaction: Transaction, rows: Rows): Rows =
      (0 until 60).foldLeft(rows) { (rows, i) =>
        val name = key(i % groups, 3 + i / groups)
        transaction.put(bytes(name), bytes(s"changed $i"))
        rows.updated(name, s"changed $i")
      }
    def append(transaction: Transaction, rows: Rows): Rows = {
      transaction.append(bytes(key(1, 1)), bytes("more"), ',')
      rows.updated(key(1, 1), rows.get(key(1, 1)).fold("more")(_ + ",more"))
    }
    def get(transaction: Transaction, rows: Rows): Rows = {
      for (i <- 0 until rowsEach) {
        expect(StateModel.text(transaction.get(bytes(key(5, i)))) == rows.getOrElse(key(5, i), null),
          s"row $i of group 5")
      }
      rows
    }
    def removeRange(transaction: Transaction, rows: Rows): Rows = {
      val gone = rows.range(key(2, 0), key(4, 0))
      val removed = transaction.removeRange(bytes(key(2, 0)), bytes(key(4, 0)))
      expect(removed == gone.size, s"$removed rows are removed, not ${gone.size}")
      rows -- gone.keys
    }
    def keys(transaction: Transaction, rows: Rows): Rows = {
      expect(transaction.keys == rows.size, s"${transaction.keys} keys, not ${rows.size}")
      rows
    }
    Seq(prefix(3) _, put _, prefix(4) _, prefix(5) _, append _, range(ordered = true) _, range(ordered = true) _, get _,
      range(ordered = false) _, wholeScan _, range(ordered = true) _, put _, range(ordered = true) _, removeRange _,
      put _,
      range(ordered = true) _, prefix(2) _, wholeScan _, keys _)
  }

  private def committed(state: StoreVersions, directory: File): File = {
    val transaction = begin(state, VersionId.empty)
    first.foreach { case (key, value) => transaction.put(bytes(key), bytes(value)) }
    val delta = new File(directory, "first.sst")
    transaction.writeDelta(delta, bytes(TestBases.meta(at, first.size)))
    transaction.committed(at)
    state.indexCommitted()
    delta
  }

  /**
   * Runs the steps while a fault may happen at any place, which the caller catches. If a step fails, runs the others
   * without faults: none of them may answer.
   */
  private def batch(
      state: StoreVersions,
      directory: File,
      fault: (=> Unit) => Boolean,
      restore: () => Unit = () => throw new AssertionError("a base is damaged")): Boolean = {
    val transaction = begin(state, at)
    val delta = new File(directory, "batch.sst")
    def write(transaction: Transaction, rows: Rows): Rows = {
      val written = transaction.writeDelta(delta, bytes(TestBases.meta(VersionId(2, Some("batch")), rows.size)))
      expect(written.bytes == delta.length && written.crc32 == TestFiles.crc32(delta),
        "the delta has other bytes than it says")
      rows
    }
    val all = steps :+ write _
    var rows = first
    var done = 0
    var isBroken = false
    val failed = fault {
      try
        all.foreach { step =>
          rows = step(transaction, rows)
          done += 1
        }
      catch {
        case e: Throwable =>
          isBroken = true
          throw e
      }
    }
    if (isBroken) {
      all.drop(done).foreach { step =>
        expect(Try(step(transaction, rows)).failed.toOption.exists(_.isInstanceOf[IllegalStateException]),
          s"a transaction answers, though its step $done failed")
      }
      expect(!delta.exists, "a delta that could not be written is there")
      expect(Try(transaction.committed(VersionId(2, Some("broken")))).isFailure, "it can be committed")
    } else {
      expect(done == all.size, s"$done steps are done")
      Files.delete(delta.toPath)
    }
    transaction.abort()
    if (state.isDamaged) restore()
    val again = begin(state, at)
    steps.foldLeft(first)((rows, step) => step(again, rows))
    again.abort()
    failed
  }

  /** Each allocation and each copy of memory fails in turn. */
  private def eachUseOfMemoryMayFail(directory: File): Unit = {
    var uses = 0
    var more = true
    while (more) {
      withState(Files.createTempDirectory(directory.toPath, "memory").toFile, 8L << 20) { (state, _) =>
        committed(state, Files.createTempDirectory(directory.toPath, "memory").toFile)
        more = batch(state, directory, action => MemoryShortage.after(uses)(action))
      }
      uses += 1 + uses / 12
    }
    expect(uses > 500, s"memory is used $uses times")
  }

  /** The budget has room for some more pieces, and there is no disk. */
  private def eachPlaceOnDiskMayBeRefused(directory: File): Unit = {
    var room = 0L
    var more = true
    while (more) {
      val place = Files.createTempDirectory(directory.toPath, "disk").toFile
      withState(place, 8L << 20) { (state, memory) =>
        committed(state, place)
        val spill = new File(place, "spill")
        more = batch(state, directory,
          { action =>
            Files.write(spill.toPath, Array[Byte](1)) // no directory: like a full disk
            memory.setBudget(memory.usedBytes + room)
            try {
              action
              false
            } catch { case _: IOException => true }
            finally {
              memory.setBudget(8L << 20)
              Files.delete(spill.toPath)
            }
          })
      }
      room += 512
    }
    expect(room > 4096, s"$room bytes suffice")
  }

  /**
   * Each opening, reading, writing or mapping of a file fails in turn: of a base that was never verified, of spilled
   * memory, and of the delta.
   */
  private def eachUseOfFilesMayFail(directory: File): Unit = {
    val original = new File(directory, "original")
    withState(directory, 8L << 20) { (state, _) =>
      TestBases.build(original, Seq(committed(state, directory)), new Random(1), compressed = false)
    }
    var uses = 0
    var more = true
    while (more) {
      val place = Files.createTempDirectory(directory.toPath, "files").toFile
      withState(place, 8L << 20) { (state, memory) =>
        var copies = 0
        def restore(): Unit = {
          copies += 1
          val base = new File(place, s"base-$copies")
          base.mkdir()
          original.listFiles.foreach(file => Files.copy(file.toPath, new File(base, file.getName).toPath))
          state.reset(BaseDirectory(base.getPath, at, first.size, () => ()))
        }
        restore()
        memory.setBudget(memory.usedBytes + (32 << 10))
        more = batch(state, place, action => DiskFailure.after(uses)(action), () => restore())
      }
      TestFiles.delete(place)
      uses += 1
    }
    expect(uses > 20, s"files are used $uses times")
  }

  /** The base is fetched while it is read, and notes the pages that are read. */
  private def eachUseOfFilesThatAreCachedByPagesMayFail(directory: File): Unit = {
    val pageBytes = 4096
    var uses = 0
    var more = true
    while (more) {
      val place = Files.createTempDirectory(directory.toPath, "pages").toFile
      withState(place, 8L << 20) { (state, _) =>
        val path = Files.createDirectories(new File(place, "base/deltas").toPath).toFile.getParentFile
        val delta = new File(path, "deltas/first.sst")
        Files.move(committed(state, place).toPath, delta.toPath)
        val remote = new RemoteFiles(path, Seq(delta))
        def restore(): Unit = {
          remote.forget()
          remote.noteUses(pageBytes)
          val files =
            RestoredFiles(VersionId.empty, 0, Seq(RestoredDelta(delta.getPath, at)), remote.names,
              remote.fetchAll, pageBytes = pageBytes)
          state.reset(BaseDirectory(path.getPath, at, -1, () => (), restored = Some(files)))
        }
        restore()
        more = batch(state, place, action => DiskFailure.after(uses)(action), () => restore())
      }
      TestFiles.delete(place)
      uses += 1
    }
    expect(uses > 5, s"files are used $uses times")
  }

  /** The base is fetched while it is read, and the n-th request fails. */
  private def eachRequestMayFail(directory: File): Unit = {
    var requests = 0
    var more = true
    while (more) {
      val place = Files.createTempDirectory(directory.toPath, "remote").toFile
      withState(place, 8L << 20) { (state, _) =>
        val path = Files.createDirectories(new File(place, "base/deltas").toPath).toFile.getParentFile
        val delta = new File(path, "deltas/first.sst")
        Files.move(committed(state, place).toPath, delta.toPath)
        val remote = new RemoteFiles(path, Seq(delta))
        remote.forget()
        val remaining = new AtomicInteger(Int.MaxValue)
        def fetch(ranges: Seq[(String, Long, Long)]): Unit = {
          if (remaining.getAndDecrement() == 0) throw new RemoteRowsException("a test has no storage", null)
          remote.fetchAll(ranges)
        }
        state.reset(BaseDirectory(path.getPath, at, -1, () => (),
          restored =
            Some(RestoredFiles(VersionId.empty, 0, Seq(RestoredDelta(delta.getPath, at)), remote.names, fetch))))
        more = batch(state, directory,
          { action =>
            remaining.set(requests)
            try {
              action
              false
            } catch { case _: RemoteRowsException => true }
            finally remaining.set(Int.MaxValue)
          })
      }
      requests += 1
    }
    expect(requests > 3, s"$requests requests: nearly nothing is fetched")
  }

  /** The commit has to know which of the keys were there. */
  private def keysThatWerePutBlindlyComeSeveralAtATime(directory: File): Unit =
    withState(directory, 64L << 20) { (state, _) =>
      val path = Files.createDirectories(new File(directory, "base/deltas").toPath).toFile.getParentFile
      val delta = new File(path, "deltas/first.sst")
      val rows = 6000
      def row(i: Int): Array[Byte] = bytes(f"\u0000\u0000$i%06d")
      val all = begin(state, VersionId.empty)
      for (i <- 0 until rows) all.put(row(i), new Array[Byte](600))
      all.writeDelta(delta, bytes(TestBases.meta(at, rows)))
      all.abort()
      val remote = new RemoteFiles(path, Seq(delta))
      remote.forget()
      var calls = Vector.empty[Int]
      val stored = new StoredRanges {
        def read(ranges: Seq[(String, Long, Int)]): Seq[Array[Byte]] = {
          calls :+= ranges.size
          remote.read(ranges)
        }
        override def bulkBytesPerSecond: Option[Long] = Some(0)
      }
      state.reset(BaseDirectory(path.getPath, at, -1, () => (),
        restored = Some(RestoredFiles(VersionId.empty, 0, Seq(RestoredDelta(delta.getPath, at)), remote.names,
          remote.fetchAll, openStored = Some(() => stored)))))
      val writer = begin(state, at)
      for (i <- 0 until rows by 100) writer.put(row(i), bytes("put"))
      for (i <- 0 until 10) writer.put(row(rows + i), bytes("new"))
      expect(writer.keys == rows + 10, s"${writer.keys} keys")
      expect(calls.size == 1 && calls.head > rows / 200, s"calls for $calls blocks")
      writer.abort()
    }

  private def aScanThatCannotBeginPinsNothing(directory: File): Unit =
    for (ordered <- Seq(false, true)) withState(directory, 8L << 20) { (state, _) =>
      val (from, until) = if (ordered) (bytes(key(1, 0)), bytes(key(3, 0))) else (bytes(family._1), bytes(family._2))
      var uses = 0
      var more = true
      while (more) {
        val transaction = begin(state, VersionId.empty)
        first.foreach { case (key, value) => transaction.put(bytes(key), bytes(value)) }
        (0 until 6).foreach(_ =>
          transaction.scan(from, until, ordered).close()) // from now on the changes are kept in order
        transaction.put(bytes(key(2, 100)), bytes("new"))
        more = MemoryShortage.after(uses)(transaction.scan(from, until, ordered))
        if (more) expect(transaction.memtable.pins == 0, "a scan that did not begin pins the memtable")
        transaction.abort()
        uses += 1
      }
      expect(uses > 1, "a scan takes no memory")
    }

  /** A put during the commit throws; its row is not in memory while it is missing in the delta. */
  private def noChangeIsMadeWhileTheChangesAreCommitted(directory: File): Unit =
    withState(directory, 8L << 20) { (state, _) =>
      val transaction = begin(state, VersionId.empty)
      transaction.put(bytes("\u0000\u0000one"), bytes("1"))
      val delta = new File(directory, "first.sst")
      transaction.writeDelta(delta, bytes("{}"))
      val changes = Seq[() => Any](
        () => transaction.put(bytes("\u0000\u0000two"), bytes("2")),
        () => transaction.remove(bytes("\u0000\u0000one")),
        () => transaction.append(bytes("\u0000\u0000one"), bytes("2"), ','),
        () => transaction.removeRange(bytes("\u0000\u0000"), bytes("\u0000\u0001")))
      changes.foreach { change =>
        val failure = Try(change()).failed.toOption
        expect(failure.exists(_.getMessage.contains("are being committed")),
          s"a change during the commit ends with $failure")
      }
      expect(StateModel.text(transaction.get(bytes("\u0000\u0000one"))) == "1", "the transaction cannot be read")
      transaction.committed(at)
      val next = begin(state, at)
      expect(next.keys == 1 && StateModel.text(next.get(bytes("\u0000\u0000one"))) == "1", "the version has other rows")
      next.abort()
    }

  /** Giving a base back is a call to the agent, which may hang. */
  private def nobodyWaitsForAnOwnerOfABase(directory: File): Unit =
    withState(directory, 8L << 20) { (state, _) =>
      val path = new File(directory, "base")
      TestBases.build(path, Seq(committed(state, directory)), new Random(1), compressed = false)
      val called, answers = new CountDownLatch(1)
      state.reset(BaseDirectory(path.getPath, at, first.size,
        () => {
          called.countDown()
          answers.await(60, TimeUnit.SECONDS)
        }))
      val other = new Thread(() => state.resetEmpty())
      other.start()
      expect(called.await(60, TimeUnit.SECONDS), "the base is not given back")
      val asked = new Thread(() => {
        state.memoryUse
        begin(state, VersionId.empty).abort()
      })
      asked.start()
      asked.join(20000)
      val waits = asked.isAlive
      answers.countDown()
      other.join()
      asked.join()
      expect(!waits, "a begin waits for the owner of a base")
    }
}
