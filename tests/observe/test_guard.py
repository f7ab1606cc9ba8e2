"""The threat model of docs/security.md: a test for each sentence about `state-store serve`."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from query_directory import QueryDirectory
from running_service import Served, serving
from waiting import PATIENCE_S, awaited

from state_store.cli.main import main
from state_store.errors import ConflictError, OptionError
from state_store.observe import program as programs
from state_store.observe import web as guards
from state_store.observe.program import Program, Settings, named, token_from
from state_store.observe.web import SECURITY_HEADERS, Pace, guard_for, host_name

FULL_REQUEST = {"checkpointType": "FULL"}
TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def public(query: QueryDirectory) -> Iterator[Served]:
    """Yield a service on an address that others can reach."""
    service = serving(
        query.location, host="0.0.0.0", token=TOKEN, allowed_hosts=("127.0.0.1", "monitor.example")
    )
    service.http.base_url = httpx.URL(service.url.replace("0.0.0.0", "127.0.0.1"))
    yield service
    service.stop()


def test_it_listens_on_the_loopback_by_default(grown: QueryDirectory) -> None:
    assert Settings().host == "127.0.0.1"
    program = Program([grown.location], Settings(port=0))
    assert program._socket.getsockname()[0] == "127.0.0.1"
    program._socket.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "::", "monitor.example"])
def test_another_address_needs_a_token(host: str) -> None:
    with pytest.raises(OptionError, match="--token-file"):
        guard_for(host, token=None)
    assert guard_for(host, token=TOKEN).token_for_reads


def test_another_address_needs_a_token_on_the_command_line(
    grown: QueryDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", grown.location, "--host", "0.0.0.0", "--port", "0"]) == 2
    assert "--token-file" in capsys.readouterr().err


def test_a_short_token_is_refused() -> None:
    with pytest.raises(OptionError, match="at least 16"):
        guard_for("127.0.0.1", token="secret")


def test_a_token_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o644)
    with pytest.raises(OptionError, match="chmod 600"):
        token_from(path)
    path.chmod(0o600)
    assert token_from(path) == TOKEN
    path.write_text("\n")
    with pytest.raises(OptionError, match="is empty"):
        token_from(path)
    with pytest.raises(OptionError, match="cannot be read"):
        token_from(tmp_path / "none")


@pytest.mark.parametrize(
    "path", ["v1", "v1/queries", "metrics", "v1/queries/flights/files", "v1/openapi.json"]
)
def test_reads_need_the_token_if_others_can_reach_the_service(public: Served, path: str) -> None:
    assert public.http.get(path).status_code == 401
    assert public.http.get(path).headers["www-authenticate"] == "Bearer"
    assert (
        public.http.get(path, headers={"Authorization": "Bearer wrong-wrong-wrong-wrong"}).status_code == 401
    )
    assert public.http.get(path, headers={"Authorization": f"Basic {TOKEN}"}).status_code == 401
    assert public.http.get(f"{path}?token={TOKEN}").status_code == 401
    assert public.http.get(path, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_the_page_and_the_health_check_tell_nothing_of_queries(public: Served, query: QueryDirectory) -> None:
    for path in ("", "healthz"):
        answer = public.http.get(path)
        assert answer.status_code == 200
        assert "flights" not in answer.text and query.location not in answer.text


def test_writes_need_the_token(public: Served) -> None:
    assert public.post(FULL_REQUEST).status_code == 401
    assert public.post(FULL_REQUEST, Authorization="Bearer no").status_code == 401
    assert public.post(FULL_REQUEST, Authorization=f"Bearer {TOKEN}").status_code == 202


def test_writes_need_the_token_on_the_loopback_too_if_there_is_one(query: QueryDirectory) -> None:
    service = serving(query.location, token=TOKEN)
    try:
        assert service.http.get("v1/queries").status_code == 200
        assert service.post(FULL_REQUEST).status_code == 401
    finally:
        service.stop()


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def noted(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return left == right

    monkeypatch.setattr(guards.hmac, "compare_digest", noted)
    guard = guard_for("0.0.0.0", token=TOKEN)
    assert guard.read_refusal("Bearer x") is not None
    assert compared == [(b"x", TOKEN.encode())]


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8190", "127.0.0.1.evil.example", "localhost@evil.example", "", "a/b"],
)
def test_a_request_for_another_host_is_refused(served: Served, host: str) -> None:
    for path in ("", "v1/queries", "metrics", "healthz", "static/page.js"):
        answer = served.http.get(path, headers={"Host": host})
        assert answer.status_code in (400, 421), path


def test_a_host_that_is_allowed_is_served(public: Served) -> None:
    answer = public.http.get("healthz", headers={"Host": "monitor.example:443"})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_write_of_another_site_is_refused(served: Served, headers: dict[str, str]) -> None:
    assert served.post(FULL_REQUEST, **headers).status_code == 403


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_a_write_that_a_form_could_send_is_refused(served: Served, kind: str) -> None:
    answer = served.http.post(
        "v1/queries/flights/checkpoints",
        content=b'{"checkpointType": "FULL"}',
        headers={"Content-Type": kind},
    )
    assert answer.status_code == 415


def test_a_preflight_is_not_answered(served: Served) -> None:
    answer = served.http.options(
        "v1/queries/flights/checkpoints",
        headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"},
    )
    assert answer.status_code == 405
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE"])
def test_there_is_nothing_to_stop_delete_or_roll_back(served: Served, method: str) -> None:
    assert served.http.request(method, "v1/queries/flights").status_code == 405
    assert served.http.request(method, "v1/queries/flights/checkpoints").status_code == 405


def test_reading_addresses_change_nothing(served: Served) -> None:
    assert served.http.head("v1/queries/flights/checkpoints").status_code in (200, 405)
    assert served.http.get("v1/queries/flights/checkpoints?checkpointType=FULL").json()["counts"]["full"] == 1


@pytest.mark.parametrize(
    "path",
    [
        "static/../page.html",
        "static/%2e%2e/v1/schema.json",
        "static/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "static/%00",
        "static//etc/passwd",
        "static/.hidden",
        "static/page.html",
        "v1/queries/..%2f..%2f..%2fetc%2fpasswd",
        "v1/queries/flights/files?store=../../../../etc",
    ],
)
def test_no_path_leads_out(served: Served, path: str) -> None:
    port = served.url.rsplit(":", 1)[1].strip("/")
    with socket.create_connection(("127.0.0.1", int(port)), timeout=PATIENCE_S) as raw:
        raw.sendall(f"GET /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.split(b" ", 2)[1] in (b"404", b"400"), answer[:200]
    assert b"root:" not in answer


@pytest.mark.parametrize(
    "path", ["", "healthz", "metrics", "v1/queries", "v1/none", "static/none", "v1/queries/x"]
)
def test_every_answer_has_the_security_headers(served: Served, path: str) -> None:
    for answer in (served.http.get(path), served.http.get(path, headers={"Host": "evil.example"})):
        for name, value in SECURITY_HEADERS.items():
            if name != "Cache-Control":
                assert answer.headers[name] == value
        assert "server" not in answer.headers


def test_a_large_body_is_refused(served: Served) -> None:
    answer = served.http.post(
        "v1/queries/flights/checkpoints", content=b" " * 5000, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 413


def test_a_slow_client_is_disconnected(grown: QueryDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "REQUEST_TIMEOUT_S", 0.5)
    service = serving(grown.location)
    try:
        port = int(service.url.rsplit(":", 1)[1].strip("/"))
        for start in (b"", b"GET / HTTP/1.1\r\nHost: local"):
            with socket.create_connection(("127.0.0.1", port), timeout=240) as raw:
                raw.sendall(start)
                assert raw.recv(1) == b"", "closed without an answer"
        assert service.http.get("healthz").status_code == 200
    finally:
        service.stop()


def test_more_connections_than_allowed_are_refused_and_the_service_lives(
    grown: QueryDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "MAX_CONNECTIONS", 5)
    service = serving(grown.location)
    try:
        port = int(service.url.rsplit(":", 1)[1].strip("/"))
        idle = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) for _ in range(8)]

        def answer() -> int:
            return httpx.get(f"{service.url}healthz", timeout=PATIENCE_S).status_code

        awaited(lambda: answer() == 503, "too many are refused")
        for connection in idle:
            connection.close()
        awaited(lambda: answer() == 200, "the service lives")
    finally:
        service.stop()


def test_requests_are_paced() -> None:
    pace = Pace(2, 60.0)
    assert [pace.wait_s() == 0 for _ in range(3)] == [True, True, False]
    assert 0 < pace.wait_s() <= 60


def test_too_many_writes_are_told_when_to_come_again(
    grown: QueryDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("state_store.observe.web.WRITES_A_MINUTE", 1)
    service = serving(grown.location)
    try:
        assert service.post({}).status_code == 400
        answer = service.post({})
        assert answer.status_code == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 60
    finally:
        service.stop()


def test_many_viewers_cost_storage_as_much_as_none(grown: QueryDirectory) -> None:
    service = serving(grown.location, every_s=3600.0)
    try:
        (watched,) = service.program.watched
        before = watched.requests.counts()
        for _ in range(50):
            service.http.get("v1/queries/flights/stores")
            service.http.get("metrics")
        assert watched.requests.counts() == before
    finally:
        service.stop()


class Rounds(threading.Condition):
    """A condition that counts the waits of a time."""

    def __init__(self, counted_s: float) -> None:
        super().__init__()
        self.counted_s = counted_s
        self.count = 0

    def wait(self, timeout: float | None = None) -> bool:
        """Wait, and count it."""
        self.count += timeout == self.counted_s
        return super().wait(timeout)


def test_nobody_there_costs_nothing(grown: QueryDirectory) -> None:
    watched = programs.Watched("flights", grown.location, every_s=0.01, idle_s=0.125)
    watched._changed = rounds = Rounds(0.125)
    watched.start()
    try:
        awaited(lambda: rounds.count > 1, "it is idle")
        before, seen = watched.requests.counts(), rounds.count
        awaited(lambda: rounds.count > seen + 1, "it stays idle")
        assert watched.requests.counts() == before
        watched.state()
        awaited(lambda: watched.requests.counts() != before, "somebody came")
    finally:
        watched.stop()


HOSTILE = "<script>alert(1)</script>\r\nX-Injected: yes\x1b[31m{{7*7}}'\"`"


def test_hostile_texts_never_become_headers_or_markup(tmp_path: Path, grown: QueryDirectory) -> None:
    root = tmp_path / "<img src=x onerror=alert(1)>\x1b[2J"
    grown.copied(root)
    service = serving(str(root))
    try:
        answer = service.http.get("v1/queries")
        (shown,) = answer.json()["queries"]
        assert re.fullmatch(r"[A-Za-z0-9._-]+", shown["name"])
        assert shown["checkpoint"] == str(root)
        assert answer.headers["content-type"] == "application/json"
        assert "\x1b" not in answer.text
        text = service.http.get("metrics").text
        assert re.fullmatch(
            r"[^\n]*onerror[^\n]*", next(line for line in text.splitlines() if "onerror" in line)
        )
        hostile = f"v1/queries/{quote(HOSTILE, safe='')}"
        answer = service.http.get(hostile)
        assert answer.status_code == 404
        assert "x-injected" not in answer.headers
        assert "\x1b" not in answer.text
    finally:
        service.stop()


def test_hostile_texts_never_reach_the_terminal(
    tmp_path: Path, grown: QueryDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "bad\x1b[2Jname"
    query = grown.copied(root)
    for path in query.files(query.keys[0]):
        if path.parent.name == "delta":
            path.unlink()
    assert main(["doctor", str(root)]) == 1
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert main(["doctor", str(tmp_path / "none\x1b[2J")]) == 3
    assert "\x1b" not in capsys.readouterr().err


def test_no_secret_is_in_a_log(query: QueryDirectory, capfd: pytest.CaptureFixture[str]) -> None:
    service = serving(query.location, token=TOKEN)
    try:
        service.http.get("v1/queries", headers={"Authorization": f"Bearer {TOKEN}"})
        service.post(FULL_REQUEST, Authorization=f"Bearer {TOKEN}x")
        service.post(FULL_REQUEST, Authorization=f"Bearer {TOKEN}")
    finally:
        service.stop()
    shown = capfd.readouterr()
    assert TOKEN not in shown.out + shown.err


def test_tls_is_served_with_the_given_files(query: QueryDirectory, tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "1",
            "-keyout",
            str(key),
            "-out",
            str(certificate),
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ],
        check=True,
        capture_output=True,
    )
    program = Program([query.location], Settings(port=0, certificate=certificate, key=key))
    assert program.url.startswith("https://")
    is_ready = threading.Event()
    thread = threading.Thread(target=program.run, args=(is_ready.set,), daemon=True)
    thread.start()
    trusted = ssl.create_default_context(cafile=str(certificate))
    try:
        assert is_ready.wait(PATIENCE_S)
        answer = httpx.get(f"{program.url}healthz", verify=trusted, timeout=PATIENCE_S)
        assert answer.text == "ok\n"
    finally:
        program.stop()
        thread.join(PATIENCE_S)


def test_half_of_tls_is_refused(grown: QueryDirectory, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="both --tls-certificate and --tls-key"):
        Program([grown.location], Settings(port=0, certificate=tmp_path / "c.pem"))
    (tmp_path / "c.pem").write_text("no certificate")
    with pytest.raises(OptionError, match="cannot be used"):
        Program([grown.location], Settings(port=0, certificate=tmp_path / "c.pem", key=tmp_path / "c.pem"))


def test_a_second_service_on_a_port_is_refused(grown: QueryDirectory) -> None:
    first = Program([grown.location], Settings(port=0))
    try:
        port = first._socket.getsockname()[1]
        with pytest.raises(ConflictError, match="choose another port"):
            Program([grown.location], Settings(port=port))
    finally:
        first._socket.close()


def test_a_read_only_service_refuses_writes(grown: QueryDirectory) -> None:
    service = serving(grown.location, read_only=True)
    try:
        answer = service.post(FULL_REQUEST)
        assert answer.status_code == 405 and "state-store full DIR" in answer.json()["detail"]
        assert service.http.get("v1").json()["full_checkpoints"] is False
    finally:
        service.stop()


def test_queries_are_named_by_their_directories() -> None:
    assert named(["/a/flights", "s3://b/flights/", "x=/c=d"]) == [
        ("flights", "/a/flights"),
        ("flights-2", "s3://b/flights/"),
        ("x", "/c=d"),
    ]
    assert named(["/"]) == [("query", "/")]
    assert named(["/a/.."]) == [("query", "/a/..")]
    for twice in (["a=/x", "a=/y"], ["/x", "/x/"]):
        with pytest.raises(OptionError):
            named(twice)


def test_hosts_are_named_without_their_ports() -> None:
    assert [host_name(host) for host in ("LocalHost:80", "[::1]:80", "a@b", "[", "")] == [
        "localhost",
        "::1",
        "",
        "",
        "",
    ]
