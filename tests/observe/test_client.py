"""`state-store full --url` where the program at the address is away, forgets, refuses, or is another one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from query_directory import QueryDirectory
from running_service import serving

from state_store.cli import maintenance
from state_store.cli.main import main
from state_store.cli.process import ExitCode

TRIGGERS = "/v1/queries/flights/checkpoints/triggers/7"
DONE = {"request-id": "7", "status": {"id": "COMPLETED"}, "made": 0, "failed": 0, "stores": []}
OUTAGE = (503, {"status": 503, "title": "x", "kind": "busy", "detail": "starting"})
FORGOTTEN = (404, {"status": 404, "title": "x", "kind": "missing", "detail": "not known: see full_ms"})
HTML = (403, "<html>Access denied</html>")

Answer = "tuple[int, Any]"


class Scripted:
    """A server whose answers about a request are given one after the other; the last is repeated."""

    def __init__(self, polls: list[Answer], service: Answer = (200, {"api": "v1"})) -> None:
        answers = {
            "GET /v1": service,
            "GET /v1/queries": (200, {"queries": [{"name": "flights"}]}),
            "POST /v1/queries/flights/checkpoints": (202, {"request-id": "7"}),
        }

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == TRIGGERS:
                    self._send(polls.pop(0) if len(polls) > 1 else polls[0])
                else:
                    self._send(answers.get(f"{self.command} {self.path}", (404, {})))

            do_POST = do_GET

            def _send(self, answer: Answer) -> None:
                status, body = answer
                content = (body if isinstance(body, str) else json.dumps(body)).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "POLL_S", 0.01)


@pytest.fixture
def scripted(request: pytest.FixtureRequest) -> Iterator[Scripted]:
    server = Scripted(**request.param)
    yield server
    server.stop()


@pytest.mark.parametrize(
    ("scripted", "code", "words"),
    [
        ({"polls": [OUTAGE, OUTAGE, (502, "<html>"), (200, DONE)]}, ExitCode.OK, ""),
        ({"polls": [OUTAGE, FORGOTTEN]}, ExitCode.NOT_FOUND, "see full_ms"),
        ({"polls": [HTML]}, ExitCode.USAGE, "answers 403: this user may not ask there"),
        ({"polls": [(200, DONE)], "service": HTML}, ExitCode.USAGE, "answers 403"),
        ({"polls": [(200, DONE)], "service": (200, "<html>")}, ExitCode.NOT_FOUND, "no REST API"),
        ({"polls": [(200, DONE)], "service": (200, {"api": "v9"})}, ExitCode.NOT_FOUND, "no REST API"),
    ],
    indirect=["scripted"],
)
def test_an_answer_of_the_service_becomes_an_exit_code(
    scripted: Scripted, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["full", "--url", scripted.url]) == code
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("scripted", [{"polls": [OUTAGE]}], indirect=True)
def test_an_outage_that_lasts_says_that_the_request_was_accepted(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(maintenance, "POLL_PATIENCE_S", 0.2)
    assert main(["full", "--url", scripted.url]) == ExitCode.RETRY
    assert "request 7 was accepted, but its outcome is not known: starting" in capsys.readouterr().err


def test_a_service_with_a_token_is_asked_with_its_file(
    query: QueryDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = serving(query.location, token="0123456789abcdef")
    token = tmp_path / "token"
    try:
        assert main(["full", "--url", service.url]) == ExitCode.USAGE
        assert "a token is needed" in capsys.readouterr().err
        token.write_text("fedcba9876543210\n")
        assert main(["full", "--url", service.url, "--token-file", str(token)]) == ExitCode.USAGE
        token.write_text("0123456789abcdef\n")
        assert main(["full", "--url", service.url, "--token-file", str(token)]) == ExitCode.OK
        assert main(["full", "--url", service.url, "--token-file", str(tmp_path)]) == ExitCode.USAGE
    finally:
        service.stop()
