package statestore.benchmark

import java.io.{FilterInputStream, InputStream}
import java.util.Optional
import java.util.concurrent.TimeUnit.{MICROSECONDS, MILLISECONDS, SECONDS}
import java.util.concurrent.locks.LockSupport

import org.apache.hadoop.conf.Configured
import software.amazon.awssdk.core.interceptor.{Context, ExecutionAttributes, ExecutionInterceptor}
import software.amazon.awssdk.http.Abortable

/**
 * Makes the S3 client of Hadoop's S3A see a service across a network: each request waits `fs.delayed.request.ms` before
 * the client sends it, and the body of a request or of an answer takes the time of `fs.delayed.stream.bytes` a second.
 * Bodies do not share a bandwidth, as those of an object store do not. Each attempt of a request counts as a request.
 *
 * A request does not hold a connection while it waits. S3A finds this class by `fs.s3a.audit.execution.interceptors`.
 * Safe for any thread.
 */
final class DelayedRequests extends Configured with ExecutionInterceptor {
  private lazy val requestNanos = MILLISECONDS.toNanos(getConf.getLong("fs.delayed.request.ms", 20))
  private lazy val bytesASecond = getConf.getLong("fs.delayed.stream.bytes", 100L << 20)

  override def beforeTransmission(request: Context.BeforeTransmission, attributes: ExecutionAttributes): Unit = {
    val bodyBytes = request.httpRequest.firstMatchingHeader("Content-Length").map[Long](_.toLong).orElse(0L)
    LockSupport.parkNanos(requestNanos + nanosOf(bodyBytes))
  }

  override def modifyHttpResponseContent(
      answer: Context.ModifyHttpResponse,
      attributes: ExecutionAttributes): Optional[InputStream] = answer.responseBody.map[InputStream](new PacedBody(_))

  private def nanosOf(bytes: Long): Long = SECONDS.toNanos(1) * bytes / bytesASecond

  /** A body that pauses when it is ahead of its pace. The client may abort it, as it may abort `in`. */
  private final class PacedBody(in: InputStream) extends FilterInputStream(in) with Abortable {
    private var owedNanos = 0L

    override def read(): Int = {
      val byte = in.read()
      if (byte >= 0) carry(1)
      byte
    }

    override def read(bytes: Array[Byte], at: Int, length: Int): Int = {
      val read = in.read(bytes, at, length)
      carry(read)
      read
    }

    override def abort(): Unit = in match {
      case abortable: Abortable => abortable.abort()
      case _ => in.close()
    }

    /** Pauses for bytes that were read. A short pause takes longer than it should, so it is put off to the next read. */
    private def carry(bytes: Int): Unit = if (bytes > 0) {
      owedNanos += nanosOf(bytes)
      if (owedNanos >= DelayedRequests.ShortestPauseNanos) {
        val from = System.nanoTime
        LockSupport.parkNanos(owedNanos)
        owedNanos -= System.nanoTime - from
      }
    }
  }
}

private object DelayedRequests {
  val ShortestPauseNanos: Long = MICROSECONDS.toNanos(500)
}
