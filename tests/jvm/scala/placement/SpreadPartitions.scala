package org.apache.spark.sql.execution.streaming.state.incremental.placement

import scala.util.Random

/** Properties of assignments, in random cases and histories. Arguments: a seed, and the number of cases. */
private[placement] object SpreadPartitions {
  private type Places = Map[Int, String]
  private val NoLimit = Int.MaxValue

  def main(arguments: Array[String]): Unit = {
    val random = new Random(arguments(0).toLong)
    (1 to arguments(1).toInt).foreach { _ =>
      movesNoMoreThanNeeded(random)
      keepsToItsBounds(random)
      comesToRest(random)
    }
    (1 to 40).foreach(growsWithinTwoBatches)
    givesSharesByCores()
    leavesAHotPartitionAlone()
    leavesSmallDifferences()
    println("partitions are spread")
  }

  /** On executors that are alike, partitions that are alike: exactly those move that lie above an even number. */
  private def movesNoMoreThanNeeded(random: Random): Unit = {
    val executors = some(random.between(1, 9), _ => 2)
    val places = (0 until random.between(1, 60)).map(_ -> s"${random.nextInt(executors.size + 2)}").toMap
    val (after, moves, batches) = settled(executors, places, Map.empty, NoLimit)
    val counts = executors.map(executor => after.values.count(_ == executor.id))
    expect(areEven(counts), s"$counts of ${places.size} are not even")
    val (least, above) = (places.size / executors.size, places.size % executors.size)
    val before = executors.map(executor => places.values.count(_ == executor.id)).sorted.reverse
    val targets = executors.indices.map(place => if (place < above) least + 1 else least)
    val needed = before.zip(targets).map { case (count, target) => math.max(0, count - target) }.sum
    val left = moves.count { case (partition, _) => executors.exists(_.id == places(partition)) }
    expect(left <= needed, s"$left partitions left their executors, $needed had to: $places to $after")
    expect(batches <= 2 + places.size / 8, s"$batches batches")
  }

  /** Bounds hold in every batch: the limit, room on cold executors, one way for each executor, living executors. */
  private def keepsToItsBounds(random: Random): Unit = {
    val executors = some(random.between(1, 9), _ => random.between(1, 5))
    val places = (0 until random.between(1, 60)).map(_ -> s"${random.nextInt(executors.size + 1)}").toMap
    val times = places.keys.filter(_ => random.nextInt(4) > 0).map(_ -> random.nextInt(9000).toDouble).toMap
    val most = random.between(1, 20)
    val assigned = Assignment.of(executors, places, times, most, Set.empty)
    val moves = assigned.moves.map { case (partition, to) => partition -> to.id }
    val after = places ++ moves
    val living = executors.map(_.id).toSet
    val (left, lost) = moves.partition { case (partition, _) => living(places(partition)) }
    expect(after.values.forall(living), s"$after has executors that are gone")
    expect(moves.map(_._1).distinct.size == moves.size, s"a partition moves twice: $moves")
    expect(left.size <= most, s"${left.size} moves are more than $most")
    expect((left.map(_._2).toSet & left.map(move => places(move._1)).toSet).isEmpty, s"$left go to and fro")
    executors.filterNot(executor => places.values.exists(_ == executor.id)).foreach { cold =>
      val got = left.count(_._2 == cold.id)
      expect(got <= math.max(0, cold.cores - lost.count(_._2 == cold.id)), s"$cold got $got at once")
    }
    val weigh = weights(places, times)
    val cut = executors.map(level(_, after, weigh)).max
    val before = executors.map(level(_, places ++ lost, weigh)).max
    expect(cut <= before + 1e-6, s"the heaviest load rose from $before to $cut")
  }

  /**
   * In a history of executors that join and leave, with times that differ from batch to batch, the moves end, and no
   * partition leaves a living executor twice without a change of the executors. Then the load is spread.
   */
  private def comesToRest(random: Random): Unit = {
    var executors = some(random.between(1, 4), _ => 2)
    var places: Places = (0 until random.between(4, 80)).map(_ -> "0").toMap
    val slow = places.keys.map(_ -> random.nextDouble() * random.nextInt(5000)).toMap
    var next = executors.size
    (1 to 12).foreach { _ =>
      if (random.nextBoolean() || executors.size == 1) {
        val joining = random.between(1, 4)
        executors ++= (next until next + joining).map(id => Executor(s"$id", s"host$id", 2))
        next += joining
      } else executors = random.shuffle(executors).drop(1)
      var left = Set.empty[Int]
      var isRestless = true
      var batches = 0
      while (isRestless) {
        batches += 1
        expect(batches < 100, s"moves do not end: $places on $executors")
        val measured = slow.map { case (partition, ms) => partition -> ms * (0.98 + 0.04 * random.nextDouble()) }
        val assigned = Assignment.of(executors, places, measured, 7, left)
        assigned.moves.foreach { case (partition, to) =>
          if (executors.exists(_.id == places(partition))) {
            expect(!left(partition), s"$partition moves again: $places on $executors")
            left += partition
          }
          places = places.updated(partition, to.id)
        }
        isRestless = assigned.moves.nonEmpty || !assigned.isComplete
      }
      val heaviest = executors.map(level(_, places, weights(places, slow))).max
      val mean = weights(places, slow).values.sum / executors.map(_.cores).sum
      val single = weights(places, slow).values.max / 2
      expect(heaviest <= 1.2 * mean + single, s"$heaviest is not near $mean: $places on $executors")
    }
  }

  private def growsWithinTwoBatches(partitions: Int): Unit = (2 to 6).foreach { count =>
    val executors = some(count, _ => 1)
    val places = (0 until partitions).map(_ -> "0").toMap
    val first = Assignment.of(executors, places, Map.empty, NoLimit, Set.empty)
    val second = Assignment.of(executors, places ++ ids(first), Map.empty, NoLimit, Set.empty)
    val after = places ++ ids(first) ++ ids(second)
    val counts = executors.map(executor => after.values.count(_ == executor.id))
    expect(counts.max - counts.min <= 1, s"$counts after two batches")
    val back = Assignment.of(executors.take(1), after, Map.empty, 1, Set.empty)
    expect((after ++ ids(back)).values.forall(_ == "0") && back.isComplete, "partitions of lost executors wait")
  }

  private def givesSharesByCores(): Unit = {
    val executors = Seq(Executor("0", "a", 1), Executor("1", "b", 3))
    val (after, moves, _) = settled(executors, (0 until 8).map(_ -> "0").toMap, Map.empty, NoLimit)
    expect(after.values.count(_ == "1") == 6 && moves.size == 6, s"$after")
  }

  private def leavesAHotPartitionAlone(): Unit = {
    val places = (0 until 9).map(_ -> "0").toMap
    val times = places.keys.map(partition => partition -> (if (partition == 4) 80000.0 else 5000.0)).toMap
    val (after, _, _) = settled(some(3, _ => 1), places, times, NoLimit)
    expect(after.values.count(_ == after(4)) == 1, s"others are beside the hot partition: $after")
    expect(after.values.groupBy(identity).map(_._2.size).toSet == Set(1, 4), s"$after")
  }

  private def leavesSmallDifferences(): Unit = {
    val places = (0 until 198).map(partition => partition -> (if (partition < 103) "0" else "1")).toMap
    expect(Assignment.of(some(2, _ => 4), places, Map.empty, NoLimit, Set.empty).moves.isEmpty,
      "103 and 95 are even enough")
  }

  /** Repeats batches until nothing is left to move. Returns the places, all moves and the number of batches. */
  private def settled(
      executors: Seq[Executor],
      places: Places,
      times: Map[Int, Double],
      most: Int): (Places, Seq[(Int, String)], Int) = {
    var now = places
    var moves = Seq.empty[(Int, String)]
    var batches = 0
    var assigned = Assignment(Nil, isComplete = false)
    do {
      assigned = Assignment.of(executors, now, times, most, Set.empty)
      now ++= ids(assigned)
      moves ++= ids(assigned)
      batches += 1
      expect(batches < 100, s"moves do not end: $places on $executors")
    } while (assigned.moves.nonEmpty || !assigned.isComplete)
    (now, moves, batches)
  }

  private def some(count: Int, cores: Int => Int): Seq[Executor] =
    (0 until count).map(id => Executor(s"$id", s"host$id", cores(id)))

  private def ids(assigned: Assignment): Seq[(Int, String)] =
    assigned.moves.map { case (partition, to) => partition -> to.id }

  private def areEven(counts: Seq[Int]): Boolean = {
    val mean = counts.sum.toDouble / counts.size
    counts.max - counts.min <= 1 || (counts.max <= Assignment.Most * mean && counts.min >= Assignment.Least * mean)
  }

  private def weights(places: Places, times: Map[Int, Double]): Map[Int, Double] = {
    val mean = if (times.isEmpty) 0.0 else times.values.sum / times.size
    places.keys.map(partition => partition -> (times.getOrElse(partition, mean) + Assignment.TaskMs)).toMap
  }

  private def level(executor: Executor, places: Places, weights: Map[Int, Double]): Double =
    places.collect { case (partition, executor.id) => weights(partition) }.sum / executor.cores

  private def expect(condition: Boolean, message: => String): Unit = if (!condition) throw new AssertionError(message)
}
