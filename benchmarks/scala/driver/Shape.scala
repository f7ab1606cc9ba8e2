package statestore.benchmark

import com.fasterxml.jackson.databind.JsonNode

/** What the stores of a case hold and how many there are; `threads` is how many tasks run at once. */
final case class Shape(keys: KeyLayout, values: ValueLayout, stores: Int, threads: Int)

object Shape {
  def apply(node: JsonNode): Shape = Shape(
    KeyLayout(node.path("layout").asText("plain")),
    new ValueLayout(node.path("value_bytes").asInt(100)),
    node.path("stores").asInt(1),
    node.path("threads").asInt(2))
}
