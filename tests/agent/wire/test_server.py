"""Processes that may talk to the agent, and sizes of frames."""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.harness import AgentClient
from state_store.agent import calls
from state_store.core.storage.hadoop import (
    MAX_BODY_BYTES,
    MAX_HEADER_BYTES,
    FileConnections,
    ProtocolError,
    read_frame,
    write_frame,
)
from state_store.core.storage.local_disk import local_disk_error
from state_store.errors import InternalError, StateStoreError


class Echo:
    """Answers with what was asked."""

    def __init__(self, asked: str = "") -> None:
        self.asked = asked

    def handle(self, request: dict) -> Echo:
        return Echo(request["op"])

    def to_json(self) -> dict:
        return {"asked": self.asked}


@pytest.fixture
def address(tmp_path: Path) -> Path:
    """Return the socket of a server in this process."""
    path = tmp_path / "s"
    threading.Thread(
        target=calls.Server(str(path), "token", Echo(), FileConnections()).serve, daemon=True
    ).start()
    return path


class FullDisk(Echo):
    """Answers no call: the local disk is full."""

    def handle(self, request: dict) -> Echo:
        raise local_disk_error(OSError(errno.ENOSPC, "No space left on device", "/disk/x"))


def test_an_error_of_a_local_disk_names_the_option(tmp_path: Path) -> None:
    """The JVM would advise to check checkpoint storage."""
    served = calls.Server(str(tmp_path / "s"), "token", FullDisk(), FileConnections())
    threading.Thread(target=served.serve, daemon=True).start()
    with pytest.raises(StateStoreError) as raised:
        AgentClient(tmp_path / "s", "token").call("ping")
    assert raised.value.option == "spark.sql.streaming.stateStore.incremental.localDir"


def test_a_caller_with_the_token_is_answered(address: Path) -> None:
    assert AgentClient(address, "token").call("ping") == {"asked": "ping"}


def test_another_user_is_refused_before_it_says_a_word(
    address: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(30)
        channel.connect(str(address))
        answer, _ = read_frame(channel)
        assert "user" in answer["error"]["message"]
        assert channel.recv(1) == b""


@pytest.mark.parametrize("token", ["guess", "gu\u00e9", ""])
def test_a_caller_without_the_token_is_refused(address: Path, token: str) -> None:
    with pytest.raises(InternalError, match="token"):
        AgentClient(address, token)


def test_nobody_else_can_open_the_socket(address: Path) -> None:
    assert address.stat().st_mode & 0o777 == 0o600


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, other = socket.socketpair()
    with left, other:
        yield left, other


@pytest.mark.parametrize("lengths", [(MAX_HEADER_BYTES + 1, 0), (2, MAX_BODY_BYTES + 1), (2, 0xFFFFFFFF)])
def test_a_frame_that_is_too_large_is_refused_before_it_is_read(
    ends: tuple[socket.socket, socket.socket], lengths: tuple[int, int]
) -> None:
    ours, theirs = ends
    theirs.sendall(struct.pack(">II", *lengths) + b"{}")
    theirs.close()
    with pytest.raises(ProtocolError, match=f"header has {lengths[0]} bytes, its body {lengths[1]}"):
        read_frame(ours)


@pytest.mark.parametrize("header", [b"no JSON", b"[1]", b"\xff\xff"])
def test_a_header_that_is_no_object_is_refused(
    ends: tuple[socket.socket, socket.socket], header: bytes
) -> None:
    ours, theirs = ends
    theirs.sendall(struct.pack(">II", len(header), 0) + header)
    with pytest.raises(ProtocolError, match="JSON"):
        read_frame(ours)


def test_a_frame_that_the_other_side_would_refuse_is_not_sent(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    with pytest.raises(ProtocolError, match="cannot send"):
        write_frame(ends[0], {}, bytes(MAX_BODY_BYTES + 1))


def test_the_end_between_frames_is_the_end_and_within_one_an_error(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    write_frame(theirs, {"a": 1}, b"body")
    theirs.sendall(b"\0\0")
    theirs.close()
    assert read_frame(ours) == ({"a": 1}, b"body")
    with pytest.raises(ProtocolError, match="within a frame"):
        read_frame(ours)
