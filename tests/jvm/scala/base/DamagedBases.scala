package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{IOException, RandomAccessFile}
import java.nio.file.Files

import scala.util.{Random, Try}

import org.rocksdb.{ChecksumType, RocksDB}

import org.apache.spark.sql.execution.streaming.state.incremental.{FarFiles, TestFiles}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.DamagedSstException

/**
 * Bases and deltas of which a byte is not what was written, or the end is missing: who reads them gets an exception or
 * the right rows, never others, and the process lives on. Arguments: seed, number of flips.
 */
object DamagedBases {
  RocksDB.loadLibrary()

  def main(arguments: Array[String]): Unit = {
    val directory = Files.createTempDirectory("damaged-bases").toFile
    try {
      run(new WholeBases(new Random(arguments(0).toLong), directory), arguments(1).toInt)
      println("no wrong row")
    } finally TestFiles.delete(directory)
  }

  private def run(files: WholeBases, flips: Int): Unit = {
    val tables = new DamagedTables(files)
    tables.flips(ChecksumType.kCRC32c, flips)
    tables.cutOff()
    val deltas = new DamagedDeltas(files)
    deltas.flipsInDeltas(flips)
    deltas.refusesToWriteWhatCannotBeRead()
    deltas.refusesToWriteWhatIsNotInOrder()
    deltas.refusesToReadHalfADelta()
    val beside = new DamagedBeside(files)
    beside.flipsInDeltasBeside(flips)
    beside.refusesOtherDeltasBeside()
    beside.refusesNewerFormats()
    beside.readsWhatIsFar()
    val mapped = new MappedBases(files)
    mapped.boundsMappings()
    mapped.doesWithoutMappings()
    mapped.givesMappingsBack()
    mapped.endsInOrder()
    new SharedVerification(files).check()
    new IndexSearches(files).check()
    failedScansStayFailed(files, compressed = false)
    val compressed = new DamagedCompressed(files)
    compressed.flipsOfCompressed(flips / 2)
    compressed.cutOffCompressed()
    compressed.compressedEndInOrder()
    failedScansStayFailed(files, compressed = true)
  }

  /** A scan that met a damaged block has no end: who takes the exception for one would miss rows. */
  private def failedScansStayFailed(files: WholeBases, compressed: Boolean): Unit = {
    import files._
    val path = build(ChecksumType.kCRC32c, compressed)
    val file = tablesOf(path).maxBy(_.length)
    val access = new RandomAccessFile(file, "rw")
    access.seek(if (compressed) file.length / 4 else FarFiles.dataBytes(file).toLong - 20)
    access.write(Array.fill[Byte](4)(77))
    access.close()
    val base = if (compressed) openCompressed(path) else open(path, new TableCache(1000))
    val reader = base.reader()
    val scan = reader.cursor(Array[Byte](0, 0), null)
    val ended = Try(while (scan.valid) scan.next())
    expect(ended.failed.toOption.exists(_.isInstanceOf[IOException]), s"the scan ended: $ended")
    expect(compressed || ended.failed.get.isInstanceOf[DamagedSstException], s"the scan ended: $ended")
    for (use <- Seq[() => Any](() => scan.valid, () => scan.next(), () => scan.valid)) {
      expect(Try(use()).failed.toOption.exists(_ => base.damaged), "the scan ends quietly")
    }
    reader.close()
    base.release()
  }
}
