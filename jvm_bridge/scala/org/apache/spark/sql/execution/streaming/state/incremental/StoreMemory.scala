package org.apache.spark.sql.execution.streaming.state.incremental

import java.util.concurrent.atomic.AtomicLong

/**
 * The memory budget that all stores of an executor share, in bytes. Thread-safe.
 */
final class StoreMemory(initialBudgetBytes: Long) {
  private val used = new AtomicLong
  @volatile private var budget = initialBudgetBytes

  def budgetBytes: Long = budget

  def setBudget(bytes: Long): Unit = budget = bytes

  def usedBytes: Long = used.get

  /** Takes bytes from the budget; false, and nothing taken, when it has not so many left. */
  def reserve(bytes: Long): Boolean = {
    val after = used.addAndGet(bytes)
    if (after > budget) used.addAndGet(-bytes)
    after <= budget
  }

  def release(bytes: Long): Unit = used.addAndGet(-bytes)
}

object StoreMemory {
  val defaultBudgetBytes: Long = 256L << 20

  /** The budget of this executor. */
  val shared: StoreMemory = new StoreMemory(defaultBudgetBytes)
}
