package org.apache.spark.sql.execution.streaming.state.incremental.agent

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/** Tests that an answer without a field is an error that names it, unless the field may be missing. */
object MissingFields {
  private val Optional = Set("id", "snapshot_version", "snapshot_kind", "full_version", "snapshot_age_ms",
    "full_age_ms")

  private val attempts =
    Json.obj("ordinal" -> 3L, "seen" -> Json.array(Seq(Json.array(Seq(2L, "a")), Json.array(Seq(2L, None)))))
  private val ages = Json.obj("snapshot_age_ms" -> 5L, "full_age_ms" -> None)

  private val commit = Json.obj(
    "chain" -> Json.obj("deltas" -> 1L, "deltas_since_full" -> 2L, "merges_since_full" -> 3L, "files" -> 4L,
      "bytes" -> 5L, "shared_files" -> 6L, "shared_bytes" -> 7L, "snapshot_version" -> 8L,
      "snapshot_kind" -> "full", "full_version" -> None),
    "predicted_restore_ms" -> 9.5, "restore_objective_ms" -> 10L, "ages" -> ages, "attempts" -> attempts,
    "hydration" -> Json.obj("on_demand_bytes" -> 11L, "hydrated_bytes" -> 12L, "left_bytes" -> 13L))

  private val restore = Json.obj(
    "id" -> "a", "attempts" -> attempts, "directory" -> "/d", "base" -> Json.obj("version" -> 1L, "id" -> "b"),
    "loose_deltas" -> Json.array(Seq(Json.obj("version" -> 2L, "id" -> "c", "path" -> "/p"))),
    "sparse" -> Json.texts(Seq("f")), "page_bytes" -> 1, "pages_at_once" -> 2L, "stored" -> Json.obj("f" -> "s"),
    "keys" -> 3L, "files" -> 4L, "deltas" -> 5L, "local_files" -> 6L, "fetched_files" -> 7L,
    "fetched_bytes" -> 8L, "predicted_ms" -> 9.5, "ages" -> ages, "warnings" -> Json.texts(Seq("w")),
    "phases" -> Json.obj("choose_ms" -> 1.5, "fetch_ms" -> 2.5, "verify_ms" -> 3.5))

  def main(arguments: Array[String]): Unit = {
    require(Answers.commit(commit).chain.snapshotVersion.contains(8L) && Answers.commit(commit).seen.attempts.size == 2)
    require(
      Answers.restore(restore).base.looseDeltas.map(_._2) == Seq("/p") && Answers.restore(restore).predictedMs == 9)
    removeEach(commit)(Answers.commit(commit))
    removeEach(restore)(Answers.restore(restore))
    println("each missing field is named")
  }

  private def removeEach(node: ObjectNode)(read: => Any): Unit =
    for (field <- node.fieldNames.asScala.toList) {
      val value = node.remove(field)
      val message =
        try { read; "" }
        catch { case e: AgentException => e.getMessage }
      require(message.isEmpty == Optional(field), s"without '$field': '$message'")
      require(message.isEmpty || message.contains(s"'$field'"), message)
      node.set[ObjectNode](field, value)
      value match {
        case inner: ObjectNode if field != "stored" => removeEach(inner)(read)
        case _ => ()
      }
    }
}
