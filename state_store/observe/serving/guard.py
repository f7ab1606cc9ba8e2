"""Guards before every request: host, site, token, size, kind and pace.

`docs/security.md` has the threat model; `tests/observe/test_guard.py` has a test for each of its sentences.
"""

from __future__ import annotations

import hmac
import ipaddress
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from state_store.errors import OptionError

MAX_BODY_BYTES = 4096
MIN_TOKEN_CHARACTERS = 16
WRITES_A_MINUTE = 30
READS_A_SECOND = 100

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; font-src 'self'; frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
"""Headers of every answer."""


@dataclass(frozen=True)
class Refusal:
    """A reason to refuse a request.

    Attributes:
        status: the HTTP status.
        kind: one of the kinds of docs/protocol.md.
        detail: the reason, for people.
        headers: headers of the answer.
    """

    status: int
    kind: str
    detail: str
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Guard:
    """The rules of one service.

    Attributes:
        hosts: names of hosts that a request may be for, lower case, without port.
        token: the token that requests need; None: no token is needed, which is allowed on the loopback only.
        token_for_reads: GETs need the token, too.
    """

    hosts: frozenset[str]
    token: str | None = None
    token_for_reads: bool = False

    def host_refusal(self, host: str | None) -> Refusal | None:
        """Refuse a request for another host, as a page sends it whose name was made to lead here.

        Args:
            host: the header `Host`.
        """
        name = host_name(host or "")
        if name in self.hosts:
            return None
        return Refusal(
            421,
            "option",
            "this service does not answer for that host; start it with --allow-host NAME if it should",
        )

    def read_refusal(self, authorization: str | None) -> Refusal | None:
        """Refuse a GET without the token, if GETs need one.

        Args:
            authorization: the header `Authorization`.
        """
        return self._token_refusal(authorization) if self.token_for_reads else None

    def write_refusal(
        self,
        *,
        scheme: str,
        host: str,
        origin: str | None,
        fetch_site: str | None,
        content_type: str | None,
        authorization: str | None,
    ) -> Refusal | None:
        """Refuse a write of another site, of another kind, or without the token.

        Args:
            scheme: `http` or `https`.
            host: the header `Host`.
            origin: the header `Origin`.
            fetch_site: the header `Sec-Fetch-Site`.
            content_type: the header `Content-Type`.
            authorization: the header `Authorization`.
        """
        if fetch_site not in (None, "same-origin", "none"):
            return Refusal(403, "option", "the request comes from another site")
        if origin is not None and not same_origin(origin, scheme, host):
            return Refusal(403, "option", "the request comes from another site")
        if (content_type or "").partition(";")[0].strip().lower() != "application/json":
            return Refusal(415, "option", "the body must be application/json")
        return self._token_refusal(authorization) if self.token is not None else None

    def _token_refusal(self, authorization: str | None) -> Refusal | None:
        scheme, _, given = (authorization or "").partition(" ")
        expected = self.token or ""
        is_right = hmac.compare_digest(given.strip().encode(), expected.encode())
        if scheme.lower() == "bearer" and is_right and expected:
            return None
        return Refusal(
            401, "option", "a token is needed: `Authorization: Bearer TOKEN`", {"WWW-Authenticate": "Bearer"}
        )


def host_name(host: str) -> str:
    """Return the name in a `Host` header, lower case, without the port; empty if there is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "") if host and "@" not in host and "/" not in host else ""
    except ValueError:
        return ""


def same_origin(origin: str, scheme: str, host: str) -> bool:
    """Return True if an `Origin` is the one that a request was sent to.

    A proxy in front may end TLS, so the scheme may be `https` where this service sees `http`.
    """
    return origin.lower() in {f"{scheme}://{host}".lower(), f"https://{host}".lower()}


def is_loopback(host: str) -> bool:
    """Return True if an address to listen on is of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def guard_for(host: str, *, token: str | None, allowed: Sequence[str] = ()) -> Guard:
    """Return the guard of a service that listens on an address.

    Args:
        host: the address to listen on.
        token: the token, if there is one.
        allowed: further names of hosts that requests may be for.

    Raises:
        OptionError: others can reach the address and there is no token, or the token is too short.
    """
    if token is not None and len(token) < MIN_TOKEN_CHARACTERS:
        raise OptionError(
            f"the token must have at least {MIN_TOKEN_CHARACTERS} characters", option="--token-file"
        )
    loopback = is_loopback(host)
    if not loopback and token is None:
        raise OptionError(
            f"others can reach {host}: give a token with --token-file, or listen on 127.0.0.1 behind a proxy",
            option="--host",
        )
    names = {name.lower() for name in allowed} | {host.lower()}
    if loopback:
        names |= {"localhost", "127.0.0.1", "::1"}
    return Guard(frozenset(names), token, token is not None and not loopback)


class Pace:
    """A bound on requests in a span of time. Safe for any thread.

    Args:
        limit: requests at most.
        span_s: seconds.
    """

    def __init__(self, limit: int, span_s: float) -> None:
        self._limit, self._span_s = limit, span_s
        self._times: deque[float] = deque()
        self._lock = threading.Lock()

    def wait_s(self) -> float:
        """Count a request, and return 0; or return the seconds after which one would be taken."""
        now = time.monotonic()
        with self._lock:
            while self._times and now - self._times[0] >= self._span_s:
                self._times.popleft()
            if len(self._times) >= self._limit:
                return self._times[0] + self._span_s - now
            self._times.append(now)
            return 0.0
