package org.apache.spark.sql.execution.streaming.state.incremental.settings

import java.io.{BufferedReader, InputStreamReader, PrintStream}
import java.nio.charset.StandardCharsets.UTF_8

import com.fasterxml.jackson.databind.ObjectMapper

/** Reads options as the data plane does: a line `["bytes", name, text]` in, a line with the value or the error out. */
object SettingsProbe {
  def main(args: Array[String]): Unit = {
    val mapper = new ObjectMapper
    val out = new PrintStream(System.out, false, UTF_8)
    val head = mapper.createObjectNode().put("prefix", Declarations.prefix)
    head.put("meta_key", Declarations.metaKey.map(byte => f"${byte & 0xff}%02x").mkString)
    head.put("log_level", new OptionTexts(_ => None).text("logLevel"))
    out.println(head)
    val in = new BufferedReader(new InputStreamReader(System.in, UTF_8))
    Iterator.continually(in.readLine()).takeWhile(_ != null).foreach { line =>
      val question = mapper.readTree(line)
      val name = question.get(1).asText
      val texts = new OptionTexts(asked => Some(question.get(2).asText).filter(_ => asked == name))
      val answer = mapper.createObjectNode()
      try question.get(0).asText match {
          case "boolean" => answer.put("value", texts.boolean(name))
          case "bytes" => answer.put("value", texts.bytes(name))
          case "count" => answer.put("value", texts.count(name))
          case "durationMs" => answer.put("value", texts.durationMs(name))
        }
      catch { case e: IllegalArgumentException => answer.put("error", e.getMessage) }
      out.println(answer)
    }
    out.flush()
  }
}
