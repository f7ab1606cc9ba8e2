package org.apache.spark.sql.execution.streaming.state.incremental
package transaction

import java.io.File

import scala.util.Random

import org.apache.spark.sql.execution.streaming.state.incremental.base.BaseDirectory
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId

/** Calls of a batch between which the memory of older versions makes room for its changes. */
private[incremental] object FreedRecords extends StoreCases {

  /** A row that was read is put after appended values have taken the memory that it was read from. */
  def areNotReadAfterAppends(directory: File): Unit = withState(directory, 64L << 20) { (state, memory) =>
    val at = VersionId(1, Some("first"))
    val (read, list) = (bytes("\u0000\u0000read"), bytes("\u0000\u0000list"))
    val first = begin(state, VersionId.empty)
    first.put(read, bytes("value"))
    for (i <- 0 until 500) first.put(bytes(s"\u0000\u0000other$i"), bytes("v" * 100))
    val delta = new File(directory, "first.sst")
    first.writeDelta(delta, bytes(TestBases.meta(at, 501)))
    first.committed(at)
    val base = new File(directory, "base")
    TestBases.build(base, Seq(delta), new Random(1), compressed = false)
    state.offerBase(BaseDirectory(base.getPath, at, 501, () => ()))
    val second = begin(state, at)
    second.put(list, bytes("v" * 100000))
    second.append(list, bytes("v"), ',')
    second.append(list, bytes("v"), ',')
    val before = state.memoryUse.recentBytes
    memory.setBudget(memory.usedBytes)
    var appends = 0
    expect(StateModel.text(second.get(read)) == "value", "the row is another")
    while (state.memoryUse.recentBytes == before) {
      appends += 1
      expect(appends < 1000, "no memory of the first version is freed")
      second.append(list, bytes("v" * 50), ',')
    }
    second.put(read, bytes("changed"))
    expect(second.keys == 502, s"there are ${second.keys} keys")
    second.abort()
    memory.setBudget(64L << 20)
  }
}
