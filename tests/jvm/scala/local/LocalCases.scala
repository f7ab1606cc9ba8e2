package org.apache.spark.sql.execution.streaming.state.incremental.local

import java.io.{File, FileNotFoundException, IOException}
import java.nio.file.{
  AccessDeniedException, FileAlreadyExistsException, Files, FileSystemException, NoSuchFileException
}
import java.util.concurrent.{Executor, RejectedExecutionException}

import scala.util.Random

import org.rocksdb.{ChecksumType, RocksDB}

import org.apache.spark.sql.execution.streaming.state.incremental.TestFiles
import org.apache.spark.sql.execution.streaming.state.incremental.agent.{AgentException, SeenAttempts}
import org.apache.spark.sql.execution.streaming.state.incremental.base.{BaseDirectory, WholeBases}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.StoreMemory
import org.apache.spark.sql.execution.streaming.state.incremental.settings.LocalDisks
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.{StateConf, StoreVersions}

/** Cases of a store on its machine: threads that cannot be started, and attempts that Spark names by numbers. */
object LocalCases {
  def main(arguments: Array[String]): Unit = {
    workIsDoneWithoutThreads()
    errorsOfWorkEndNoThread()
    verificationGoesOnOnceAThreadStarts()
    aNumberStandsForTheAttemptThatSparkTook()
    theRemedyForALocalDiskIsThatOfItsCause()
    println("the store is right")
  }

  private val noThread: Executor = _ => throw new OutOfMemoryError("unable to create native thread")
  private val stopped: Executor = _ => throw new RejectedExecutionException("the executor is shut down")

  private def workIsDoneWithoutThreads(): Unit = for (executor <- Seq(noThread, stopped)) {
    var done = 0
    LocalStore.later(() => done += 1, executor)
    require(done == 1, s"work was done $done times")
  }

  private def errorsOfWorkEndNoThread(): Unit = {
    val errors = Seq(
      new IllegalStateException("a defect"), new OutOfMemoryError("Java heap space"),
      new InternalError("a mapped file"),
      new StackOverflowError, new NoClassDefFoundError("missing"))
    for (error <- errors; executor <- Seq[Executor](_.run(), noThread)) LocalStore.later(() => throw error, executor)
  }

  private def verificationGoesOnOnceAThreadStarts(): Unit = {
    RocksDB.loadLibrary()
    val directory = Files.createTempDirectory("local-cases").toFile
    val bases = new WholeBases(new Random(1), directory)
    val memory = new StoreMemory(64L << 20)
    val state = new StoreVersions(memory, StateConf(new File(directory, "spill")))
    val base = bases.build(ChecksumType.kCRC32c)
    state.reset(BaseDirectory(base.getPath, VersionId(1, Some("id-1")), bases.live.size.toLong, () => ()))
    var executor = noThread
    val verification = new BackgroundVerification("a store", state, 1L << 40, executor)
    verification.restored()
    val left = verification.counters.leftBytes
    require(left > 0, "nothing was left to verify")
    executor = _.run()
    verification.goOn()
    require(verification.counters.leftBytes == 0, s"${verification.counters} after a thread could be started")
    state.close()
    TestFiles.delete(directory)
  }

  private def aNumberStandsForTheAttemptThatSparkTook(): Unit = {
    val attempts = new NumberedAttempts(null)
    val seen = SeenAttempts(1, Nil)
    val first = id(5, "a1-00000000-1-00000000")
    val second = id(5, "a1-00000000-2-00000000")
    val next = id(6, "a2-00000000-3-00000000")
    def known(number: Long) = attempts.known(VersionId(number, None))

    require(known(5).isEmpty && known(0).contains(VersionId(0, None)), "an unknown number has a version")
    attempts.committed(first, seen)
    attempts.restored(second, seen)
    require(known(5).contains(second), "the version that was restored last is not taken")
    attempts.restored(id(5, "5e2f0d3c-53c5-4f4c-8bb6-0b5a3cbf9d2e"), seen)
    require(known(5).contains(second), "an id of Spark's took the place of a numbered version")
    attempts.failed(first) // which tells the agent in another thread: there is none here, and nobody waits
    require(known(5).contains(second), "the failure of another attempt took the version away")
    attempts.failed(second)
    require(known(5).isEmpty, "a number stands for an attempt whose task failed")
    attempts.committed(second, seen)
    attempts.committed(next, seen)
    attempts.forgetBefore(6)
    require(known(5).isEmpty && known(6).contains(next), "only earlier versions are forgotten")
    attempts.refused()
    require(known(6).isEmpty, "a number stands for a version that may not be Spark's")
  }

  private def theRemedyForALocalDiskIsThatOfItsCause(): Unit = {
    val remedies = Seq(
      new FileSystemException("/disk", null, "No space left on device") -> "Free space",
      new FileNotFoundException("/disk/x (Disk quota exceeded)") -> "have the quota raised",
      new FileSystemException("/disk", null, "Read-only file system") -> "Mount that file system",
      new AccessDeniedException("/disk") -> "Let the user of the executor write there",
      new FileNotFoundException("/disk/x (Permission denied)") -> "Let the user of the executor write there",
      new FileAlreadyExistsException("/disk") -> "Remove the file that stands where",
      new FileSystemException("/disk", null, "Not a directory") -> "Remove the file that stands where",
      new NoSuchFileException("/disk/x") -> "Keep cleaners of temporary files away",
      new IOException("Input/output error") -> "Replace that disk",
      new IOException() -> "Check that disk")
    for ((error, remedy) <- remedies) {
      val message = AgentException.ofLocalDisk("/disk", error).getMessage
      require(
        message.contains(remedy) && message.endsWith(s", or set ${LocalDisks.Option} or spark.local.dir to another."),
        message)
      require(remedy == "Free space" || !message.contains("Free space"), message)
    }
  }

  private def id(number: Long, text: String): VersionId = VersionId(number, Some(text))
}
