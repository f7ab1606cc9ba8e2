package org.apache.spark.sql.statestore.benchmark

import org.apache.spark.sql.execution.streaming.state.{HDFSBackedStateStoreProvider, StateStore}

/** Opens the version before the one asked for: a store that lost its last batch. */
class ForgetfulProvider extends HDFSBackedStateStoreProvider {
  override def getStore(
      version: Long, id: Option[String], forceSnapshotOnCommit: Boolean, loadEmpty: Boolean): StateStore =
    super.getStore(math.max(0L, version - 1), id, forceSnapshotOnCommit, loadEmpty)
}
