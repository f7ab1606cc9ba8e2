package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.util.{Collections, WeakHashMap}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

/**
 * How soon the HDFS client asks again whether a file that it closes is complete. When a DataNode's report of the last
 * block has not reached the NameNode yet, which is the rule for small files, Hadoop's client waits 400 ms, and each
 * time twice as long, 5 times; here it begins with 10 ms, and asks more often, for longer in all. Any thread.
 */
private[agent] object PromptHdfs {
  private val waits = Map(
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms" -> "10",
    "dfs.client.block.write.locateFollowingBlock.retries" -> "11")
  private val hadoopsOwn = "hdfs-default.xml"

  /** The stores of a query have one configuration, which is large. */
  private val prompt = Collections.synchronizedMap(new WeakHashMap[Configuration, Configuration])

  /** The configuration with which files in `root` are made; what the user has set of it is left alone. */
  def of(root: Path, hadoopConf: Configuration): Configuration =
    if (root.toUri.getScheme != "hdfs" || waits.keys.exists(isSet(_, hadoopConf))) hadoopConf
    else prompt.computeIfAbsent(hadoopConf, conf => {
      val copy = new Configuration(conf)
      waits.foreach { case (name, value) => copy.set(name, value) }
      copy
    })

  private def isSet(name: String, conf: Configuration): Boolean =
    conf.get(name) != null && !Option(conf.getPropertySources(name)).exists(_.forall(_ == hadoopsOwn))
}
