"""The application of Starlette: guards before every request, routes and errors.

The guards look at host, site, token, size, kind and pace of a request. `docs/security.md` has the threat
model; `tests/observe/test_guard.py` has a test for each of its sentences.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib import import_module
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from state_store.data.query import StoreKey
from state_store.errors import OptionError, StateStoreError
from state_store.observe.documents import API, ENDPOINTS, Endpoint
from state_store.observe.generated_files import page_directory
from state_store.observe.rest_answers import Accepted, FullCheckpointRequest, Problem, Store, to_json
from state_store.observe.service import Answers

_log = logging.getLogger(__name__)


BODY_TIMEOUT_S = 10.0
"""Seconds in which a body must have come."""


PROBLEM = "application/problem+json"


METRICS = "text/plain; version=0.0.4; charset=utf-8"


STATUS_OF_KIND = {
    "option": 400,
    "missing": 404,
    "conflict": 409,
    "busy": 503,
    "storage": 503,
    "unknown": 503,
    "damaged": 500,
    "format": 500,
    "internal": 500,
}
"""HTTP status of an error of each kind."""


MEDIA_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}


Handler = Callable[[Request], Awaitable[Response]]


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
        scheme, _, token = (authorization or "").partition(" ")
        expected = self.token or ""
        is_right = hmac.compare_digest(token.strip().encode(), expected.encode())
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


def problem(status: int, kind: str, detail: str, headers: dict[str, str] | None = None) -> Response:
    """Return an error as `application/problem+json`."""
    document = Problem(status=status, title=HTTPStatus(status).phrase, kind=kind, detail=detail)
    return JSONResponse(to_json(document), status, headers, media_type=PROBLEM)


def refused(refusal: Refusal) -> Response:
    """Return the answer to a request that a guard refuses."""
    return problem(refusal.status, refusal.kind, refusal.detail, refusal.headers)


def application(answers: Answers, guard: Guard) -> ASGIApp:
    """Return the application.

    Args:
        answers: the watched queries.
        guard: the rules for requests.
    """
    web = _Web(answers)
    routes = [
        Route("/healthz", web.health),
        Route("/metrics", web.metrics),
        Route("/", web.page),
        Route("/static/{name}", web.asset),
        Route("/favicon.ico", web.favicon),
        Route(f"/{API}/openapi.json", web.openapi),
    ]
    for endpoint in ENDPOINTS:
        path = endpoint.path.replace("{version}", "{version:int}")
        handler = getattr(web, endpoint.name.replace("-", "_"))
        routes.append(Route(f"/{API}{path}", web.handled(endpoint, handler), methods=[endpoint.method]))
    inner = Starlette(routes=routes, exception_handlers={HTTPException: _http_error, Exception: _defect})
    return Guarded(inner, guard)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = "missing" if error.status_code == 404 else "option"
    headers = dict(error.headers) if error.headers else None
    return problem(error.status_code, kind, f"there is no {request.method} {request.url.path}", headers)


async def _defect(request: Request, error: Exception) -> Response:
    _log.error("A request failed: %s %s", request.method, request.url.path, exc_info=error)
    return problem(500, "internal", f"a defect of this program: {type(error).__name__}")


class Guarded:
    """The application behind its guards. Every answer gets the security headers.

    Args:
        inner: the application.
        guard: the rules.
    """

    def __init__(self, inner: ASGIApp, guard: Guard) -> None:
        self._inner, self._guard = inner, guard
        self._writes = Pace(WRITES_A_MINUTE, 60.0)
        self._reads = Pace(READS_A_SECOND, 1.0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._inner(scope, receive, send)
            return

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message.get("headers", [])}
                added = [
                    (name.lower().encode(), value.encode())
                    for name, value in SECURITY_HEADERS.items()
                    if name.lower().encode() not in names
                ]
                message = {**message, "headers": [*message.get("headers", []), *added]}
            await send(message)

        refusal = self._refusal(Request(scope))
        if refusal is not None:
            await refused(refusal)(scope, receive, send_guarded)
            return
        await self._inner(scope, receive, send_guarded)

    def _refusal(self, request: Request) -> Refusal | None:
        headers, method = request.headers, request.method
        refusal = self._guard.host_refusal(headers.get("host"))
        if refusal is not None:
            return refusal
        if method in ("GET", "HEAD"):
            wait_s = self._reads.wait_s()
            if wait_s:
                return _too_many(wait_s)
            is_open = request.url.path in ("/", "/healthz", "/favicon.ico") or request.url.path.startswith(
                "/static/"
            )
            return None if is_open else self._guard.read_refusal(headers.get("authorization"))
        if method != "POST":
            return Refusal(405, "option", f"{method} is not used here", {"Allow": "GET, HEAD, POST"})
        refusal = self._guard.write_refusal(
            scheme=request.url.scheme,
            host=headers.get("host", ""),
            origin=headers.get("origin"),
            fetch_site=headers.get("sec-fetch-site"),
            content_type=headers.get("content-type"),
            authorization=headers.get("authorization"),
        )
        if refusal is not None:
            return refusal
        wait_s = self._writes.wait_s()
        return _too_many(wait_s) if wait_s else None


def _too_many(wait_s: float) -> Refusal:
    return Refusal(
        429, "busy", "too many requests; try again later", {"Retry-After": str(max(1, math.ceil(wait_s)))}
    )


class _Web:
    """The handlers; each is named after its endpoint."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        directory = page_directory()
        self._assets = {
            path.name: path.read_bytes()
            for path in (sorted(directory.iterdir()) if directory.is_dir() else ())
            if path.suffix in MEDIA_TYPES
        }

    def handled(self, endpoint: Endpoint, handler: Callable[..., Any]) -> Handler:
        """Return a handler that checks parameters, and turns errors into problems."""

        async def handle(request: Request) -> Response:
            try:
                parameters = _parameters(endpoint, request)
                if iscoroutinefunction(handler):
                    answer = await handler(request, parameters)
                else:
                    answer = await run_in_threadpool(handler, request, parameters)
            except StateStoreError as error:
                status = STATUS_OF_KIND[error.kind]
                retry = {"Retry-After": "2"} if status == 503 else None
                return problem(status, error.kind, error.message, retry)
            return answer if isinstance(answer, Response) else JSONResponse(to_json(answer), endpoint.status)

        return handle

    async def health(self, request: Request) -> Response:
        """Say that the service runs. Says nothing of the queries."""
        return Response("ok\n", media_type="text/plain")

    async def metrics(self, request: Request) -> Response:
        """Answer a scrape of Prometheus."""
        exposition = import_module("state_store.observe.service")
        text = await run_in_threadpool(exposition.exposition, self._answers)
        return Response(text, media_type=METRICS)

    async def page(self, request: Request) -> Response:
        """Answer with the page, which asks for everything else."""
        return HTMLResponse(PAGE)

    async def asset(self, request: Request) -> Response:
        """Answer with a file of the page."""
        name = request.path_params["name"]
        content = self._assets.get(name)
        if content is None:
            return problem(404, "missing", "there is no such file")
        return Response(
            content, media_type=MEDIA_TYPES[Path(name).suffix], headers={"Cache-Control": "max-age=300"}
        )

    async def favicon(self, request: Request) -> Response:
        """Redirect to the icon."""
        return RedirectResponse("static/icon.svg")

    async def openapi(self, request: Request) -> Response:
        """Answer with the OpenAPI document."""
        path = page_directory().parent / API / "openapi.json"
        return Response(path.read_bytes(), media_type="application/json")

    def service(self, request: Request, arguments: dict[str, Any]) -> Any:
        return self._answers.service()

    def queries(self, request: Request, arguments: dict[str, Any]) -> Any:
        return self._answers.queries()

    def query(self, request: Request, arguments: dict[str, Any]) -> Any:
        return self._answers.query(arguments["query"])

    def verdict(self, request: Request, arguments: dict[str, Any]) -> Any:
        return self._answers.verdict(arguments["query"])

    def checkpoints(self, request: Request, arguments: dict[str, Any]) -> Any:
        return self._answers.checkpoints(
            arguments["query"], limit=arguments["limit"], before=arguments["before"]
        )

    def latest(self, request: Request, arguments: dict[str, Any]) -> Any:
        return self._answers.latest(arguments["query"], **_page(arguments))

    def checkpoint(self, request: Request, arguments: dict[str, Any]) -> Any:
        return self._answers.checkpoint(arguments["query"], arguments["version"], **_page(arguments))

    def checkpoint_files(self, request: Request, arguments: dict[str, Any]) -> Any:
        return self._answers.files(arguments["query"], _key(arguments), version=arguments["version"])

    def files(self, request: Request, arguments: dict[str, Any]) -> Any:
        return self._answers.files(arguments["query"], _key(arguments))

    def stores(self, request: Request, arguments: dict[str, Any]) -> Any:
        return self._answers.stores(arguments["query"], **_page(arguments))

    def config(self, request: Request, arguments: dict[str, Any]) -> Any:
        return self._answers.config(arguments["query"])

    def merges(self, request: Request, arguments: dict[str, Any]) -> Any:
        return self._answers.merges(arguments["query"])

    async def request_full(self, request: Request, arguments: dict[str, Any]) -> Response:
        if self._answers.read_only:
            because = self._answers.service().full_checkpoints_because or ""
            return problem(
                405, "option", f"full checkpoints cannot be requested here: {because}", {"Allow": "GET"}
            )
        try:
            body = await asyncio.wait_for(_body(request), BODY_TIMEOUT_S)
        except asyncio.TimeoutError:
            return problem(408, "busy", f"the body did not come within {BODY_TIMEOUT_S:.0f} s")
        if body is None:
            return problem(413, "option", f"the body may have at most {MAX_BODY_BYTES} bytes")
        operation = self._answers.request_full(arguments["query"], wanted_of(body))
        location = request.url.path + f"/triggers/{operation.request_id}"
        return JSONResponse(to_json(Accepted(operation.request_id)), 202, {"Location": location})

    def trigger(self, request: Request, arguments: dict[str, Any]) -> Any:
        return self._answers.trigger(arguments["query"], arguments["id"])


async def _body(request: Request) -> bytes | None:
    """Return the body; None if it is too large. Reads no more than is allowed."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            return None
    return body


def wanted_of(body: bytes) -> FullCheckpointRequest:
    """Return the request that a body stands for.

    Raises:
        OptionError: it is not JSON, or has names or values that it may not have.
    """
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"the body is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise OptionError("the body must be a JSON object")
    kinds = {"checkpointType": str, "operator": int, "partition": int, "store": str, "triggerId": str}
    for name, value in values.items():
        if name not in kinds:
            raise OptionError(f"the body has '{name[:50]}'; it may have {', '.join(kinds)}", option=name[:50])
        if not isinstance(value, kinds[name]) or isinstance(value, bool):
            raise OptionError(f"'{name}' must be of type {kinds[name].__name__}", option=name)
    if "checkpointType" not in values:
        raise OptionError("the body lacks 'checkpointType': \"FULL\"", option="checkpointType")
    return FullCheckpointRequest(
        values["checkpointType"],
        values.get("operator"),
        values.get("partition"),
        values.get("store"),
        values.get("triggerId"),
    )


def _parameters(endpoint: Endpoint, request: Request) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for parameter in endpoint.parameters:
        source = request.path_params if parameter.place == "path" else request.query_params
        text = source.get(parameter.name, parameter.default)
        if text is None or parameter.kind != "integer":
            if parameter.choices and text not in parameter.choices:
                raise OptionError(
                    f"'{parameter.name}' must be one of {', '.join(parameter.choices)}", option=parameter.name
                )
            values[parameter.name] = text
            continue
        number = int(text) if str(text).isascii() and str(text).isdigit() and len(str(text)) < 19 else None
        least = parameter.minimum or 0
        if number is None or number < least or (parameter.maximum is not None and number > parameter.maximum):
            bounds = f"from {least}" + (f" to {parameter.maximum}" if parameter.maximum is not None else "")
            raise OptionError(f"'{parameter.name}' must be a number {bounds}", option=parameter.name)
        values[parameter.name] = number
    return values


def _page(arguments: dict[str, Any]) -> dict[str, Any]:
    def chosen(store: Store) -> bool:
        return (
            arguments["operator"] in (None, store.operator)
            and arguments["partition"] in (None, store.partition)
            and arguments["store"] in (None, store.store)
        )

    return {
        "is_selected": chosen,
        "sort": arguments["sort"],
        "offset": arguments["offset"],
        "limit": arguments["limit"],
    }


def _key(arguments: dict[str, Any]) -> StoreKey:
    return StoreKey(arguments["operator"], arguments["partition"], arguments["store"])


PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Checkpoints</title>
<link rel="icon" type="image/svg+xml" href="static/icon.svg">
<link rel="stylesheet" href="static/uPlot.min.css">
<link rel="stylesheet" href="static/page.css">
</head>
<body class="state-store-alone">
<div id="state-store" data-api="v1"></div>
<script src="static/uPlot.iife.min.js"></script>
<script src="static/words.js"></script>
<script src="static/page.js"></script>
</body>
</html>
"""
"""The document around the element that the script fills."""
