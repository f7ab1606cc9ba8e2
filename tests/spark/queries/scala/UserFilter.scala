package queries

import java.nio.file.{Files, Path}

import jakarta.servlet.{Filter, FilterChain, FilterConfig, ServletRequest, ServletResponse}
import jakarta.servlet.http.{HttpServletRequest, HttpServletRequestWrapper}

/**
 * A filter of Spark's UI that takes the user's name from a header, as a proxy in front of it would; without the header,
 * from the file that the parameter `file` names, if there is one.
 */
class UserFilter extends Filter {
  private var file = Option.empty[Path]

  override def init(config: FilterConfig): Unit = file = Option(config.getInitParameter("file")).map(Path.of(_))

  override def doFilter(request: ServletRequest, response: ServletResponse, chain: FilterChain): Unit = {
    val asked = request.asInstanceOf[HttpServletRequest]
    chain.doFilter(
      new HttpServletRequestWrapper(asked) {
        override def getRemoteUser: String =
          Option(asked.getHeader("X-User")).orElse(file.map(Files.readString)).orNull
      },
      response)
  }
}
