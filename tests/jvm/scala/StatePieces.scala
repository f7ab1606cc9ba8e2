package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File
import java.lang.management.{BufferPoolMXBean, ManagementFactory}
import java.nio.file.Files
import java.util.Arrays

import scala.jdk.CollectionConverters._
import scala.util.{Random, Try}

import org.rocksdb.{
  BlockBasedTableConfig, BloomFilter, ChecksumType, CompressionOptions, CompressionType, DataBlockIndexType, EnvOptions,
  IndexType, Options, RocksDB, SstFileWriter
}

import org.apache.spark.sql.execution.streaming.state.StateStoreUnsupportedOperationException
import org.apache.spark.sql.execution.streaming.state.incremental.base.{BaseDirectory, RestoredFiles, RestoredDelta}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{
  Arena, Bytes, KeyHash, KeyOrder, PrefixIndex, Record, RecordList, RowSizes, StoreMemory
}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{
  SstCursor, SstPointReader, SstTable, UnsupportedSstException
}
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.{StateConf, StoreVersions, Transaction}

/**
 * Cases of single parts of the state, compared with RocksDB and with plain collections: filters, tables, sorting, very
 * large and empty rows. Arguments: the names of pieces; none: all but those with very large rows.
 */
object StatePieces {
  private val random = new Random(11)
  private var count = 0
  private val pieces: Seq[(String, File => Unit)] = Seq(
    ("tables", directory => ChecksumType.values.foreach(readsWhatRocksWrites(directory, _, blockBytes = 4096))),
    ("blocks", readsWhatRocksWrites(_, ChecksumType.kCRC32c, blockBytes = 1)), // a block of every length
    ("compressed", readsCompressed),
    ("pieces", readsPieces),
    ("others", refusesOthers),
    ("sorting", sorts),
    ("prefixes", findsPrefixes),
    ("large", takesLargeAndEmptyRows(_, 8 << 20)),
    ("sizes", refusesRowsThatCannotBeRead),
    ("fits", keepsWhatFits),
    ("counts", countsWhatLookUpsRead),
    ("names", namesBlocksInAscii),
    ("buffers", givesBuffersBack))
  private val alone: Seq[(String, File => Unit)] = Seq(
    ("64m", takesLargeAndEmptyRows(_, 64 << 20)),
    ("longest key", takesLargeAndEmptyRows(_, RowSizes.maxKeyBytes - 2)))

  def main(arguments: Array[String]): Unit = {
    val directory = Files.createTempDirectory("state-pieces").toFile
    try {
      RocksDB.loadLibrary()
      val chosen = if (arguments.isEmpty) pieces else (pieces ++ alone).filter(piece => arguments.contains(piece._1))
      chosen.foreach { case (name, agrees) =>
        val startNs = System.nanoTime
        random.setSeed(11) // a piece is the same whatever ran before it
        agrees(directory)
        println(s"$name agrees after ${(System.nanoTime - startNs) / 1000000} ms")
      }
      println(s"${chosen.size} pieces agree")
    } finally TestFiles.delete(directory)
  }

  private def expect(condition: Boolean, message: => String): Unit = if (!condition) throw new AssertionError(message)

  /** Makes keys of every length around those at which the hash changes its method. */
  private def someKeys(): Seq[Array[Byte]] = {
    val lengths = (0 to 300) ++ Seq(1023, 1024, 1025, 2048, 5000)
    lengths.flatMap(length => Seq.fill(8)(Array.fill(length)(random.nextInt(3).toByte)))
      .map(_.toSeq).distinct.map(_.toArray).sortWith(Arrays.compareUnsigned(_: Array[Byte], _: Array[Byte]) < 0)
  }

  private def readsWhatRocksWrites(directory: File, checksum: ChecksumType, blockBytes: Int): Unit = {
    val keys = someKeys()
    val file = written(directory, keys, CompressionType.NO_COMPRESSION,
      _.setChecksumType(checksum).setBlockSize(blockBytes))
    if (checksum == ChecksumType.kCRC32c) readsAll(file, keys) else refuses(file, "checksums")
  }

  private def readsAll(file: File, keys: Seq[Array[Byte]], pieceBytes: Int = 1 << 30): Unit = {
    val table = SstTable.map(file, pieceBytes = pieceBytes)
    checkFilter(table, keys)
    checkFinder(table, keys)
    checkCursor(table, keys)
    table.close()
    val read = SstTable.read(file)
    expect(read.entries == keys.length, s"${read.entries} entries")
    checkFinder(read, keys)
    checkCursor(read, keys)
    read.close()
  }

  private def refuses(file: File, why: String): Unit = {
    val error = Try(SstTable.map(file)).failed.toOption
    expect(error.exists(_.isInstanceOf[UnsupportedSstException]), s"$file is not refused: $error")
    expect(error.get.getMessage.contains(file.getPath) && error.get.getMessage.contains(why), error.get.getMessage)
  }

  private def readsCompressed(directory: File): Unit = {
    val keys = someKeys()
    for {
      compression <- Seq(CompressionType.LZ4_COMPRESSION, CompressionType.LZ4HC_COMPRESSION,
        CompressionType.ZSTD_COMPRESSION, CompressionType.SNAPPY_COMPRESSION)
      blockBytes <- Seq(1, 4096)
    } {
      val file = written(directory, keys, compression, _.setBlockSize(blockBytes))
      val plain = written(directory, keys, CompressionType.NO_COMPRESSION, _.setBlockSize(blockBytes))
      expect(file.length < plain.length, s"$compression with blocks of $blockBytes bytes does not compress")
      readsAll(file, keys)
      readsAll(file, keys, pieceBytes = 10000)
    }
  }

  /** A file in pieces of which some end within a block, within the index, or within the filter. */
  private def readsPieces(directory: File): Unit = {
    val keys = someKeys()
    val file = written(directory, keys, CompressionType.NO_COMPRESSION, _.setBlockSize(1000))
    for (pieceBytes <- Seq(1 << 30, file.length.toInt, file.length.toInt - 1, 50000, 5000, 100)) {
      val table = SstTable.map(file, pieceBytes = pieceBytes)
      expect(table.mappings == (file.length + pieceBytes - 1) / pieceBytes, s"${table.mappings} mappings")
      table.close()
      readsAll(file, keys, pieceBytes)
    }
  }

  /** Files that RocksDB can write and this store never does are refused by name. */
  private def refusesOthers(directory: File): Unit = {
    val keys = someKeys()
    refuses(written(directory, keys, CompressionType.ZLIB_COMPRESSION), "compression 2")
    refuses(written(directory, keys, CompressionType.NO_COMPRESSION, _.setIndexType(IndexType.kTwoLevelIndexSearch)),
      "partitioned")
    refuses(written(directory, keys, CompressionType.ZSTD_COMPRESSION, dictionaryBytes = 4096), "dictionary")
    val hashed = written(directory, keys, CompressionType.NO_COMPRESSION,
      _.setDataBlockIndexType(DataBlockIndexType.kDataBlockBinaryAndHash))
    val table = SstTable.map(hashed)
    val error = Try(new SstCursor(table).seekToFirst()).failed.toOption
    expect(error.exists(e => e.isInstanceOf[UnsupportedSstException] && e.getMessage.contains(hashed.getPath)),
      s"$error")
    table.close()
  }

  private def written(
      directory: File,
      keys: Seq[Array[Byte]],
      compression: CompressionType,
      configure: BlockBasedTableConfig => BlockBasedTableConfig = identity,
      dictionaryBytes: Int = 0): File = {
    count += 1
    val file = new File(directory, s"$compression-$count.sst")
    val filter = new BloomFilter(10, false)
    val table = new BlockBasedTableConfig().setFormatVersion(5).setFilterPolicy(filter)
      .setChecksumType(ChecksumType.kCRC32c)
    val options = new Options().setCompressionType(compression).setTableFormatConfig(configure(table))
      .setCompressionOptions(new CompressionOptions().setMaxDictBytes(dictionaryBytes))
    val environment = new EnvOptions
    val writer = new SstFileWriter(environment, options)
    writer.open(file.getPath)
    keys.zipWithIndex.foreach { case (key, i) => if (i % 7 == 0) writer.delete(key) else writer.put(key, valueOf(key)) }
    writer.finish()
    Seq(writer, environment, options, filter).foreach(_.close())
    file
  }

  private def valueOf(key: Array[Byte]): Array[Byte] = key.reverse ++ key

  private def checkFilter(table: SstTable, keys: Seq[Array[Byte]]): Unit = {
    keys.foreach(key => expect(table.mayContain(KeyHash.of(key)), s"the filter misses a key of ${key.length} bytes"))
    val others =
      Seq.fill(20000)(Array.fill(20)(random.nextInt().toByte)).count(key => table.mayContain(KeyHash.of(key)))
    expect(others < 600, s"the filter lets $others of 20000 other keys pass")
  }

  private def checkFinder(table: SstTable, keys: Seq[Array[Byte]]): Unit = {
    val finder = new SstPointReader
    keys.zipWithIndex.foreach { case (key, i) =>
      expect(finder.find(table, key), s"a key of ${key.length} bytes is not found")
      expect((finder.valueLength == Record.removed) == (i % 7 == 0), "removed or not is wrong")
      if (i % 7 != 0) expect(Arrays.equals(Bytes.array(finder.valueAddress, finder.valueLength), valueOf(key)),
        "wrong value")
    }
    val present = keys.map(_.toSeq).toSet
    val wanted = Seq.fill(20000)(Array.fill(random.nextInt(12))(random.nextInt(4).toByte))
    wanted.filterNot(key => present(key.toSeq)).foreach { key =>
      expect(!finder.find(table, key), s"${key.toSeq} is found")
    }
  }

  private def checkCursor(table: SstTable, keys: Seq[Array[Byte]]): Unit = {
    val cursor = new SstCursor(table)
    cursor.seekToFirst()
    keys.foreach { key =>
      expect(cursor.valid && Arrays.equals(Bytes.array(cursor.keyAddress, cursor.keyLength), key),
        "the cursor misses a key")
      cursor.next()
    }
    expect(!cursor.valid, "the cursor goes on after the last key")
    Seq.fill(3000)(Array.fill(random.nextInt(12))(random.nextInt(4).toByte)).foreach { wanted =>
      val i = keys.indexWhere(Arrays.compareUnsigned(_, wanted) >= 0)
      cursor.seek(wanted)
      expect(cursor.valid == i >= 0, "a seek ends elsewhere")
      if (i >= 0) expect(Arrays.equals(Bytes.array(cursor.keyAddress, cursor.keyLength), keys(i)),
        "a seek leads elsewhere")
    }
    cursor.close()
  }

  private def sorts(directory: File): Unit = {
    val memory = new StoreMemory(64L << 20)
    for (_ <- 0 until 40) {
      val arena = new Arena(memory, directory)
      val keys = new TestKeys(random)
      val texts = Seq.fill(random.nextInt(3000) + 2)(keys.next(StateModel.noRows)).distinct
      val records = texts.map { text =>
        val key = StateModel.bytes(text)
        val record = arena.allocate(Record.size(key.length, 0))
        Record.setHeader(record, KeyHash.of(key).toInt, key.length, 0, 0)
        Bytes.put(key, Record.keyAddress(record))
        record
      }.toArray
      def isInOrder(some: Seq[Long]): Boolean = some.map(record => StateModel.text(Record.key(record))) == texts.sorted
      expect(isInOrder(readInOrder(records)), "keys are not read in order")
      KeyOrder.sort(records, records.length)
      expect(isInOrder(records.toSeq), "keys are not in order")
      arena.free()
    }
    expect(memory.usedBytes == 0, "arenas keep memory")
  }

  private def readInOrder(records: Array[Long]): Seq[Long] = {
    val list = new RecordList
    records.foreach(list.add)
    val ordered = list.inOrder()
    Iterator.continually {
      val record = ordered.record
      ordered.next()
      record
    }.takeWhile(_ != 0).toSeq
  }

  private def findsPrefixes(directory: File): Unit = {
    val memory = new StoreMemory(64L << 20)
    val arena = new Arena(memory, directory)
    val index = new PrefixIndex(memory, directory)
    var rows = Map.empty[(Int, Int), Long]
    def record(prefix: Int, rest: Int): Long = {
      val key = Array[Byte](0, 0, 2, 0, 0, 0, 'p', prefix.toByte, (rest >> 8).toByte, rest.toByte)
      val made = arena.allocate(Record.size(key.length, 0))
      Record.setHeader(made, 0, key.length, 0, 0)
      Bytes.put(key, Record.keyAddress(made))
      made
    }
    for (step <- 0 until 60000) {
      // Sets grow in the first half; in the second they shrink to a few records, to one, and to none.
      val row = (random.nextInt(step % 100 + 1), random.nextInt(60))
      val removing = random.nextInt(10) < (if (step < 30000) 2 else 8)
      if (removing) {
        rows.get(row).foreach(index.remove)
        rows -= row
      } else {
        val made = record(row._1, row._2)
        if (rows.contains(row)) index.replace(rows(row), made) else index.add(made)
        rows += row -> made
      }
      if (step % 500 == 0) {
        val wanted = rows.toSeq.groupMap(_._1._1)(_._2)
        for (prefix <- 0 until 100) {
          var found = Set.empty[Long]
          index.foreach(Array[Byte](0, 0, 2, 0, 0, 0, 'p', prefix.toByte))(found += _)
          expect(found == wanted.getOrElse(prefix, Nil).toSet, s"prefix $prefix is wrong")
        }
      }
    }
    val from = Array[Byte](0, 0, 2, 0, 0, 0, 'p', 7)
    expect(PrefixIndex.serves(from, Array[Byte](0, 0, 2, 0, 0, 0, 'p', 8)), "a prefix is taken for a range")
    expect(!PrefixIndex.serves(from, Array[Byte](0, 0, 2, 0, 0, 0, 'p', 9)), "two prefixes are taken for one")
    expect(!PrefixIndex.serves(from, Array[Byte](0, 0, 2, 0, 0, 0, 'p', 7, 1)), "a part is taken for a prefix")
    val zero = Array[Byte](0, 0, 0, 0, 0, 0)
    expect(!PrefixIndex.serves(zero, Array[Byte](0, 0, 0, 0, 0, 1)),
      "keys of every other encoder are taken for a prefix")
    index.free()
    arena.free()
    expect(memory.usedBytes == 0, "the index of prefixes keeps memory")
  }

  /** Each look-up in two files, one beside the other, asks the filters in turn and reads a block if one has the key. */
  private def countsWhatLookUpsRead(directory: File): Unit = {
    val memory = new StoreMemory(4L << 20)
    def keys(first: Int) = Array.tabulate(100)(i => Array[Byte](7, first.toByte, i.toByte))
    val (older, newer, absent) = (keys(0), keys(1), keys(2))
    val writing = new StoreVersions(memory, StateConf(new File(directory, "written")))
    val deltas = Seq(older, newer).zipWithIndex.map { case (some, batch) =>
      val transaction = writing.tryBegin(counted(batch), readOnly = false).get
      some.foreach(transaction.put(_, new Array[Byte](50)))
      val file = new File(directory, s"counted-$batch.sst")
      transaction.writeDelta(file, StateModel.bytes(TestBases.meta(counted(batch + 1), 100L * (batch + 1))))
      transaction.committed(counted(batch + 1))
      RestoredDelta(file.getPath, counted(batch + 1))
    }
    writing.close()
    val state = new StoreVersions(memory, StateConf(new File(directory, "read")))
    val restored = RestoredFiles(VersionId.empty, 0, deltas.reverse)
    state.reset(BaseDirectory(directory.getPath, counted(2), -1, () => (), Some(restored)))
    val transaction = state.tryBegin(counted(2), readOnly = false).get

    def look(some: Array[Array[Byte]], present: Boolean, filters: Long, blocks: Range): Unit = {
      val before = transaction.lookUps
      some.foreach(key => expect((transaction.get(key) != null) == present, "a look-up is wrong"))
      val after = transaction.lookUps
      expect(after.misses - before.misses == some.length && after.hits == before.hits, s"$after after $before")
      expect(after.filters - before.filters == filters, s"${after.filters - before.filters} filters, not $filters")
      expect(blocks.contains((after.blocks - before.blocks).toInt),
        s"${after.blocks - before.blocks} blocks, not $blocks")
    }
    look(newer, present = true, filters = 100, blocks = 100 to 100)
    look(older, present = true, filters = 200, blocks = 100 to 115) // a filter is wrong once in a hundred times
    look(absent, present = false, filters = 200, blocks = 0 to 30)
    transaction.abort()
    state.close()
    expect(memory.usedBytes == 0, s"${memory.usedBytes} bytes are still taken")
  }

  private def counted(version: Int): VersionId =
    if (version == 0) VersionId.empty else VersionId(version.toLong, Some(s"counted$version"))

  /**
   * A state that fits in memory stays there, however often its keys change. The base is hardly asked: a memtable that
   * grows larger than the one before it frees memory without saving the newest rows in it.
   */
  private def keepsWhatFits(directory: File): Unit = {
    val memory = new StoreMemory(2L << 20)
    val state = new StoreVersions(memory, StateConf(new File(directory, "fits")))
    val keys = Array.tabulate(2000)(i => Array[Byte](0, 0, (i >> 8).toByte, i.toByte))
    var deltas = Vector.empty[File]
    var at = VersionId.empty
    var misses = 0L
    for (batch <- 0 until 75) {
      val transaction = state.tryBegin(at, readOnly = false).get
      val touched = if (batch == 0) keys else Array.fill(200)(keys(random.nextInt(keys.length)))
      touched.foreach { key =>
        transaction.get(key)
        transaction.put(key, new Array[Byte](200))
      }
      misses += transaction.lookUps.misses
      deltas :+= new File(directory, s"fits-$batch.sst")
      at = VersionId(batch + 1L, Some(s"fits$batch"))
      transaction.writeDelta(deltas.last, StateModel.bytes(TestBases.meta(at, keys.length)))
      transaction.committed(at)
      expect(memory.usedBytes <= memory.budgetBytes && state.memoryUse.spilledBytes == 0, "the budget is not kept")
      if (batch % 5 == 4) {
        val base = new File(directory, s"fits-base-$batch")
        TestBases.build(base, deltas, random, compressed = false)
        state.offerBase(BaseDirectory(base.getPath, at, keys.length, () => ()))
      }
    }
    expect(misses <= 15, s"$misses of 15,000 look-ups asked the base")
    val written = deltas.iterator.map(_.length).sum
    expect(written > memory.budgetBytes, s"$written bytes were written, too few for memory to be full")
    state.close()
    expect(memory.usedBytes == 0, s"${memory.usedBytes} bytes are still taken")
  }

  /** The buffers of a delta are free again with its commit, not only after a garbage collection. */
  private def givesBuffersBack(directory: File): Unit = {
    val buffers =
      ManagementFactory.getPlatformMXBeans(classOf[BufferPoolMXBean]).asScala.find(_.getName == "direct").get
    val state = new StoreVersions(new StoreMemory(64L << 20), StateConf(new File(directory, "buffers")))
    var before = Long.MaxValue
    for (batch <- 0 until 20) {
      val transaction = state.tryBegin(counted(batch), readOnly = false).get
      for (i <- 0 until 1000) transaction.put(Array[Byte](0, 0, (i >> 8).toByte, i.toByte), new Array[Byte](400))
      val delta = new File(directory, s"buffers-$batch.sst")
      transaction.writeDelta(delta, StateModel.bytes(TestBases.meta(counted(batch + 1), 1000)))
      transaction.committed(counted(batch + 1))
      expect(buffers.getMemoryUsed <= before,
        s"${buffers.getMemoryUsed} bytes of buffers, and $before before batch $batch")
      before = buffers.getMemoryUsed
    }
    state.close()
  }

  /**
   * The changes of keys that a batch changed twice lie in a block whose number has the digits of docs/format.md, in any
   * locale.
   */
  private def namesBlocksInAscii(directory: File): Unit = {
    val memory = new StoreMemory(4L << 20)
    val state = new StoreVersions(memory, StateConf(new File(directory, "names")))
    val transaction = state.tryBegin(VersionId.empty, readOnly = false).get
    for (value <- 1 to 2) transaction.put(Array[Byte](0, 0, 1), Array[Byte](value.toByte))
    val delta = new File(directory, "names.sst")
    val at = VersionId(1, Some("names"))
    transaction.writeDelta(delta, StateModel.bytes(TestBases.meta(at, 1)))
    val written = StateModel.text(Files.readAllBytes(delta.toPath))
    expect(written.contains("incremental.superseded.000000"), "the first block has another name")
    transaction.committed(at)
    state.close()
    expect(memory.usedBytes == 0, s"${memory.usedBytes} bytes are still taken")
  }

  private def takesLargeAndEmptyRows(directory: File, largeBytes: Int): Unit = {
    val memory = new StoreMemory(largeBytes / 2)
    val state = new StoreVersions(memory, StateConf(new File(directory, "spill")))
    val large = Array.tabulate[Byte](largeBytes)(i => (i * 31 >> 8).toByte)
    val rows = Seq(
      Array[Byte](0, 0) -> Array.emptyByteArray,
      (Array[Byte](0, 1) ++ large) -> Array[Byte](1),
      Array[Byte](0, 2) -> large,
      Array[Byte](0, 3) -> Array[Byte](2))
    val first = state.tryBegin(VersionId.empty, readOnly = false).get
    rows.foreach { case (key, value) => first.put(key, value) }
    check(first, rows)
    val delta = new File(directory, "large.sst")
    val at = VersionId(1, Some("a"))
    val written = first.writeDelta(delta, StateModel.bytes(TestBases.meta(at, rows.size)))
    expect(written.bytes == delta.length && written.crc32 == TestFiles.crc32(delta), "the large delta has other bytes")
    first.committed(at)
    check(state.tryBegin(at, readOnly = true).get, rows)
    expect(memory.usedBytes <= memory.budgetBytes && state.memoryUse.spilledBytes > 0, "the budget is not kept")
    val base = new File(directory, "base")
    TestBases.build(base, Seq(delta), random)
    state.reset(BaseDirectory(base.getPath, at, rows.size, () => ()))
    check(state.tryBegin(at, readOnly = true).get, rows)
    state.close()
  }

  /** A refused row does no harm: the transaction continues. */
  private def refusesRowsThatCannotBeRead(directory: File): Unit = {
    val (key, all) = (RowSizes.maxKeyBytes.toLong, RowSizes.maxBytes.toLong)
    val readable = Seq(0L -> 0L, key -> 0L, key -> (all - key), 0L -> all)
    val not = Seq(key + 1 -> 0L, key -> (all - key + 1), 0L -> (all + 1), key -> Int.MaxValue.toLong,
      1L -> Int.MaxValue.toLong)
    for ((rows, isReadable) <- Seq(readable -> true, not -> false); (keyBytes, valueBytes) <- rows) {
      expect(RowSizes.canBeRead(keyBytes, valueBytes) == isReadable,
        s"a key of $keyBytes bytes with a value of $valueBytes")
    }
    for (bytes <- Seq(0, 1, 256, 1 << 29, 1 << 30, (1 << 30) + 1, Int.MaxValue - 8, Int.MaxValue)) {
      val room = RowSizes.doubled(bytes)
      expect(room >= bytes && (room.toLong == 2L * bytes || room > (1 << 30)), s"$room bytes of room for $bytes")
    }
    val memory = new StoreMemory(64L << 20)
    val state = new StoreVersions(memory, StateConf(new File(directory, "spill")))
    val transaction = state.tryBegin(VersionId.empty, readOnly = false).get
    transaction.put(Array[Byte](0, 0), Array[Byte](1))
    val tooLong = new Array[Byte](RowSizes.maxKeyBytes + 1)
    val changes = Seq[() => Any](
      () => transaction.put(tooLong, Array[Byte](1)),
      () => transaction.remove(tooLong),
      () => transaction.append(tooLong, Array[Byte](1), ','))
    changes.foreach { change =>
      val failure = Try(change()).failed.toOption
      expect(failure.exists(_.isInstanceOf[StateStoreUnsupportedOperationException]),
        s"too long a key ends with $failure")
      expect(failure.get.getMessage.contains(tooLong.length.toString), failure.get.getMessage)
    }
    check(transaction, Seq(Array[Byte](0, 0) -> Array[Byte](1)))
    transaction.abort()
    state.close()
  }

  private def check(transaction: Transaction, rows: Seq[(Array[Byte], Array[Byte])]): Unit = {
    rows.foreach { case (key, value) => expect(Arrays.equals(transaction.get(key), value), "a row is wrong") }
    val scanned = transaction.scan(Array[Byte](0), null, ordered = true)
    rows.foreach { case (key, value) =>
      expect(scanned.advance() && Arrays.equals(scanned.key, key), "a scanned key is wrong")
      expect(Arrays.equals(scanned.value, value), "a scanned value is wrong")
    }
    expect(!scanned.advance(), "a scan goes on")
    expect(transaction.keys == rows.size, "the number of keys is wrong")
    if (transaction.readOnly) transaction.abort()
  }
}
