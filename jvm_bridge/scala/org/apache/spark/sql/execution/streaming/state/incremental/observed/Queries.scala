package org.apache.spark.sql.execution.streaming.state.incremental.observed

/**
 * A query with its newest checkpoint, as the pages and the API show it. Immutable.
 *
 * @param address its name in addresses: its own name, or its id if it has no name or shares it
 * @param record  its newest batch
 * @param live    its newest run in this driver; None in the History Server and for runs that are forgotten
 */
private[observed] final case class KnownQuery(address: String, record: BatchRecord, live: Option[RunView]) {
  /** Returns true if the query runs. */
  def running: Boolean = live.exists(!_.ended)
}

/**
 * The queries of an application: of a driver, from memory and from Spark's status store, or of the History Server, from
 * the status store alone. Safe for any thread.
 *
 * @param records     the batches in the status store
 * @param receiver None in the History Server
 */
private[observed] final class Queries(val records: Records, val receiver: Option[ReportReceiver]) {
  /** Returns the source of the answers, by its name in the model. */
  def source: String = if (receiver.isDefined) "driver" else "history"

  /** Returns all queries, the one with the newest report first. */
  def all: Seq[KnownQuery] = {
    val live = for {
      own <- receiver.toSeq
      run <- own.runs.views if run.stores.nonEmpty
      record <- BatchRecord.of(own.application, run, MergesBetween())
    } yield record.facts.id -> (record, Some(run))
    val stored = records.newest.map(record => record.facts.id -> (record, Option.empty[RunView]))
    val newest = (stored ++ live).toMap // the last entry of a query wins
    val names = newest.values.toSeq.flatMap(_._1.facts.name).groupBy(identity)
    newest.values.toSeq.sortBy(-_._1.atMs).map { case (record, run) =>
      val facts = record.facts
      KnownQuery(facts.name.filter(name => names(name).size == 1 && isPlain(name)).getOrElse(facts.id), record, run)
    }
  }

  /** Returns the query with that name, id or run. */
  def find(name: String): Option[KnownQuery] = {
    val allQueries = all
    allQueries.find(_.address == name).orElse(allQueries.find { query =>
      query.record.facts.id == name || query.record.facts.run == name || query.record.facts.name.contains(name)
    })
  }

  // Servers refuse encoded slashes, percent signs and control characters in paths.
  private def isPlain(name: String): Boolean =
    name.nonEmpty && !name.forall(_ == '.') &&
      name.forall(c => c.isLetterOrDigit || "-_ .:@+=,~()[]".indexOf(c.toInt) >= 0)
}
