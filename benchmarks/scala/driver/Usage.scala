package statestore.benchmark

import java.lang.management.ManagementFactory
import java.nio.file.{Files, Path, Paths}

import scala.jdk.CollectionConverters._
import scala.util.{Try, Using}

import com.sun.management.OperatingSystemMXBean

/** CPU and memory of this JVM and of the processes that it started, read from the JVM and from /proc. */
object Usage {
  private val system = ManagementFactory.getOperatingSystemMXBean.asInstanceOf[OperatingSystemMXBean]
  private val threads = ManagementFactory.getThreadMXBean
  private val memory = ManagementFactory.getMemoryMXBean
  private val ticksPerSecond = 100.0 // USER_HZ, which Linux fixes for what /proc shows

  def jvmCpuSeconds: Double = system.getProcessCpuTime / 1e9
  def threadCpuSeconds: Double = threads.getCurrentThreadCpuTime / 1e9

  /** CPU seconds of the running and the ended child processes. */
  def childrenCpuSeconds: Double =
    children.map(cpuSecondsOf(_, 11)).sum + cpuSecondsOf(ProcessHandle.current().pid, 13)

  /** Returns the bytes of heap in use after two collections. */
  def heapBytesAfterGc(): Long = {
    System.gc()
    System.gc()
    memory.getHeapMemoryUsage.getUsed
  }

  /**
   * Returns resident bytes: of the JVM (all, anonymous, file-backed) and of its children (proportional now, highest
   * resident size).
   */
  def resident(): Map[String, Long] = {
    val status = statusOf(Paths.get("/proc/self/status"))
    Map(
      "jvm_rss_bytes" -> status.getOrElse("VmRSS", 0L),
      "jvm_anonymous_bytes" -> status.getOrElse("RssAnon", 0L),
      "jvm_file_bytes" -> status.getOrElse("RssFile", 0L),
      "children_pss_bytes" ->
        children.map(pid => statusOf(proc(pid, "smaps_rollup")).getOrElse("Pss", 0L)).sum,
      "children_peak_rss_bytes" ->
        children.map(pid => statusOf(proc(pid, "status")).getOrElse("VmHWM", 0L)).sum)
  }

  /**
   * Returns numbers of bounded resources: threads and descriptors of the JVM and of its children, and the JVM's
   * mappings.
   */
  def handles(): Map[String, Long] = Map(
    "jvm_threads" -> entriesOf(Paths.get("/proc/self/task")),
    "jvm_descriptors" -> entriesOf(Paths.get("/proc/self/fd")),
    "jvm_mappings" -> Try(Files.readAllLines(Paths.get("/proc/self/maps")).size.toLong).getOrElse(0L),
    "children_threads" -> children.map(pid => entriesOf(proc(pid, "task"))).sum,
    "children_descriptors" -> children.map(pid => entriesOf(proc(pid, "fd"))).sum)

  private def entriesOf(directory: Path): Long =
    Try(Using.resource(Files.list(directory))(_.count())).getOrElse(0L) // the process ended meanwhile

  private def children: Seq[Long] = ProcessHandle.current().descendants().iterator().asScala.map(_.pid).toSeq
  private def proc(pid: Long, file: String): Path = Paths.get(s"/proc/$pid/$file")

  /**
   * Returns the sum of the times in proc(5)'s stat, utime (field 11 after the name), stime, cutime and cstime (14),
   * from `first` on.
   */
  private def cpuSecondsOf(pid: Long, first: Int): Double = Try {
    val stat = Files.readString(proc(pid, "stat"))
    val fields = stat.substring(stat.lastIndexOf(')') + 2).split(' ')
    fields.slice(first, 15).map(_.toLong).sum / ticksPerSecond
  }.getOrElse(0.0) // the process ended meanwhile

  private def statusOf(file: Path): Map[String, Long] = Try {
    Files.readAllLines(file).asScala.collect {
      case line if line.endsWith(" kB") =>
        val Array(name, rest) = line.split(":", 2)
        name -> rest.trim.stripSuffix(" kB").trim.toLong * 1024
    }.toMap
  }.getOrElse(Map.empty)
}
