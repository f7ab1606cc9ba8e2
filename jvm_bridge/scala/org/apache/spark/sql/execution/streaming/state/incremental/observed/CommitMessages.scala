package org.apache.spark.sql.execution.streaming.state.incremental.observed

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream}

import scala.collection.mutable

/**
 * Commits of an executor's stores as bytes: the driver of thousands of stores reads as many reports in every batch, and
 * parsing JSON would take most of the time. A message has each repeated text once. Pure functions.
 */
private[observed] object CommitMessages {
  private val Format = 1

  /** The largest number of variables of a store in a message; the user's come first. */
  private val MaxVariables = 50

  /** Writes the message with which an executor reports commits. */
  def write(executor: String, host: String, commits: Seq[StoreReport]): Array[Byte] = {
    val bytes = new ByteArrayOutputStream(64 + 320 * commits.size)
    val out = new Writer(new DataOutputStream(bytes))
    out.number(Format)
    out.text(executor)
    out.text(host)
    out.all(commits)(commit(out, _))
    bytes.toByteArray
  }

  /**
   * Reads a message.
   *
   * @return the executor, its host and its commits; None if another release sent the message
   * @throws java.io.IOException if the message is cut off
   */
  def read(message: Array[Byte]): Option[(String, String, Seq[StoreReport])] = {
    val in = new Reader(new DataInputStream(new ByteArrayInputStream(message)))
    if (in.number() != Format) None
    else {
      val (executor, host) = (in.text(), in.text())
      Some((executor, host, in.all(commit(in))))
    }
  }

  private def commit(out: Writer, r: StoreReport): Unit = {
    out.text(r.key.run)
    out.number(r.key.operator)
    out.number(r.key.partition)
    out.text(r.key.store)
    out.number(r.atMs)
    out.text(r.root)
    out.number(r.version)
    out.optional(r.id)(out.own)
    out.number(r.keys)
    out.all(r.variables.sortBy(v => (v.internal, v.name)).take(MaxVariables)) { variable =>
      out.text(variable.name)
      out.number(if (variable.internal) 1 else 0)
      out.number(variable.keys)
    }
    Seq(r.deltaBytes, r.writeMs, r.storeMs, r.memoryBytes, r.chainDeltas, r.deltasSinceFull, r.mergesSinceFull,
      r.chainFiles, r.chainBytes, r.sharedFiles, r.sharedBytes).foreach(out.number)
    out.optional(r.snapshotVersion)(out.number)
    out.optional(r.snapshotKind)(out.text)
    Seq(r.fullVersion, r.sinceSnapshotMs, r.sinceFullMs, r.predictedMs, r.objectiveMs)
      .foreach(out.optional(_)(out.number))
    Seq(r.merges.merges, r.merges.fulls, r.merges.ingests, r.merges.failures, r.failuresInRow.toLong)
      .foreach(out.number)
    out.optional(r.lastFailure) { failed =>
      out.text(failed.kind)
      out.own(Messages.brief(failed.message))
    }
    Seq(r.damagedFiles, r.agentRestarts, r.agentRestartsBefore).foreach(out.number)
    out.optional(r.restored) { restore =>
      Seq(if (restore.lazily) 1L else 0L, restore.tookMs, restore.predictedMs, restore.files, restore.deltas,
        restore.fetchedBytes).foreach(out.number)
    }
  }

  // Scala evaluates arguments in the order in which they stand, which is the order of the message.
  private def commit(in: Reader): StoreReport = StoreReport(
    key = StoreKey(run = in.text(), operator = in.number(), partition = in.number().toInt, store = in.text()),
    atMs = in.number(), root = in.text(), version = in.number(), id = in.optional(in.own()), keys = in.number(),
    variables = in.all(Variable(name = in.text(), internal = in.number() == 1, keys = in.number())),
    deltaBytes = in.number(), writeMs = in.number(), storeMs = in.number(), memoryBytes = in.number(),
    chainDeltas = in.number(), deltasSinceFull = in.number(), mergesSinceFull = in.number(), chainFiles = in.number(),
    chainBytes = in.number(), sharedFiles = in.number(), sharedBytes = in.number(),
    snapshotVersion = in.optional(in.number()), snapshotKind = in.optional(in.text()),
    fullVersion = in.optional(in.number()), sinceSnapshotMs = in.optional(in.number()),
    sinceFullMs = in.optional(in.number()), predictedMs = in.optional(in.number()),
    objectiveMs = in.optional(in.number()), merges = MergeCounts(in.number(), in.number(), in.number(), in.number()),
    failuresInRow = in.number().toInt, lastFailure = in.optional(Failed(kind = in.text(), message = in.own())),
    damagedFiles = in.number(), agentRestarts = in.number(), agentRestartsBefore = in.number(),
    restored = in.optional(RestoreReport(
      lazily = in.number() == 1, tookMs = in.number(), predictedMs = in.number(), files = in.number(),
      deltas = in.number(), fetchedBytes = in.number())))

  private final class Writer(out: DataOutputStream) {
    private val places = mutable.Map.empty[String, Int]

    def number(value: Long): Unit = out.writeLong(value)

    /** Writes a text that occurs once. */
    def own(value: String): Unit = out.writeUTF(value)

    /** Writes a text that may occur again: at the first time the text, then its number. */
    def text(value: String): Unit = {
      val place = places.getOrElse(value, places.size)
      out.writeInt(place)
      if (place == places.size) {
        places.update(value, place)
        own(value)
      }
    }

    def optional[T](value: Option[T])(write: T => Unit): Unit = {
      out.writeBoolean(value.isDefined)
      value.foreach(write)
    }

    def all[T](values: Seq[T])(write: T => Unit): Unit = {
      out.writeInt(values.size)
      values.foreach(write)
    }
  }

  private final class Reader(in: DataInputStream) {
    private val texts = mutable.ArrayBuffer.empty[String]

    def number(): Long = in.readLong()

    def own(): String = in.readUTF()

    def text(): String = {
      val place = in.readInt()
      if (place == texts.size) texts += own()
      texts(place)
    }

    def optional[T](read: => T): Option[T] = if (in.readBoolean()) Some(read) else None

    def all[T](read: => T): Seq[T] = Seq.fill(in.readInt())(read)
  }
}
