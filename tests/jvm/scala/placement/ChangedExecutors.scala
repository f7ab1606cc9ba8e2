package org.apache.spark.sql.execution.streaming.state.incremental.placement

import scala.collection.mutable

import org.apache.spark.scheduler._
import org.apache.spark.scheduler.cluster.ExecutorInfo
import org.apache.spark.storage.BlockManagerId

/** Executors that come and go as the events of Spark and its tables tell them, and the batches that look at them. */
private[placement] object ChangedExecutors {
  private val members = mutable.Buffer(BlockManagerId("driver", "driver", 1))
  private val leaving = mutable.Set.empty[String]
  private var lists = 0
  private val executors = new Executors(
    () => {
      lists += 1
      members.toSeq
    },
    id => !leaving(id))

  def main(arguments: Array[String]): Unit = {
    joinAndLeave()
    decommissioned()
    excluded()
    ofOtherProfiles()
    listsThatFail()
    looks()
    println("changes are noticed")
  }

  private def joinAndLeave(): Unit = {
    expect(executors.now.executors.isEmpty, "the driver takes tasks")
    add("1", cores = 2)
    val first = executors.now
    expect(first.executors == Seq(Executor("1", "host1", 2)), s"$first")
    val before = lists
    expect(executors.now == first && lists == before, "the driver was asked though nothing had changed")
    executors.onExecutorAdded(added("2", 3, 0))
    expect(executors.now == first, "an executor without a block manager takes tasks")
    members += BlockManagerId("2", "host2", 1)
    executors.onBlockManagerAdded(SparkListenerBlockManagerAdded(0, members.last, 0))
    val second = executors.now
    expect(second.executors.map(_.cores) == Seq(2, 3) && second.generation > first.generation, s"$second")
    remove("2")
    val third = executors.now
    expect(third.executors == first.executors && third.generation > second.generation, s"$third")
  }

  /** No event tells that an executor is being decommissioned: it stays in the tables until it is gone. */
  private def decommissioned(): Unit = {
    add("3", cores = 2)
    val before = executors.now
    leaving += "3"
    val after = executors.now
    expect(after.executors.map(_.id) == Seq("1") && after.generation > before.generation, s"$after")
    remove("3")
    expect(executors.now == after, "an executor that had no more tasks changes nothing when it goes")
  }

  private def excluded(): Unit = {
    add("4", cores = 2)
    executors.onExecutorExcluded(SparkListenerExecutorExcluded(0, "4", 1))
    expect(executors.now.executors.map(_.id) == Seq("1"), "an excluded executor takes tasks")
    executors.onExecutorUnexcluded(SparkListenerExecutorUnexcluded(0, "4"))
    expect(executors.now.executors.map(_.id) == Seq("1", "4"), "an executor stays excluded")
    executors.onNodeExcluded(SparkListenerNodeExcluded(0, "host4", 1))
    expect(executors.now.executors.map(_.id) == Seq("1"), "an executor of an excluded host takes tasks")
    executors.onNodeUnexcluded(SparkListenerNodeUnexcluded(0, "host4"))
    expect(executors.now.executors.map(_.id) == Seq("1", "4"), "a host stays excluded")
    remove("4")
  }

  private def ofOtherProfiles(): Unit = {
    add("5", cores = 2, profile = 7)
    expect(executors.now.executors.map(_.id) == Seq("1"), "an executor of another resource profile takes tasks")
    remove("5")
    members += BlockManagerId("6", "host6", 1)
    executors.began("6", 0, 0, isExcluded = false)
    expect(executors.now.executors.map(_.cores) == Seq(2, 2), "unknown cores are not those of the others")
    remove("6")
  }

  /** A list that cannot be made is made again. */
  private def listsThatFail(): Unit = {
    var fails = true
    val other = new Executors(() => if (fails) throw new IllegalStateException("stopped") else members.toSeq, _ => true)
    expect(scala.util.Try(other.now).isFailure && scala.util.Try(other.now).isFailure, "a failure is taken for a list")
    fails = false
    expect(other.now.executors.map(_.id) == Seq("1"), s"${other.now}")
  }

  private def looks(): Unit = {
    val run = new Run(10)
    expect(!run.looksAt(10, 1), "Spark chooses for the first batch")
    expect(run.looksAt(11, 1), "the first change is not looked at")
    expect(!run.looksAt(11, 1), "a batch is looked at twice")
    run.left(0, Seq(3))
    run.left(0, Seq(4))
    expect(run.moved(0) == Set(3, 4) && run.moved(1).isEmpty, s"${run.moved(0)}")
    expect((12 until 11 + Run.Looks).forall(run.looksAt(_, 1)), "moves that take several batches do not end")
    expect(!run.looksAt(30, 1) && !run.looksAt(31, 1), "the looks do not end")
    expect(run.looksAt(32, 2) && run.moved(0).isEmpty, "another change is not looked at")
    run.stopMoving()
    expect(!run.looksAt(33, 2), "what is settled is looked at")
    expect(run.looksAt(32, 3), "a batch that runs again after a failure is not looked at")
  }

  private def add(id: String, cores: Int, profile: Int = 0): Unit = {
    executors.onExecutorAdded(added(id, cores, profile))
    members += BlockManagerId(id, s"host$id", 1)
    executors.onBlockManagerAdded(SparkListenerBlockManagerAdded(0, members.last, 0))
  }

  private def remove(id: String): Unit = {
    members --= members.filter(_.executorId == id)
    executors.onExecutorRemoved(SparkListenerExecutorRemoved(0, id, "gone"))
  }

  private def added(id: String, cores: Int, profile: Int): SparkListenerExecutorAdded =
    SparkListenerExecutorAdded(
      0, id, new ExecutorInfo(s"host$id", cores, Map.empty, Map.empty, Map.empty, profile, None, None))

  private def expect(condition: Boolean, message: => String): Unit = if (!condition) throw new AssertionError(message)
}
