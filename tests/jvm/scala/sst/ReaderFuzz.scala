package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.{File, IOException}
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.file.Files
import java.util.Arrays
import java.util.zip.CRC32C

import scala.util.{Failure, Random, Success, Try}

import org.rocksdb._

import org.apache.spark.sql.execution.streaming.state.incremental.TestFiles
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, Record}

/**
 * SSTs of all kinds that RocksDB writes, and the same with bytes changed in a block, its trailer or the footer, read by
 * RocksDB and by this reader: both find the same rows, or this reader refuses the file with an IOException. Most
 * changes also correct the checksum of the block, so that only the reader's own checks protect it against impossible
 * numbers. Memory is checked. Arguments: the seed, the number of files, the changes to each.
 */
object ReaderFuzz {
  private type Rows = Seq[(Seq[Byte], Option[Seq[Byte]])]

  def main(arguments: Array[String]): Unit = {
    RocksDB.loadLibrary()
    val Array(seed, files, changes) = arguments.map(_.toInt)
    val directory = Files.createTempDirectory("reader-fuzz").toFile
    try {
      val total = new ReaderFuzz(new Random(seed), directory)
      (0 until files).foreach { file =>
        total.file(s"seed $seed, file $file", changes)
        directory.listFiles.foreach(_.delete())
      }
      println(total.summary)
    } finally TestFiles.delete(directory)
  }

  /**
   * A place in a file whose bytes may be changed.
   *
   * @param hasTrailer true if a checksum follows it
   * @param isRead true if RocksDB reads it from its beginning, and so does not use the numbers after its entries
   */
  private final case class Place(kind: String, offset: Int, bytes: Int, hasTrailer: Boolean, isRead: Boolean)
}

private final class ReaderFuzz(random: Random, directory: File) {
  import ReaderFuzz._

  private var count = 0
  private var intact, agree, kept, refused, refusedAlone = 0

  def summary: String = {
    val ends =
      s"$intact intact and $agree changed files are read alike, $kept as they were before the change, $refused are " +
        s"refused, and $refusedAlone that RocksDB reads"
    if (agree == 0 || kept == 0 || refused == 0) throw new AssertionError(s"too few of a kind: $ends")
    s"$ends: every file is read alike or refused"
  }

  /** Writes a file, and compares the readers on it and on each of its changes. */
  def file(name: String, changes: Int): Unit = {
    val written = write()
    val content = Files.readAllBytes(written.toPath)
    val rows = compare(s"$name as it was written", written, None)
    intact += 1
    if (rows.isDefined) {
      val places = placesIn(written, content)
      (0 until changes).foreach { change =>
        val (description, changed, mended) = changedOnce(content, places)
        val copy = new File(directory, s"changed-$count-$change.sst")
        Files.write(copy.toPath, changed)
        compare(s"$name, change $change ($description)", copy, rows, mended)
      }
    }
  }

  // --- files

  private def oneOf[T](all: T*): T = all(random.nextInt(all.size))

  private def mostly[T](usual: T, other: T): T = if (random.nextInt(12) == 0) other else usual

  private def write(): File = {
    count += 1
    val file = new File(directory, s"written-$count.sst")
    val filter = new BloomFilter(10, false)
    val table = new BlockBasedTableConfig()
      .setFormatVersion(oneOf(2, 3, 4, 5, 5, 5, 5))
      .setChecksumType(mostly(ChecksumType.kCRC32c, ChecksumType.kxxHash64))
      .setBlockSize(oneOf(1, 64, 300, 1000, 4096).toLong)
      .setBlockRestartInterval(oneOf(1, 2, 16, 16))
      .setIndexBlockRestartInterval(mostly(1, 3))
      .setIndexShortening(oneOf(IndexShorteningMode.values.toSeq: _*))
      .setIndexType(mostly(IndexType.kBinarySearch, IndexType.kTwoLevelIndexSearch))
      .setDataBlockIndexType(
        mostly(DataBlockIndexType.kDataBlockBinarySearch, DataBlockIndexType.kDataBlockBinaryAndHash))
    if (random.nextInt(4) > 0) table.setFilterPolicy(filter)
    val options = new Options().setTableFormatConfig(table).setMergeOperator(new StringAppendOperator(','))
      .setCompressionType(oneOf(CompressionType.NO_COMPRESSION, CompressionType.NO_COMPRESSION,
        CompressionType.LZ4_COMPRESSION, CompressionType.ZSTD_COMPRESSION, CompressionType.SNAPPY_COMPRESSION))
    val environment = new EnvOptions
    val writer = new SstFileWriter(environment, options)
    writer.open(file.getPath)
    val merges = random.nextInt(8) == 0
    keys().foreach { key =>
      random.nextInt(12) match {
        case 0 => writer.delete(key)
        case 1 if merges => writer.merge(key, someBytes(20))
        case _ => writer.put(key, someBytes(60))
      }
    }
    writer.finish()
    Seq(writer, environment, options, filter).foreach(_.close())
    file
  }

  private def someBytes(bound: Int): Array[Byte] = Array.fill(random.nextInt(bound))(random.nextInt().toByte)

  private def keys(): Seq[Array[Byte]] = {
    val common = someBytes(20)
    Seq.fill(1 + random.nextInt(80))(common ++ Array.fill(random.nextInt(oneOf(4, 12, 200)))(random.nextInt(3).toByte))
      .map(_.toSeq).distinct.map(_.toArray).sortWith(Arrays.compareUnsigned(_: Array[Byte], _: Array[Byte]) < 0)
  }

  // --- changes

  private def placesIn(file: File, content: Array[Byte]): Seq[Place] = {
    val footerAt = content.length - SstFormat.footerBytes
    val buffer = ByteBuffer.wrap(content).order(ByteOrder.LITTLE_ENDIAN)
    buffer.position(footerAt + 1)
    def varint(): Int = {
      var (value, shift, byte) = (0, 0, -1)
      while (byte < 0) {
        byte = buffer.get
        value |= (byte & 0x7f) << shift
        shift += 7
      }
      value
    }
    val meta = Place("meta index", varint(), varint(), hasTrailer = true, isRead = false)
    val index = Place("index", varint(), varint(), hasTrailer = true, isRead = true)
    buffer.position(meta.offset)
    val end = meta.offset + meta.bytes - 4 - 4 * buffer.getInt(meta.offset + meta.bytes - 4)
    val named = Iterator.continually(()).takeWhile(_ => buffer.position() < end).map { _ =>
      val (shared, rest, _) = (varint(), varint(), varint())
      buffer.position(buffer.position() + rest)
      Place(s"metadata $shared", varint(), varint(), hasTrailer = true, isRead = false)
    }.toList
    val table = SstTable.map(file)
    val data = (0 until table.blocks).map { block =>
      val at = table.block(block)
      Place("data", at.offset.toInt, at.bytes, hasTrailer = true, isRead = true)
    }
    table.close()
    val footer = Place("footer", footerAt, SstFormat.footerBytes, hasTrailer = false, isRead = false)
    Seq(meta, index, index, index, footer) ++ named ++
      Seq.fill(6)(data(random.nextInt(data.size)))
  }

  private def changedOnce(content: Array[Byte], places: Seq[Place]): (String, Array[Byte], Option[Place]) =
    if (random.nextInt(40) == 0) {
      val bytes = random.nextInt(content.length)
      (s"cut to $bytes bytes", content.take(bytes), None)
    } else {
      val place = places(random.nextInt(places.size))
      val changed = content.clone
      val steps = Seq.fill(1 + random.nextInt(3))(change(changed, place))
      val isMended = place.hasTrailer && random.nextInt(5) > 0
      if (isMended) mend(changed, place)
      val description =
        s"${place.kind} at ${place.offset}: ${steps.mkString(", ")}${if (isMended) ", with its checksum" else ""}"
      (description, changed, Some(place).filter(_ => isMended || !place.hasTrailer))
    }

  /**
   * Changes bytes of a place, most often numbers: lengths at the beginning of a block, restarts at its end. Returns a
   * description.
   */
  private def change(content: Array[Byte], place: Place): String = {
    val bytes = place.bytes + (if (place.hasTrailer) 1 else 0)
    val within = random.nextInt(4) match {
      case 0 => bytes - 1 - random.nextInt(math.min(bytes, 13))
      case 1 => random.nextInt(math.min(bytes, 4))
      case _ => random.nextInt(bytes)
    }
    val at = place.offset + within
    random.nextInt(5) match {
      case 0 =>
        content(at) = (content(at) ^ (1 << random.nextInt(8))).toByte
        s"a bit of byte $at"
      case 1 =>
        content(at) = random.nextInt().toByte
        s"byte $at is ${content(at)}"
      case 2 =>
        content(at) = oneOf(0, 1, -1, 127, -128).toByte
        s"byte $at is ${content(at)}"
      case 3 =>
        val number = oneOf(0, 1, -1, Int.MaxValue, Int.MinValue, 1 << 29, 1 << 30, random.nextInt(), place.bytes)
        val start = math.max(place.offset, math.min(at, place.offset + place.bytes - 4))
        val encoded = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(number).array
        System.arraycopy(encoded, 0, content, start, math.min(4, content.length - start))
        s"$number at $start"
      case _ =>
        val length = math.min(1 + random.nextInt(12), place.offset + bytes - at)
        Arrays.fill(content, at, at + length, oneOf(0, -1, 127, -128).toByte)
        s"$length bytes from $at on are ${content(at)}"
    }
  }

  private def mend(content: Array[Byte], place: Place): Unit = {
    val crc = new CRC32C
    crc.update(content, place.offset, place.bytes + 1)
    ByteBuffer.wrap(content).order(ByteOrder.LITTLE_ENDIAN)
      .putInt(place.offset + place.bytes + 1, SstFormat.masked(crc.getValue.toInt))
  }

  // --- readers

  /**
   * Compares the readers. RocksDB does not read files with right checksums and wrong numbers: it trusts the numbers,
   * and reads anywhere in memory.
   *
   * @return the rows that both found
   */
  private def compare(name: String, file: File, original: Option[Rows], mended: Option[Place] = None): Option[Rows] = {
    val here = refusing(name, "a mapped reader", ours(SstTable.map(file)))
    val unmapped = refusing(name, "a reader", ours(SstTable.read(file)))
    refusing(name, "a search", search(file, original.getOrElse(Nil)))
    for (a <- here; b <- unmapped if a != b) throw new AssertionError(s"$name: mapped or not, other rows are read")
    val there = if (mended.exists(here.isEmpty || !_.isRead)) None else theirs(file)
    (here.orElse(unmapped), there) match {
      case (Some(mine), _) if original.contains(mine) => // this reader needs none of the changed bytes
        kept += 1
        None
      case (Some(mine), Some(puts)) =>
        // RocksDB shows neither removals nor the older of two entries of a key, and does not expect keys out of order.
        if (mine.map(_._1).sliding(2).forall(pair => pair.size < 2 || isLess(pair(0), pair(1)))) {
          val shown = mine.collect { case (key, Some(value)) => key -> value }
          if (shown != puts)
            throw new AssertionError(s"$name: ${shown.size} rows here and ${puts.size} there, or other ones: " +
              s"${shown.diff(puts).take(2)} and ${puts.diff(shown).take(2)}")
        }
        agree += 1
        Some(mine)
      case (Some(mine), None) =>
        throw new AssertionError(s"$name: RocksDB refuses it or is not asked, and here ${mine.size} rows are read: " +
          s"${original.map(rows => mine.diff(rows).take(2) + " in place of " + rows.diff(mine).take(2))}")
      case (None, Some(_)) =>
        refusedAlone += 1
        None
      case _ =>
        refused += 1
        None
    }
  }

  private def isLess(a: Seq[Byte], b: Seq[Byte]): Boolean = Arrays.compareUnsigned(a.toArray, b.toArray) < 0

  /** Returns the rows that were read, or None if the file is refused as it should be. */
  private def refusing[T](name: String, reader: String, read: => T): Option[T] =
    try Some(read)
    catch {
      case _: IOException => None
      case e: Throwable => throw new AssertionError(s"$name: $reader ends with $e", e)
    }

  private def ours(open: => SstTable): Rows = {
    val table = open
    try {
      val cursor = new SstCursor(table)
      try {
        val found = Seq.newBuilder[(Seq[Byte], Option[Seq[Byte]])]
        cursor.seekToFirst()
        while (cursor.valid) {
          val value =
            if (cursor.valueLength == Record.removed) None
            else Some(Bytes.array(cursor.valueAddress, cursor.valueLength).toSeq)
          found += cursor.key.toSeq -> value
          cursor.next()
        }
        found.result()
      } finally cursor.close()
    } finally table.close()
  }

  /** Looks up single keys, and begins scans at them: in a changed file these may be anywhere. */
  private def search(file: File, rows: Rows): Unit = {
    val table = SstTable.map(file)
    try {
      val reader = new SstPointReader
      val cursor = new SstCursor(table)
      try
        random.shuffle(rows).take(12).foreach { case (key, _) =>
          for (use <- Seq[() => Any](() => reader.find(table, key.toArray), () => cursor.seek(key.toArray))) {
            try use()
            catch { case _: IOException => () }
          }
        }
      finally cursor.close()
    } finally table.close()
  }

  private def theirs(file: File): Option[Seq[(Seq[Byte], Seq[Byte])]] = {
    val options = new Options().setMergeOperator(new StringAppendOperator(','))
    val reader = new SstFileReader(options)
    val reading = new ReadOptions().setVerifyChecksums(true)
    val read = Try {
      reader.open(file.getPath)
      val iterator = reader.newIterator(reading)
      try {
        val found = Seq.newBuilder[(Seq[Byte], Seq[Byte])]
        iterator.seekToFirst()
        while (iterator.isValid) {
          found += iterator.key.toSeq -> iterator.value.toSeq
          iterator.next()
        }
        iterator.status()
        found.result()
      } finally iterator.close()
    }
    Seq(reading, reader, options).foreach(_.close())
    read match {
      case Success(rows) => Some(rows)
      case Failure(_: RocksDBException) => None
      case Failure(e) => throw e
    }
  }
}
