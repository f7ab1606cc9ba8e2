"""A client that speaks docs/protocol.md to a real agent process, and deltas to commit through it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from state_store import errors
from state_store.agent.calls import Calls
from state_store.agent.frames import read_frame, write_frame
from state_store.checkpoint.metadata import ColumnFamily, DeltaMetadata
from state_store.engine.database import Database
from state_store.engine.settings import DatabaseSettings
from state_store.engine.sst import write_delta
from state_store.storage.local import LocalStorage

ROOT = Path(__file__).resolve().parents[2]


class AgentProcess:
    """An agent; leave the context to end it as the end of the JVM would."""

    def __init__(self, directory: Path | None = None, *, log_level: str = "INFO") -> None:
        self.home = Path(tempfile.mkdtemp(prefix="iss-"))
        self.directory = directory or self.home / "local"
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.home / "s").mkdir(mode=0o700)
        self.socket = self.home / "s" / "a"
        self.token = "secret"
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115 -- lives as long as the process
        self.process = subprocess.Popen(
            [sys.executable, "-m", "state_store.agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            cwd=ROOT,
        )
        start = {
            "protocol": 1,
            "token": self.token,
            "socket": str(self.socket),
            "directory": str(self.directory),
            "log_level": log_level,
        }
        self.process.stdin.write((json.dumps(start) + "\n").encode())
        self.process.stdin.flush()
        self.ready = json.loads(self.process.stdout.readline())

    def __enter__(self) -> AgentProcess:
        return self

    def __exit__(self, *failure: object) -> None:
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def connect(self, remote: Path | None = None) -> AgentClient:
        return AgentClient(self.socket, self.token, remote)

    def log(self) -> list[dict[str, Any]]:
        self.stderr.seek(0)
        return [json.loads(line) for line in self.stderr.read().decode().splitlines()]


class AgentClient:
    """One connection. `call` raises the StateStoreError that the agent answers with.

    With `remote`, nested file system calls on `remote:` URIs are served from that directory.
    """

    def __init__(self, path: Path, token: str, remote: Path | None = None) -> None:
        self.remote = remote
        self.asked: list[str] = []
        self.channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.channel.connect(str(path))
        self._ask({"token": token})

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        return self._ask({"op": op, **arguments})

    def close(self) -> None:
        self.channel.close()

    def _answer(self, header: dict[str, Any], body: bytes) -> None:
        self.asked.append(header["fs"])
        try:
            answer, data = serve(LocalStorage(self.remote), header, body)
        except errors.StateStoreError as error:
            write_frame(self.channel, {"error": error.to_json()})
        else:
            write_frame(self.channel, {"ok": answer}, data)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        write_frame(self.channel, request)
        while True:
            frame = read_frame(self.channel)
            if frame is None:
                raise ConnectionError("the agent is gone")
            header, body = frame
            if "fs" in header:
                self._answer(header, body)
                continue
            if "error" in header:
                raise errors.from_json(header["error"])
            return header["ok"]


def serve(storage: LocalStorage, header: dict[str, Any], body: bytes) -> tuple[Any, bytes]:
    """One nested file system call of docs/protocol.md."""
    path = header["path"].removeprefix("remote:/").strip("/")
    match header["fs"]:
        case "list":
            entries = [
                {"name": entry.name, "bytes": entry.size_bytes, "modified_ms": entry.modified_ms}
                for entry in storage.list_files(path)
            ]
            return {"entries": entries}, b""
        case "read":
            return {}, storage.read(path, header["offset"], header["length"])
        case "write" if "upload" in header:
            storage.write(path, Path(header["upload"]).read_bytes(), overwrite=header["overwrite"])
        case "write":
            storage.write(path, body, overwrite=header["overwrite"])
        case "download":
            Path(header["to"]).write_bytes(storage.read(path))
        case "delete":
            storage.delete(path)
        case "exists":
            return {"exists": storage.exists(path)}, b""
    return {}, b""


class InProcess:
    """The agent's calls in this process: quick, and with settings that the options do not offer."""

    def __init__(self, directory: Path, *, now_ms: Callable[[], int] | None = None, **settings: Any) -> None:
        clock = {} if now_ms is None else {"now_ms": now_ms}
        self.calls = Calls(
            directory, settings=lambda options: DatabaseSettings(threads=1, **settings), **clock
        )

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        return self.calls.handle({"op": op, **arguments})


class Job:
    """What a provider does: keeps a dict as the truth, writes deltas, commits them through a client."""

    def __init__(
        self,
        client: AgentClient,
        location: Path | str,
        *,
        ids: bool = True,
        retain: int = 100,
        families: dict[str, int] | None = None,
        **options: str,
    ):
        self.client = client
        self.location = location
        self.ids = ids
        self.families = families or {"default": 0}
        self.store = {
            "location": str(location),
            "operator": 0,
            "partition": 0,
            "name": "default",
            "run": str(uuid.uuid4()),
            "ids": ids,
            "retain": retain,
            "options": {"minPauseBetweenMerges": "0", **options},
        }
        self.opened = client.call("open", store=self.store)
        self.state: dict[bytes, bytes] = {}
        self.version = 0
        self.id: str | None = None
        self.versions: dict[int, tuple[str | None, dict[bytes, bytes]]] = {0: (None, {})}

    def write(self, changes: dict[bytes, bytes | None]) -> dict[str, Any]:
        """Writes the delta of the next version; gives the arguments of its commit."""
        state = dict(self.state)
        for key, value in changes.items():
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
        version = self.version + 1
        new_id = str(uuid.uuid4()) if self.ids else None
        parent = (self.id or "empty") if self.ids else None
        removes = sum(value is None for value in changes.values())
        metadata = DeltaMetadata(
            version,
            new_id,
            parent,
            len(state),
            len(changes) - removes,
            removes,
            {name: ColumnFamily(one, False, count(state, one)) for name, one in self.families.items()},
            "test",
        )
        path = Path(self.opened["incoming"]) / f"{version}-{uuid.uuid4().hex}.sst"
        size, crc = write_delta(path, sorted(changes.items()), metadata)
        self.next = (version, new_id, state)
        return {
            "version": version,
            "id": new_id,
            "parent": parent,
            "path": str(path),
            "bytes": size,
            "crc": crc,
            "keys": len(state),
        }

    def commit(self, changes: dict[bytes, bytes | None]) -> dict[str, Any]:
        answer = self.call("commit", **self.write(changes))
        self.version, self.id, self.state = self.next
        self.versions[self.version] = (self.id, self.state)
        return answer

    def merge(self, kind: str = "incremental") -> dict[str, Any]:
        return self.call("merge", version=self.version, id=self.id, kind=kind, reason="test")

    def restore(self, version: int | None = None) -> dict[str, Any]:
        version = self.version if version is None else version
        answer = self.call("restore", version=version, id=self.versions[version][0])
        self.version, self.id, self.state = version, *self.versions[version]
        return answer

    def cleanup(self) -> dict[str, Any]:
        return self.call("cleanup", version=self.version, id=self.id)

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        return self.client.call(op, store=self.store, **arguments)


def count(state: dict[bytes, bytes], family: int) -> int:
    """Rows of the column family."""
    return sum(key.startswith(family.to_bytes(2, "big")) for key in state)


def contents(directory: str | os.PathLike[str]) -> dict[bytes, bytes]:
    """What a base has, read from a copy as the JVM would; without the reserved record."""
    with tempfile.TemporaryDirectory() as copy:
        target = Path(copy) / "db"
        shutil.copytree(directory, target)
        with Database(target, DatabaseSettings()) as database:
            return {key: value for key, value in database.scan() if key != b"\xff\xffmeta"}
