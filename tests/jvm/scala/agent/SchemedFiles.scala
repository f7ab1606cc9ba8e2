package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.net.URI

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.RawLocalFileSystem

/** Local files under any scheme, as of a service. */
abstract class SchemedFiles extends RawLocalFileSystem {
  private var uri: URI = _

  /** The URI; Hadoop asks for it before it has given one. */
  override def getUri: URI = Option(uri).getOrElse(super.getUri)

  override def initialize(name: URI, conf: Configuration): Unit = {
    uri = URI.create(s"${name.getScheme}:///")
    super.initialize(name, conf)
  }
}
