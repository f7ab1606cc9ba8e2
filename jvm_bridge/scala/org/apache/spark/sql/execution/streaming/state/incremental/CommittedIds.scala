package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.FileNotFoundException
import java.nio.charset.StandardCharsets

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json
import org.apache.spark.sql.execution.streaming.state.StateStoreId

import scala.jdk.CollectionConverters._

/**
 * The ids under which a query committed its stores (checkpoint format 2), from its commit log.
 *
 * Spark's readers of state pass them on only in a session that has that format itself; the log has them in
 * any session.
 */
private[incremental] object CommittedIds {

  /** The id of that version of the store; None where the log has no entry for it, or one without ids. */
  def of(store: StateStoreId, version: Long, hadoopConf: Configuration): Option[String] = {
    val state = new Path(store.checkpointRootLocation)
    val entry = new Path(state.getParent, s"commits/${version - 1}")
    for {
      text <- second(entry, hadoopConf)
      operators <- Option(Json.parse(text).get("stateUniqueIds")).filter(_.isObject)
      partitions <- Option(operators.get(store.operatorId.toString))
      ids <- Option(partitions.get(store.partitionId.toInt)).map(_.elements.asScala.map(_.asText).toSeq)
      id <- if (ids.length == 1) ids.headOption else ids.lift(place(store, state, hadoopConf))
    } yield id
  }

  /** Which of the operator's stores this one is, in the order of the operator's metadata; -1 for none. */
  private def place(store: StateStoreId, state: Path, hadoopConf: Configuration): Int = {
    val metadata = new Path(state, s"${store.operatorId}/_metadata/metadata")
    val stores = second(metadata, hadoopConf).map(Json.parse).flatMap(one => Option(one.get("stateStoreInfo")))
    stores.fold(-1)(_.elements.asScala.map(Json.text(_, "storeName").getOrElse("")).indexOf(store.storeName))
  }

  /** The second line of a file of Spark's metadata, which is JSON; the first says its version. */
  private def second(path: Path, hadoopConf: Configuration): Option[String] =
    try {
      val in = path.getFileSystem(hadoopConf).open(path)
      try new String(in.readAllBytes(), StandardCharsets.UTF_8).linesIterator.drop(1).nextOption()
      finally in.close()
    } catch {
      case _: FileNotFoundException => None
    }
}
