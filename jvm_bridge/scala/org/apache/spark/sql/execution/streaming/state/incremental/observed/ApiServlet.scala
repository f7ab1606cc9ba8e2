package org.apache.spark.sql.execution.streaming.state.incremental.observed

import java.nio.charset.StandardCharsets
import java.security.MessageDigest

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import jakarta.servlet.http.{HttpServlet, HttpServletRequest, HttpServletResponse}

import org.apache.spark.internal.Logging
import org.apache.spark.SecurityManager
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/** The refusal of a request: an HTTP status, a kind of docs/protocol.md, and the advice to the caller. */
private[observed] final class Problem(val status: Int, val kind: String, val detail: String) extends Exception(detail)

/**
 * The API below the tab, with the endpoints that `state_store/observe/documents.py` declares. Spark's filters
 * have checked already that the user may look; a POST needs the right to modify, too.
 *
 * @param queries  the queries of the application
 * @param security Spark's access rights
 * @param token    the secret that a browser has to send with a POST: only a page of this UI knows it
 */
private[observed] final class ApiServlet(queries: Queries, security: SecurityManager, token: String)
    extends HttpServlet with Logging {
  private val answers = new Answering(queries)

  override def service(request: HttpServletRequest, response: HttpServletResponse): Unit =
    try request.getMethod match {
        case "GET" => send(response, 200, answers.get(path(request), new Parameters(request)))
        case "POST" => post(request, response)
        case other =>
          response.setHeader("Allow", "GET, POST")
          throw new Problem(405, "option", s"The API does not answer $other: use GET or POST")
      }
    catch {
      case problem: Problem => refuse(response, problem)
      case Survivable(e) =>
        logInfo(s"A request to the tab \"Checkpoints\" failed: ${e.getMessage}", e)
        refuse(response, new Problem(500, "internal", "The request failed; the driver's log has the details"))
    }

  private def post(request: HttpServletRequest, response: HttpServletResponse): Unit = {
    checkSender(request)
    path(request) match {
      case Seq(Model.api, "queries", query, "checkpoints") =>
        val id = answers.full(query, body(request), Option(request.getRemoteUser))
        response.setHeader("Location", s"checkpoints/triggers/$id")
        send(response, 202, Json.obj("request-id" -> id))
      case _ => throw new Problem(404, "missing",
          "Only full checkpoints can be requested: POST .../queries/QUERY/checkpoints")
    }
  }

  // A page of another site can make a browser send a POST, but neither with JSON nor with the token.
  private def checkSender(request: HttpServletRequest): Unit = {
    def header(name: String): Option[String] = Option(request.getHeader(name))
    if (!security.checkModifyPermissions(request.getRemoteUser)) {
      throw new Problem(403, "option",
        s"User ${Option(request.getRemoteUser).getOrElse("(anonymous)")} may look but " +
          "not change anything: see spark.modify.acls")
    }
    if (Seq("Purpose", "Sec-Purpose", "X-Moz").flatMap(header).exists(_.contains("pre"))) {
      throw new Problem(403, "option", "A page that is loaded in advance requests no full checkpoint")
    }
    if (header("Sec-Fetch-Site").exists(site => site != "same-origin" && site != "none")) {
      throw new Problem(403, "option", "The request comes from another site")
    }
    if (!header("Content-Type").exists(_.takeWhile(_ != ';').trim.equalsIgnoreCase("application/json"))) {
      throw new Problem(415, "option", "The body must be JSON: send Content-Type: application/json")
    }
    val isBrowser = Seq("Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode").flatMap(header).nonEmpty
    if (isBrowser && !header(ApiServlet.TokenHeader).exists(isToken)) {
      throw new Problem(403, "option",
        "The page is of an earlier start of this driver, or of another site: load it again")
    }
  }

  private def isToken(text: String): Boolean =
    MessageDigest.isEqual(text.getBytes(StandardCharsets.UTF_8), token.getBytes(StandardCharsets.UTF_8))

  private def body(request: HttpServletRequest): JsonNode = {
    val bytes = request.getInputStream.readNBytes(ApiServlet.LongestBody + 1)
    if (bytes.length > ApiServlet.LongestBody) {
      throw new Problem(413, "option", s"The body has more than ${ApiServlet.LongestBody} bytes")
    }
    if (bytes.isEmpty) Json.obj()
    else
      try Json.parse(bytes)
      catch { case _: java.io.IOException => throw new Problem(400, "option", "The body is not a JSON object") }
  }

  private def path(request: HttpServletRequest): Seq[String] =
    Option(request.getPathInfo).getOrElse("").split('/').filter(_.nonEmpty).toSeq

  private def send(response: HttpServletResponse, status: Int, answer: ObjectNode): Unit =
    Responses.send(response, status, "application/json;charset=utf-8", Json.bytes(answer))

  private def refuse(response: HttpServletResponse, problem: Problem): Unit =
    Responses.send(response, problem.status, "application/problem+json;charset=utf-8",
      Json.bytes(Json.obj(
        "status" -> problem.status, "title" -> ApiServlet.Titles.getOrElse(problem.status, "Error"),
        "kind" -> problem.kind, "detail" -> problem.detail, "type" -> "about:blank")))
}

private object ApiServlet {
  val TokenHeader = "X-State-Store-Token"
  val LongestBody: Int = 64 << 10

  val Titles: Map[Int, String] = Map(
    400 -> "Bad Request", 403 -> "Forbidden", 404 -> "Not Found", 405 -> "Method Not Allowed", 409 -> "Conflict",
    413 -> "Content Too Large", 415 -> "Unsupported Media Type", 500 -> "Internal Server Error",
    503 -> "Service Unavailable")
}

/** Checked parameters of a request. */
private[observed] final class Parameters(request: HttpServletRequest) {
  def text(name: String): Option[String] = Option(request.getParameter(name)).filter(_.nonEmpty)

  /**
   * Returns a whole number.
   *
   * @throws Problem if the parameter is not a whole number from `least` to `greatest`
   */
  def number(name: String, least: Long, greatest: Long): Option[Long] = text(name).map { text =>
    text.toLongOption.filter(value => value >= least && value <= greatest).getOrElse(
      throw new Problem(400, "option", s"The parameter $name must be a whole number from $least to $greatest"))
  }

  /**
   * Returns a text of a list.
   *
   * @throws Problem if the parameter is another text
   */
  def choice(name: String, choices: Seq[String]): Option[String] = text(name).map { text =>
    if (choices.contains(text)) text
    else throw new Problem(400, "option", s"The parameter $name must be one of ${choices.mkString(", ")}")
  }
}

/** Sends answers with the headers that all answers have. */
private[observed] object Responses {
  def send(response: HttpServletResponse, status: Int, kind: String, bytes: Array[Byte]): Unit = {
    response.setStatus(status)
    response.setContentType(kind)
    response.setHeader("Cache-Control", "no-store")
    response.setHeader("X-Content-Type-Options", "nosniff")
    response.setHeader(
      "Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src 'self'; frame-ancestors 'none'")
    response.getOutputStream.write(bytes)
  }
}
