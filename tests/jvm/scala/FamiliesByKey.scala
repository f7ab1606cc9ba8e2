package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File

import org.apache.spark.sql.execution.streaming.state.{NoPrefixKeyStateEncoderSpec, PrefixKeyScanStateEncoderSpec}
import org.apache.spark.sql.execution.streaming.state.incremental.rows.FamilySchema
import org.apache.spark.sql.types._

/** The families of a store that are asked for a key: those with the same columns alone. */
private[incremental] object FamiliesByKey {
  def haveTheTypesOfTheKey(directory: File): Unit = {
    def schema(types: DataType*): StructType =
      StructType(types.zipWithIndex.map { case (kind, i) => StructField(s"column$i", kind) })
    val values = schema(LongType)
    val registry = new FamilyRegistry(codecs = null, schemas = None, several = true)
    def register(name: String, key: StructType): Unit =
      registry.register(name, FamilySchema(NoPrefixKeyStateEncoderSpec(key), values, multipleValues = false))
    register("text", schema(StringType))
    register("number", schema(LongType))
    register("both", schema(StringType, LongType))
    register("list", schema(ArrayType(LongType, containsNull = true)))
    registry.register("prefix",
      FamilySchema(PrefixKeyScanStateEncoderSpec(schema(StringType, LongType), 1), values, false))
    def expect(types: Seq[DataType], names: Set[String]): Unit = {
      val found = registry.withKeysOf(types).toSet
      if (found != names) throw new AssertionError(s"keys of $types are asked for in $found, and not in $names")
    }
    expect(Seq(StringType), Set("text"))
    expect(Seq(LongType), Set("number"))
    expect(Seq(StringType, LongType), Set("both"))
    expect(Seq(ArrayType(LongType, containsNull = false)), Set("list"))
    expect(Seq(IntegerType), Set())
  }
}
