"""A full checkpoint by a REST API: of a driver, or of `state-store serve`."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from state_store.data.query import Filter
from state_store.errors import BusyError, ErrorFields, MissingError, OptionError, StorageError, from_json

PLACES = ("/v1", "/checkpoints/api/v1")
"""Places of the API below an address: of `serve`, and of a driver."""

POLL_S = 0.5
POLL_PATIENCE_S = 60.0
"""Seconds for which a request that was accepted is asked about although nothing answers."""

REQUEST_TIMEOUT_S = 30.0


class RemoteService:
    """A client of the REST API.

    Args:
        url: address of the program (`http://driver:4040`), or of its API.
        token: the token of `state-store serve`, if it has one.

    Raises:
        OptionError: the address is not one of HTTP, or the service needs a token.
        MissingError: no such API is there.
        StorageError: nothing answers.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise OptionError(f"'{url}' is not an address such as http://driver:4040", option="--url")
        self._token = token
        base = url.rstrip("/")
        for place in ("", *PLACES) if base.endswith("/v1") else PLACES:
            try:
                found = self._ask("GET", base + place)
            except MissingError:
                continue
            if isinstance(found, dict) and found.get("api") == "v1":
                self._base = base + place
                return
        raise MissingError(f"no REST API of this state store answers at {url}")

    def query(self, name: str | None) -> str:
        """Return the name of the query that is meant; without one, that of the only query.

        Raises:
            OptionError: there are several queries, and no name was given.
            MissingError: there is none.
        """
        names = [found["name"] for found in self._ask("GET", f"{self._base}/queries")["queries"]]
        if name is not None:
            return name
        if len(names) == 1:
            return str(names[0])
        if not names:
            raise MissingError("no query with this state store is known there")
        raise OptionError(
            f"there are several queries: choose one with --query: {', '.join(names)}", option="--query"
        )

    def full(self, query: str, chosen: Filter, trigger_id: str | None = None) -> dict[str, Any]:
        """Request a full checkpoint and wait until it has ended.

        Args:
            query: name of the query.
            chosen: the stores.
            trigger_id: the caller's own id, which makes the request idempotent.

        Returns:
            The operation, as docs/rest.md has it.

        Raises:
            MissingError: there is no such query or store, or the program has forgotten the request.
            OptionError: the user may not request it.
            StorageError: nothing answers, for a minute if the request was accepted.
        """
        wanted = {
            "checkpointType": "FULL",
            "operator": chosen.operator,
            "partition": chosen.partition,
            "store": chosen.name,
            "triggerId": trigger_id,
        }
        body = {name: value for name, value in wanted.items() if value is not None}
        address = f"{self._base}/queries/{urllib.parse.quote(query, safe='')}/checkpoints"
        request_id = self._ask("POST", address, body)["request-id"]
        heard_s = time.monotonic()
        while True:
            try:
                operation = self._ask("GET", f"{address}/triggers/{urllib.parse.quote(request_id, safe='')}")
            except (StorageError, BusyError) as error:
                if time.monotonic() - heard_s > POLL_PATIENCE_S:
                    raise StorageError(
                        f"request {request_id} was accepted, but its outcome is not known: {error.message}"
                    ) from error
            else:
                heard_s = time.monotonic()
                if operation["status"]["id"] == "COMPLETED":
                    return dict(operation)
            time.sleep(POLL_S)

    def _ask(self, method: str, url: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(url, method=method)
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        data = None
        if body is not None:
            request.add_header("Content-Type", "application/json")
            data = json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data, timeout=REQUEST_TIMEOUT_S) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise _problem(error, url) from None
        except (OSError, urllib.error.URLError) as error:
            raise StorageError(f"{url} does not answer: {error}") from error
        except ValueError:
            raise MissingError(f"{url} answers with something that is not JSON") from None


def _problem(error: urllib.error.HTTPError, url: str) -> Exception:
    try:
        shown = json.loads(error.read())
        detail, kind = str(shown["detail"]), str(shown["kind"])
    except (OSError, ValueError, KeyError, TypeError):
        detail = f"{url} answers {error.code}"
        kind = {401: "option", 403: "option", 404: "missing"}.get(error.code, "storage")
        if kind == "option":
            detail += ": this user may not ask there"
    fields: ErrorFields = {"kind": kind, "message": detail}
    return from_json(fields)
