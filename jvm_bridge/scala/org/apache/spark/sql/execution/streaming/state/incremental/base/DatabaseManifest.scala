package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{ByteArrayOutputStream, File, IOException}
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.US_ASCII
import java.nio.file.Files
import java.util.{Arrays, Locale}
import java.util.zip.CRC32C

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.incremental.sst.UnsupportedSstException

/**
 * A file of a RocksDB database, as its MANIFEST lists it.
 *
 * @param smallest the first user key in the file
 * @param largest the last user key in the file
 * @param newest the largest sequence number in the file
 */
private[base] final case class ManifestFile(
    name: String, bytes: Long, level: Int, smallest: Array[Byte], largest: Array[Byte], newest: Long)

/**
 * Lists the files of a closed RocksDB database from its CURRENT and its MANIFEST, a log of edits in records with
 * checksums. RocksDB itself opens tables, threads and a log file to answer that.
 */
private[base] object DatabaseManifest {
  private val blockBytes = 32 << 10
  private val headerBytes = 7
  private val comparator = "leveldb.BytewiseComparator"

  /** Tags of edits with one number that do not change the files of a closed database. */
  private val numbers = Set(2, 3, 4, 9, 10, 203, 300)
  private val mayBeSkipped = 1 << 13
  private val customMustBeKnown = 1 << 6
  private val pathId = 65

  /**
   * Returns the live files in the order in which they were added.
   *
   * @throws UnsupportedSstException if the log has an edit of a kind that this store does not write
   * @throws IOException if the log cannot be read or is damaged
   */
  def files(directory: File): Seq[ManifestFile] = {
    val current = new String(Files.readAllBytes(new File(directory, "CURRENT").toPath), US_ASCII).trim
    if (!current.matches("MANIFEST-[0-9]{1,20}"))
      throw new IOException(s"$directory/CURRENT is damaged: it names '$current'")
    val manifest = new File(directory, current)
    new DatabaseManifest(manifest, Files.readAllBytes(manifest.toPath)).files()
  }
}

private final class DatabaseManifest(file: File, content: Array[Byte]) {
  import DatabaseManifest._

  private val live = mutable.LinkedHashMap.empty[(Int, Long), ManifestFile]

  private def files(): Seq[ManifestFile] = {
    edits().foreach(edit => apply(new Edit(edit)))
    live.values.groupBy(_.level).foreach { case (level, files) => if (level > 0) checkOrder(level, files.toSeq) }
    live.values.toSeq
  }

  /** Checks that the files of a level do not overlap: a look-up chooses one file of a level by its keys. */
  private def checkOrder(level: Int, files: Seq[ManifestFile]): Unit = {
    val sorted = files.sortWith((a, b) => Arrays.compareUnsigned(a.smallest, b.smallest) < 0)
    sorted.zip(sorted.drop(1)).foreach { case (a, b) =>
      if (Arrays.compareUnsigned(a.largest, b.smallest) >= 0)
        damaged(s"${a.name} and ${b.name} of level $level overlap")
    }
  }

  private def damaged(reason: String): Nothing = throw new IOException(s"$file is damaged: $reason")

  /** Returns the edits, joined from records. */
  private def edits(): Iterator[Array[Byte]] = new Iterator[Array[Byte]] {
    private var at = 0

    private def skipPadding(): Unit = if (blockBytes - at % blockBytes < headerBytes) at += blockBytes - at % blockBytes

    override def hasNext: Boolean = {
      skipPadding()
      at < content.length
    }

    override def next(): Array[Byte] = {
      val edit = new ByteArrayOutputStream
      var isLast = false
      while (!isLast) {
        skipPadding()
        if (at + headerBytes > content.length) damaged(s"it ends within a record at $at")
        val header = ByteBuffer.wrap(content, at, headerBytes).order(ByteOrder.LITTLE_ENDIAN)
        val crc = header.getInt
        val length = header.getShort & 0xffff
        val kind = header.get.toInt
        if (at + headerBytes + length > content.length) damaged(s"it ends within a record at $at")
        val checksum = new CRC32C
        checksum.update(content, at + 6, length + 1)
        if (Integer.rotateRight(checksum.getValue.toInt, 15) + 0xa282ead8 != crc)
          damaged(s"a record at $at has a wrong checksum")
        if (kind < 1 || kind > 4) throw new UnsupportedSstException(s"$file: a record is of kind $kind")
        if ((kind <= 2) != (edit.size == 0)) damaged(s"the record at $at does not follow the one before")
        edit.write(content, at + headerBytes, length)
        at += headerBytes + length
        isLast = kind == 1 || kind == 4
      }
      edit.toByteArray
    }
  }

  private def apply(edit: Edit): Unit = while (edit.hasMore) {
    edit.number().toInt match {
      case 1 =>
        val name = new String(edit.bytes(), US_ASCII)
        if (name != comparator) throw new UnsupportedSstException(s"$file: its comparator is $name")
      case 5 =>
        edit.number()
        edit.bytes()
      case 6 =>
        val level = edit.number().toInt
        live.remove(level -> edit.number())
      case 103 => add(edit)
      case 200 => if (edit.number() != 0) throw new UnsupportedSstException(s"$file: it has several column families")
      case tag if numbers(tag) => edit.number()
      case tag if (tag & mayBeSkipped) != 0 => edit.bytes()
      case tag => throw new UnsupportedSstException(s"$file: an edit has the tag $tag")
    }
  }

  private def add(edit: Edit): Unit = {
    val level = edit.number().toInt
    val number = edit.number()
    val bytes = edit.number()
    val smallest = userKey(edit.bytes())
    val largest = userKey(edit.bytes())
    edit.number()
    val newest = edit.number()
    var tag = edit.number().toInt
    while (tag != 1) {
      val field = edit.bytes()
      if (tag == pathId && field.sameElements(Array[Byte](0))) ()
      else if ((tag & customMustBeKnown) != 0) throw new UnsupportedSstException(s"$file: a file has the field $tag")
      tag = edit.number().toInt
    }
    live(level -> number) = ManifestFile("%06d.sst".formatLocal(Locale.ROOT, number), bytes, level, smallest, largest,
      newest)
  }

  /** Returns a key without sequence number and kind. */
  private def userKey(key: Array[Byte]): Array[Byte] = {
    if (key.length < 8) damaged("a key has no footer")
    key.dropRight(8)
  }

  /** A reader of the numbers and texts of an edit. */
  private final class Edit(data: Array[Byte]) {
    private var at = 0

    def hasMore: Boolean = at < data.length

    def number(): Long = {
      var value = 0L
      var shift = 0
      var byte = -1
      while (byte < 0) {
        if (at >= data.length || shift > 63) damaged("a number has no end")
        byte = data(at)
        at += 1
        value |= (byte & 0x7fL) << shift
        shift += 7
      }
      value
    }

    def bytes(): Array[Byte] = {
      val length = number()
      if (length < 0 || length > data.length - at) damaged("a text has no end")
      at += length.toInt
      Arrays.copyOfRange(data, at - length.toInt, at)
    }
  }
}
