package statestore.benchmark

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.unsafe.Platform

/**
 * The rows of one batch of one store, made before the clock starts. `key` and `value` point one reused UnsafeRow at the
 * row, as an operator's projection does: they neither copy nor allocate. One thread.
 */
final class BatchRows(plan: StorePlan, keys: KeyLayout, values: ValueLayout) {
  private val touched = plan.touched.length
  private val keyBuffer = new Array[Byte](keys.rowBytes * (touched + plan.removed.length))
  private val valueBuffer =
    if (plan.readOnly) Array.emptyByteArray else new Array[Byte](values.rowBytes * touched)
  private val keyRow = new UnsafeRow(keys.schema.length)
  private val valueRow = new UnsafeRow(values.schema.length)

  for (i <- 0 until touched) {
    keys.write(keyBuffer, i * keys.rowBytes, plan.touched(i))
    if (!plan.readOnly) values.write(valueBuffer, i * values.rowBytes, plan.touched(i), plan.version)
  }
  for (i <- plan.removed.indices) keys.write(keyBuffer, (touched + i) * keys.rowBytes, plan.removed(i))

  def key(place: Int): UnsafeRow = {
    keyRow.pointTo(keyBuffer, Platform.BYTE_ARRAY_OFFSET + place.toLong * keys.rowBytes, keys.rowBytes)
    keyRow
  }

  def removedKey(place: Int): UnsafeRow = key(touched + place)

  def value(place: Int): UnsafeRow = {
    valueRow.pointTo(valueBuffer,
      Platform.BYTE_ARRAY_OFFSET + place.toLong * values.rowBytes, values.rowBytes)
    valueRow
  }
}
