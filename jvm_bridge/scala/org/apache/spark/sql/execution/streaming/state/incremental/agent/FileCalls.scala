package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.{EOFException, FileNotFoundException, InputStream, IOException, OutputStream}
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.file.{Files, NoSuchFileException, Paths, StandardCopyOption, StandardOpenOption}
import java.security.PrivilegedExceptionAction
import java.util.{Collections, WeakHashMap}
import java.util.concurrent.{
  ConcurrentHashMap, ExecutionException, Future, SynchronousQueue, ThreadPoolExecutor, TimeUnit
}
import java.util.concurrent.TimeUnit.{MILLISECONDS, SECONDS}

import scala.annotation.tailrec
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.{Try, Using}
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{
  AbstractFileSystem, CommonPathCapabilities, FileAlreadyExistsException, FileStatus, FileSystem, FSDataInputStream,
  FSDataOutputStream, Path, StreamCapabilities
}
import org.apache.hadoop.fs.viewfs.ViewFileSystem
import org.apache.hadoop.security.UserGroupInformation
import org.apache.hadoop.util.functional.FutureIO

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json.Fields
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.{
  CheckpointFileManager, FileContextBasedCheckpointFileManager, FileSystemBasedCheckpointFileManager
}
import org.apache.spark.util.ThreadUtils

// Requests of the agent for files in storage: served by threads of this JVM, downloads in the background give way to
// those that a batch waits for, ranges are read into memory without the agent, and a file that is made appears whole or
// not at all.

/**
 * The agent's requests for the files of one store, executed with Spark's CheckpointFileManager and the query's Hadoop
 * configuration, so that any URI that Spark can write works with Spark's own credentials. Safe for any
 * thread: all act for the user of the thread that made this.
 *
 * @param root a path on the storage of all files
 */
final class FileCalls(root: Path, hadoopConf: Configuration) {
  private val user = new FileUser
  private lazy val files: CheckpointFileManager = user.run {
    FileCalls.refuseOldReads(root, hadoopConf)
    SparksFileManager.of(root, ImpatientHdfsClient.of(root, hadoopConf))
  }
  private val newFiles = new NewFiles(root, hadoopConf, files)
  private lazy val fileSystem = user.run(root.getFileSystem(hadoopConf))
  private val transfers = new BulkTransfers

  /** Answers one request; the answer reports a failure. */
  def answer(frame: Frame): Frame = {
    val path = frame.header.path("path").asText
    try perform(frame.header.path("fs").asText, new Path(path), frame)
    catch {
      case e: InterruptedException => throw e
      case e: FileCalls.SpanFailure => failed(e.file, e.getCause)
      case NonFatal(e) => failed(path, e)
    }
  }

  private def failed(file: String, e: Throwable): Frame = Frame(Json.obj("error" -> Json.obj(
    "kind" -> FileCalls.kind(e), "message" -> s"${e.getClass.getName}: ${e.getMessage}", "file" -> file)))

  private def perform(operation: String, path: Path, frame: Frame): Frame = operation match {
    case "list" => page(list(path), Json.text(frame.header, "after"), frame.header.path("most").asInt(Int.MaxValue))
    case "read" => Frame(Json.obj("ok" -> Json.obj()), untilUnchanged(path)(read(path, frame.header)))
    case "write" =>
      if (isBackground(frame)) write(path, frame) else BulkTransfers.givingWay(write(path, frame))
      ok()
    case "spans" =>
      val copies = spans(frame.header).map { span => () =>
        try if (isBackground(frame)) transfers.download(bulk => untilUnchanged(span.path)(copySpan(span, bulk.copied)))
          else untilUnchanged(span.path)(copySpan(span))
        catch { case NonFatal(e) => throw new FileCalls.SpanFailure(span.file, e) }
      }
      ok("copied" -> Json.array(FileCalls.together(copies)))
    case "download" =>
      untilUnchanged(path)(download(path, frame.header.text("to")))
      ok()
    case "delete" =>
      files.delete(path)
      ok()
    case "exists" => ok("exists" -> files.exists(path))
    case "mkdirs" =>
      if (!newFiles.isObjectStore) files.mkdirs(path)
      ok()
    case other => throw new UnsupportedOperationException(s"no file operation '$other'")
  }

  private def isBackground(frame: Frame): Boolean = frame.header.path("background").asBoolean

  private def ok(fields: (String, Any)*): Frame = Frame(Json.obj("ok" -> Json.obj(fields: _*)))

  private def list(path: Path): Seq[FileStatus] =
    try files.list(path).toSeq.filter(_.isFile).sortBy(_.getPath.getName)
    catch { case _: FileNotFoundException => Nil }

  /** Answers with the next files in the order of their names, at most `limit`. */
  private def page(all: Seq[FileStatus], after: Option[String], limit: Int): Frame = {
    val rest = after.fold(all)(name => all.dropWhile(_.getPath.getName <= name))
    val entries = rest.take(limit).map { status =>
      Json.obj("name" -> status.getPath.getName, "bytes" -> status.getLen,
        "modified_ms" -> status.getModificationTime)
    }
    ok("entries" -> Json.array(entries), "more" -> (rest.size > limit))
  }

  /**
   * Returns the result of `body`, which reads a file. S3A refuses to go on reading a file that was replaced meanwhile,
   * and so does HDFS if the old blocks are gone: then `body` is called again, `tries` times in all. Google Cloud Storage
   * says the same of a file that is not there.
   */
  private def untilUnchanged[A](path: Path, tries: Int = FileCalls.MaxReads)(body: => A): A =
    try body
    catch {
      case e: IOException
          if tries > 1 && (FileCalls.isReplaced(e) || FileCalls.mayBeGone(e) && files.exists(path)) =>
        untilUnchanged(path, tries - 1)(body)
    }

  private def download(path: Path, local: String): Unit =
    Using.resource(files.open(path))(Files.copy(_, Paths.get(local), StandardCopyOption.REPLACE_EXISTING))

  /**
   * Opens a file that is not read from `end` on. An object store has to know the end: otherwise it asks for the length
   * first, and then for all bytes that follow, over a connection that is lost if it is closed before they have arrived.
   */
  private def openUntil(path: Path, end: Long): FSDataInputStream =
    if (!newFiles.isObjectStore) files.open(path)
    else FutureIO.awaitFuture(fileSystem.openFile(path)
      .opt("fs.option.openfile.length", end.toString)
      .opt("fs.option.openfile.read.policy", "sequential")
      .build())

  private def spans(arguments: ObjectNode): Seq[FileCalls.Span] = arguments.path("spans").elements.asScala.map { span =>
    val pieces = span.path("pieces").elements.asScala.map(_.asLong).grouped(2).map(piece => (piece.head, piece.last))
    FileCalls.Span(span.text("path"), span.text("to"), pieces.toSeq)
  }.toSeq

  /**
   * Reads a file from the first of some pieces to the end of the last, and copies the pieces to the same places of an
   * existing local file.
   *
   * @param copied called with the number of each some bytes that were copied
   * @return the number of all bytes copied
   */
  private def copySpan(span: FileCalls.Span, copied: Long => Unit = _ => ()): Long =
    Using.resource(openUntil(span.path, span.pieces.last._1 + span.pieces.last._2)) { in =>
      Using.resource(FileCalls.existing(span.to)) { out =>
        FileCalls.copyPieces(in, span.pieces.toIndexedSeq) { (_, bytes, offset) =>
          var place = offset
          while (bytes.hasRemaining) place += out.write(bytes, place)
          copied(place - offset)
        }
      }
    }

  /** Returns a reader of ranges of files into memory, which the caller closes. */
  def rangeReads(): RangeReads = new RangeReads(this)

  /** True if several threads can read a stream; None if that is not known yet. */
  @volatile private var sharing = Option.empty[Boolean]

  /** Returns true if several threads can read a stream of this storage. */
  private[agent] def hasSharedStreams: Boolean = sharing.contains(true)

  /** Returns true if it is not known that several threads cannot read a stream. */
  private[agent] def mayShareStreams: Boolean = !newFiles.isObjectStore && !sharing.contains(false)

  private[agent] def noteShared(isShared: Boolean): Unit = sharing = Some(isShared)

  /** Bytes that downloads in the background bring in a second; None if that is not known. */
  private[agent] def bulkBytesPerSecond: Option[Long] = transfers.bytesPerSecond

  /** Opens a file by its path below the root. */
  private[agent] def open(path: String): FSDataInputStream = files.open(new Path(root, path))

  /** Reads pieces of a file, by its path below the root, with one request, as [[FileCalls.copyPieces]] does. */
  private[agent] def copy(path: String, pieces: IndexedSeq[(Long, Long)])(
      put: (Int, ByteBuffer, Long) => Unit): Long = {
    val file = new Path(root, path)
    untilUnchanged(file) {
      Using.resource(openUntil(file, pieces.last._1 + pieces.last._2))(FileCalls.copyPieces(_, pieces)(put))
    }
  }

  private def read(path: Path, arguments: ObjectNode): Array[Byte] = {
    val offset = arguments.path("offset").asLong(0)
    val length = arguments.path("length")
    if (length.isNumber && length.asLong > Frame.MaxBodyBytes) {
      throw new IOException(s"$length bytes of $path do not fit a frame")
    }
    val opened = if (offset > 0 && length.isNumber) openUntil(path, offset + length.asLong) else files.open(path)
    Using.resource(opened) { in =>
      try {
        if (offset > 0) in.seek(offset)
        if (length.isNumber) in.readNBytes(length.asInt) else atMost(in, Frame.MaxBodyBytes, path)
      } catch { case _: EOFException => Frame.NoBody } // the part begins after the end
    }
  }

  private def atMost(in: InputStream, bytes: Int, path: Path): Array[Byte] = {
    val all = in.readNBytes(bytes + 1)
    if (all.length > bytes) {
      throw new IOException(s"$path is larger than a frame; read it in parts or download it")
    }
    all
  }

  private def write(path: Path, frame: Frame): Unit = {
    val overwrite = frame.header.path("overwrite").asBoolean
    val fill: OutputStream => Unit = Json.text(frame.header, "upload") match {
      case Some(local) => Files.copy(Paths.get(local), _)
      case None => _.write(frame.body)
    }
    try newFiles.create(path, overwrite)(fill)
    catch {
      case _: FileNotFoundException =>
        files.mkdirs(path.getParent)
        newFiles.create(path, overwrite)(fill)
    }
  }
}

private object FileCalls {

  /**
   * Pieces of a file that belong into a local one.
   *
   * @param pieces offset and length of each, in order
   */
  final case class Span(file: String, to: String, pieces: Seq[(Long, Long)]) {
    val path: Path = new Path(file)
  }

  /** Failure to copy a span of `file`, which is named as the request names it. */
  private final class SpanFailure(val file: String, cause: Throwable) extends IOException(cause)

  /** Returns true if a read failed because the file was replaced. HDFS has only these words for it. */
  private def isReplaced(e: IOException): Boolean =
    NewFiles.isRefusal(e) || String.valueOf(e.getMessage).matches("Blocklist for .* has changed!")

  /** Returns true if a read failed because the file was replaced or is not there: Google Cloud Storage says no more. */
  private def mayBeGone(e: IOException): Boolean =
    String.valueOf(e.getMessage).matches("(?s)Item not found: .* the requested generation is deleted.*")

  private val CopiedAtOnceBytes = 256 << 10
  private val MaxReads = 6

  /** Opens an existing local file to write to. */
  private def existing(local: String): FileChannel =
    try FileChannel.open(Paths.get(local), StandardOpenOption.WRITE)
    catch { case e: NoSuchFileException => throw new IOException(s"the local file $local is gone", e) }

  /**
   * Reads all bytes from the first of some pieces to the end of the last, and passes those of the pieces on.
   *
   * @param pieces offset and length of each, in order
   * @param put takes the number of a piece, bytes of it, and their offset in the file
   * @return the number of bytes passed on
   */
  private def copyPieces(in: FSDataInputStream, pieces: IndexedSeq[(Long, Long)])(
      put: (Int, ByteBuffer, Long) => Unit): Long = {
    val start = pieces.head._1
    val end = pieces.last._1 + pieces.last._2
    val buffer = new Array[Byte](math.min(CopiedAtOnceBytes.toLong, end - start).toInt)
    var copied = 0L
    var at = start
    try {
      if (start > 0) in.seek(start)
      var first = 0
      var count = in.readNBytes(buffer, 0, buffer.length)
      while (count > 0) {
        while (first < pieces.size && pieces(first)._1 + pieces(first)._2 <= at) first += 1
        var piece = first
        while (piece < pieces.size && pieces(piece)._1 < at + count) {
          val (offset, length) = pieces(piece)
          val from = math.max(offset, at)
          val bytes = ByteBuffer.wrap(buffer, (from - at).toInt, (math.min(offset + length, at + count) - from).toInt)
          copied += bytes.remaining
          put(piece, bytes, from)
          piece += 1
        }
        at += count
        count = in.readNBytes(buffer, 0, math.min(buffer.length.toLong, end - at).toInt)
      }
    } catch { case _: EOFException => () } // the file ends before the first piece
    copied
  }

  /** The most spans that are read at a time in this JVM: waits for storage, and not work. */
  private val MaxSpans = 256

  /** Seconds after which a thread without work ends. Work goes to the thread that has waited least, so others end. */
  private val IdleSpanSeconds = 10L
  private lazy val spanThreads = new ThreadPoolExecutor(0, MaxSpans, IdleSpanSeconds, TimeUnit.SECONDS,
    new SynchronousQueue[Runnable], ThreadUtils.namedThreadFactory("state-store-spans"),
    new ThreadPoolExecutor.CallerRunsPolicy)

  /**
   * Returns the results of all parts of some work, which run at the same time. After a failure no further part begins,
   * and none runs any more when this returns: the agent may use the files for something else by then. An interrupt of
   * this thread counts as a failure.
   */
  private[agent] def together(work: Seq[() => Long]): Seq[Long] =
    if (work.size == 1) Seq(work.head())
    else {
      @volatile var failure: Throwable = null
      val futures = work.flatMap { part =>
        try Some(spanThreads.submit { () =>
            try if (failure == null) part() else 0L
            catch {
              case e: Throwable =>
                failure = e
                throw e
            }
          })
        catch {
          case e: OutOfMemoryError => // no thread is left
            failure = new IOException("the threads that read spans of files cannot be started", e)
            None
        }
      }
      futures.foreach(future => awaitEnd(future)(interrupt => failure = interrupt))
      if (failure != null) throw failure
      futures.map(_.get())
    }

  /** Waits until some work has ended, also if this thread is interrupted meanwhile. */
  @tailrec
  private def awaitEnd(work: Future[_])(onInterrupt: InterruptedException => Unit): Unit = {
    val hasEnded =
      try {
        work.get()
        true
      } catch {
        case _: ExecutionException => true
        case e: InterruptedException =>
          onInterrupt(e)
          false
      }
    if (!hasEnded) awaitEnd(work)(onInterrupt)
  }

  /**
   * Refuses to read from observers of HDFS, whose answers may be old; docs/operations.md describes the consequences.
   *
   * @throws java.io.IOException if the configuration reads from observers without asking for new answers
   */
  def refuseOldReads(root: Path, hadoopConf: Configuration): Unit = {
    val service = Option(root.toUri.getAuthority).getOrElse(FileSystem.getDefaultUri(hadoopConf).getAuthority)
    val provider = hadoopConf.get(s"dfs.client.failover.proxy.provider.$service", "")
    val period = s"dfs.client.failover.observer.auto-msync-period.$service"
    if (provider.contains("ObserverRead") && hadoopConf.getTimeDuration(period, -1L, TimeUnit.MILLISECONDS) != 0) {
      throw new IOException(s"'$service' is read from observers ($provider), whose answers may be old: set $period " +
        "to 0, so that every read sees what was written before it, or read from the active NameNode")
    }
  }

  def kind(e: Throwable): String = e match {
    case _: FileAlreadyExistsException => "conflict"
    case _: FileNotFoundException | _: NoSuchFileException => "missing"
    case _: UnsupportedOperationException => "internal"
    case _ => "storage"
  }
}

/** The open stores whose files the agents of this JVM may ask for, by the number of the provider. */
private[agent] final class FileServers {
  private val stores = new ConcurrentHashMap[Long, FileCalls]
  private val closed = new ConcurrentHashMap[Long, ObjectNode]

  def add(store: Long, files: FileCalls): Unit = stores.put(store, files)

  def remove(store: Long): Unit = {
    stores.remove(store)
    closed.remove(store)
  }

  /**
   * Goes on serving the files of a closed store until `remove`.
   *
   * @param close the call that closed the store, for an agent that replaces the one that has promised to end with it
   */
  def keepUntilClosed(store: Long, close: ObjectNode): Unit = if (stores.containsKey(store)) closed.put(store, close)

  /** Returns the calls that closed the stores which are still served, by the number of the provider. */
  def closes: Map[Long, ObjectNode] = closed.asScala.toMap

  /** Answers one request; the answer reports a failure. */
  def answer(request: Frame): Frame = {
    val store = request.header.path("store").asLong
    Option(stores.get(store)).map(_.answer(request)).getOrElse(Frame(Json.obj("error" -> Json.obj(
      "kind" -> "storage", "message" -> s"store $store is closed",
      "file" -> request.header.path("path").asText))))
  }
}

/**
 * Threads of this JVM that serve an agent's file requests, each on a connection of its own, as long as the
 * agent lives. They are few daemon threads; a connection that breaks is opened again.
 */
private[agent] object FileServer extends Logging {
  private val RetryPauseMs = 100L

  /** Starts a thread. Returns false if the machine has no thread left. */
  def start(process: AgentProcess, files: FileServers, name: String): Boolean =
    Supervised.start(name)(serve(process, files)) != null

  private def serve(process: AgentProcess, files: FileServers): Unit =
    Supervised.repeat("File requests of the agent cannot be served", process.isAlive, RetryPauseMs) {
      try process.connections.serve(files.answer)
      catch {
        case e: IOException => logDebug("A connection for file requests ended", e)
        case e: AgentException => logDebug("The agent takes no connection for file requests", e)
      }
      if (process.isAlive) Thread.sleep(RetryPauseMs)
    }
}

/**
 * Downloads of one store in the background, which give way to requests that a batch of any store of this JVM waits for.
 * Any number of threads.
 *
 * @param maxAheadNanos the time for which all of them together give way to look-aheads, until no more come for a while
 */
private[agent] final class BulkTransfers(maxAheadNanos: => Long = BulkTransfers.defaultAheadNanos) {
  import BulkTransfers._

  private var running = 0
  private var startedNanos = 0L
  private var lastNanos = 0L
  private var bytes = 0L

  /** The time that look-aheads had taken in this JVM when these downloads began; less than 0 if none has. */
  @volatile private var aheadBefore = -1L

  /** Runs a download, which notes what it copies. */
  def download[A](body: Download => A): A = {
    begin(downloadNanos())
    try {
      val download = new Download
      download.giveWay()
      body(download)
    } finally end(downloadNanos())
  }

  /** A download in the background, of one file or of a part of it. One thread. */
  final class Download {
    private var leftNanos = maxWaitNanos

    /** True if the bytes that come next were asked for while there was a request to give way to. */
    private var isBeside = false

    def giveWay(): Unit = BulkTransfers.synchronized {
      var aheadNanos = leftForAheadNanos
      while (aheadNanos > 0) {
        BulkTransfers.wait(aheadNanos / nanosOfMilli + 1) // a wait of 0 has no end
        aheadNanos = leftForAheadNanos
      }
      while (urgent.isAny && leftNanos > 0) {
        val begunNanos = System.nanoTime
        BulkTransfers.wait(leftNanos / nanosOfMilli + 1)
        leftNanos -= System.nanoTime - begunNanos
      }
      isBeside = urgent.isAny
    }

    /**
     * Notes that some bytes have come. Then waits while there are requests to give way to, but for a second in all in a
     * download, and to look-aheads for half a minute in all of them: downloads go on, however many batches there are.
     */
    def copied(bytes: Long): Unit = {
      noteCopied(if (isBeside) 0 else bytes) // the clock of downloads stood still
      giveWay()
    }
  }

  private def leftForAheadNanos: Long = if (ahead.isAny) maxAheadNanos - (ahead.nanos - aheadBefore) else 0

  private def begin(now: Long): Unit = synchronized {
    val isFirst = aheadBefore < 0 || running == 0 && now - lastNanos > maxPauseNanos
    if (isFirst) aheadBefore = BulkTransfers.synchronized(ahead.nanos)
    if (isFirst || bytes == 0) {
      startedNanos = now
      bytes = 0
    }
    lastNanos = now
    running += 1
  }

  private def end(now: Long): Unit = synchronized {
    lastNanos = now
    running -= 1
  }

  private def noteCopied(count: Long): Unit = {
    val now = downloadNanos()
    synchronized {
      lastNanos = now
      bytes += count
    }
  }

  /**
   * Returns how many bytes of the store have come in a second lately, while they gave way to nothing: 0 if there are no
   * downloads; None if that is not known yet.
   */
  def bytesPerSecond: Option[Long] = {
    val now = downloadNanos()
    synchronized {
      val nanos = lastNanos - startedNanos
      if (running == 0 && (bytes == 0 || now - lastNanos > maxPauseNanos)) Some(0)
      else Option.when(nanos >= minNanos && bytes >= minBytes)((bytes.toDouble * SECONDS.toNanos(1) / nanos).toLong)
    }
  }
}

private[agent] object BulkTransfers {
  private val nanosOfMilli = MILLISECONDS.toNanos(1)

  /** Time for which a download gives way. */
  private val maxWaitNanos = SECONDS.toNanos(1)

  /**
   * Time for which the downloads of a store give way to look-aheads besides. These take seconds, and end by themselves if
   * the files are there sooner. Each download is small, so if it waited for a second only, many would run beside them.
   */
  private val defaultAheadNanos = SECONDS.toNanos(30)

  /** Time without a download after which no more is expected: a limit of their speed makes shorter pauses. */
  private val maxPauseNanos = SECONDS.toNanos(3)

  /** A speed that was measured with less tells nothing. */
  private val minNanos = MILLISECONDS.toNanos(100)
  private val minBytes = 1L << 20

  /** Requests of a kind, and the time in which there were any. Its callers hold the lock of this object. */
  private final class Requests {
    private var count = 0
    private var sinceNanos = 0L
    private var endedNanos = 0L

    def isAny: Boolean = count > 0

    def nanos: Long = endedNanos + (if (isAny) System.nanoTime - sinceNanos else 0)

    def begin(): Unit = {
      if (count == 0) sinceNanos = System.nanoTime
      count += 1
    }

    def end(): Unit = {
      if (count == 1) endedNanos = nanos
      count -= 1
      if (count == 0) BulkTransfers.notifyAll()
    }
  }

  /** Requests that a batch waits for, and those among them that read ahead what it will ask for. */
  private val urgent = new Requests
  private val ahead = new Requests

  /** Makes requests that a batch waits for. */
  def givingWay[A](body: => A): A = among(urgent)(body)

  /** Makes requests of a look-ahead, to which downloads give way for longer. */
  def givingWayAhead[A](body: => A): A = among(urgent)(among(ahead)(body))

  private def among[A](requests: Requests)(body: => A): A = {
    synchronized(requests.begin())
    try body
    finally synchronized(requests.end())
  }

  /** Returns a time that stands still while downloads give way. */
  private def downloadNanos(): Long = synchronized(System.nanoTime - urgent.nanos)
}

/**
 * Reads ranges of the files of one store into memory. Ranges that lie close together come with one request, and many
 * requests run at a time. Downloads in the background give way meanwhile. One thread.
 *
 * If streams of the storage can be read by several threads (HDFS), each file is opened once. Otherwise a stream is opened
 * for each request, which on object stores costs nothing.
 */
private[incremental] final class RangeReads private[agent] (files: FileCalls) extends AutoCloseable {
  import RangeReads._

  private val streams = new ConcurrentHashMap[String, FSDataInputStream]

  /**
   * Reads ranges.
   *
   * @param ranges path below the root, offset and length of each
   * @return their bytes, in the same order; zeros where a file ends before
   * @throws java.io.IOException if storage fails
   */
  def read(ranges: Seq[(String, Long, Int)]): Seq[Array[Byte]] = BulkTransfers.givingWay(readAll(ranges.toIndexedSeq))

  private def readAll(wanted: IndexedSeq[(String, Long, Int)]): Seq[Array[Byte]] = {
    val contents = new Array[Array[Byte]](wanted.size)
    val isShared = files.hasSharedStreams || wanted.headOption.exists(range => tryShared(range._1))
    if (isShared) {
      val others = wanted.map(_._1).distinct.filterNot(path => streams.containsKey(path))
      FileCalls.together(others.map(path => () => opened(path)))
    }
    val requests = if (isShared) spansOf(wanted, SharedGapBytes, SharedSpanBytes) else spansOf(wanted)
    FileCalls.together(requests.map { numbers => () =>
      if (isShared) readShared(wanted, numbers, contents) else readAlone(wanted, numbers, contents)
    })
    contents.toSeq
  }

  private def opened(path: String): Long = {
    streams.put(path, files.open(path))
    0
  }

  /** Opens a file, and keeps its stream if several threads can read it. */
  private def tryShared(path: String): Boolean = files.mayShareStreams && {
    val in = files.open(path)
    files.noteShared(in.hasCapability(StreamCapabilities.PREADBYTEBUFFER))
    if (files.hasSharedStreams) streams.put(path, in) else in.close()
    files.hasSharedStreams
  }

  private def readShared(ranges: IndexedSeq[(String, Long, Int)], numbers: IndexedSeq[Int],
      found: Array[Array[Byte]]): Long = {
    val (path, start, _) = ranges(numbers.head)
    val (_, last, length) = ranges(numbers.last)
    val in = streams.get(path)
    val bytes = new Array[Byte](Math.toIntExact(last + length - start))
    var read = 0
    var count = 0
    while (read < bytes.length && count >= 0) {
      count = in.read(start + read, bytes, read, bytes.length - read)
      read += math.max(count, 0)
    }
    numbers.foreach { number =>
      val (_, offset, length) = ranges(number)
      val from = (offset - start).toInt
      found(number) = if (length == bytes.length) bytes else java.util.Arrays.copyOfRange(bytes, from, from + length)
    }
    read
  }

  private def readAlone(ranges: IndexedSeq[(String, Long, Int)], numbers: IndexedSeq[Int],
      found: Array[Array[Byte]]): Long = {
    val pieces = numbers.map { number =>
      val (_, offset, length) = ranges(number)
      found(number) = new Array[Byte](length)
      (offset, length.toLong)
    }
    files.copy(ranges(numbers.head)._1, pieces) { (piece, bytes, offset) =>
      bytes.get(found(numbers(piece)), (offset - pieces(piece)._1).toInt, bytes.remaining)
      ()
    }
  }

  /** Bytes of whole files that come in a second while nothing is read ahead; None if that is not known. */
  def bulkBytesPerSecond: Option[Long] = files.bulkBytesPerSecond

  /** Has downloads in the background give way to the body, which reads ahead. */
  def readingAhead[A](body: => A): A = BulkTransfers.givingWayAhead(body)

  /** Closes the files. May be called repeatedly. */
  def close(): Unit = {
    streams.values.forEach { in =>
      try in.close()
      catch { case NonFatal(_) => () } // it was only read
    }
    streams.clear()
  }
}

private[agent] object RangeReads {

  /** Bytes between two ranges that are read rather than skipped: they take less time than another request. */
  private val GapBytes = 128 << 10

  /** Bytes from which on a request takes no further range, so that many are read by several threads. */
  private val SpanBytes = 2 << 20

  /** The same for streams that are open, a request of which takes less time, and comes into memory as a whole. */
  private val SharedGapBytes = 48 << 10
  private val SharedSpanBytes = 256 << 10

  /** Divides ranges, given by path, offset and length, among requests: their numbers, in order. */
  def spansOf(
      ranges: IndexedSeq[(String, Long, Int)],
      gapBytes: Int = GapBytes,
      spanBytes: Int = SpanBytes): Seq[IndexedSeq[Int]] = {
    val spans = mutable.ArrayBuffer.empty[mutable.ArrayBuffer[Int]]
    ranges.indices.sortBy(number => (ranges(number)._1, ranges(number)._2)).foreach { number =>
      val (path, offset, length) = ranges(number)
      val joins = spans.nonEmpty && {
        val (before, start, _) = ranges(spans.last.head)
        val (_, last, bytes) = ranges(spans.last.last)
        path == before && offset - (last + bytes) <= gapBytes && offset + length - start <= spanBytes
      }
      if (!joins) spans += mutable.ArrayBuffer.empty[Int]
      spans.last += number
    }
    spans.map(_.toIndexedSeq).toSeq
  }
}

/**
 * Makes files of checkpoint storage, each of which appears whole or not at all. Safe for any thread.
 *
 * If a stream can be aborted (S3A), a file is written under its own name: it appears when the stream is closed, and a
 * rename would copy it. If the store can also create a file on condition that the name is free, one of several writers
 * wins. On other storage Spark's manager makes the files, as it makes Spark's own checkpoint files; where its rename would
 * take an older file away first, an older file is kept, or replaced by an upload.
 *
 * @param root a path on the storage of all files
 */
private[agent] final class NewFiles(root: Path, hadoopConf: Configuration, manager: => CheckpointFileManager) {
  private val user = new FileUser
  private lazy val fileSystem: FileSystem = user.run(root.getFileSystem(hadoopConf))

  /** True for an object store, which has no directories. */
  lazy val isObjectStore: Boolean = can(CommonPathCapabilities.ABORTABLE_STREAM)
  private lazy val hasCondition = can(NewFiles.IfFree)

  /**
   * Makes a file.
   *
   * Of two writers who have both seen that a name is free, the one that comes second meets an error which each connector
   * words in its own way: so the name is looked up again.
   *
   * @param fill writes its content
   * @throws org.apache.hadoop.fs.FileAlreadyExistsException without `overwrite`, if the file exists
   * @throws java.io.IOException if the file cannot be written or replaced
   */
  def create(path: Path, overwrite: Boolean)(fill: OutputStream => Unit): Unit =
    try make(path, overwrite)(fill)
    catch {
      case e: FileAlreadyExistsException => throw e
      case e: IOException if !overwrite && Try(manager.exists(path)).getOrElse(false) =>
        throw NewFiles.existsAlready(path, e)
    }

  private def make(path: Path, overwrite: Boolean)(fill: OutputStream => Unit): Unit =
    if (isObjectStore || overwrite && isReplacedByUploads) put(path, overwrite)(fill)
    else {
      val replaces = overwrite && !removesBeforeItRenames
      if (!replaces && manager.exists(path))
        throw (if (overwrite) NewFiles.isKept(path) else NewFiles.existsAlready(path, null))
      val before = if (replaces && mayKeepTheOld) identity(path) else None
      val out = manager.createAtomic(path, replaces)
      NewFiles.finish(out, () => out.cancel())(fill)
      if (before.isDefined && identity(path) == before) {
        throw new IOException(s"$path was not replaced: the rename of its file system does not, and " +
          "spark.sql.streaming.checkpointFileManagerClass, FileSystemBasedCheckpointFileManager, takes that for done")
      }
    }

  /**
   * True for a connector whose rename replaces a file by removing it first: readers find none for a moment, and a kill at
   * that moment loses both. Hadoop does so wherever a connector says nothing else.
   */
  private lazy val removesBeforeItRenames: Boolean = manager.isInstanceOf[FileContextBasedCheckpointFileManager] && {
    val connector = hadoopConf.getClass(s"fs.AbstractFileSystem.$scheme.impl", null)
    connector != null && connector
      .getMethod("renameInternal", classOf[Path], classOf[Path], classOf[Boolean])
      .getDeclaringClass == classOf[AbstractFileSystem]
  }

  /** True for Google Cloud Storage: a rename would remove a file first, but an upload takes its place when it is completed. */
  private lazy val isReplacedByUploads: Boolean = scheme == "gs" && removesBeforeItRenames

  /** The scheme of the files, also behind a `viewfs:` URI. */
  private lazy val scheme: String =
    if (fileSystem.isInstanceOf[ViewFileSystem]) user.run(NewFiles.behind(fileSystem, root)).toUri.getScheme
    else fileSystem.getUri.getScheme

  /** Returns true for a manager that reports success if its rename leaves an older file in place. */
  private def mayKeepTheOld: Boolean = manager.isInstanceOf[FileSystemBasedCheckpointFileManager]

  /** Returns time and length of a file, if it exists: a new file differs, since a rename keeps the time of writing. */
  private def identity(path: Path): Option[(Long, Long)] =
    try {
      val status = fileSystem.getFileStatus(path)
      Some((status.getModificationTime, status.getLen))
    } catch { case _: FileNotFoundException => None }

  private def put(path: Path, overwrite: Boolean)(fill: OutputStream => Unit): Unit = {
    val conditional = !overwrite && hasCondition
    try NewFiles.fill(NewFiles.begin(fileSystem, path, overwrite, conditional))(fill)
    catch { case e: IOException if conditional && NewFiles.isRefusal(e) => throw NewFiles.existsAlready(path, e) }
  }

  private def can(capability: String): Boolean = fileSystem.hasPathCapability(root, capability)
}

private[incremental] object NewFiles {
  /** FS_OPTION_CREATE_CONDITIONAL_OVERWRITE of Hadoop 3.4.2 and later; on older ones no path has the capability. */
  val IfFree = "fs.option.create.conditional.overwrite"

  /**
   * Opens a file of an object store, which appears when the stream is closed.
   *
   * @param conditional true to refuse, at the end, a name that is taken: see [[isRefusal]]
   */
  def begin(fileSystem: FileSystem, path: Path, overwrite: Boolean, conditional: Boolean): FSDataOutputStream = {
    val builder = fileSystem.createFile(path).recursive().overwrite(overwrite)
    if (conditional) builder.must(IfFree, true)
    builder.build()
  }

  /** Writes the content of a file that [[begin]] has opened. If that fails, the file does not appear. */
  def fill(out: FSDataOutputStream)(content: OutputStream => Unit): Unit = finish(out, () => out.abort())(content)

  private def finish(out: OutputStream, abort: () => Unit)(fill: OutputStream => Unit): Unit =
    try {
      fill(out)
      out.close()
    } catch {
      case e: Throwable =>
        try abort()
        catch { case other: Throwable => e.addSuppressed(other) }
        throw e
    }

  /** Returns the path behind that of a view, or behind that of its nearest parent that exists. */
  @tailrec
  private def behind(view: FileSystem, path: Path): Path = {
    val resolved =
      try Some(view.resolvePath(path))
      catch { case _: FileNotFoundException if path.getParent != null => None }
    if (resolved.isDefined) resolved.get else behind(view, path.getParent)
  }

  /** Returns the error of a file that cannot be replaced in one step. */
  def isKept(path: Path): IOException = new IOException(
    s"$path exists, and a rename of this file system would remove it before the new file has its name: it is kept. A full " +
      "checkpoint of a later version has another name; `state-store full` replaces a snapshot in one step")

  def existsAlready(path: Path, cause: Throwable): FileAlreadyExistsException = {
    val e = new FileAlreadyExistsException(s"$path exists")
    e.initCause(cause)
    e
  }

  /**
   * Returns true if S3 says that a condition does not hold: the name is taken, or the file that is read was replaced.
   * The exceptions belong to hadoop-aws, which Spark does not bring.
   */
  def isRefusal(e: IOException): Boolean =
    e.getClass.getSimpleName == "RemoteFileChangedException" ||
      String.valueOf(e.getMessage).contains("Status Code: 412")
}

/**
 * Hadoop configurations with which the HDFS client asks sooner whether a file that it closes is complete. If the report
 * of the last block has not reached the NameNode yet, which is usual for small files, Hadoop's client waits 400 ms, and
 * twice as long each time, 5 times; with these it begins with 10 ms, and asks more often, for longer in all. Safe for
 * any thread.
 */
private[incremental] object ImpatientHdfsClient {
  private val waits = Map(
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms" -> "10",
    "dfs.client.block.write.locateFollowingBlock.retries" -> "11")
  private val hadoopsOwn = "hdfs-default.xml"

  /** Copies by their originals: all stores of a query have the same configuration, which is large. */
  private val prompt = Collections.synchronizedMap(new WeakHashMap[Configuration, Configuration])

  /** Returns the configuration for making files in `root`, which keeps the settings of the user. */
  def of(root: Path, hadoopConf: Configuration): Configuration =
    if (root.toUri.getScheme != "hdfs" || waits.keys.exists(isSet(_, hadoopConf))) hadoopConf
    else prompt.computeIfAbsent(hadoopConf,
      conf => {
        val copy = new Configuration(conf)
        waits.foreach { case (name, value) => copy.set(name, value) }
        copy
      })

  private def isSet(name: String, conf: Configuration): Boolean =
    conf.get(name) != null && !Option(conf.getPropertySources(name)).exists(_.forall(_ == hadoopsOwn))
}

/** The manager of checkpoint files behind `CheckpointFiles`: Spark's, or the user's. Safe for any thread. */
private[incremental] object SparksFileManager {
  private val key = "spark.sql.streaming.checkpointFileManagerClass"
  private val ours = s"${getClass.getPackageName.stripSuffix(".agent")}.CheckpointFiles"

  def of(path: Path, hadoopConf: Configuration): CheckpointFileManager =
    if (hadoopConf.get(key) != ours) CheckpointFileManager.create(path, hadoopConf)
    else {
      val without = new Configuration(hadoopConf)
      without.unset(key)
      CheckpointFileManager.create(path, without)
    }
}

/**
 * The user of the thread that makes this: a client of Hadoop acts for whoever opens it, and the threads that serve file
 * requests have the user of the task that started them, which may be that of another query. It is the user itself and no
 * copy: Spark adds renewed tokens to it, which connections take that are opened later. Safe for any thread.
 */
private[agent] final class FileUser {
  private val user = UserGroupInformation.getCurrentUser

  /** Runs `open` for the user. Throws what it throws. */
  def run[A](open: => A): A = {
    val action: PrivilegedExceptionAction[Try[A]] = () => Try(open)
    user.doAs(action).get
  }
}
