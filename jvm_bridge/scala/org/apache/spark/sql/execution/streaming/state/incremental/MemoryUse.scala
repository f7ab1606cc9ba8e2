package org.apache.spark.sql.execution.streaming.state.incremental

/**
 * Bytes that one store holds, by part, and the budget that all stores of the executor share.
 *
 * @param overlayBytes changes of open transactions
 * @param recentBytes  rows of recent versions
 * @param indexBytes   the index over them
 * @param baseBytes    what the base keeps in memory
 * @param spilledBytes part of the above that lies in memory-mapped files, outside the budget
 * @param usedBytes    what all stores have taken from the budget
 * @param budgetBytes  the budget
 */
final case class MemoryUse(
    overlayBytes: Long,
    recentBytes: Long,
    indexBytes: Long,
    baseBytes: Long,
    spilledBytes: Long,
    usedBytes: Long,
    budgetBytes: Long)
