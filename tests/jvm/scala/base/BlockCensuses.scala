package org.apache.spark.sql.execution.streaming.state.incremental.base

/** The choice between blocks that are read ahead and files that come in the background. */
object BlockCensuses {
  private val fileBytes = 1000L << 20
  private val blockBytes = 4096L
  private val second = 1000000000L

  def main(arguments: Array[String]): Unit = {
    few()
    dense()
    sampled()
    partlyThere()
    measured()
    println("the sooner way is taken")
  }

  private def expect(condition: Boolean, failure: => String): Unit = if (!condition) throw new AssertionError(failure)

  /** Returns a census of blocks at equal distances. */
  private def census(distance: Long, count: Int): BlockCensus = {
    val census = new BlockCensus(fileBytes)
    for (n <- 0 until count) census.add("file", n * distance, blockBytes, isMissing = true)
    census
  }

  private def few(): Unit = {
    expect(census(1 << 20, 1000).isSooner(None), "a thousandth of the blocks is left to the files")
    expect(!census(1 << 20, 1).isSooner(None), "a block is fetched in advance, and nothing beside it")
    expect(!new BlockCensus(fileBytes).isSooner(None), "no block is fetched")
  }

  private def dense(): Unit = {
    expect(!census(40 << 10, 25600).isSooner(None),
      "blocks are read so close together that the files are there as soon")
    expect(!census(blockBytes, 256000).isSooner(None), "all blocks are read")
    expect(census(40 << 10, 25600).isSooner(Some(10L << 20)), "blocks wait for files that come slowly")
    expect(census(blockBytes, 256000).isSooner(Some(0)), "blocks wait for files that do not come")
    expect(census(blockBytes, 1000).isSooner(None),
      "blocks one after the other, of a small part, cost as many requests")
  }

  /** Every tenth of some keys tells what all do. */
  private def sampled(): Unit = {
    def some(distance: Long, count: Int): BlockCensus = {
      val census = new BlockCensus(fileBytes, 10)
      for (n <- 0 until count by 10) census.add("file", n * distance, blockBytes, isMissing = true)
      census
    }
    expect(some(1 << 20, 1000).isSooner(None), "keys far from each other are left to the files")
    expect(!some(40 << 10, 25600).isSooner(None), "close keys seem far, since some are not counted")
    expect(!some(blockBytes / 10, 2560000).isSooner(None), "all blocks are read")
  }

  private def partlyThere(): Unit = {
    val left = census(1 << 20, 1000)
    for (n <- 0 until 100000) left.add("another", n * blockBytes, blockBytes, isMissing = false)
    expect(!left.isSooner(None), "blocks are read although nearly all files are there")
  }

  /** A thousand of 10,000 blocks at a time; the files take 10 seconds. */
  private def measured(): Unit = {
    val speed = Some(fileBytes / 10)
    val census = BlockCensuses.census(100 << 10, 10000)
    expect(census.isStillSooner(speed), "blocks end before any has come")
    census.addFetched(1000, second)
    expect(census.isStillSooner(speed), "9 seconds are longer than 10")
    expect(census.isStillSooner(None), "a speed that is not known counts")
    census.addFetched(1000, 2 * second)
    expect(!census.isStillSooner(speed), "16 seconds are shorter than 10")
    expect(census.fetched == 2000, s"${census.fetched} blocks have come")
  }
}
