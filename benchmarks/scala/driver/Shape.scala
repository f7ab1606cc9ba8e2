package statestore.benchmark

import com.fasterxml.jackson.databind.JsonNode

/** The content and the number of the stores of a case; `threads` is the number of tasks at a time. */
final case class Shape(keys: KeyLayout, values: ValueLayout, stores: Int, threads: Int)

object Shape {
  def apply(node: JsonNode): Shape = Shape(
    KeyLayout(node.path("layout").asText("plain")),
    new ValueLayout(node.path("value_bytes").asInt(100)),
    node.path("stores").asInt(1),
    node.path("threads").asInt(2))
}
