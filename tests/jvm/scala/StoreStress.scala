package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.{File, IOException}
import java.net.SocketTimeoutException
import java.nio.channels.ClosedByInterruptException
import java.nio.file.Files
import java.util.Arrays
import java.util.concurrent.atomic.{AtomicBoolean, AtomicInteger, AtomicReference, LongAdder}

import scala.util.Random

import org.apache.spark.sql.execution.streaming.state.incremental.base.{
  BaseDirectory, RemoteRowsException, RestoredDelta, RestoredFiles, StoredRanges
}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.StoreMemory
import org.apache.spark.sql.execution.streaming.state.incremental.rows.RowCodec
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.{StateConf, StoreVersions, Transaction}

/**
 * Several stores in one small budget, each with a writer, two readers and merges in threads of their own: writers go
 * back to older versions and are killed, readers are interrupted, and the files of bases come in the background, are
 * evicted page by page while they are read, or come from a storage that fails, is slow, or sends a wrong bit. Every row
 * of every version is compared with a value that is computed from its key. Arguments: seed, commits in all, stores.
 */
object StoreStress {
  def main(arguments: Array[String]): Unit = {
    val Array(seed, commits, stores) = arguments.map(_.toInt)
    val directory = Files.createTempDirectory("store-stress").toFile
    val memory = new StoreMemory(1L << 20, largestPieceBytes = 64L << 10)
    val run = new StressRun(commits)
    try {
      val made = (0 until stores).map(n => new StressedStore(n, seed * 1000L + n, memory, directory, run))
      val threads = made.flatMap(_.threads)
      threads.foreach(_.start())
      threads.foreach(_.join())
      made.foreach(_.close())
    } finally TestFiles.delete(directory)
    Option(run.failure.get).foreach(e => throw new AssertionError(s"a store is wrong: $e", e))
    if (memory.usedBytes != 0) throw new AssertionError(s"${memory.usedBytes} bytes stay taken")
    println(s"every row was right: ${run.summary}")
  }
}

/** The end, the first failure and the counters of a run, which its threads share. */
private final class StressRun(commits: Int) {
  val failure = new AtomicReference[Throwable]
  val committed, read, expected, sparse, paged, evicted, pastDisk, failed, killed, interrupted, inherited =
    new LongAdder

  def goesOn: Boolean = failure.get == null && committed.sum < commits

  def fail(error: Throwable): Unit = failure.compareAndSet(null, error)

  def summary: String = s"commits $committed, look-ups $read, announced keys $expected, sparse bases $sparse, with " +
    s"pages $paged, evictions $evicted, reads past the disk $pastDisk, failures of storage $failed, killed writers " +
    s"$killed, interrupted readers $interrupted, inherited rows $inherited"
}

/** The rows of versions: each batch has a salt, which tells the keys that it changes, and their values. */
private object StressRows {
  val keyCount = 3000
  private val prefixes = 50

  def mix(key: Int, salt: Long): Int = {
    var x = (key * 0x9E3779B97F4A7C15L) ^ salt
    x = (x ^ (x >>> 29)) * 0xBF58476D1CE4E5B9L
    ((x ^ (x >>> 32)) & 0x7fffffff).toInt
  }

  def key(n: Int): Array[Byte] =
    Array[Byte](0, 0, 4, 0, 0, 0, 0, 0, 0, (n % prefixes).toByte, (n >> 8).toByte, n.toByte)
  def prefix(n: Int): Array[Byte] = key(n).take(10)
  def numberOf(key: Array[Byte]): Int = ((key(10) & 0xff) << 8) | (key(11) & 0xff)

  /** Returns a key whose prefix the batch removes as a range, before its other changes. */
  def removedRange(salt: Long): Option[Int] = Some(mix(-7, salt)).filter(_ % 4 == 0).map(_ % prefixes)

  def isChanged(n: Int, salt: Long): Boolean = mix(n, salt) % 7 == 0

  def changeOf(n: Int, salt: Long): Option[String] = {
    val mixed = mix(n, salt)
    if (mixed % 21 == 0) None else Some(s"$n@$salt" + "x" * (mixed % 400))
  }

  /** Returns the value of a key after some batches. */
  def valueOf(n: Int, salts: Vector[Long]): Option[String] =
    salts.reverseIterator.collectFirst {
      case salt if isChanged(n, salt) => changeOf(n, salt)
      case salt if removedRange(salt).contains(n % prefixes) => None
    }.flatten
}

/** A version: the salts of its batches, and their deltas, each with the number of keys after it. */
private final case class StressVersion(
    at: VersionId, salts: Vector[Long], deltas: Vector[(File, VersionId, Long)], keys: Long)

private final class StressedStore(n: Int, seed: Long, memory: StoreMemory, directory: File, run: StressRun) {
  import StressRows._

  private val state = new StoreVersions(memory, StateConf(new File(directory, s"spill-$n"), fewestPassed = 3))
  private val empty = StressVersion(VersionId.empty, Vector.empty, Vector.empty, 0)
  private val count = new AtomicInteger
  @volatile private var newest = empty
  @volatile private var past = Vector(empty)

  def close(): Unit = state.close()

  def threads: Seq[Thread] =
    Seq[Random => Unit](write, read, read, merge, watch).zipWithIndex.map { case (step, number) =>
      val random = new Random(seed * 10 + number)
      new Thread(() =>
        while (run.goesOn)
          try step(random)
          catch {
            case e: IOException if isOfStorage(e) => run.failed.increment()
            case e: Throwable => run.fail(e)
          })
    }

  private def isOfStorage(e: IOException): Boolean =
    e.isInstanceOf[RemoteRowsException] || String.valueOf(e.getMessage).contains("damaged")

  // --- steps of the threads

  private def write(random: Random): Unit = {
    val back = random.nextInt(12) == 0 && past.size > 3
    val from =
      if (back) past(past.size - 1 - random.nextInt(3)) else if (newest.salts.size > 25) past.head else newest
    val transaction = if (random.nextInt(3) == 0) upgraded(from, random) else begin(from, random)
    transaction.foreach { writer =>
      val killer = Option.when(random.nextInt(10) == 0)(new Thread(() => {
        Thread.sleep(random.nextInt(6))
        writer.abort()
      }))
      killer.foreach(_.start())
      try commit(writer, from, random)
      catch { case _: IllegalStateException if killer.isDefined => run.killed.increment() }
      finally {
        killer.foreach(_.join())
        writer.abort()
      }
      if (random.nextBoolean()) state.indexCommitted()
    }
  }

  private def commit(writer: Transaction, from: StressVersion, random: Random): Unit = {
    val salt = random.nextLong()
    val salts = from.salts :+ salt
    removedRange(salt).foreach(n => writer.removeRange(prefix(n), RowCodec.after(prefix(n))))
    (0 until keyCount).filter(isChanged(_, salt)).foreach { n =>
      if (random.nextInt(2) == 0) writer.get(key(n))
      if (random.nextInt(5) == 0) writer.put(key(n), "old".getBytes)
      changeOf(n, salt).fold(writer.remove(key(n)))(value => writer.put(key(n), value.getBytes))
    }
    if (random.nextInt(3) == 0) check(writer, salts, random)
    val file = new File(directory, s"delta-$n-${count.incrementAndGet()}.sst")
    val keys = writer.keys
    require(keys == (0 until keyCount).count(valueOf(_, salts).isDefined), s"a version has $keys keys")
    val at = VersionId(from.at.number + 1, Some(s"id-${count.incrementAndGet()}"))
    writer.writeDelta(file, TestBases.meta(at, keys).getBytes)
    writer.committed(at)
    newest = StressVersion(at, salts, from.deltas :+ ((file, at, keys)), keys)
    val before = if (from.at.number == 0) Vector(empty) else past
    past = before.filter(old => old.at.number < at.number && salts.startsWith(old.salts)).takeRight(8) :+ newest
    run.committed.increment()
  }

  private def read(random: Random): Unit = {
    val version = some(random)
    val thread = Thread.currentThread
    state.tryBegin(version.at, readOnly = true).foreach { reader =>
      val interrupter = Option.when(random.nextInt(20) == 0)(new Thread(() => {
        Thread.sleep(random.nextInt(5))
        thread.interrupt()
      }))
      interrupter.foreach(_.start())
      try for (_ <- 0 to random.nextInt(4)) check(reader, version.salts, random)
      catch { case _: ClosedByInterruptException | _: InterruptedException => run.interrupted.increment() }
      finally {
        reader.abort()
        while (interrupter.exists(_.isAlive)) Thread.onSpinWait()
        Thread.interrupted()
      }
    }
    Thread.sleep(1)
  }

  private def merge(random: Random): Unit = {
    val version = some(random)
    if (version.at.number > 0)
      state.offerBase(if (random.nextInt(8) == 0) whole(version, random) else lazily(version, random))
    Thread.sleep(random.nextInt(40))
  }

  private def watch(random: Random): Unit = {
    val use = state.memoryUse
    val parts = Seq(use.memtableBytes, use.recentBytes, use.indexBytes, use.baseBytes, use.spilledBytes)
    require(parts.forall(_ >= 0), s"less than nothing is in use: $use")
    state.wantsIngest
    state.isDamaged
    Thread.sleep(1)
  }

  private def some(random: Random): StressVersion =
    if (random.nextBoolean()) newest else { val all = past; all(random.nextInt(all.size)) }

  // --- transactions

  /** Begins to write on a version, after a restore if memory does not have it. */
  private def begin(version: StressVersion, random: Random): Option[Transaction] =
    state.tryBegin(version.at, readOnly = false).orElse {
      if (version.at.number == 0) state.resetEmpty()
      else state.reset(if (random.nextBoolean()) lazily(version, random) else whole(version, random))
      state.tryBegin(version.at, readOnly = false)
    }

  /** Begins to write as an operator does that has read before: the writer takes the rows over. */
  private def upgraded(version: StressVersion, random: Random): Option[Transaction] =
    state.tryBegin(version.at, readOnly = true).fold(begin(version, random)) { reader =>
      try {
        check(reader, version.salts, random)
        val writer = state.tryBegin(version.at, readOnly = false)
        try writer.foreach(_.inherit(reader))
        catch {
          case e: Throwable =>
            writer.foreach(_.abort())
            throw e
        }
        run.inherited.increment()
        writer
      } finally reader.abort()
    }

  private def check(transaction: Transaction, salts: Vector[Long], random: Random): Unit = {
    if (random.nextBoolean()) {
      val announced = Array.fill(1 + random.nextInt(300))(random.nextInt(keyCount))
      transaction.expect(announced.map(key))
      run.expected.add(announced.length)
      announced.take(60).foreach(checkRow(transaction, salts, _))
    }
    for (_ <- 1 to 50) checkRow(transaction, salts, random.nextInt(keyCount))
    if (random.nextInt(3) == 0) checkScan(transaction, salts, random)
  }

  private def checkRow(transaction: Transaction, salts: Vector[Long], n: Int): Unit = {
    run.read.increment()
    val found = Option(transaction.get(key(n))).map(new String(_))
    require(found == valueOf(n, salts), s"key $n of store ${this.n} is $found and should be ${valueOf(n, salts)}")
  }

  private def checkScan(transaction: Transaction, salts: Vector[Long], random: Random): Unit = {
    val first = random.nextInt(keyCount)
    val (from, until) = random.nextInt(3) match {
      case 0 => (Array[Byte](0, 0), Array[Byte](0, 1))
      case 1 => (prefix(first), RowCodec.after(prefix(first)))
      case _ => (key(first), RowCodec.after(key(first).take(9)))
    }
    def isInside(n: Int) = Arrays.compareUnsigned(key(n), from) >= 0 && Arrays.compareUnsigned(key(n), until) < 0
    val ordered = random.nextBoolean()
    val scan = transaction.scan(from, until, ordered)
    var (rows, before) = (0, Array.emptyByteArray)
    try
      while (scan.advance()) {
        val found = numberOf(scan.key)
        require(valueOf(found, salts).contains(new String(scan.value)), s"a scan has a wrong value of key $found")
        require(!ordered || Arrays.compareUnsigned(before, scan.key) < 0, "the rows of a scan are in no order")
        before = scan.key
        rows += 1
      }
    finally scan.close()
    val expected = (0 until keyCount).count(n => isInside(n) && valueOf(n, salts).isDefined)
    require(rows == expected, s"a scan has $rows rows and should have $expected")
  }

  // --- bases

  private def newPath(): File = {
    val path = new File(directory, s"base-$n-${count.incrementAndGet()}")
    path.mkdirs()
    path
  }

  private def whole(version: StressVersion, random: Random): BaseDirectory = {
    val path = newPath()
    TestBases.build(path, version.deltas.map(_._1), random, compressed = random.nextInt(8) == 0)
    BaseDirectory(path.getPath, version.at, version.keys, () => TestFiles.delete(path))
  }

  /** Makes a base as a lazy restore does: deltas beside a database, and files of which parts are missing. */
  private def lazily(version: StressVersion, random: Random): BaseDirectory = {
    val path = newPath()
    val (below, above) = version.deltas.splitAt(random.nextInt(version.deltas.size + 1))
    if (below.nonEmpty) TestBases.build(path, below.map(_._1), random, compressed = false)
    val beside = new File(path, "deltas")
    beside.mkdirs()
    val deltas = above.map { case (file, at, _) =>
      RestoredDelta(Files.copy(file.toPath, new File(beside, file.getName).toPath).toString, at)
    }
    val restored = RestoredFiles(
      below.lastOption.fold(VersionId.empty)(_._2), below.lastOption.fold(0L)(_._3), deltas.reverse)
    val files = path.listFiles.filter(_.getName.endsWith(".sst")).toSeq ++ deltas.map(delta => new File(delta.path))
    val missing = files.filter(_ => random.nextInt(4) != 0)
    if (missing.isEmpty) BaseDirectory(path.getPath, version.at, -1, () => TestFiles.delete(path), Some(restored))
    else {
      run.sparse.increment()
      val remote = new StressedFiles(path, missing, random.nextLong(), run)
      BaseDirectory(path.getPath, version.at, -1, () => remote.delete(), Some(remote.of(restored)))
    }
  }
}

/** Files of a base of which parts are missing: they come in the background, or their pages are evicted. */
private final class StressedFiles(path: File, files: Seq[File], seed: Long, run: StressRun) {
  private val pageBytes = 4096
  private val random = new Random(seed)
  private val remote = new RemoteFiles(path, files)
  private val isGone = new AtomicBoolean
  private val isPaged = random.nextBoolean()

  remote.forget()
  if (isPaged) {
    run.paged.increment()
    remote.noteUses(pageBytes)
  }
  private val worker = new Thread(() => if (isPaged) evict() else hydrate())
  worker.setDaemon(true)
  worker.start()

  def of(restored: RestoredFiles): RestoredFiles = restored.copy(
    sparse = remote.names,
    fetch = _.foreach { case (name, offset, length) => fetch(name, offset, length) },
    pageBytes = if (isPaged) pageBytes else 0,
    pagesAtOnce = if (isPaged) 64 << 10 else Long.MaxValue,
    openStored = Some(() => stored))

  def delete(): Unit = {
    isGone.set(true)
    worker.join()
    TestFiles.delete(path)
  }

  private def chance(among: Int): Int = random.synchronized(random.nextInt(among))

  private def fetch(name: String, offset: Long, length: Long): Unit = {
    val drawn = chance(1000)
    if (drawn < 60) throw new RemoteRowsException("storage is away", null)
    if (drawn < 300) Thread.sleep(1)
    remote.fetch(name, offset, length)
  }

  private object stored extends StoredRanges {
    def read(ranges: Seq[(String, Long, Int)]): Seq[Array[Byte]] = {
      run.pastDisk.increment()
      val drawn = chance(1000)
      if (drawn < 40) throw new IOException("storage is away")
      if (drawn < 60) throw new IllegalStateException("its client is shut down")
      if (drawn < 80) throw new SocketTimeoutException("storage is slow")
      if (drawn < 300) Thread.sleep(1)
      val found = remote.read(ranges)
      if (drawn > 980) found.foreach(bytes => bytes(bytes.length / 2) = (bytes(bytes.length / 2) ^ 0x40).toByte)
      found
    }

    override def bulkBytesPerSecond: Option[Long] = Some(Seq(0L, 1000L, 1L << 30)(chance(3)))
  }

  private def evict(): Unit = {
    val names = remote.names.toIndexedSeq
    while (!isGone.get && run.goesOn) {
      val name = names(chance(names.size))
      val pages = remote.pages(name, pageBytes)
      if (pages > 0) remote.evict(name, chance(pages), pageBytes)
      run.evicted.increment()
      if (chance(4) == 0) Thread.sleep(1)
    }
  }

  private def hydrate(): Unit = for (file <- files; offset <- 0L until file.length by 20000L if !isGone.get) {
    remote.fetch(path.toPath.relativize(file.toPath).toString, offset, 20000)
    if (chance(3) == 0) Thread.sleep(1)
  }
}
