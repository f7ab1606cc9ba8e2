package org.apache.spark.sql.execution.streaming.state.incremental.processors

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.Analyzer
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.expressions.{Attribute, UnsafeRow}

/**
 * An encoder whose objects are rows in Spark's own format already: it hands them through. With it, Spark's state
 * variables and timers take and give what the store holds, and no object is made of a row in between. Used by one
 * thread.
 *
 * Spark's iterators read ahead, and the store may use a row's memory again: whatever they give is a copy.
 *
 * @param rows the encoder of the same schema; the schemas that Spark asks for are its schemas
 */
private[processors] class UnsafeRowEncoder[T](rows: ExpressionEncoder[_], toRow: T => UnsafeRow, fromRow: UnsafeRow => T)
  extends ExpressionEncoder[T](
    rows.asInstanceOf[ExpressionEncoder[T]].encoder, rows.objSerializer, rows.objDeserializer) {

  override def resolveAndBind(attributes: Seq[Attribute], analyzer: Analyzer): ExpressionEncoder[T] = this

  override def createSerializer(): ExpressionEncoder.Serializer[T] =
    new ExpressionEncoder.Serializer[T](Nil) {
      override def apply(value: T): InternalRow = toRow(value)
    }

  override def createDeserializer(): ExpressionEncoder.Deserializer[T] =
    new ExpressionEncoder.Deserializer[T](Nil) {
      override def apply(row: InternalRow): T = fromRow(row.asInstanceOf[UnsafeRow].copy())
    }
}

/** The grouping key of a state variable or a timer, as a row; it reads like Spark's `Row` in Spark's log. */
private[processors] final class GroupingKey(val row: UnsafeRow, codec: RowCodec) {
  override def toString: String = codec.toRow(row).toString
}
