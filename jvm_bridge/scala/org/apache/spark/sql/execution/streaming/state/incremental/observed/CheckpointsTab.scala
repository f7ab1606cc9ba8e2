package org.apache.spark.sql.execution.streaming.state.incremental.observed

import java.security.SecureRandom

import scala.xml.Node

import jakarta.servlet.http.{HttpServlet, HttpServletRequest, HttpServletResponse}

import org.apache.spark.internal.Logging
import org.apache.spark.ui.{SparkUI, SparkUITab, UIUtils, WebUI, WebUIPage}

/**
 * The tab "Checkpoints" in Spark's UI, with the API and the metrics below it.
 *
 * @param ui    the UI, of a driver or of the History Server
 * @param token the secret that the tab's page sends with each POST
 */
private[observed] final class CheckpointsTab(ui: SparkUI, token: String) extends SparkUITab(ui, CheckpointsTab.Path) {
  override val name = "Checkpoints"
  attachPage(new CheckpointsPage(this, token))
}

private[observed] object CheckpointsTab extends Logging {
  val Path = "checkpoints"

  /** Adds the tab to the UI. If that fails, it logs a line and changes nothing else. */
  def attach(ui: SparkUI, receiver: Option[ReportReceiver]): Unit =
    try {
      val token = newToken()
      val queries = new Queries(new Records(ui.store.store), receiver)
      serve(ui, s"/$Path/api", new ApiServlet(queries, ui.securityManager, token))
      serve(ui, s"/$Path/metrics", new MetricsServlet(queries))
      serve(ui, s"/$Path/assets", new AssetsServlet)
      ui.attachTab(new CheckpointsTab(ui, token))
    } catch { case Survivable(e) => logInfo("Spark's UI has no tab \"Checkpoints\"; queries are not affected", e) }

  // By reflection, because the compiler cannot read the other methods of that name: their parameters are of Jetty,
  // under a package name that only Spark's own build has.
  private def serve(ui: SparkUI, path: String, servlet: HttpServlet): Unit =
    classOf[WebUI].getMethod("attachHandler", classOf[String], classOf[HttpServlet], classOf[String])
      .invoke(ui, ui.basePath + path, servlet, "/*")

  private def newToken(): String = {
    val bytes = new Array[Byte](24)
    new SecureRandom().nextBytes(bytes)
    bytes.map("%02x".format(_)).mkString
  }
}

/** The page of the tab, in Spark's frame; a script fills it from the API. */
private[observed] final class CheckpointsPage(tab: CheckpointsTab, token: String) extends WebUIPage("") {
  override def render(request: HttpServletRequest): Seq[Node] = {
    val base = UIUtils.prependBaseUri(request, tab.basePath) + s"/${CheckpointsTab.Path}"
    val content =
      <link rel="stylesheet" href={s"$base/assets/uPlot.min.css"}/>
      <link rel="stylesheet" href={s"$base/assets/page.css"}/>
      <div id="state-store" data-api={s"$base/api/${Model.api}"} data-token={token}
        data-token-header={ApiServlet.TokenHeader}></div>
      <script src={s"$base/assets/uPlot.iife.min.js"}></script>
      <script src={s"$base/assets/words.js"}></script>
      <script src={s"$base/assets/page.js"}></script>
    UIUtils.headerSparkPage(request, "Checkpoints", content, tab)
  }
}

/** The metrics for Prometheus. */
private[observed] final class MetricsServlet(queries: Queries) extends HttpServlet {
  private val answers = new Answering(queries)

  override def doGet(request: HttpServletRequest, response: HttpServletResponse): Unit =
    Responses.send(response, 200, Exposition.ContentType, Exposition.of(answers.figures).getBytes("UTF-8"))

  override def doHead(request: HttpServletRequest, response: HttpServletResponse): Unit = response.sendError(405)
}

/** The scripts and styles of the page. Spark's own handler of such files does not see those of `spark.jars`. */
private[observed] final class AssetsServlet extends HttpServlet {
  override def doGet(request: HttpServletRequest, response: HttpServletResponse): Unit = {
    val name = Option(request.getPathInfo).getOrElse("").stripPrefix("/")
    val kind = AssetsServlet.Kinds.collectFirst { case (end, kind) if name.endsWith(end) => kind }
    val in = kind.filter(_ => name.matches("[A-Za-z0-9_-][A-Za-z0-9._-]*"))
      .flatMap(_ => Option(getClass.getResourceAsStream(AssetsServlet.Root + name)))
    in match {
      case None => response.sendError(404)
      case Some(stream) =>
        val bytes =
          try stream.readAllBytes()
          finally stream.close()
        Responses.send(response, 200, kind.get, bytes)
    }
  }
}

private object AssetsServlet {
  val Root = "/state-store/page/"
  val Kinds: Map[String, String] = Map(
    ".js" -> "text/javascript;charset=utf-8", ".css" -> "text/css;charset=utf-8", ".svg" -> "image/svg+xml",
    ".html" -> "text/html;charset=utf-8", ".txt" -> "text/plain;charset=utf-8")
}
