package statestore.benchmark

import java.util.Arrays

/**
 * The required content of every store: for each key number the version of its last write, 0 for an absent key. Live
 * keys are those in [low, high) with a version. One thread, the driver's: it changes the model while it plans, before
 * any store runs the plan.
 */
final class StoreModel {
  private var versions = new Array[Int](1 << 16)
  private var live = 0L
  var low = 0L
  var high = 0L

  def size: Long = live

  /** Bytes of the model on the heap, which do not belong to a store. */
  def heapBytes: Long = 4L * versions.length
  def versionOf(index: Long): Int = if (index < versions.length) versions(index.toInt) else 0

  def put(index: Long, version: Int): Unit = {
    if (index >= versions.length)
      versions = Arrays.copyOf(versions, math.max(versions.length * 2L, index + 1).toInt)
    if (versions(index.toInt) == 0) live += 1
    versions(index.toInt) = version
    high = math.max(high, index + 1)
  }

  def remove(index: Long): Unit = {
    if (versionOf(index) != 0) live -= 1
    versions(index.toInt) = 0
  }

  /** Returns the sum over live keys of a number made of key and version. A scan in any order must have the same sum. */
  def checksum: Long = {
    var sum = 0L
    var index = low
    while (index < high) {
      val version = versionOf(index)
      if (version != 0) sum += StoreModel.term(index, version)
      index += 1
    }
    sum
  }
}

object StoreModel {
  def term(index: Long, version: Long): Long =
    (index + 1) * 0x9E3779B97F4A7C15L ^ version * 0xC2B2AE3D27D4EB4FL
}
