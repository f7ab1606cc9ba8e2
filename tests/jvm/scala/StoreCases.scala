package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.StoreMemory
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.{StateConf, StoreVersions, Transaction}

/** The parts that cases with stores of their own share. */
private[incremental] trait StoreCases {
  protected def expect(condition: Boolean, message: => String): Unit = if (!condition) throw new AssertionError(message)

  protected def bytes(text: String): Array[Byte] = StateModel.bytes(text)

  protected def withState(directory: File, budgetBytes: Long)(use: (StoreVersions, StoreMemory) => Unit): Unit =
    withState(directory, new StoreMemory(budgetBytes))(use)

  protected def withState(directory: File, memory: StoreMemory)(use: (StoreVersions, StoreMemory) => Unit): Unit = {
    val state = new StoreVersions(memory, StateConf(new File(directory, "spill")))
    use(state, memory)
    state.close()
    expect(memory.usedBytes == 0, s"${memory.usedBytes} bytes are still taken after close")
  }

  protected def begin(state: StoreVersions, at: VersionId): Transaction = state.tryBegin(at, readOnly = false).get
}
