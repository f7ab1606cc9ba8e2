package org.apache.spark.sql.execution.streaming.state.incremental

/**
 * A scan of a transaction: the rows within from <= key < until of its changes, of its view's generations, and
 * of the base. Each source leaves out what a newer one has a record of.
 *
 * @param skip    how many first bytes of the keys it does not show
 */
private[incremental] abstract class Scan(
    transaction: Transaction,
    overlay: Overlay,
    view: View,
    from: Array[Byte],
    until: Array[Byte],
    skip: Int)
    extends EntryIterator {

  /** How many keys the transaction had changed when the scan began. */
  protected final val changed = overlay.changes
  private var open = true
  private var currentKey: Array[Byte] = _
  private var currentValue: Array[Byte] = _
  overlay.pins += 1

  final def key: Array[Byte] = currentKey
  final def value: Array[Byte] = currentValue

  final def advance(): Boolean = {
    transaction.enter()
    try {
      val found = open && step()
      if (!found) {
        currentKey = null
        currentValue = null
        finish()
      }
      found
    } finally transaction.exit()
  }

  final def close(): Unit = if (open) transaction.quietly(finish())

  private def finish(): Unit = if (open) {
    open = false
    overlay.pins -= 1
    closeSources()
  }

  /** Moves to the next row and sets it. */
  protected def step(): Boolean

  protected def closeSources(): Unit

  protected final def set(record: Long): Unit = {
    currentKey = Bytes.array(Record.keyAddress(record) + skip, Record.keyLength(record) - skip)
    currentValue = Record.value(record)
  }

  protected final def set(cursor: Cursor): Unit = {
    currentKey = Bytes.array(cursor.keyAddress + skip, cursor.keyLength - skip)
    currentValue = Bytes.array(cursor.valueAddress, cursor.valueLength)
  }

  protected final def beyond(cursor: Cursor): Boolean =
    until != null && Bytes.compare(until, cursor.keyAddress, cursor.keyLength) <= 0

  /** Whether the transaction had changed that key when the scan began. */
  protected final def changedBefore(hash: Int, keyAt: Long, length: Int): Boolean =
    changed > 0 && {
      val slot = overlay.find(hash, keyAt, length)
      slot != 0 && overlay.changedBefore(slot, changed)
    }

  protected final def changedRecords(): Array[Long] =
    if (changed == 0) Scan.none else overlay.changedRecords().filter(Record.within(_, from, until))

  /** Whether a row of the base is to be shown. */
  protected final def isNewest(cursor: Cursor): Boolean = {
    val hash = KeyHash.of(null, cursor.keyAddress, cursor.keyLength).toInt
    !changedBefore(hash, cursor.keyAddress, cursor.keyLength) &&
    !view.overrides(hash, cursor.keyAddress, cursor.keyLength)
  }
}

private[incremental] object Scan {
  val none: Array[Long] = new Array[Long](0)
}
