package suites

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.CheckpointFileManagerTestsOnLocalFs
import org.apache.spark.sql.execution.streaming.state.incremental.CheckpointFiles

/** Spark's tests of managers of checkpoint files, for this project's manager. */
class CheckpointFilesSuite extends CheckpointFileManagerTestsOnLocalFs {
  override def createManager(path: Path): CheckpointFiles = new CheckpointFiles(path, new Configuration())
}
