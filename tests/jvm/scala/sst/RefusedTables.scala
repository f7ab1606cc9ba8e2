package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.{ByteArrayOutputStream, File, IOException, RandomAccessFile}
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.file.Files
import java.util.zip.CRC32C

import com.github.luben.zstd.Zstd
import net.jpountz.lz4.LZ4Factory
import org.xerial.snappy.Snappy

import org.apache.spark.sql.execution.streaming.state.incremental.TestFiles
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, KeyHash, OffHeap}

/**
 * A table that is made of parts, each of which may be wrong while all checksums are right.
 *
 * @param data the data blocks, in order
 * @param index makes the index of the last key and the place of each block
 * @param properties values by name
 * @param metadata other blocks by name
 * @param changeMeta changes the list of metadata blocks, `changeFooter` the footer, `change` the whole file
 */
private final case class MadeTable(
    data: Seq[MadeBlock] = MadeTable.plainData,
    index: Seq[(Array[Byte], SstHandle)] => MadeBlock = MadeTable.plainIndex(_),
    properties: Map[String, Array[Byte]] = Map.empty,
    metadata: Seq[(String, MadeBlock)] = Nil,
    changeMeta: Array[Byte] => Array[Byte] = identity,
    changeFooter: ByteBuffer => Unit = _ => (),
    footerHandles: Option[Array[Byte]] = None,
    change: Array[Byte] => Array[Byte] = identity) {
  import MadeTable._

  def write(file: File): Unit = {
    val out = new ByteArrayOutputStream
    def put(block: MadeBlock): SstHandle = {
      val at = SstHandle(out.size, block.content.length)
      out.write(block.content)
      out.write(block.kind.toInt)
      val crc = new CRC32C
      crc.update(block.content)
      crc.update(block.kind.toInt)
      out.write(fixed(SstFormat.masked(crc.getValue.toInt)))
      at
    }
    val places = data.map(block => block.lastKey -> put(block))
    val others = metadata.map { case (name, block) => name -> put(block) }
    val indexAt = put(index(places))
    val all = Map("rocksdb.num.data.blocks" -> varint(data.size), "rocksdb.index.key.is.user.key" -> varint(1),
      "rocksdb.index.value.is.delta.encoded" -> varint(1), "rocksdb.num.entries" -> varint(6),
      "rocksdb.comparator" -> SstFormat.comparatorName.getBytes("US-ASCII")) ++ properties
    val propertiesAt = put(MadeBlock(block(all.toSeq.sortBy(_._1).map { case (name, value) =>
      entry(0, name.getBytes("US-ASCII"), value)
    })))
    val named = (others :+ (SstFormat.propertiesName -> propertiesAt)).map { case (name, at) =>
      entry(0, name.getBytes("US-ASCII"), SstWriter.handleBytes(at))
    }
    val metaAt = put(MadeBlock(changeMeta(block(named))))
    val footer = ByteBuffer.allocate(SstFormat.footerBytes).order(ByteOrder.LITTLE_ENDIAN)
    footer.put(SstFormat.crc32c)
    footer.put(footerHandles.getOrElse(SstWriter.handleBytes(metaAt) ++ SstWriter.handleBytes(indexAt)))
    footer.putInt(41, SstFormat.version).putLong(45, SstFormat.magic)
    changeFooter(footer)
    out.write(footer.array)
    Files.write(file.toPath, change(out.toByteArray))
  }
}

/** A block without its trailer. `lastKey` is for the index. */
private final case class MadeBlock(
    content: Array[Byte],
    lastKey: Array[Byte] = Array.empty,
    kind: Byte = SstFormat.uncompressed)

private object MadeTable {
  def fixed(value: Int): Array[Byte] = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(value).array
  def varint(value: Long): Array[Byte] = SstWriter.varint(value)

  /** Returns a number of that many bytes of which the last have no bits. */
  def longVarint(value: Int, bytes: Int): Array[Byte] =
    Array.tabulate(bytes)(i => ((if (i < 5) value >>> 7 * i & 0x7f else 0) | (if (i < bytes - 1) 0x80 else 0)).toByte)

  def key(name: String): Array[Byte] = name.getBytes("US-ASCII")

  /** Returns a key in a data block, with its footer. */
  def inside(name: String, kind: Int = SstFormat.put): Array[Byte] =
    (key(name) :+ kind.toByte) ++ new Array[Byte](7)

  /** Returns an entry whose three lengths may be wrong: bytes shared, not shared, of the value. */
  def entry(shared: Int, rest: Array[Byte], value: Array[Byte], lengths: Option[Seq[Array[Byte]]] = None): Array[Byte] =
    lengths.getOrElse(Seq(varint(shared), varint(rest.length), varint(value.length))).flatten.toArray ++ rest ++ value

  /** Returns a block with the restarts of its entries, the first of every `every`, or those that are named. */
  def block(entries: Seq[Array[Byte]], every: Int = 16, restarts: Option[Seq[Int]] = None,
      count: Option[Int] = None): Array[Byte] = {
    val places = restarts.getOrElse(entries.scanLeft(0)(_ + _.length).init.zipWithIndex.collect {
      case (at, i) if i % every == 0 => at
    })
    entries.flatten.toArray ++ places.flatMap(place => fixed(place)) ++ fixed(count.getOrElse(places.size))
  }

  def rows(names: String*): Seq[Array[Byte]] = names.map(name => entry(0, inside(name), key(s"value of $name")))

  def plainData: Seq[MadeBlock] = Seq("a" -> "b", "c" -> "d", "e" -> "f").map { case (first, last) =>
    MadeBlock(block(rows(first, last), every = 1), key(last))
  }

  def indexEntries(places: Seq[(Array[Byte], SstHandle)]): Seq[Array[Byte]] = places.map { case (last, at) =>
    varint(0) ++ varint(last.length) ++ last ++ SstWriter.handleBytes(at)
  }

  def plainIndex(places: Seq[(Array[Byte], SstHandle)]): MadeBlock = MadeBlock(block(indexEntries(places), every = 1))

  /** Returns a table with only that data block. */
  def withData(content: Array[Byte], kind: Byte = SstFormat.uncompressed): MadeTable =
    MadeTable(data = Seq(MadeBlock(content, key("z"), kind)))

  /** Returns a table whose index has other entries, made of the right ones. */
  def withIndex(change: Seq[Array[Byte]] => Seq[Array[Byte]]): MadeTable =
    MadeTable(index = places => MadeBlock(block(change(indexEntries(places)), every = 1)))
}

/**
 * Tables of which one part is wrong while every checksum is right, so that only the reader's own checks protect it:
 * each is refused by the check that is meant, mapped or not, and memory that is not the table's is never read. Memory
 * is checked.
 */
object RefusedTables {
  import MadeTable._

  private type Read = SstTable => Unit

  private def scan(table: SstTable): Unit = {
    val cursor = new SstCursor(table)
    try {
      cursor.seekToFirst()
      while (cursor.valid) cursor.next()
    } finally cursor.close()
  }

  private def seek(name: String)(table: SstTable): Unit = {
    val cursor = new SstCursor(table)
    try cursor.seek(key(name))
    finally cursor.close()
  }

  private def find(name: String)(table: SstTable): Unit = {
    val reader = new SstPointReader
    try reader.find(table, key(name))
    finally reader.close()
  }

  /** Looks for a key that is longer than the file from a place on, and begins with all of that. */
  private def seekAll(place: Int)(table: SstTable): Unit = {
    val cursor = new SstCursor(table)
    try cursor.seek(Files.readAllBytes(table.file.toPath).drop(place) ++ new Array[Byte](100))
    finally cursor.close()
  }

  private def nothing(table: SstTable): Unit = ()

  /**
   * A table that has to be refused.
   *
   * @param reason part of the message
   * @param reads ways to read it, each of which is refused; [[nothing]]: it cannot be opened
   */
  private final case class Case(name: String, table: MadeTable, reason: String, reads: Read*)

  private val metaReason = "its metadata cannot be read"
  private val indexReason = "its index cannot be read"
  private val changedReason = "content that was verified before has changed"
  private val lengthReason = "it cannot have"

  private def minus(number: Int): Array[Byte] = varint(number & 0xffffffffL)

  /** Returns a block whose second of three entries has these lengths. */
  private def lengths(shared: Array[Byte], rest: Array[Byte], bytes: Array[Byte],
      value: Array[Byte] = key("value")): MadeTable = withData(block(Seq(
    entry(0, inside("a"), key("value")),
    entry(0, inside("ab"), value, Some(Seq(shared, rest, bytes))),
    entry(0, inside("c"), key("value")))))

  /**
   * A value of a negative length, after which a reader that believes it finds an entry: it begins with the last byte of
   * the key, a zero.
   */
  private val hidden = Array[Byte](9, 0) ++ inside("b")

  private def withMeta(name: String, value: Array[Byte], lengths: Array[Byte]*): MadeTable =
    MadeTable(changeMeta = _ => block(Seq(entry(0, key(name), value, Some(lengths)))))

  private val place = SstWriter.handleBytes(SstHandle(0, 10))

  private def compressed(kind: Byte, length: Long, content: Array[Byte]): MadeTable =
    withData((if (kind == SstFormat.snappy) Array.emptyByteArray else varint(length)) ++ content, kind)

  private val good = block(rows("a", "b"))
  private def lz4(content: Array[Byte]): Array[Byte] = LZ4Factory.fastestInstance.fastCompressor.compress(content)

  private val files = Seq(
    Case("too short", MadeTable(change = _.takeRight(52)), "too short for an SST", nothing),
    Case("magic", MadeTable(changeFooter = _.putLong(45, SstFormat.magic + 1)), "does not end as an SST does", nothing),
    Case("version 1", MadeTable(changeFooter = _.putInt(41, 1)), "format_version is 1", nothing),
    Case("version 6", MadeTable(changeFooter = _.putInt(41, 6)), "format_version is 6", nothing),
    Case("checksum", MadeTable(changeFooter = _.put(0, 4.toByte)), "checksums are of kind 4", nothing),
    Case("partitions", MadeTable(properties = Map("rocksdb.block.based.table.index.type" -> fixed(2))), "partitioned",
      nothing),
    Case("ranges", MadeTable(properties = Map("rocksdb.num.range-deletions" -> varint(1))), "range deletions", nothing),
    Case("comparator", MadeTable(properties = Map("rocksdb.comparator" -> key("reverse"))), "comparator is reverse",
      nothing),
    Case("dictionary", MadeTable(metadata = Seq(SstFormat.dictionaryName -> MadeBlock(new Array[Byte](8)))),
      "dictionary",
      nothing),
    Case("cut", MadeTable(change = content => content.take(20) ++ content.takeRight(53)), "outside the file", nothing))

  private def handles(offset: Array[Byte], length: Array[Byte]): MadeTable =
    MadeTable(footerHandles = Some(offset ++ length ++ place))

  private val places = Seq(
    Case("negative place", handles(varint(-1), varint(10)), "outside the file", nothing),
    Case("negative length", handles(varint(0), varint(-1)), "outside the file", nothing),
    Case("less than a number", handles(varint(0), varint(3)), "outside the file", nothing),
    Case("length beyond the file", handles(varint(0), varint(1 << 20)), "outside the file", nothing),
    Case("place beyond the file", handles(varint(1 << 20), varint(10)), "outside the file", nothing),
    Case("number of 71 bits", handles(longVarint(0, 11), varint(10)), "more than 64 bits", nothing))

  /** As `hidden`, of the metadata: a place, which also begins an entry. */
  private val hiddenPlaces = Array[Byte](4, 5) ++ key("more") ++ place ++ new Array[Byte](3)

  private val metas = Seq(
    Case("restarts", MadeTable(changeMeta = _.dropRight(4) ++ fixed(-1)), metaReason, nothing),
    Case("restarts beyond", MadeTable(changeMeta = _.dropRight(4) ++ fixed(1 << 20)), metaReason, nothing),
    Case("shared is negative", withMeta("name", place, minus(-1), varint(4), varint(2)), metaReason, nothing),
    Case("shared is too much", withMeta("name", place, varint(1), varint(4), varint(2)), metaReason, nothing),
    Case("rest is negative", withMeta("name", place, varint(0), minus(-1), varint(2)), metaReason, nothing),
    Case("value is negative", withMeta("nam\u0000", hiddenPlaces, varint(0), varint(4), minus(-1)), metaReason,
      nothing),
    Case("entry beyond", withMeta("name", place, varint(0), varint(4), varint(50)), metaReason, nothing))

  private val indexes = Seq(
    Case("count", MadeTable(properties = Map("rocksdb.num.data.blocks" -> varint(4))), "restart intervals", nothing),
    Case("negative count",
      MadeTable(properties = Map("rocksdb.num.data.blocks" -> varint(-1)),
        index = places => MadeBlock(block(indexEntries(places), count = Some(-1)))),
      indexReason, nothing),
    Case("count beyond",
      MadeTable(properties = Map("rocksdb.num.data.blocks" -> varint(1 << 20)),
        index = places => MadeBlock(block(indexEntries(places), count = Some(1 << 20)))),
      indexReason, nothing),
    Case("restart",
      MadeTable(index = places =>
        MadeBlock(block(indexEntries(places), restarts = Some(Seq(0, 1, 10))))),
      indexReason, nothing),
    Case("restart beyond",
      MadeTable(index = places =>
        MadeBlock(block(indexEntries(places).take(2), restarts = Some(Seq(0, 5, 10))))),
      indexReason, nothing),
    Case("shared", withIndex(entries => entries.init :+ (1.toByte +: entries.last.drop(1))), indexReason, nothing),
    Case("key beyond", withIndex(_.map(entry => 0.toByte +: (varint(1 << 20) ++ entry.drop(2)))), indexReason, nothing),
    Case("key without footer", withIndex(identity).copy(properties = Map("rocksdb.index.key.is.user.key" -> varint(0))),
      indexReason, nothing),
    Case("block twice", withIndex(entries => entries.head +: entries.init), indexReason, nothing),
    Case("more entries than restarts",
      MadeTable(index = places =>
        MadeBlock(block(indexEntries(places) :+ Array[Byte](0, 0, 0), restarts = Some(Seq(0, 5, 10))))),
      indexReason,
      nothing),
    Case("block beyond", withIndex(_.init :+ (Array[Byte](0, 1, 'f') ++ varint(1 << 20) ++ varint(9))),
      "outside the file", nothing))

  private val entries = Seq(
    Case("shared is negative", lengths(minus(-1), varint(11), varint(5)), changedReason, scan, find("ab")),
    Case("shared is more than there was", lengths(varint(10), varint(10), varint(5)), changedReason, scan, find("ab")),
    Case("rest is negative", lengths(varint(9), minus(-1), varint(5)), changedReason, scan, find("ab")),
    Case("key without footer", lengths(varint(0), varint(7), varint(5)), changedReason, scan, find("ab")),
    Case("value is negative", lengths(varint(0), varint(10), minus(-1), hidden), changedReason, scan, find("ab")),
    Case("key beyond", lengths(varint(0), varint(1 << 20), varint(5)), changedReason, scan, find("ab")),
    Case("value beyond", lengths(varint(0), varint(10), varint(1 << 20)), changedReason, scan, find("ab")),
    Case("shared of 42 bits", lengths(longVarint(0, 6), varint(10), varint(5)), changedReason, scan, find("ab")),
    Case("rest of 42 bits", lengths(varint(0), longVarint(10, 6), varint(5)), changedReason, scan, find("ab")),
    Case("value of 42 bits", lengths(varint(0), varint(10), longVarint(5, 6)), changedReason, scan, find("ab")),
    Case("kind", withData(block(Seq(entry(0, inside("a", kind = 2), key("value"))))), "neither a value", scan,
      find(
        "a")))

  private val all = Seq[Read](scan, seek("b"), find("b"))

  private val restarts = Seq(
    Case("hash index", withData(good.dropRight(1) :+ (-128).toByte), "hash indexes", all: _*),
    Case("none", withData(rows("a").flatten.toArray ++ fixed(0)), changedReason, all: _*),
    Case("too many", withData(good.dropRight(4) ++ fixed(1 << 20)), changedReason, all: _*),
    Case("begin", withData(block(rows("a", "b"), restarts = Some(Seq(1)))), changedReason, all: _*),
    Case("beyond", withData(block(rows("a", "b"), restarts = Some(Seq(0, 1 << 20)))), changedReason, seek("b"),
      find("b")),
    Case("key is shorter than its footer",
      withData(block(
        Seq(entry(0, inside("a"), key("value")), entry(0, inside("b").take(7), key("value"))), every = 1)),
      changedReason, seek("b"), find("b")),
    Case("key beyond",
      withData(block(
        Seq(entry(0, inside("a"), key("value")),
          entry(0, inside("b"), key("value"), Some(Seq(varint(0), varint(1 << 20), varint(5))))),
        every = 1)),
      changedReason, seek("b"), find("b"), seekAll(place = 17 + 5)))

  private val compressions = Seq(
    Case("unknown", withData(good, kind = 9), "unknown compression 9", all: _*),
    Case("checksum", withData(good).copy(change = content => 'x'.toByte +: content.drop(1)), "checksum", all: _*),
    Case("not compressed", withData(good, SstFormat.snappy), "cannot be decompressed", all: _*),
    Case("snappy is too long", compressed(SstFormat.snappy, 0, varint(1 << 30) ++ Snappy.compress(good).drop(1)),
      lengthReason, all: _*),
    Case("LZ4 is too long", compressed(SstFormat.lz4, 1 << 30, lz4(good)), lengthReason, all: _*),
    Case("LZ4 is longer", compressed(SstFormat.lz4, good.length + 1, lz4(good)), "instead of", all: _*),
    Case("LZ4 is shorter", compressed(SstFormat.lz4, good.length - 1, lz4(good)), "cannot be decompressed", all: _*),
    Case("zstd is too long", compressed(SstFormat.zstd, 1 << 30, Zstd.compress(good)), lengthReason, all: _*),
    Case("zstd is longer", compressed(SstFormat.zstd, good.length + 1, Zstd.compress(good)), lengthReason, all: _*),
    Case("zstd is shorter", compressed(SstFormat.zstd, good.length - 1, Zstd.compress(good)), "cannot be decompressed",
      all: _*),
    Case("length of 35 bits", compressed(SstFormat.lz4, good.length | 1L << 34, lz4(good)), lengthReason, all: _*),
    Case("length without end", withData(Array.fill[Byte](8)(-128), SstFormat.lz4), "cannot be decompressed", all: _*),
    Case("no number of restarts", compressed(SstFormat.lz4, 3, lz4(new Array[Byte](3))), lengthReason, all: _*))

  private val kinds = Seq("file" -> files, "place" -> places, "metadata" -> metas, "index" -> indexes,
    "entry" -> entries, "restarts" -> restarts, "compression" -> compressions)

  def main(arguments: Array[String]): Unit = {
    val directory = Files.createTempDirectory("refused-tables").toFile
    try {
      val tables = new RefusedTables(directory)
      tables.readsGoodOnes()
      for ((kind, cases) <- kinds; some <- cases) tables.refuses(s"$kind: ${some.name}", some.table, some.reason,
        some.reads)
      tables.refusesWhatChanges()
      tables.refusesLongBlocks()
      tables.asksNoOtherFilter()
      println(s"${kinds.map(_._2.size).sum} kinds of damage are refused")
    } finally TestFiles.delete(directory)
  }
}

private final class RefusedTables(directory: File) {
  import MadeTable._

  private var count = 0

  private def expect(condition: Boolean, message: => String): Unit = if (!condition) throw new AssertionError(message)

  private def written(table: MadeTable): File = {
    count += 1
    val file = new File(directory, s"table-$count.sst")
    table.write(file)
    file
  }

  private def withTable[T](table: SstTable)(use: SstTable => T): T =
    try use(table)
    finally table.close()

  private def valueOf(table: SstTable, name: String): Option[String] = {
    val reader = new SstPointReader
    try if (reader.find(table, key(name))) Some(new String(Bytes.array(reader.valueAddress, reader.valueLength)))
      else None
    finally reader.close()
  }

  /** The makers make tables that can be read: else any refusal would prove nothing. */
  def readsGoodOnes(): Unit = {
    val content = block(rows("a", "b", "c", "d") :+ entry(0, inside("e"), new Array[Byte](60000)))
    val lz4 = LZ4Factory.fastestInstance.fastCompressor.compress(content)
    val whole = Seq(MadeTable(), withData(content), withIndex(identity),
      withData(varint(content.length) ++ lz4, SstFormat.lz4),
      withData(varint(content.length) ++ Zstd.compress(content), SstFormat.zstd),
      withData(Snappy.compress(content), SstFormat.snappy))
    for (table <- whole; open <- Seq[File => SstTable](SstTable.map(_), SstTable.read(_))) {
      withTable(open(written(table))) { table =>
        for (name <- Seq("a", "b", "c", "d")) expect(valueOf(table, name).contains(s"value of $name"), s"no $name")
        expect(valueOf(table, "bb").isEmpty, "a key is there that is not")
      }
    }
  }

  def refuses(name: String, made: MadeTable, reason: String, reads: Seq[SstTable => Unit]): Unit = {
    val file = written(made)
    for ((read, i) <- reads.zipWithIndex;
      (way, open) <- Seq[(String, () => SstTable)](
        "mapped" -> (() => SstTable.map(file)), "not mapped" -> (() => SstTable.read(file)))) {
      refused(s"$name, read $i, $way", reason)(withTable(open())(read))
    }
  }

  private def refused(name: String, reason: String)(read: => Unit): Unit = {
    val error =
      try {
        read
        throw new AssertionError(s"$name: it is not refused")
      } catch {
        case e: IOException => e
        case e: Throwable => throw new AssertionError(s"$name: it ends with $e", e)
      }
    expect(error.getMessage.contains(reason), s"$name: '${error.getMessage}' does not say '$reason'")
  }

  /** Bytes of an index that change after it was verified, as those of a page that a failing disk gives back. */
  def refusesWhatChanges(): Unit = {
    val changed = "content that was verified before has changed"
    val file = written(MadeTable())
    val content = Files.readAllBytes(file.toPath)
    val footer = ByteBuffer.wrap(content).order(ByteOrder.LITTLE_ENDIAN)
    footer.position(content.length - SstFormat.footerBytes + 1)
    def number(): Int = {
      val byte = footer.get()
      if (byte >= 0) byte else byte & 0x7f | number() << 7
    }
    number()
    number()
    val indexAt = number()
    val restartsAt = indexAt + number() - 16
    def put(at: Int, bytes: Array[Byte]): Unit = {
      val access = new RandomAccessFile(file, "rw")
      access.seek(at)
      access.write(bytes)
      access.close()
    }
    val looks = Seq[(String, SstTable => Unit)](
      ("a look-up", table => valueOf(table, "b")),
      ("a block", table => table.block(0)),
      ("the search of a block", table => table.blockOf(key("b"), OffHeap.arrayBase, 1)))
    for {
      (what, at, bytes, reads) <- Seq(
        ("restart", restartsAt, fixed(1 << 20), looks),
        ("negative restart", restartsAt, fixed(-1), looks),
        ("length of a key", indexAt + 1, Array[Byte](127), looks),
        ("long length of a key", indexAt + 1, Array[Byte](-1, -1, -1, -1, 15), looks),
        ("negative length of a key", indexAt + 1, varint(-1), looks))
      (way, read) <- reads
    } withTable(SstTable.map(file)) { table =>
      put(at, bytes)
      refused(s"changed $what, $way", changed)(read(table))
      put(0, content)
    }
    withTable(SstTable.map(file)) { table =>
      put(indexAt + 10 + 3, Array[Byte](0)) // the last block begins where the first does
      val room = new SstRoom
      table.read(1, room, ahead = 1)
      expect(table.isVerified(1) && !table.isVerified(2), "a block is verified before its time")
      room.free()
      put(0, content)
    }
  }

  /** A block that no array can have, in a file that is long enough. */
  def refusesLongBlocks(): Unit = {
    val file = written(MadeTable(footerHandles =
      Some(SstWriter.handleBytes(SstHandle(0, Int.MaxValue - 4)) ++ SstWriter.handleBytes(SstHandle(0, 10)))))
    val footer = Files.readAllBytes(file.toPath).takeRight(SstFormat.footerBytes)
    val access = new RandomAccessFile(file, "rw")
    access.setLength(1L << 32)
    access.seek((1L << 32) - footer.length)
    access.write(footer)
    access.close()
    refused("a block of 2 GiB", "outside the file")(SstTable.read(file).close())
    file.delete()
  }

  /** Filters of kinds that this reader does not know exclude no key. */
  def asksNoOtherFilter(): Unit = {
    val empty = new Array[Byte](64)
    def excludes(filter: Array[Byte], kind: Byte = SstFormat.uncompressed): Boolean = {
      val made = MadeTable(metadata = Seq(SstFormat.filterName -> MadeBlock(filter, kind = kind)))
      withTable(SstTable.map(written(made)))(table => !table.mayContain(KeyHash.of(key("a"))))
    }
    expect(excludes(empty ++ Array[Byte](-1, 0, 6, 0, 0)), "an empty filter lets keys pass")
    val others = Seq("ribbon" -> Array[Byte](-2, 0, 6, 0, 0), "another kind" -> Array[Byte](-1, 1, 6, 0, 0),
      "no probe" -> Array[Byte](-1, 0, 0, 0, 0), "31 probes" -> Array[Byte](-1, 0, 31, 0, 0),
      "longer lines" -> Array[Byte](-1, 0, 6 | 1 << 5, 0, 0))
    for ((name, end) <- others) expect(!excludes(empty ++ end), s"a filter excludes keys: $name")
    for (length <- Seq(4, 5, 20)) expect(!excludes(new Array[Byte](length)), s"a filter of $length bytes excludes keys")
    val short = varint(4) ++ LZ4Factory.fastestInstance.fastCompressor.compress(new Array[Byte](4))
    expect(!excludes(short, SstFormat.lz4), "a filter that is shorter than its end excludes keys")
  }
}
