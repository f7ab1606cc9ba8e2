package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{File, IOException}
import java.net.SocketTimeoutException
import java.nio.channels.ClosedByInterruptException
import java.nio.file.Files
import java.util.concurrent.ConcurrentLinkedQueue

import scala.jdk.CollectionConverters._
import scala.util.{Random, Try}

import org.apache.spark.sql.execution.streaming.state.incremental.{RemoteFiles, TestBases, TestFiles}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, KeyHash, StoreMemory}

/** Look-ups of many keys in a base of which parts are missing: a database, and deltas beside it. */
object SparseBases {
  def main(arguments: Array[String]): Unit = {
    val directory = Files.createTempDirectory("sparse-bases").toFile
    try {
      new RowsBeforeFiles(new File(directory, "whole")).run()
      val test = new SparseBases(new File(directory, "paged"))
      test.keepsVerifiedBlocks()
      test.countsTheMappingsOfNotes()
      test.readsWhatIsEvicted()
      test.readsRowsAhead()
      test.readsWhatIsThereBeforeItFetches()
      test.readsRowsAheadPastTheDisk()
      test.bringsNoMoreWantedBlocksThanThereIsRoom()
      test.readsWhatCannotBeReadPastTheDisk()
      test.readsPastAFullDisk()
      test.lendsBlocksToAnnouncedRowsAlone()
      test.inheritsRows()
      test.scansPastTheDisk()
      test.readsWhileOthersEvict()
      val large = new SparseBases(new File(directory, "large"), 4000)
      large.keepsNoMoreRowsThanMemoryHas()
      large.readsAKeyOnceHoweverOftenItIsAnnounced()
      large.readsNoMoreAheadThanTheBudgetHas()
      println("all that was expected came")
    } finally TestFiles.delete(directory)
  }
}

class SparseBases(directory: File, valueBytes: Int = 60) {
  directory.mkdir()
  private val keyCount = 12000
  private val memory = new StoreMemory(64L << 20)
  private val path = new File(directory, "base")
  private val deltasDirectory = new File(path, "deltas")
  private val deltas = new TestDeltas(memory, directory, key, value)
  protected var damages = 0

  protected val (remote, base) = build()
  private def live(n: Int): Option[Int] = if (n % 11 == 0) None else Some(if (n % 5 == 0) 9 else 1)

  protected def expect(condition: Boolean, message: => String): Unit = if (!condition) throw new AssertionError(message)
  protected def key(n: Int): Array[Byte] =
    Array[Byte](0, 0) ++ s"key${(10000000 + n).toString.substring(1)}".getBytes("US-ASCII")
  private def value(n: Int, round: Int): Array[Byte] = Array.fill(valueBytes)((n * 31 + round).toByte)
  private def version(n: Int) = VersionId(n, Some(s"id-$n"))

  private def build(): (RemoteFiles, RestoredFiles) = {
    val all = 0 until keyCount
    val first = delta(new File(directory, "first.sst"), version(1), keyCount, all.map(_ -> Some(1)))
    TestBases.build(path, Seq(first), new Random(1), compressed = false)
    deltasDirectory.mkdir()
    val newer = delta(new File(deltasDirectory, "newer.sst"), version(2), keyCount,
      all.filter(_ % 5 == 0).map(_ -> Some(9)))
    val newest = delta(new File(deltasDirectory, "newest.sst"), version(3), all.count(_ % 11 != 0),
      all.filter(_ % 11 == 0).map(_ -> None))
    val files = path.listFiles.filter(_.getName.endsWith(".sst")).toSeq ++ Seq(newer, newest)
    val made = new RemoteFiles(path, files)
    val deltas = Seq(RestoredDelta(newest.getPath, version(3)), RestoredDelta(newer.getPath, version(2)))
    (made, RestoredFiles(version(1), keyCount, deltas, made.names, made.fetchAll))
  }

  private def delta(file: File, at: VersionId, keys: Int, changes: Seq[(Int, Option[Int])]): File =
    deltas.write(file, TestBases.meta(at, keys), changes)

  /**
   * Passes a reader of the base, of which only the metadata is there, to a function.
   *
   * @param fetch fetches a range that is asked for alone
   * @param fetchAll fetches ranges that are asked for together
   */
  protected def withReader(
      fetch: (String, Long, Long) => Unit,
      pageBytes: Int = 0,
      pagesAtOnce: Long = Long.MaxValue,
      fetchAll: Seq[(String, Long, Long)] => Unit = remote.fetchAll,
      read: Seq[(String, Long, Int)] => Seq[Array[Byte]] = null,
      stored: () => StoredRanges = null)(use: (Base, BaseReader) => Unit): Unit = {
    remote.forget()
    if (pageBytes > 0) remote.noteUses(pageBytes)
    var opened = true
    val lazily = base.copy(pageBytes = pageBytes, pagesAtOnce = pagesAtOnce,
      openStored = Option(stored).orElse(Option(read).map(some => () => (ranges => some(ranges)): StoredRanges)),
      fetch = ranges =>
        if (opened) remote.fetchAll(ranges)
        else if (ranges.size == 1) fetch(ranges.head._1, ranges.head._2, ranges.head._3)
        else fetchAll(ranges))
    val made = Base.open(BaseDirectory(path.getPath, version(3), -1, () => (), Some(lazily), () => damages += 1),
      memory)
    val reader = made.reader()
    opened = false
    try use(made, reader)
    finally {
      reader.close()
      made.release()
    }
  }

  protected def check(reader: BaseReader, n: Int): Unit = {
    val found = reader.get(KeyHash.of(key(n)), key(n))
    expect(java.util.Arrays.equals(found, live(n).map(value(n, _)).orNull), s"key $n is ${Option(found).map(_.toSeq)}")
  }

  protected val some = 0 until keyCount by 40

  /**
   * A request fetches more than the block that is read; bytes that were damaged on their way are not read unverified.
   */
  def keepsVerifiedBlocks(): Unit = {
    var damages = false
    def fetch(name: String, offset: Long, length: Long): Unit = {
      remote.fetch(name, offset, length)
      if (damages) remote.damage(name, offset + 5000, length - 5000) // the bytes after the block that is read
    }
    for (ahead <- Seq(false, true)) {
      damages = false
      withReader(fetch) { (base, reader) =>
        val read = (0 until keyCount by 700).filter(n => (n / 700) % 2 == 0)
        read.foreach(check(reader, _))
        damages = true
        for (n <- 0 until keyCount by 700 if !read.contains(n)) {
          if (ahead) Try(scanFrom(reader, key(n)))
          else Try(reader.get(KeyHash.of(key(n)), key(n)))
          read.foreach(check(reader, _))
        }
      }
    }
  }

  private val pageBytes = 4096

  /** A table of which pages are evicted takes two mappings: its own, and that of the notes beside it. */
  def countsTheMappingsOfNotes(): Unit = {
    remote.forget()
    remote.noteUses(pageBytes)
    val cache = new TableCache(1000)
    val paged = base.copy(pageBytes = pageBytes, fetch = remote.fetchAll)
    val made = Base.open(
      BaseDirectory(path.getPath, version(3), -1, () => (), Some(paged), () => damages += 1), memory, cache)
    val reader = made.reader()
    some.foreach(check(reader, _))
    expect(cache.mappings == 2 * remote.names.size, s"${cache.mappings} mappings of ${remote.names.size} files")
    reader.close()
    made.release()
    expect(cache.mappings == 0, s"${cache.mappings} mappings stay")
  }

  /** Blocks that were read are evicted, and read again; scans and look-ups find all rows. */
  def readsWhatIsEvicted(): Unit = withReader(remote.fetch(_, _, _), pageBytes) { (base, reader) =>
    val keys = 0 until keyCount by 39
    for (_ <- 1 to 2) {
      val before = remote.fetchedBytes
      keys.foreach(check(reader, _))
      val fetched = remote.fetchedBytes - before
      expect(fetched > 0, "evicted blocks are not fetched again")
      expect(fetched < keys.size * 3 * 2 * pageBytes, s"$fetched bytes were fetched for ${keys.size} keys")
      expect(remote.used.values.forall(_.nonEmpty), s"pages that were read are not noted: ${remote.used}")
      checkAll(reader)
      evictAll()
    }
    expect(!base.damaged, "evicted blocks are taken for damaged")
  }

  /** The blocks of announced keys come in one call, and the rows are there although the blocks are evicted. */
  def readsRowsAhead(): Unit = {
    var calls = Vector.empty[Seq[(String, Long, Int)]]
    def read(ranges: Seq[(String, Long, Int)]): Seq[Array[Byte]] = {
      calls :+= ranges
      remote.read(ranges)
    }
    withReader(refused, pageBytes, read = read) { (_, reader) =>
      reader.expect(some.map(key))
      expect(calls.size == 1, s"${calls.size} calls fetched blocks of announced keys")
      expect(calls.head.distinct.size == calls.head.size, "a block was fetched twice")
      evictAll()
      some.foreach { n =>
        check(reader, n)
        expect(reader.contains(KeyHash.of(key(n)), key(n)) == live(n).isDefined, s"key $n is there, or not")
      }
      reader.expect(some.map(key))
      expect(calls.size == 1, "rows that were read ahead are read again")
    }
  }

  /** A call that evicts everything does not harm rows whose blocks were there. */
  def readsWhatIsThereBeforeItFetches(): Unit = {
    val keys = (0 until keyCount by 39).filter(n => n % 5 != 0 && n % 11 != 0)
    var alone = 0
    def fetchAlone(name: String, offset: Long, length: Long): Unit = {
      alone += 1
      remote.fetch(name, offset, length)
    }
    def read(ranges: Seq[(String, Long, Int)]): Seq[Array[Byte]] = {
      evictAll()
      remote.read(ranges)
    }
    withReader(fetchAlone, pageBytes, pagesAtOnce = 0, read = read) { (_, reader) =>
      keys.foreach(check(reader, _))
      alone = 0
      reader.expect((keys ++ keys.map(_ + 20)).filter(_ < keyCount).map(key))
      keys.foreach(check(reader, _))
      expect(alone <= keys.size / 10, s"blocks of $alone of ${keys.size} rows were there, and are fetched again alone")
    }
  }

  protected def refused(name: String, offset: Long, length: Long): Unit =
    throw new AssertionError(s"$length bytes at $offset of $name are fetched alone")

  /**
   * Blocks come to memory; those that are wanted again come to the disk, and stay. The last block of a file may lie in
   * no whole page: it is never evicted, and comes to the disk at once.
   */
  def readsRowsAheadPastTheDisk(): Unit = {
    var asked = 0
    var brought = 0
    def read(ranges: Seq[(String, Long, Int)]): Seq[Array[Byte]] = {
      asked += ranges.size
      remote.read(ranges)
    }
    def fetchAll(ranges: Seq[(String, Long, Long)]): Unit = {
      brought += ranges.size
      remote.fetchAll(ranges)
      ranges.foreach { case (name, offset, length) => remote.noteUsed(name, offset, length, pageBytes) }
    }
    withReader(refused, pageBytes, fetchAll = fetchAll, read = read) { (base, _) =>
      def announced(): (Int, Int) = {
        val another = base.reader()
        try {
          another.expect(some.map(key))
          some.foreach(check(another, _))
        } finally another.close()
        (asked, brought)
      }
      val (first, last) = announced()
      expect(first > 20 && last <= remote.names.size, s"$first blocks came to memory, and $last to the disk")
      val second = announced()
      expect(second == ((first, last + first)), s"$second blocks came to memory and to the disk, $first before")
      expect(announced() == second, "blocks are read again that are on the disk")
      expect(!base.damaged, "blocks that are not there are taken for damaged")
    }
  }

  def bringsNoMoreWantedBlocksThanThereIsRoom(): Unit = {
    val limit = 10L * pageBytes
    var calls = 0
    def fetchAll(ranges: Seq[(String, Long, Long)]): Unit = {
      calls += 1
      val bytes = ranges.map(_._3 + pageBytes).sum
      expect(bytes <= limit + 5 * ranges.size, s"$bytes bytes of pages were asked for")
      remote.fetchAll(ranges)
    }
    withReader(refused, pageBytes, limit, fetchAll, remote.read) { (_, reader) =>
      remote.noteAllUsed()
      reader.expect(some.map(key))
      expect(calls == 1, s"$calls calls brought blocks to the disk")
      evictAll()
      some.foreach(check(reader, _))
    }
  }

  /** Storage that fails, and bytes that are damaged on their way, do not harm what a fetch brings. */
  def readsWhatCannotBeReadPastTheDisk(): Unit = {
    val broken = Seq[Seq[(String, Long, Int)] => Seq[Array[Byte]]](
      _ => throw new IOException("it is down"),
      _ => throw new SocketTimeoutException("it is slow"),
      _ => throw new IllegalStateException("the pool of its client is shut down"),
      ranges => remote.read(ranges).map(_.map(byte => (byte ^ 0x55).toByte)),
      ranges => ranges.map(range => new Array[Byte](range._3)))
    for (read <- broken) withReader(remote.fetch(_, _, _), pageBytes, read = read) { (base, reader) =>
      reader.expect(some.map(key))
      some.foreach(check(reader, _))
      evictAll()
      checkAll(reader)
      expect(!base.damaged, "a failure past the disk is taken for damage of the files")
      expect(!Thread.interrupted(), "a failure past the disk is taken for an interrupt")
    }
    withReader((_, _, _) => throw new RemoteRowsException("it is down", null), pageBytes,
      read = _ => throw new InterruptedException) { (base, reader) =>
      val failed = Try(reader.expect(some.map(key)))
      expect(failed.failed.toOption.exists(_.isInstanceOf[ClosedByInterruptException]), s"an interrupt gives $failed")
      expect(Thread.interrupted(), "the interrupt is forgotten")
      expect(!base.damaged, "an interrupt is taken for damage")
    }
  }

  /** Blocks that are wanted again, and find no room on the disk, come to memory. */
  def readsPastAFullDisk(): Unit = {
    def isFull(ranges: Seq[(String, Long, Long)]): Unit = throw new RemoteRowsException("the disk is full", null)
    withReader(refused, pageBytes, fetchAll = isFull, read = remote.read) { (base, reader) =>
      remote.noteAllUsed()
      reader.expect(some.map(key))
      some.foreach(check(reader, _))
      expect(!base.damaged, "a full disk is taken for damage of the files")
    }
  }

  /** A block that came to memory leaves it with the call; other rows of it are fetched. */
  def lendsBlocksToAnnouncedRowsAlone(): Unit =
    withReader(remote.fetch(_, _, _), pageBytes, read = remote.read) { (_, reader) =>
      reader.expect(Seq(key(1)))
      val before = remote.fetchedBytes
      check(reader, 1)
      expect(remote.fetchedBytes == before, "a row that was read ahead is read again")
      check(reader, 2)
      expect(remote.fetchedBytes > before, "a block stays in memory after its announced rows were read")
    }

  /** Rows whose blocks are there are kept, too, but no more than are in 32 MiB; then those of a later call. */
  def keepsNoMoreRowsThanMemoryHas(): Unit =
    withReader(remote.fetch(_, _, _), pageBytes, read = remote.read) { (_, reader) =>
      remote.names.foreach(remote.fetch(_, 0, Int.MaxValue))
      reader.expect((0 until keyCount).map(key))
      evictAll()
      val before = remote.fetchedBytes
      (0 until keyCount).foreach(check(reader, _))
      val fetched = remote.fetchedBytes - before
      val least = keyCount * valueBytes.toLong * 10 / 11 - (34 << 20)
      expect(least > 0 && fetched > least, s"$fetched bytes of evicted blocks were read again, of at least $least")
      val last = keyCount - 50 until keyCount
      reader.expect(last.map(key))
      evictAll()
      val read = remote.fetchedBytes
      last.foreach(check(reader, _))
      expect(remote.fetchedBytes == read, "nothing is read ahead any more once memory was full")
    }

  def readsAKeyOnceHoweverOftenItIsAnnounced(): Unit =
    withReader(remote.fetch(_, _, _), pageBytes, read = remote.read) { (_, reader) =>
      check(reader, 1)
      reader.expect(Seq.fill((40 << 20) / valueBytes)(key(1)) ++ some.map(key))
      evictAll()
      val before = remote.fetchedBytes
      some.foreach(check(reader, _))
      expect(remote.fetchedBytes == before, "the rows of one key left no memory for the others")
    }

  /** Rows and blocks in memory count for the budget, whatever way the files come; what has no room is read later. */
  def readsNoMoreAheadThanTheBudgetHas(): Unit = for (pages <- Seq(pageBytes, 0); room <- Seq(0L, 4L << 20)) {
    var most = 0L
    var asked = 0
    def readNoting(ranges: Seq[(String, Long, Int)]): Seq[Array[Byte]] = {
      asked += ranges.size
      most = math.max(most, memory.usedBytes)
      remote.read(ranges)
    }
    val stored = new StoredRanges {
      def read(ranges: Seq[(String, Long, Int)]): Seq[Array[Byte]] = readNoting(ranges)
      override def bulkBytesPerSecond: Option[Long] = Some(0)
    }
    val full = memory.budgetBytes - room
    memory.take(full)
    try withReader(remote.fetch(_, _, _), pages, stored = () => stored) { (base, reader) =>
        val keys = (1 until keyCount by 3).map(key)
        reader.expect(keys)
        expect((asked - 1) * 4000L <= room, s"$asked blocks come to $room bytes of memory")
        expect(room == 0 || asked > 0 && most > full, s"$asked blocks take ${most - full} bytes of the budget")
        expect(memory.usedBytes <= memory.budgetBytes, "rows that were read ahead take more than the budget has")
        val after = base.reader()
        after.inherit(reader)
        (1 until keyCount by 300).foreach(check(after, _))
        reader.close()
        expect(room == 0 || memory.usedBytes > full, "rows that were taken over count no more")
        after.close()
        expect(memory.usedBytes == full, s"${memory.usedBytes - full} bytes are not given back")
      }
    finally memory.release(full)
  }

  def inheritsRows(): Unit = {
    var reads = 0
    def read(ranges: Seq[(String, Long, Int)]): Seq[Array[Byte]] = {
      reads += 1
      remote.read(ranges)
    }
    withReader(refused, pageBytes, read = read) { (base, reader) =>
      reader.expect(some.map(key))
      val another = base.reader()
      try {
        another.inherit(reader)
        some.foreach(check(another, _))
        another.expect(some.map(key))
      } finally another.close()
      expect(reads == 1, s"$reads reads of the same blocks")
    }
  }

  /** A scan of all rows brings no more to the disk than the block of each file in which it begins. */
  def scansPastTheDisk(): Unit = {
    var reads = 0
    def read(ranges: Seq[(String, Long, Int)]): Seq[Array[Byte]] = {
      reads += 1
      remote.read(ranges)
    }
    withReader(remote.fetch(_, _, _), pageBytes, read = read) { (base, reader) =>
      val before = remote.fetchedBytes
      checkAll(reader)
      val files = remote.names.size
      val bytes = remote.names.iterator.map(remote.pages(_, pageBytes).toLong * pageBytes).sum
      val brought = remote.fetchedBytes - before
      expect(brought <= files * 2L * pageBytes && brought < bytes / 4, s"$brought of $bytes bytes came to the disk")
      expect(reads > 0 && reads <= 2 * files + 2 * bytes / (256 << 10), s"$reads reads of $bytes bytes")
      val used = remote.used.values.map(_.size).sum
      expect(used <= 3 * files, s"a scan notes $used pages as used")
      expect(!base.damaged, "blocks that are not there are taken for damaged")
    }
  }

  private def evictAll(): Unit =
    remote.names.foreach(name => (0 until remote.pages(name, pageBytes)).foreach(remote.evict(name, _, pageBytes)))

  /** Four threads read while pages are evicted at random. */
  def readsWhileOthersEvict(): Unit = withReader(remote.fetch(_, _, _), pageBytes) { (base, _) =>
    @volatile var reading = true
    val evicting = new Thread(() => {
      val random = new Random(7)
      val names = remote.names.toSeq
      while (reading) {
        val name = names(random.nextInt(names.size))
        remote.evict(name, random.nextInt(remote.pages(name, pageBytes)), pageBytes)
      }
    })
    evicting.start()
    val failures = new ConcurrentLinkedQueue[Throwable]
    val readers = (1 to 4).map { seed =>
      new Thread(() => {
        val reader = base.reader()
        val random = new Random(seed)
        try for (_ <- 1 to 3000) check(reader, random.nextInt(keyCount))
        catch { case e: Throwable => failures.add(e) }
        finally reader.close()
      })
    }
    readers.foreach(_.start())
    readers.foreach(_.join())
    reading = false
    evicting.join()
    expect(failures.isEmpty, s"reads failed: ${failures.asScala.toSeq}")
    expect(!base.damaged, "evicted blocks are taken for damaged")
  }

  private def checkAll(reader: BaseReader): Unit = {
    val cursor = reader.cursor(key(0), null)
    try
      for (n <- 0 until keyCount; round <- live(n)) {
        expect(cursor.valid, s"the scan ends before key $n")
        val found = Bytes.array(cursor.keyAddress, cursor.keyLength)
        expect(java.util.Arrays.equals(found, key(n)), s"the scan has another key than $n")
        val content = Bytes.array(cursor.valueAddress, cursor.valueLength)
        expect(java.util.Arrays.equals(content, value(n, round)), s"the scan has another value of key $n")
        cursor.next()
      }
    finally cursor.close()
  }

  private def scanFrom(reader: BaseReader, from: Array[Byte]): Unit = {
    val cursor = reader.cursor(from, null)
    try (0 until 500).foreach(_ => if (cursor.valid) cursor.next())
    finally cursor.close()
  }
}
