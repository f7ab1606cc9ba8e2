package statestore.benchmark

import java.io.OutputStream
import java.net.URI
import java.util.concurrent.TimeUnit.MILLISECONDS
import java.util.concurrent.locks.LockSupport

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs._
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.hdfs.DistributedFileSystem
import org.apache.hadoop.util.Progressable

/**
 * A file system that answers like storage across a network: each request waits `fs.delayed.request.ms` before it
 * begins, and each stream carries `fs.delayed.stream.bytes` a second. Requests are a status, a listing, an open, a
 * create, a rename, a delete, the first read of a stream, each read after a seek and each read at a position. Streams
 * do not share a bandwidth, as those of an object store do not.
 */
trait Delays extends FileSystem {
  private var requestNanos = 0L
  private var bytesASecond = 0L

  abstract override def initialize(name: URI, conf: Configuration): Unit = {
    super.initialize(name, conf)
    requestNanos = MILLISECONDS.toNanos(conf.getLong("fs.delayed.request.ms", 20))
    bytesASecond = conf.getLong("fs.delayed.stream.bytes", 100L << 20)
  }

  abstract override def open(path: Path, bufferBytes: Int): FSDataInputStream = request {
    new FSDataInputStream(new DelayedInput(super.open(path, bufferBytes)))
  }

  abstract override def create(
      path: Path,
      permission: FsPermission,
      overwrite: Boolean,
      bufferBytes: Int,
      replication: Short,
      blockBytes: Long,
      progress: Progressable): FSDataOutputStream =
    delayed(super.create(path, permission, overwrite, bufferBytes, replication, blockBytes, progress))

  protected def delayed(out: => FSDataOutputStream): FSDataOutputStream =
    request(new FSDataOutputStream(new DelayedOutput(out), null))

  abstract override def rename(from: Path, to: Path): Boolean = request(super.rename(from, to))
  abstract override def delete(path: Path, recursive: Boolean): Boolean = request(super.delete(path, recursive))
  abstract override def listStatus(path: Path): Array[FileStatus] = request(super.listStatus(path))
  abstract override def getFileStatus(path: Path): FileStatus = request(super.getFileStatus(path))

  /** True within a request: a file system's call may make others, and only the outer one is a request. */
  private val within = ThreadLocal.withInitial[Boolean](() => false)

  private def request[A](call: => A): A =
    if (within.get) call
    else {
      within.set(true)
      try {
        LockSupport.parkNanos(requestNanos)
        call
      } finally within.set(false)
    }

  private def carry(bytes: Long): Unit = if (bytes > 0) LockSupport.parkNanos(bytes * 1000000000L / bytesASecond)

  private final class DelayedInput(in: FSDataInputStream) extends FSInputStream with StreamCapabilities {
    private var requested = false

    override def read(): Int = {
      begin()
      in.read()
    }

    override def read(bytes: Array[Byte], at: Int, length: Int): Int = {
      begin()
      val read = in.read(bytes, at, length)
      carry(read)
      read
    }

    override def seek(position: Long): Unit = if (position != in.getPos) {
      requested = false
      in.seek(position)
    }

    override def read(position: Long, bytes: Array[Byte], at: Int, length: Int): Int = {
      LockSupport.parkNanos(requestNanos)
      val read = in.read(position, bytes, at, length)
      carry(read)
      read
    }

    override def hasCapability(capability: String): Boolean = in.hasCapability(capability)

    private def begin(): Unit = if (!requested) {
      requested = true
      LockSupport.parkNanos(requestNanos)
    }

    override def getPos: Long = in.getPos
    override def available(): Int = in.available()
    override def seekToNewSource(position: Long): Boolean = false
    override def close(): Unit = in.close()
  }

  private final class DelayedOutput(out: FSDataOutputStream) extends OutputStream {
    override def write(byte: Int): Unit = out.write(byte)

    override def write(bytes: Array[Byte], at: Int, length: Int): Unit = {
      out.write(bytes, at, length)
      carry(length)
    }

    override def flush(): Unit = out.flush()
    override def close(): Unit = out.close()
  }
}

/** A local directory with the delays of remote storage. */
final class DelayedFileSystem extends DelayedLocalFiles {
  override def getScheme: String = "delayed"
  override def getUri: URI = URI.create("delayed:///")
}

class DelayedLocalFiles extends RawLocalFileSystem with Delays {
  override def create(
      path: Path,
      overwrite: Boolean,
      bufferBytes: Int,
      replication: Short,
      blockBytes: Long,
      progress: Progressable): FSDataOutputStream =
    delayed(super.create(path, overwrite, bufferBytes, replication, blockBytes, progress))
}

/** A real HDFS, whose client waits before it asks, as the loopback interface has no delay. */
final class DelayedHdfs extends DistributedFileSystem with Delays
