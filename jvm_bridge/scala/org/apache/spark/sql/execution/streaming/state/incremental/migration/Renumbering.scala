package org.apache.spark.sql.execution.streaming.state.incremental.migration

import java.io.IOException

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

/**
 * Gives the first version of a store of Spark's own another number.
 *
 * Spark's stores make version 1 of an empty store and then the versions after it, one by one. Of the files of a
 * version only the names have its number: RocksDB's archive is `1.zip`, or `1_<id>.zip`; the delta of the
 * HDFS-backed store, which begins with nothing, is what a snapshot is, byte for byte.
 */
private[migration] object Renumbering {
  private val First = """1(_[^.]*)?\.(zip|delta)(\..*)?""".r

  /** @throws java.io.IOException where there is no such file, or it cannot be renamed */
  def renumber(store: Path, version: Long, hadoop: Configuration): Unit = {
    val files = store.getFileSystem(hadoop)
    val found = files.listStatus(store).map(_.getPath).collect {
      case path @ Named(id, kind, rest) => (path, new Path(store, newName(version, id, kind, rest)), rest)
    }
    if (found.isEmpty) throw new IOException(s"the state store wrote no version into $store")
    if (version > 1) {
      // What belongs to a file comes before it: a version that is there is whole.
      found.sortBy { case (_, _, rest) => if (rest.isEmpty) 1 else 0 }.foreach { case (from, to, _) =>
        if (!files.rename(from, to)) throw new IOException(s"$from cannot be renamed to $to")
      }
    }
  }

  private object Named {
    def unapply(path: Path): Option[(String, String, String)] = path.getName match {
      case First(id, kind, rest) => Some((Option(id).getOrElse(""), kind, Option(rest).getOrElse("")))
      case _ => None
    }
  }

  private def newName(version: Long, id: String, kind: String, rest: String): String = {
    val becomes = if (kind == "delta") "snapshot" else kind
    s"$version$id.$becomes$rest"
  }
}
