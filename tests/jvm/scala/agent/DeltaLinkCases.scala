package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.nio.file.{Files, Path}
import java.util.zip.CRC32

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId

/** Tests of deltas that this JVM stores without the agent. Argument: an empty directory. */
object DeltaLinkCases {
  def main(arguments: Array[String]): Unit = {
    val room = Path.of(arguments(0))
    val stored = Files.createDirectory(room.resolve("delta"))
    val links = new DeltaLinks(stored)
    require(links.store(delta(room, 7)), "a delta was not stored")
    val target = stored.resolve("00000000000000000007_id_parent_%08x.sst".format(crcOf(bytes)))
    require(Files.readAllBytes(target).sameElements(bytes), s"$target has other bytes")
    failures(room, stored)
    answers(room)
    println("deltas were stored, or left to the agent")
  }

  private val bytes = Array.tabulate[Byte](700000)(_.toByte)

  private def crcOf(bytes: Array[Byte]): Long = {
    val crc = new CRC32
    crc.update(bytes)
    crc.getValue
  }

  private def delta(room: Path, version: Long): NewDelta = NewDelta(VersionId(version, Some("id")), "parent", None,
    Files.write(room.resolve(s"$version.sst"), bytes), bytes.length, crcOf(bytes), 1, memoryShort = false)

  /** After a failure the agent stores all deltas, but not after an interrupt. */
  private def failures(room: Path, stored: Path): Unit = {
    val interrupted = new DeltaLinks(stored)
    Thread.currentThread.interrupt()
    require(!interrupted.store(delta(room, 8)), "a task that is killed has stored a delta")
    require(Thread.interrupted(), "the interrupt was lost")
    require(interrupted.store(delta(room, 9)), "a killed task has changed who stores deltas")
    val made = delta(room, 10)
    val wrong = Seq("another checksum" -> made.copy(crc = made.crc ^ 1), "another length" -> made.copy(bytes = 1),
      "no file" -> made.copy(path = room.resolve("nowhere")), "a name that is taken" -> delta(room, 9))
    for ((what, broken) <- wrong) {
      val links = new DeltaLinks(stored)
      require(!links.store(broken), s"a delta with $what was stored")
      require(!links.store(made), s"after a delta with $what the agent does not store the next one")
    }
    require(!new DeltaLinks(room.resolve("missing")).store(made), "a delta was stored nowhere")
  }

  /** A delta is expected only on the version of the last answer. */
  private def answers(room: Path): Unit = {
    val chain = ChainSizes(3, 5, 1, 9, 100, 0, 0, None, None, None)
    val answer = CommitAnswer(chain, 1, 0, SnapshotAges(Some(50), None), SeenAttempts(0, Nil),
      HydrationCounters(0, 0, 0, 0))
    val told = new ToldCommits("a store")
    val next = delta(room, 11)
    require(told.before(next).isEmpty, "an answer came from nowhere")
    told.answered(VersionId(10, Some("parent")))(answer)
    val expected = told.before(next).get
    require(expected.chain == chain.copy(deltas = 4, deltasSinceFull = 6, files = 10, bytes = 100 + bytes.length),
      s"the chain is expected to be ${expected.chain}")
    require(expected.ages.sinceSnapshotMs.exists(_ >= 50) && expected.ages.sinceFullMs.isEmpty, "the ages are others")
    require(told.before(next.copy(parent = "another")).isEmpty, "a delta on another attempt was expected")
    require(told.before(delta(room, 12)).isEmpty, "a version was left out")
    told.tell(next.version, _.apply())(throw new AgentException("storage", "the agent cannot read"))
    require(told.awaited().before(delta(room, 12)).isEmpty, "a version of which the agent does not know was expected")
    told.answered(next.version) {
      told.forget() // a merge ends while the agent answers
      answer
    }
    require(told.before(delta(room, 12).copy(parent = "id")).isEmpty, "the chain before the merge was expected")
  }
}
