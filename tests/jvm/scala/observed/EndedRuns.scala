package org.apache.spark.sql.execution.streaming.state.incremental.observed

import scala.concurrent.{Future, Promise}
import scala.jdk.CollectionConverters._
import scala.reflect.ClassTag

import org.apache.spark.rpc.{RpcAddress, RpcEndpointRef, RpcTimeout}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json
import org.apache.spark.SparkConf

/**
 * Tests that several queries of an application do not share gauges, that a query which ends while its executors still
 * report leaves none and loses no merge, and that requests to executors that are lost end.
 */
object EndedRuns {
  def main(arguments: Array[String]): Unit = {
    queriesWithNamesThatLookAlikeHaveGaugesOfTheirOwn()
    noGaugeComesAfterTheEnd()
    theLastRecordOfABatchHasAllMerges()
    requestsToLostExecutorsEnd()
    println("ended runs leave nothing")
  }

  private def facts(id: String, run: String, name: String): QueryFacts = QueryFacts(id, run, Some(name), 0)

  private def gaugesOf(shown: Map[String, Double]): Gauges = new Gauges(run =>
    shown.get(run).map { batch =>
      Figures(run, Json.obj("batch" -> batch), Nil, Nil, MetricValues(), Map.empty)
    })

  private def batches(gauges: Gauges): Map[String, Double] =
    gauges.metricRegistry.getGauges.asScala.collect {
      case (name, gauge) if name.endsWith(".committed_batch") =>
        name.stripSuffix(".committed_batch") -> gauge.getValue.asInstanceOf[Double]
    }.toMap

  private def queriesWithNamesThatLookAlikeHaveGaugesOfTheirOwn(): Unit = {
    val gauges = gaugesOf(Map("run1" -> 1.0, "run2" -> 2.0, "run3" -> 3.0))
    gauges.committed(facts("id-1", "run1", "заказы"))
    gauges.committed(facts("id-2", "run2", "оплаты"))
    gauges.committed(facts("id-1", "run1", "заказы"))
    val both = batches(gauges)
    require(both.values.toSeq.sorted == Seq(1.0, 2.0), s"two queries have the gauges $both")
    require(both.get("______").contains(1.0), s"the first query lost its name: $both")
    gauges.ended(facts("id-2", "run2", "оплаты"))
    require(batches(gauges) == Map("______" -> 1.0), s"the end of another query left ${batches(gauges)}")
    gauges.committed(facts("id-1", "run3", "заказы")) // started again before its end was heard
    gauges.ended(facts("id-1", "run1", "заказы"))
    require(gauges.metricRegistry.getNames.asScala.exists(_.startsWith("______.")), "the gauges ended with an old run")
    gauges.ended(facts("id-1", "run3", "заказы"))
    require(gauges.metricRegistry.getNames.isEmpty, s"${gauges.metricRegistry.getNames} are left")
  }

  /** The last batch is shown after a few looks for its reports: a query may have ended meanwhile. */
  private def noGaugeComesAfterTheEnd(): Unit = {
    val gauges = gaugesOf(Map("run1" -> 1.0))
    gauges.ended(facts("id-1", "run1", "short"))
    gauges.committed(facts("id-1", "run1", "short"))
    require(gauges.metricRegistry.getNames.isEmpty, s"${gauges.metricRegistry.getNames} of a query that has ended")
  }

  private def merge(version: Long, kind: String, failure: Option[Failed]): MergeReport = MergeReport(
    StoreKey("run1", 0, 0, "default"), version, version, kind, s"reason $version", 3, 4, 5, 6, 7, 9, 8, failure)

  /** The end of a query, and reports that come after that, repeat the record of its last batch. */
  private def theLastRecordOfABatchHasAllMerges(): Unit = {
    val runs = new ReportedRuns
    val failure = Some(Failed("storage", "503 Slow Down"))
    runs.merged(merge(4, "full", None))
    runs.merged(merge(5, "full", failure))
    val atBatch = runs.takeMerges("run1", 5)
    runs.merged(merge(6, "incremental", None))
    val atEnd = runs.takeMerges("run1", 5)
    val later = runs.takeMerges("run1", 5)
    require(later == atEnd, s"$later replaced $atEnd")
    require(
      atEnd.counts == Map((4L, "full", true) -> 1L, (5L, "full", false) -> 1L, (6L, "incremental", true) -> 1L) &&
        atEnd.reasons == Set(4L -> "reason 4", 5L -> "reason 5", 6L -> "reason 6") &&
        atEnd.failures.map(_.failure) == Seq(failure) && atEnd.longest == Map(4L -> 3L, 6L -> 3L) &&
        atEnd.gained == Map(4L -> 1L, 5L -> 1L, 6L -> 1L),
      s"$atEnd replaced $atBatch")
    runs.merged(merge(6, "incremental", None))
    require(runs.takeMerges("run1", 6).counts == Map((6L, "incremental", true) -> 1L), "a batch repeats that before it")
    runs.merged(merge(7, "incremental", None))
    require(runs.takeMerges("run1", 5).counts == Map((7L, "incremental", true) -> 1L)) // a late look at an older batch
    require(runs.takeMerges("run1", 6).counts == Map((6L, "incremental", true) -> 1L),
      "a late look has taken merges away")
  }

  private final class Silent extends RpcEndpointRef(new SparkConf(false)) {
    override def address: RpcAddress = RpcAddress("host", 1)
    override def name: String = "silent"
    override def send(message: Any): Unit = ()
    override def ask[T: ClassTag](message: Any, timeout: RpcTimeout): Future[T] = Promise[T]().future
  }

  private def requestsToLostExecutorsEnd(): Unit = {
    val runs = new ReportedRuns
    val requests = new FullRequests(runs)
    val keys = Seq.tabulate(2)(StoreKey("run1", 0, _, "default"))
    val views = keys.zip(Seq("1", "2")).map { case (key, executor) =>
      StoreView(
        StoreReport(key, 1, "root", 1, None, 1, Nil, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, None, None, None, None, None,
          None, None, MergeCounts(0, 0, 0, 0), 0, None, 0, 0, 0, None),
        executor, "host")
    }
    val run = RunView(facts("id-1", "run1", "a"), Some(CommittedBatch(0, 1, 1)), views, Nil, MetricValues(),
      MergesBetween(), ended = false, None)
    Seq("1", "2").foreach(requests.reach(_, new Silent))
    val id = requests.ask(run, FullRange(), None, None).toOption.get
    requests.lost("2")
    require(requests.reachable.keySet == Set("1"), s"${requests.reachable.keySet} are asked for their merges")
    require(requests.find(id).exists(_.endedMs.isEmpty), "the checkpoint of a living executor is not waited for")
    requests.answered(FullReport(keys.head, 2, id, Some(1), already = false, None))
    val ended = requests.find(id).get
    require(ended.endedMs.isDefined, "the request waits for an executor that is gone")
    require(ended.failure.exists(_.message.contains("executor 2 is gone")), s"${ended.failure}")
    require(ended.outcomes(keys.head).failure.isEmpty)
  }
}
