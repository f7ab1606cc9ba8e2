package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.nio.file.{Files, Path}
import java.util.concurrent.LinkedBlockingQueue
import java.util.zip.CRC32

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state.{StateStoreConf, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.internal.SQLConf

/** Tests of deltas that this JVM stores without the agent. Arguments: an empty directory, a Python interpreter. */
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
    order(room, arguments(1))
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
    failedSync(stored, made)
  }

  /** A file that cannot be synced is given up: the system tells of lost bytes once, and the agent would not see it. */
  private def failedSync(stored: Path, made: NewDelta): Unit = {
    val cannotSync = made.copy(path = Path.of("/dev/null"), bytes = 0, crc = 0)
    val told =
      try {
        new DeltaLinks(stored).store(cannotSync)
        "nothing"
      } catch { case e: AgentException => e.getMessage }
    require(told.contains("the local disk of '/dev/null' failed"), s"a failed sync told $told")
  }

  /** A delta is expected only on the version of the last answer. */
  private def answers(room: Path): Unit = {
    val chain = ChainSizes(3, 5, 1, 9, 100, 0, 0, None, None, None)
    val answer = CommitAnswer(chain, 1, 0, SnapshotAges(Some(50), None), SeenAttempts(0, Nil),
      HydrationCounters(0, 0, 0))
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
    told.tell(next, expected, _.apply())(throw new AgentException("storage", "the agent cannot read"))
    require(told.awaited().before(delta(room, 12).copy(parent = "id")).isEmpty,
      "a version of which the agent does not know was expected")
    told.answered(next.version) {
      told.merged(merge(chain.copy(snapshotVersion = Some(9)))) // a merge ends while the agent answers
      answer
    }
    require(told.before(delta(room, 12).copy(parent = "id")).isEmpty, "the chain before the merge was expected")
    unanswered(room, answer)
    figures(room, answer)
  }

  private val noBase = OfferedBase("", VersionId(0, None), 0, Nil, Set.empty, 0, 0, Map.empty)

  private def merge(chain: ChainSizes): MergeEnded = MergeEnded(1,
    MergedStore("incremental", "", VersionId(0, None), noBase, 0, 0, 0, 0, 0, 0, 0, chain),
    SnapshotAges(Some(7), None), 23, 0)

  /** A delta is expected on one of which the agent has not heard; it hears of both, in their order. */
  private def unanswered(room: Path, answer: CommitAnswer): Unit = {
    val told = new ToldCommits("a store")
    told.answered(VersionId(10, Some("id")))(answer)
    val work = new LinkedBlockingQueue[() => Unit]
    val heard = new LinkedBlockingQueue[Long]
    def stored(version: Long, fails: Boolean): Unit = {
      val made = delta(room, version).copy(parent = "id")
      told.tell(made, told.before(made).get, work.put) {
        heard.put(version)
        if (fails) throw new AgentException("storage", "the agent cannot read")
        answer.copy(chain = answer.chain.copy(deltas = version))
      }
    }
    Seq(11L, 12L, 13L).foreach(stored(_, fails = false))
    require(work.size == 1, s"${work.size} threads tell the agent of one store")
    work.take()()
    require(heard.toArray.toSeq == Seq(11, 12, 13), s"the agent has heard of $heard")
    require(told.before(delta(room, 14).copy(parent = "id")).exists(_.chain.deltas == 14), "the answer is forgotten")
    heard.clear()
    stored(14, fails = true)
    val fifteenth = delta(room, 15).copy(parent = "id")
    told.tell(fifteenth, told.before(fifteenth).get, work.put) {
      heard.put(15)
      require(told.before(delta(room, 16).copy(parent = "id")).isEmpty, "a failure is forgotten before the next answer")
      answer.copy(chain = answer.chain.copy(deltas = 15))
    }
    work.take()()
    require(heard.toArray.toSeq == Seq(14, 15), s"after a failure the agent has heard of $heard")
    require(told.before(delta(room, 16).copy(parent = "id")).exists(_.chain.deltas == 16),
      "the last answer is forgotten")
    stored(16, fails = false)
    stored(17, fails = true)
    work.take()()
    require(told.before(delta(room, 18).copy(parent = "id")).isEmpty, "a version that the agent did not hear of")
  }

  /** After a merge the next delta is expected, too, on the chain of the merge and the deltas stored since. */
  private def figures(room: Path, answer: CommitAnswer): Unit = {
    val told = new ToldCommits("a store")
    told.answered(VersionId(10, Some("id")))(answer)
    val work = new LinkedBlockingQueue[() => Unit]
    for (version <- 11L to 13L) {
      val made = delta(room, version).copy(parent = "id")
      told.tell(made, told.before(made).get, work.put)(answer)
    }
    val fourteenth = delta(room, 14).copy(parent = "id")
    told.merged(merge(answer.chain)) // of kind `ingest`
    require(told.before(fourteenth).exists(_.chain.deltas == answer.chain.deltas + 4), "an ingest changes the figures")
    val after = ChainSizes(2, 3, 4, 20, 5000, 10, 300, Some(9), Some("incremental"), Some(1))
    told.merged(merge(after)) // the agent has heard of version 11, 9 and two deltas
    val expected = told.before(fourteenth).get
    require(expected.chain == after.copy(deltas = 5, deltasSinceFull = 6, files = 23, bytes = 5000 + 3 * bytes.length),
      s"after a merge the chain is expected to be ${expected.chain}")
    require(expected.predictedRestoreMs == 23 && expected.ages.sinceSnapshotMs.exists(_ >= 7), s"it is $expected")
    work.take()() // the answers were given before the merge, or are about older versions
    told.merged(merge(after.copy(snapshotVersion = Some(3), deltas = 6)))
    require(told.before(fourteenth).isEmpty, "the figures of a chain that lacks deltas were expected")
  }

  /** A call of a store waits until the agent has heard of the commit before; so does its end, but not for ever. */
  private def order(room: Path, python: String): Unit = {
    val conf = new SQLConf
    conf.setConfString(AgentStore.Prefix + "agentPython", python)
    conf.setConfString("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
    val store =
      new AgentStore(StateStoreId(s"$room/state", 0, 0), "run", StateStoreConf(conf), new Configuration(false))
    val work = new LinkedBlockingQueue[() => Unit]
    def commit(version: Long, parent: String): CommitAnswer = {
      val file = Files.write(store.opened.incoming.resolve(s"$version.sst"), bytes)
      store.commit(
        NewDelta(VersionId(version, Some(s"id$version")), parent, None, file, bytes.length, crcOf(bytes), 1,
          memoryShort = false),
        work.put)
    }
    commit(1, "0")
    require(work.isEmpty, "the first delta of a store was stored without the agent")
    def isWaitedFor(name: String, method: String)(call: => Any): Unit = {
      require(work.size == 1, s"the delta before $name waited for the agent")
      val waiting = Supervised.start(name)(call)
      awaitIn(waiting, method)
      work.take()()
      waiting.join(patienceMs)
      require(!waiting.isAlive, s"$name does not end")
    }
    require(commit(2, "id1").chain.deltas == 2, "the second delta is not in the chain")
    isWaitedFor("a call", "awaited")(store.attempts(0))
    for (version <- 3 to 11) commit(version, s"id${version - 1}")
    isWaitedFor("a commit after many", "awaitedBut")(commit(12, "id11"))
    commit(13, "id12")
    isWaitedFor("the end", "awaitFor")(store.close())
  }

  private val patienceMs = 300000L

  /** Waits until the thread waits in that method of [[ToldCommits]]. */
  private def awaitIn(thread: Thread, method: String): Unit = {
    def isThere = thread.getStackTrace.exists { frame =>
      frame.getClassName == classOf[ToldCommits].getName && frame.getMethodName == method
    }
    while (!isThere) {
      require(thread.isAlive, s"'${thread.getName}' did not wait until the agent had heard of the commit")
      Thread.sleep(5)
    }
  }
}
