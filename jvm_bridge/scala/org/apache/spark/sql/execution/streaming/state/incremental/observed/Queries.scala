package org.apache.spark.sql.execution.streaming.state.incremental.observed

/**
 * A query with its newest checkpoint, as the pages and the API show it. Immutable.
 *
 * @param address its name in addresses: its own name, or its id if it has none or shares it
 * @param record  its newest batch
 * @param live    its newest run in this driver; None in the History Server and for runs that are forgotten
 */
private[observed] final case class KnownQuery(address: String, record: BatchRecord, live: Option[RunView]) {
  /** Whether it runs. */
  def running: Boolean = live.exists(!_.ended)
}

/**
 * The queries of an application: of a driver, from memory and from Spark's status store, or of the History Server, from
 * the status store alone. Safe for any thread.
 *
 * @param records     the batches in the status store
 * @param observatory None in the History Server
 */
private[observed] final class Queries(val records: Records, val observatory: Option[Observatory]) {
  /** Who answers, as the model calls it. */
  def source: String = if (observatory.isDefined) "driver" else "history"

  /** All queries, the one that was heard of last first. */
  def all: Seq[KnownQuery] = {
    val live = for {
      here <- observatory.toSeq
      run <- here.board.views if run.stores.nonEmpty
      record <- BatchRecord.of(here.application, run, MergesBetween())
    } yield record.facts.id -> (record, Some(run))
    val stored = records.newest.map(record => record.facts.id -> (record, Option.empty[RunView]))
    val newest = (stored ++ live).toMap // of a query, the run that comes last
    val names = newest.values.toSeq.flatMap(_._1.facts.name).groupBy(identity)
    newest.values.toSeq.sortBy(-_._1.atMs).map { case (record, run) =>
      val facts = record.facts
      KnownQuery(facts.name.filter(name => names(name).size == 1 && isPlain(name)).getOrElse(facts.id), record, run)
    }
  }

  /** The query of that name, id or run. */
  def find(name: String): Option[KnownQuery] = {
    val known = all
    known.find(_.address == name).orElse(known.find { one =>
      one.record.facts.id == name || one.record.facts.run == name || one.record.facts.name.contains(name)
    })
  }

  // Servers refuse encoded slashes, percent signs and control characters in paths.
  private def isPlain(name: String): Boolean =
    name.nonEmpty && name.forall(c => c.isLetterOrDigit || "-_ .:@+=,~()[]".indexOf(c.toInt) >= 0) && !name.forall(_ == '.')
}
