"""Any bytes on the socket get an answer, or end their connection, and do nothing else."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent.harness import AgentClient
from state_store.agent.calls import Calls, Server
from state_store.core.storage.hadoop import (
    MAX_HEADER_BYTES,
    FileConnections,
    ProtocolError,
    read_frame,
    write_frame,
)

TOKEN = "secret"
LENGTHS = struct.Struct(">II")
DEEP = b"[" * 100_000 + b"]" * 100_000

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
lengths = st.integers(0, 40) | st.integers(0, 2**32 - 1)
headers = st.binary(max_size=40) | json_values.map(lambda value: json.dumps(value).encode())
frames = st.builds(
    lambda header, body: LENGTHS.pack(len(header), len(body)) + header + body, headers, st.binary(max_size=40)
)
streams = (
    st.binary(max_size=80)
    | st.builds(
        lambda first, other, rest: LENGTHS.pack(first, other) + rest, lengths, lengths, st.binary(max_size=80)
    )
    | st.lists(frames, max_size=3).map(b"".join)
    | st.builds(lambda frame, cut: frame[: cut % (len(frame) + 1)], frames, st.integers(0, 200))
)
quick = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


@quick
@given(streams)
@example(LENGTHS.pack(len(DEEP), 0) + DEEP)
@example(LENGTHS.pack(16, 0) + '{"a":1}x'.encode("utf-16-le"))
@example(LENGTHS.pack(5, 0) + b'{"\xff"')
def test_the_reader_gives_frames_or_refuses(stream: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = threading.Thread(target=_send, args=(theirs, stream))
        sender.start()
        try:
            while (frame := read_frame(ours)) is not None:
                header, body = frame
                assert isinstance(header, dict)
                assert isinstance(body, bytes)
        except ProtocolError:
            pass
        ours.close()
        sender.join()


def _send(channel: socket.socket, stream: bytes) -> None:
    try:
        channel.sendall(stream)
        channel.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the reader has seen enough


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the socket of an agent in this process. Fails if one of its threads ends by an exception."""
    directory = tmp_path_factory.mktemp("agent")
    files = FileConnections()
    server = Server(str(directory / "s"), TOKEN, Calls(directory / "local", files), files)
    threading.Thread(target=server.serve, daemon=True).start()
    failures: list[threading.ExceptHookArgs] = []
    before, threading.excepthook = threading.excepthook, failures.append
    yield directory / "s"
    threading.excepthook = before
    assert [str(failure.exc_value) for failure in failures] == []


def _exchange(path: Path, *sent: bytes) -> bytes:
    """Return the agent's answers to these bytes until it closes the connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(30)
        channel.connect(str(path))
        sender = threading.Thread(target=_send, args=(channel, b"".join(sent)))
        sender.start()
        said = b""
        try:
            while piece := channel.recv(4096):
                said += piece
        except ConnectionResetError:
            pass
        sender.join()
        return said


def _framed(header: Any) -> bytes:
    text = json.dumps(header).encode()
    return LENGTHS.pack(len(text), 0) + text


@quick
@given(streams)
@example(_framed({"token": "\ud800"}))
@example(_framed({"token": TOKEN, "for": ["calls"]}))
@example(_framed({"token": {"a": TOKEN}}))
@example(LENGTHS.pack(len(DEEP), 0) + DEEP)
def test_strangers_get_nothing_and_end_nothing(agent: Path, stream: bytes) -> None:
    said = _exchange(agent, stream)
    assert b'"ok"' not in said
    assert b"secret" not in said
    assert AgentClient(agent, TOKEN).call("ping")["pid"]


def test_a_stranger_cannot_make_the_agent_take_memory(agent: Path) -> None:
    """Before the token is known a frame has 4 KiB; a frame that announces more is refused at once."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(10)
        channel.connect(str(agent))
        channel.sendall(LENGTHS.pack(MAX_HEADER_BYTES, 0))
        assert channel.recv(1) == b""


operations = st.sampled_from(
    [
        "ping",
        "open",
        "restore",
        "commit",
        "snapshot",
        "cleanup",
        "deltas",
        "ranges",
        "damaged",
        "release",
        "close",
        "",
        "__class__",
    ]
)
stores = json_values | st.fixed_dictionaries(
    {
        "instance": json_values,
        "location": json_values | st.just("/nowhere/state"),
        "operator": json_values,
        "partition": json_values,
        "name": json_values,
        "run": json_values,
        "ids": json_values,
        "retain": json_values,
        "options": st.just({}) | st.dictionaries(st.text(max_size=5), json_values, max_size=2),
    }
)
arguments = [
    "version",
    "id",
    "parent",
    "path",
    "bytes",
    "crc",
    "keys",
    "kind",
    "reason",
    "first",
    "directory",
    "name",
    "offset",
    "length",
    "thorough",
]
requests = st.builds(
    lambda op, store, rest: {"op": op, "store": store, **rest},
    operations,
    stores,
    st.dictionaries(st.sampled_from(arguments), json_values, max_size=11),
)


@pytest.mark.tier("more")
@quick
@given(requests)
def test_every_call_is_answered(agent: Path, request: dict[str, Any]) -> None:
    """A process that knows the token gets an answer to anything that is JSON."""
    client = AgentClient(agent, TOKEN)
    try:
        write_frame(client.channel, request)
        frame = read_frame(client.channel)
        assert frame is not None, "the agent hung up"
        assert frame[0].keys() <= {"ok", "error"}
        assert client.call("ping")["pid"]
    finally:
        client.close()
