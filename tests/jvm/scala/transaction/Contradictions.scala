package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import java.io.{File, IOException, RandomAccessFile}
import java.nio.file.Files

import scala.util.{Failure, Random, Try}

import org.apache.spark.sql.execution.streaming.state.incremental.{TestBases, TestFiles}
import org.apache.spark.sql.execution.streaming.state.incremental.base.BaseDirectory
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{MemoryShortage, SlotHash, StoreMemory}
import org.apache.spark.sql.execution.streaming.state.incremental.recent.{Generation, InconsistentStateException}

/**
 * Cases in which the memory of a store, or its base, contradicts itself: the store throws, and reads the versions from
 * checkpoint storage afterwards. Nothing in the state store causes such contradictions; the tests do.
 */
object Contradictions {
  def main(arguments: Array[String]): Unit = {
    val directory = Files.createTempDirectory("contradictions").toFile
    try {
      basesSayWhatTheyAre(directory)
      filesAreAsLongAsTheDatabaseSays(directory)
      memoryHasAsManyKeysAsThereAre(directory)
      generationsKeepTheirRecords(directory)
      noFewerKeysThanWerePut(directory)
      halfAnIndexIsForgotten(directory)
      println("every contradiction is seen")
    } finally TestFiles.delete(directory)
  }

  private def expect(condition: Boolean, message: => String): Unit = if (!condition) throw new AssertionError(message)

  private def seen[E <: Throwable: scala.reflect.ClassTag](says: String)(use: => Any): Unit = Try(use) match {
    case Failure(e: E) => expect(e.getMessage.contains(says), s"${e.getMessage}, not $says")
    case other => throw new AssertionError(s"$other, and not an exception that says $says")
  }

  private def key(i: Int): Array[Byte] = Array[Byte](0, 0, i.toByte)
  private def version(n: Long): VersionId = if (n == 0) VersionId.empty else VersionId(n, Some(s"id$n"))

  private def withState(directory: File)(use: StoreVersions => Unit): Unit = {
    val memory = new StoreMemory(8L << 20)
    val state = new StoreVersions(memory, StateConf(new File(directory, "spill")))
    use(state)
    state.close()
    expect(memory.usedBytes == 0, s"${memory.usedBytes} bytes are still taken after close")
  }

  /** Puts keys on top of a version; with a delta, if a file is given. */
  private def batch(state: StoreVersions, at: Long, keys: Range, delta: File = null, meta: String = ""): Unit = {
    val transaction = state.tryBegin(version(at), readOnly = false).get
    keys.foreach(i => transaction.put(key(i), key(i)))
    if (delta != null) transaction.writeDelta(delta, meta.getBytes("US-ASCII"))
    transaction.committed(version(at + 1))
  }

  /**
   * Makes a base of 10 keys whose record has this number. A store refuses to open it with another number, and keeps its
   * rows.
   */
  private def base(directory: File, meta: String = TestBases.meta(version(1), 10)): File = {
    val path = Files.createTempDirectory(directory.toPath, "base").toFile
    withState(directory) { state =>
      val delta = new File(path, "delta.sst")
      batch(state, 0, 0 until 10, delta, meta)
      TestBases.build(path, Seq(delta), new Random(1), compressed = false)
      delta.delete()
    }
    path
  }

  private def basesSayWhatTheyAre(directory: File): Unit = withState(directory) { state =>
    val path = base(directory)
    var given = 0
    def as(at: VersionId, keys: Long) = BaseDirectory(path.getPath, at, keys, () => given += 1)
    batch(state, 0, 0 until 3)
    val wrong = Seq(as(version(2), 10), as(VersionId(1, Some("other")), 10), as(version(1), 9), as(version(1), 11))
    for (directory <- wrong; use <- Seq[BaseDirectory => Unit](state.reset, state.offerBase(_))) {
      given = 0
      seen[IOException](path.getPath)(use(directory))
      expect(given == 1, s"the directory was given back $given times")
    }
    val silent = base(directory, """{"format":1}""")
    seen[IOException]("says that it is VersionId(-1")(
      state.reset(BaseDirectory(silent.getPath, version(1), 10, () => ())))
    val still = state.tryBegin(version(1), readOnly = true).get
    expect(still.keys == 3, s"${still.keys} keys after bases that were refused")
    still.abort()
    state.reset(as(VersionId(1, None), 10)) // without ids only the version is compared
    state.reset(as(version(1), 10))
  }

  private def filesAreAsLongAsTheDatabaseSays(directory: File): Unit = withState(directory) { state =>
    val path = base(directory)
    val file = path.listFiles.find(_.getName.endsWith(".sst")).get
    val content = Files.readAllBytes(file.toPath)
    // A complete file of another length: that of another base.
    val other = base(directory, TestBases.meta(version(1), 10) + " " * 1000)
    Files.copy(other.listFiles.find(_.getName.endsWith(".sst")).get.toPath, file.toPath,
      java.nio.file.StandardCopyOption.REPLACE_EXISTING)
    seen[IOException](file.getPath)(state.reset(BaseDirectory(path.getPath, version(1), 10, () => ())))
    Files.write(file.toPath, content)
    seen[IOException]("have 11 entries, and there should be 12 keys")(
      state.reset(BaseDirectory(path.getPath, version(1), 12, () => ())))
    state.reset(BaseDirectory(path.getPath, version(1), 10, () => ()))
  }

  /** Commits changes as a generation with a wrong number of keys. */
  private def commitWrongly(state: StoreVersions, at: Long, keys: Range, counted: Long): Unit = {
    val transaction = state.tryBegin(version(at), readOnly = false).get
    keys.foreach(i => transaction.put(key(i), key(i)))
    val as = version(at + 1)
    state.append(transaction, new Generation(as, counted, transaction.memtable), state.newEmptyRanges(as))
    state.ended(transaction)
  }

  private def memoryHasAsManyKeysAsThereAre(directory: File): Unit =
    for ((counted, withBase) <- Seq(9L -> false, 11L -> false, 12L -> true)) withState(directory) { state =>
      val path = base(directory)
      def restore(): Unit = state.reset(BaseDirectory(path.getPath, version(1), 10, () => ()))
      if (withBase) restore() else batch(state, 0, 0 until 5)
      commitWrongly(state, 1, (if (withBase) 100 until 113 else 0 until 10), counted)
      seen[InconsistentStateException](s"there are $counted")(state.tryBegin(version(2), readOnly = false))
      expect(state.tryBegin(version(2), readOnly = false).isEmpty, "contradictory memory is used")
      restore()
      state.tryBegin(version(1), readOnly = false).get.abort()
    }

  private def generationsKeepTheirRecords(directory: File): Unit = withState(directory) { state =>
    val transaction = state.tryBegin(VersionId.empty, readOnly = false).get
    transaction.put(key(1), key(1))
    val generation = new Generation(version(1), 2, transaction.memtable)
    transaction.memtable.change(0, SlotHash.of(key(2)), key(2), key(2), 3, 0, null)
    state.append(transaction, generation, state.newEmptyRanges(generation.version))
    state.ended(transaction)
    seen[InconsistentStateException]("has 2 records in memory, and had 1")(state.indexCommitted())
    expect(state.tryBegin(version(1), readOnly = false).isEmpty, "contradictory memory is used")
    state.tryBegin(VersionId.empty, readOnly = false).get.abort()
  }

  private val prefix = Array[Byte](0, 0, 1, 0, 0, 0, 7)
  private val ofPrefix = (0 until 200).map(i => prefix :+ i.toByte)

  /** Commits a version whose rows of a prefix all have the number of the version before as their value. */
  private def batchOfPrefix(state: StoreVersions, at: Long): Unit = {
    val transaction = state.tryBegin(version(at), readOnly = false).get
    transaction.scan(prefix, prefix.init :+ 8.toByte, ordered = true).close() // so that the index keeps the prefixes
    ofPrefix.foreach(transaction.put(_, Array(at.toByte)))
    transaction.committed(version(at + 1))
  }

  /** Checks the rows of a version, if memory has it. */
  private def checkPrefix(state: StoreVersions, at: Long): Unit =
    for (transaction <- state.tryBegin(version(at), readOnly = false)) {
      val found = ofPrefix.map(transaction.get(_).head)
      expect(found.forall(_ == at - 1), s"version $at has rows of another: $found")
      transaction.abort()
    }

  /** A mapped file cannot be read while a version comes into the index. */
  private def halfAnIndexIsForgotten(directory: File): Unit = {
    var uses = 0
    while (isForgotten(directory, uses)) uses += 1
    expect(uses > 2, s"memory was used $uses times")
  }

  /** Returns true if an error came after this number of uses of memory. */
  private def isForgotten(directory: File, uses: Int): Boolean = {
    var failed = false
    withState(directory) { state =>
      Seq(0L, 1L).foreach(batchOfPrefix(state, _))
      failed = MemoryShortage.after(uses, new InternalError(_))(state.indexCommitted())
      Seq(1L, 2L).foreach(checkPrefix(state, _))
    }
    failed
  }

  private def noFewerKeysThanWerePut(directory: File): Unit = withState(directory) { state =>
    batch(state, 0, 0 until 5)
    val reader = state.tryBegin(version(1), readOnly = true).get // so that later versions stay out of the index
    commitWrongly(state, 1, 5 until 10, counted = 1)
    val transaction = state.tryBegin(version(2), readOnly = false).get
    (0 until 3).foreach(i => transaction.put(key(i), key(i)))
    seen[IllegalStateException]("has lost count")(transaction.keys)
    seen[IllegalStateException]("has lost count")(transaction.committed(version(3)))
    transaction.abort()
    reader.abort()
  }
}
