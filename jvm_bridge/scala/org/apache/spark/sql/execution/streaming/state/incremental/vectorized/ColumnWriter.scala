package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import org.apache.arrow.vector.ValueVector

import org.apache.spark.sql.catalyst.expressions.SpecializedGetters
import org.apache.spark.sql.execution.arrow.ArrowWriter

/** Spark's writer of one Arrow column, whose type cannot be named before Spark 4.2. */
private[vectorized] final class ColumnWriter(vector: ValueVector) {
  private[this] val writer = ArrowWriter.createFieldWriter(vector)

  /** Appends what stands at `ordinal` of `row`. */
  def write(row: SpecializedGetters, ordinal: Int): Unit = writer.write(row, ordinal)

  def finish(): Unit = writer.finish()

  def reset(): Unit = writer.reset()
}
