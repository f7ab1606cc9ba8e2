package org.apache.spark.sql.execution.streaming.state.incremental

/** Collects hashes of keys for a bloom filter of 10 bits a key. */
private[incremental] final class SstFilterBuilder(expectedKeys: Int) {
  private var hashes = new Array[Long](math.max(16, expectedKeys))
  private var count = 0

  def add(hash: Long): Unit = {
    if (count == hashes.length) hashes = java.util.Arrays.copyOf(hashes, count * 2)
    hashes(count) = hash
    count += 1
  }

  def finish(): Array[Byte] = {
    val lines = ((count.toLong * 10000 + 511999) / 512000).toInt
    val filter = new Array[Byte](Math.toIntExact(lines.toLong * SstFilter.lineBytes + SstFilter.trailerBytes))
    var i = 0
    while (i < count) {
      SstFilter.add(hashes(i), SstFilterBuilder.probes, filter, lines)
      i += 1
    }
    filter(filter.length - 5) = -1
    filter(filter.length - 3) = SstFilterBuilder.probes
    filter
  }
}

private object SstFilterBuilder {
  private val probes: Byte = 6
}
