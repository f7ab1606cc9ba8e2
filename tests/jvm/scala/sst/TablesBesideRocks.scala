package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.File
import java.util.Arrays

import org.rocksdb.{Options, ReadOptions, RocksDB, SstFileReader}

import org.apache.spark.sql.execution.streaming.state.incremental.memory.Bytes

/** Tables in files, read here and by RocksDB: both find the same rows, in scans and by key. Arguments: the files. */
object TablesBesideRocks {
  def main(arguments: Array[String]): Unit = {
    RocksDB.loadLibrary()
    arguments.map(new File(_)).foreach { file =>
      val rows = theirs(file)
      val ways = Seq[() => SstTable](() => SstTable.map(file), () => SstTable.map(file, pieceBytes = 30000),
        () => SstTable.read(file))
      for (open <- ways) {
        val table = open()
        if (table.blocks < 10) throw new AssertionError(s"$file has ${table.blocks} blocks")
        compare(table, rows)
        table.close()
      }
      println(s"${rows.size} rows of ${file.getName} agree")
    }
  }

  private def theirs(file: File): Seq[(Array[Byte], Array[Byte])] = {
    val options = new Options
    val reading = new ReadOptions
    val reader = new SstFileReader(options)
    reader.open(file.getPath)
    val iterator = reader.newIterator(reading)
    iterator.seekToFirst()
    val rows = Iterator.continually(()).takeWhile(_ => iterator.isValid).map { _ =>
      val row = iterator.key -> iterator.value
      iterator.next()
      row
    }.toVector
    iterator.status()
    Seq(iterator, reader, reading, options).foreach(_.close())
    rows
  }

  private def compare(table: SstTable, rows: Seq[(Array[Byte], Array[Byte])]): Unit = {
    def expect(holds: Boolean, key: Array[Byte]): Unit =
      if (!holds) throw new AssertionError(s"${table.file}: the row of ${key.mkString(" ")} is another")
    val cursor = new SstCursor(table)
    val finder = new SstPointReader
    cursor.seekToFirst()
    rows.foreach { case (key, value) =>
      expect(cursor.valid && Arrays.equals(cursor.key, key), key)
      expect(Arrays.equals(Bytes.array(cursor.valueAddress, cursor.valueLength), value), key)
      cursor.next()
      expect(finder.find(table, key), key)
      expect(Arrays.equals(Bytes.array(finder.valueAddress, finder.valueLength), value), key)
      expect(!finder.find(table, key :+ 0.toByte), key)
    }
    if (cursor.valid) throw new AssertionError(s"${table.file} has more rows here")
    cursor.close()
    finder.close()
  }
}
