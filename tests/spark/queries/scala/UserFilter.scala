package queries

import jakarta.servlet.{Filter, FilterChain, ServletRequest, ServletResponse}
import jakarta.servlet.http.{HttpServletRequest, HttpServletRequestWrapper}

/** A filter of Spark's UI that takes the user's name from a header, as a proxy in front of it would. */
class UserFilter extends Filter {
  override def doFilter(request: ServletRequest, response: ServletResponse, chain: FilterChain): Unit = {
    val asked = request.asInstanceOf[HttpServletRequest]
    chain.doFilter(new HttpServletRequestWrapper(asked) {
      override def getRemoteUser: String = asked.getHeader("X-User")
    }, response)
  }
}
