package org.apache.spark.sql.execution.streaming.state.incremental

import org.apache.spark.sql.execution.streaming.state.StateStore

/** How a store learns of a column family: in Spark 4.2 by `createColFamilyIfAbsent` alone. */
trait ColumnFamilyRegistration { self: StateStore => }
