package statestore.benchmark

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.{StateStore, StateStoreProvider}
import org.apache.spark.sql.types.DataType

/** The keys of a batch, which the operators of the session extension announce before they look them up. */
object LookAhead {

  /** Rows that an operator takes at a time. */
  val Rows = 16384
  private val Ours = "IncrementalStateStoreProvider"

  /** Returns true if the stores of a provider take keys ahead. */
  def isOf(provider: StateStoreProvider): Boolean = provider.getClass.getSimpleName == Ours

  /** Announces the next [[Rows]] keys from `place` on; the store's method is not visible from here. */
  def announce(store: StateStore, rows: BatchRows, place: Int, count: Int, layout: KeyLayout): Unit = {
    val keys = Array.tabulate(math.min(Rows, count - place))(ahead => rows.key(place + ahead).copy())
    store.getClass.getMethod("expect", classOf[Array[UnsafeRow]], classOf[Seq[DataType]])
      .invoke(store, keys, layout.schema.map(_.dataType).toSeq)
  }
}
