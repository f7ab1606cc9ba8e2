package org.apache.spark.sql.execution.streaming.state.incremental.sst

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, OffHeap}

/**
 * A word of every eighth key of an index, close together: a search asks them first and then a few entries of the index,
 * each of which has to come from main memory. Any number of threads.
 *
 * @param prefix what these keys begin with, all of them
 * @param words  the 8 bytes behind it, in the order of the keys
 */
private[sst] final class SstFences private (prefix: Array[Byte], words: Array[Long]) {

  /** Whether a key begins as these do; of one that does not they say nothing. */
  def know(key: AnyRef, keyAt: Long, keyLength: Int): Boolean =
    keyLength >= prefix.length && Bytes.equal(key, keyAt, prefix, OffHeap.arrayBase, prefix.length)

  def wordOf(key: AnyRef, keyAt: Long, keyLength: Int): Long = Bytes.word(key, keyAt, keyLength, prefix.length)

  /** The first entry of the index that may not be less than a key with that word. */
  def from(word: Long): Int = {
    val less = countLess(word)
    if (less == 0) 0 else (less - 1) * SstFences.every + 1
  }

  /** An entry that is greater than every key with that word; the number of entries, if it is not known to be less. */
  def until(word: Long, entries: Int): Int = {
    val notGreater = if (word == -1L) words.length else countLess(word + 1)
    if (notGreater == words.length) entries else notGreater * SstFences.every
  }

  private def countLess(word: Long): Int = {
    var low = 0
    var high = words.length
    while (low < high) {
      val middle = (low + high) >>> 1
      if (java.lang.Long.compareUnsigned(words(middle), word) < 0) low = middle + 1 else high = middle
    }
    low
  }
}

private[sst] object SstFences {
  private val every = 8

  /**
   * Fences of an index.
   *
   * @param keys how many entries it has, more than one
   * @param key  the key of an entry
   */
  def of(keys: Int, key: Int => Array[Byte]): SstFences = {
    val places = 0 until keys - 1 by every // the last key of an index is longer or shorter than the others
    val first = key(places.head)
    val different = java.util.Arrays.mismatch(first, key(places.last))
    val prefix = java.util.Arrays.copyOf(first, if (different < 0) first.length else different)
    new SstFences(prefix, places.iterator.map { i =>
      val one = key(i)
      Bytes.word(one, OffHeap.arrayBase, one.length, prefix.length)
    }.toArray)
  }
}
