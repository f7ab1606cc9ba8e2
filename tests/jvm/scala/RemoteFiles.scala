package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.{File, RandomAccessFile}
import java.nio.file.Files
import java.util.concurrent.atomic.AtomicLong

import org.apache.spark.sql.execution.streaming.state.incremental.sst.SstTable

/** SST files below a directory that have only their metadata, until more is fetched. For any number of threads. */
final class RemoteFiles(directory: File, files: Seq[File]) {
  private val content = files.map { file =>
    directory.toPath.relativize(file.toPath).toString -> Files.readAllBytes(file.toPath)
  }.toMap
  private val dataBytes = files.map(RemoteFiles.dataBytes)
  private val fetched = new AtomicLong

  /** The paths of the files below the directory. */
  val names: Set[String] = content.keySet

  def fetchedBytes: Long = fetched.get

  /** Replaces the data by holes. */
  def forget(): Unit = files.zip(dataBytes).foreach { case (file, data) =>
    val bytes = content(directory.toPath.relativize(file.toPath).toString)
    Files.write(file.toPath, Array.fill[Byte](data)(0) ++ bytes.drop(data))
  }

  /** Changes bytes that the file has. */
  def damage(name: String, offset: Long, length: Long): Unit = {
    val until = math.min(offset + length, content(name).length)
    if (offset < until) {
      val access = new RandomAccessFile(new File(directory, name), "rw")
      try {
        access.seek(offset)
        access.write(content(name).slice(offset.toInt, until.toInt).map(byte => (byte ^ 0x55).toByte))
      } finally access.close()
    }
  }

  /** Makes the notes of uses beside each file, one byte for each page below its metadata. */
  def noteUses(pageBytes: Int): Unit = files.zip(dataBytes).foreach { case (file, data) =>
    Files.write(new File(file.getPath + ".uses").toPath, new Array[Byte](data / pageBytes))
  }

  /** Notes all pages as used, as the agent does with those that it has fetched. */
  def noteAllUsed(): Unit = files.foreach { file =>
    val uses = new File(file.getPath + ".uses")
    val access = new RandomAccessFile(uses, "rw")
    try access.write(Array.fill[Byte](uses.length.toInt)(1))
    finally access.close()
  }

  /** Returns the pages of each file that were used. */
  def used: Map[String, Seq[Int]] = files.map { file =>
    directory.toPath.relativize(file.toPath).toString ->
      Files.readAllBytes(new File(file.getPath + ".uses").toPath).toSeq.zipWithIndex.collect { case (1, page) => page }
  }.toMap

  /** Replaces a page below the metadata by a hole; does nothing beyond. */
  def evict(name: String, page: Int, pageBytes: Int): Unit = {
    if (page < pages(name, pageBytes)) {
      val access = new RandomAccessFile(new File(directory, name), "rw")
      try {
        access.seek(page.toLong * pageBytes)
        access.write(new Array[Byte](pageBytes))
      } finally access.close()
    }
  }

  /** Returns the number of pages of a file below its metadata. */
  def pages(name: String, pageBytes: Int): Int =
    dataBytes(files.indexWhere(file => directory.toPath.relativize(file.toPath).toString == name)) / pageBytes

  /** Notes the pages of some bytes as used. */
  def noteUsed(name: String, offset: Long, length: Long, pageBytes: Int): Unit = {
    val access = new RandomAccessFile(new File(directory, s"$name.uses"), "rw")
    try
      for (page <- offset / pageBytes to (offset + length - 1) / pageBytes if page < access.length) {
        access.seek(page)
        access.write(1)
      }
    finally access.close()
  }

  /** Returns bytes of files, which do not come to their places. */
  def read(ranges: Seq[(String, Long, Int)]): Seq[Array[Byte]] = ranges.map { case (name, offset, length) =>
    java.util.Arrays.copyOfRange(content(name), offset.toInt, offset.toInt + length)
  }

  def fetchAll(ranges: Seq[(String, Long, Long)]): Unit =
    ranges.foreach { case (name, offset, length) => fetch(name, offset, length) }

  def fetch(name: String, offset: Long, length: Long): Unit = {
    val access = new RandomAccessFile(new File(directory, name), "rw")
    try {
      access.seek(offset)
      access.write(content(name), offset.toInt, math.min(length, content(name).length - offset).toInt)
    } finally access.close()
    fetched.addAndGet(length)
  }
}

object RemoteFiles {
  /** Returns the end of an SST's data blocks, where its metadata begins, which is verified when the file is opened. */
  def dataBytes(file: File): Int = {
    val table = SstTable.map(file)
    try {
      val last = table.block(table.blocks - 1)
      (last.offset + last.bytes + 5).toInt
    } finally table.close()
  }
}
