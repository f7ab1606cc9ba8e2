package org.apache.spark.sql.execution.streaming.state.incremental.placement

import scala.collection.mutable.ArrayBuffer

/** An executor that runs tasks. */
private[placement] final case class Executor(id: String, host: String, cores: Int)

/**
 * The partitions of a stage that change their executor in a batch, with all stores of theirs.
 *
 * @param moves      partitions and the executors that get them
 * @param isComplete false if bounds kept others back, which should move in the next batch
 */
private[placement] final case class Assignment(moves: Seq[(Int, Executor)], isComplete: Boolean)

/**
 * Spreads the partitions of a stage over executors, so that each has a share by its cores. A pure function.
 *
 * Partitions whose executor is gone get another one. Others move only if an executor has much more or much less to do
 * for each core than the mean; then they move until no move helps, each once as long as the executors stay the same. An
 * executor that holds no partition is cold: its first batch there loads classes and starts an agent. So it gets a
 * partition a core from others at first, and the rest in the next batch.
 */
private[placement] object Assignment {

  /** Loads for each core, as parts of the mean, within which executors stay as they are. */
  val Least = 0.7
  val Most = 1.1

  /** Milliseconds that a task costs at least: short tasks are placed by their number, and not by their noise. */
  val TaskMs = 250.0

  /**
   * Returns the moves of a batch.
   *
   * @param executors the executors that run tasks; the first of those that suit alike is taken
   * @param places    ids of the executors that hold the partitions; those of other executors count as lost
   * @param timesMs   times of the partitions' tasks, as far as they are known
   * @param most      the largest number of partitions that leave a living executor
   * @param staying   partitions that leave no living executor: those that have moved since the executors changed
   */
  def of(
      executors: Seq[Executor],
      places: Map[Int, String],
      timesMs: Map[Int, Double],
      most: Int,
      staying: Set[Int]): Assignment =
    if (executors.isEmpty || places.isEmpty) Assignment(Nil, isComplete = true)
    else new Spreading(executors.toIndexedSeq, places, weights(places.keySet, timesMs), most, staying).assignment

  private def weights(partitions: Set[Int], timesMs: Map[Int, Double]): Map[Int, Double] = {
    val ownTimes = timesMs.filter { case (partition, _) => partitions(partition) }
    val mean = if (ownTimes.isEmpty) 0.0 else ownTimes.values.sum / ownTimes.size
    partitions.iterator.map(partition => partition -> (ownTimes.getOrElse(partition, mean) + TaskMs)).toMap
  }
}

/** The work on an assignment: executors are named by their places in `executors`. */
private final class Spreading(
    executors: IndexedSeq[Executor],
    places: Map[Int, String],
    weights: Map[Int, Double],
    most: Int,
    staying: Set[Int]) {
  private val all = executors.indices
  private val numbers = executors.map(_.id).zipWithIndex.toMap
  private val movable = all.map(_ => ArrayBuffer.empty[Int])
  private val loads = new Array[Double](executors.size)
  private val moves = ArrayBuffer.empty[(Int, Executor)]
  private val (placed, lost) = places.toSeq.sorted.partition { case (_, executor) => numbers.contains(executor) }

  placed.foreach { case (partition, executor) =>
    if (!staying(partition)) movable(numbers(executor)) += partition
    loads(numbers(executor)) += weights(partition)
  }
  private val room = all.map(e => if (loads(e) == 0) executors(e).cores else Int.MaxValue).toArray

  def assignment: Assignment = {
    lost.map(_._1).sortBy(partition => -weights(partition)).foreach { partition =>
      give(partition, lightest(all, weights(partition)))
    }
    val isEven = spread()
    Assignment(moves.toSeq, isEven)
  }

  /** Moves partitions from heavy to light executors. Returns false if bounds ended it. */
  private def spread(): Boolean = {
    val mean = loads.sum / executors.map(_.cores).sum
    val levels = all.map(level(_, 0))
    val (donors, receivers) = (all.toBuffer, all.toBuffer)
    if (levels.max <= Assignment.Most * mean && levels.min >= Assignment.Least * mean) donors.clear()
    var moved = 0
    var isEven = true
    donors --= all.filter(movable(_).isEmpty)
    while (donors.nonEmpty) {
      val donor = donors.maxBy(level(_, 0))
      val smallest = if (movable(donor).isEmpty) 0.0 else movable(donor).map(weights).min
      def helps(to: Int): Boolean =
        to != donor && level(donor, 0) - level(to, smallest) > Spreading.Nothing
      val better = if (movable(donor).isEmpty) Nil else receivers.filter(helps).toSeq
      if (better.isEmpty) donors -= donor
      else if (moved == most || room(lightest(better, smallest)) <= 0) {
        isEven = false // what would go to a cold executor waits for it, and does not move twice
        donors.clear()
      } else {
        val receiver = lightest(better, smallest)
        val fitting = movable(donor).filter { p =>
          level(receiver, weights(p)) <= Assignment.Most * mean && level(donor, -weights(p)) >= Assignment.Least * mean
        }
        val partition = (if (fitting.isEmpty) movable(donor) else fitting)
          .minBy(p => math.max(level(donor, -weights(p)), level(receiver, weights(p))))
        movable(donor) -= partition
        loads(donor) -= weights(partition)
        give(partition, receiver)
        donors -= receiver
        receivers -= donor
        moved += 1
      }
    }
    isEven
  }

  private def give(partition: Int, to: Int): Unit = {
    loads(to) += weights(partition)
    room(to) -= 1
    moves += partition -> executors(to)
  }

  private def lightest(among: Seq[Int], weight: Double): Int = among.minBy(level(_, weight))

  /** The load of an executor for each core, if it had `more`. */
  private def level(executor: Int, more: Double): Double = (loads(executor) + more) / executors(executor).cores
}

private object Spreading {
  /** A difference of two sums of weights that is none. */
  val Nothing = 1e-6
}
