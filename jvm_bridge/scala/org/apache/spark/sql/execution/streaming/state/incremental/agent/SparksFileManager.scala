package org.apache.spark.sql.execution.streaming.state.incremental.agent

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.CheckpointFileManager

/** The manager of checkpoint files that there is without `CheckpointFiles`: Spark's, or the user's. Any thread. */
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
