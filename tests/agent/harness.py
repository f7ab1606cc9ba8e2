"""A client that speaks docs/protocol.md to a real agent process, and deltas to commit through it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runtimes import AdjustedRuntime

from state_store import errors
from state_store.agent.__main__ import PROTOCOL
from state_store.agent.calls import Calls
from state_store.agent.merges.merging import MergeRequest
from state_store.agent.open_store import OpenStore
from state_store.core.checkpoint.lineage import AttemptId
from state_store.core.checkpoint.names import VersionId, parent_of
from state_store.core.checkpoint.stored_documents import META_KEY, ColumnFamily, DeltaMetadata
from state_store.core.engine.database import Database, DatabaseSettings, write_delta
from state_store.core.files.sparse import INCOMING_PREFIX
from state_store.core.storage.contract import Entry, Span, Storage
from state_store.core.storage.hadoop import ProtocolError, read_frame, write_frame
from state_store.core.storage.local import LocalStorage

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0
"""Seconds that a test waits for an event that has to come, even on a slow machine."""
_instances = itertools.count(1)


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
            "protocol": PROTOCOL,
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
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.stdout.close()
            shutil.rmtree(self.home, ignore_errors=True)

    def connect(self, remote: Path | None = None, **how: Any) -> AgentClient:
        return AgentClient(self.socket, self.token, remote, **how)

    def log(self) -> list[dict[str, Any]]:
        size_bytes = os.fstat(self.stderr.fileno()).st_size
        text = os.pread(self.stderr.fileno(), size_bytes, 0)  # the agent writes at the file's position
        return [json.loads(line) for line in text.decode().splitlines()]


class AgentClient:
    """A connection to an agent. `call` raises the StateStoreError that the agent answers with.

    With `remote`, file requests on `remote:` URIs are served from that directory, on connections that are
    lent as the JVM lends them.
    """

    def __init__(self, path: Path, token: str, remote: Path | None = None, *, lend: int = 4) -> None:
        self.channel = _connected(path, token, "calls")
        self.files = [FileServer(path, token, remote) for _ in range(lend if remote else 0)]

    @property
    def asked(self) -> list[str]:
        """The file operations that were asked so far."""
        return [operation for server in self.files for operation in server.served]

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        return _ask(self.channel, {"op": op, **arguments})

    def close(self) -> None:
        self.channel.close()


class FileServer:
    """A connection that is lent to the agent, served in a thread of its own; `served` are the operations.

    Each waits for `delay_s` seconds and for `before`, which gets the header of the request.
    """

    def __init__(self, path: Path, token: str, remote: Path) -> None:
        self.remote = remote
        self.delay_s = 0.0
        self.before: Callable[[dict[str, Any]], None] = lambda header: None
        self.served: list[str] = []
        self.channel = _connected(path, token, "files")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until the connection has ended, and the last request is carried out."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        with contextlib.suppress(OSError, ProtocolError):
            while (frame := read_frame(self.channel)) is not None:
                header, body = frame
                time.sleep(self.delay_s)
                self.before(header)
                try:
                    answer, data = serve(LocalStorage(self.remote), header, body)
                except errors.StateStoreError as error:
                    answer, data = {"error": error.to_json()}, b""
                else:
                    answer = {"ok": answer}
                self.served.append(header["fs"])
                write_frame(self.channel, answer, data)


def _connected(path: Path, token: str, purpose: str) -> socket.socket:
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    channel.connect(str(path))
    _ask(channel, {"token": token, "for": purpose})
    return channel


def _ask(channel: socket.socket, request: dict[str, Any]) -> dict[str, Any]:
    write_frame(channel, request)
    frame = read_frame(channel)
    if frame is None:
        raise ConnectionError("the agent is gone")
    header, _ = frame
    if "error" in header:
        raise errors.from_json(header["error"])
    return header["ok"]


def serve(storage: LocalStorage, header: dict[str, Any], body: bytes) -> tuple[Any, bytes]:
    """Answer a file request of docs/protocol.md."""
    path = header["path"].removeprefix("remote:/").strip("/")
    operation = header["fs"]
    if operation == "list":
        return _page(storage.list_files(path), header.get("after"), header["most"]), b""
    if operation == "read":
        return {}, storage.read(path, header["offset"], header["length"])
    if operation == "exists":
        return {"exists": storage.exists(path)}, b""
    if operation == "spans":
        return {"copied": [_copy_span(storage, span) for span in header["spans"]]}, b""
    if operation == "download":
        Path(header["to"]).write_bytes(storage.read(path))
    elif operation == "write":
        data = Path(header["upload"]).read_bytes() if "upload" in header else body
        storage.write(path, data, overwrite=header["overwrite"])
    elif operation == "delete":
        storage.delete(path)
    return {}, b""


def _copy_span(storage: LocalStorage, span: dict[str, Any]) -> int:
    numbers = span["pieces"]
    pieces = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    path = span["path"].removeprefix("remote:/").strip("/")
    return storage.download_spans([Span(path, Path(span["to"]), pieces)])[0]


def _page(entries: list[Entry], after: str | None, limit: int) -> dict[str, Any]:
    """Return the entries after that name, at most this many."""
    page = [entry for entry in entries if after is None or entry.name > after][:limit]
    fields = [
        {"name": entry.name, "bytes": entry.size_bytes, "modified_ms": entry.modified_ms} for entry in page
    ]
    return {"entries": fields, "more": bool(page) and page[-1] != entries[-1]}


class InProcess:
    """The agent's calls in this process: quick, and with settings that the options do not offer."""

    def __init__(
        self,
        directory: Path,
        *,
        now_ms: Callable[[], int] | None = None,
        uptime_ms: Callable[[], float] | None = None,
        storages: Callable[[str], Storage] | None = None,
        **settings: Any,
    ) -> None:
        opened = {} if storages is None else {"open_storage": lambda uri, jvm: storages(uri)}
        self.calls = Calls(
            directory,
            settings=lambda options: DatabaseSettings(threads=1, **settings),
            **opened,
            runtime=AdjustedRuntime(wall_ms=now_ms, uptime_ms=uptime_ms),
        )

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        return self.calls.handle({"op": op, **arguments}).to_json()


class Job:
    """A provider: keeps a dict as the truth, writes deltas, and commits them through a client."""

    def __init__(
        self,
        client: AgentClient,
        location: Path | str,
        *,
        ids: bool = True,
        retain: int = 100,
        run: str | None = None,
        task: int = 0,
        families: dict[str, int] | None = None,
        **options: str,
    ):
        self.client = client
        self.location = location
        self.ids = ids
        self.task = task
        self.families = families or {"default": 0}
        self.store = {
            "instance": next(_instances),
            "location": str(location),
            "operator": 0,
            "partition": 0,
            "name": "default",
            "run": run or str(uuid.uuid4()),
            "ids": ids,
            "retain": retain,
            "options": {"minPauseBetweenMerges": "0", **options},
        }
        self.opened = client.call("open", store=self.store)
        self.state: dict[bytes, bytes] = {}
        self.version = 0
        self.id: str | None = None
        self.versions: dict[int, tuple[str | None, dict[bytes, bytes]]] = {0: (None, {})}
        self.attempts: dict[str, Any] = {"ordinal": 0, "seen": []}

    def reopened(self, **options: str) -> Job:
        """Return another provider of the same store, with other options, that has restored this version."""
        other = Job(
            self.client,
            self.location,
            ids=self.ids,
            retain=self.store["retain"],
            families=self.families,
            **options,
        )
        other.versions = dict(self.versions)
        other.restore(self.version)
        return other

    def write(self, changes: dict[bytes, bytes | None]) -> dict[str, Any]:
        """Write the delta of the next version, and return the arguments of its commit."""
        state = dict(self.state)
        for key, value in changes.items():
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
        version = self.version + 1
        new_id = str(uuid.uuid4()) if self.ids else self.new_attempt()
        parent = parent_of(VersionId(self.version, self.id))
        removes = sum(value is None for value in changes.values())
        metadata = DeltaMetadata(
            version,
            new_id,
            parent,
            len(state),
            len(changes) - removes,
            removes,
            {
                name: ColumnFamily(family, False, count(state, family))
                for name, family in self.families.items()
            },
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
            "seen": self.attempts["seen"],
        }

    def new_attempt(self) -> str:
        """Return an id as the data plane makes it if Spark gives none."""
        return str(AttemptId(self.attempts["ordinal"], "0" * 8, self.task, uuid.uuid4().hex[:8]))

    def commit(self, changes: dict[bytes, bytes | None]) -> dict[str, Any]:
        answer = self.call("commit", **self.write(changes))
        self.version, self.id, self.state = self.next
        self.versions[self.version] = (self.id, self.state)
        self.attempts = answer["attempts"]
        return answer

    def look(self) -> None:
        """Ask for the attempts in storage, as one that begins in memory does if it may not be the first."""
        self.attempts = self.call("attempts", version=self.version)

    def merge(self, kind: str = "incremental") -> dict[str, Any]:
        """Merge the newest version now, and return the answer with the fields of its base."""
        if kind == "ingest":
            request = MergeRequest(VersionId(self.version, self.id), kind, "test")
            answer = self.client.calls.scheduler.merge_now(self.open_store, request).to_json()
        else:
            answer = self.call("snapshot", version=self.version, id=self.id, kind=kind, reason="test")
        return {**answer, **answer.pop("base", {})}

    @property
    def open_store(self) -> OpenStore:
        """The store in the agent, where that runs in this process."""
        return self.client.calls._store({"store": self.store})

    def events(self, count: int = 1, wait_s: float = PATIENCE_S) -> list[dict[str, Any]]:
        """Wait for `count` events of this store and return them, without acknowledging any."""
        end_s = time.monotonic() + wait_s
        while True:
            found = self.client.call("events", after=0, wait_ms=1000)["events"]
            mine = [event for event in found if event["store"] == self.store["instance"]]
            if len(mine) >= count or time.monotonic() > end_s:
                return mine
            time.sleep(0.02)

    def close(self) -> None:
        self.call("close")

    def restore(self, version: int | None = None, **how: bool) -> dict[str, Any]:
        version = self.version if version is None else version
        id_, state = self.versions[version]
        answer = self.call("restore", version=version, id=id_ if self.ids else None, **how)
        self.version, self.id, self.state = version, answer["id"], state
        self.attempts = answer["attempts"]
        return answer

    def restore_by_blocks(self, version: int | None = None) -> dict[str, Any]:
        """As the data plane does at first: no file is verified as a whole, deltas lie beside the database."""
        return self.restore(version, thorough=False)

    def rows(self, version: int | None = None) -> dict[bytes, bytes]:
        """Return the rows of a version as the data plane reads them: it restores after damage."""
        answer = self.restore_by_blocks(version)
        try:
            return rows_of(answer)
        except errors.DamagedError:
            self.call("damaged", directory=answer["directory"])
        finally:
            self.call("release", directory=answer["directory"])
        answer = self.restore_by_blocks(version)
        try:
            return rows_of(answer)
        finally:
            self.call("release", directory=answer["directory"])

    def cleanup(self) -> dict[str, Any]:
        return self.call("cleanup", version=self.version, id=self.id)

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        return self.client.call(op, store=self.store, **arguments)


def count(state: dict[bytes, bytes], family: int) -> int:
    """Rows of the column family."""
    return sum(key.startswith(family.to_bytes(2, "big")) for key in state)


def rows_of(answer: dict[str, Any]) -> dict[bytes, bytes]:
    """Return the rows of a restored base and its loose deltas, as the JVM reads them.

    Raises:
        DamagedError: A file is not of the version that it should be.
    """
    with tempfile.TemporaryDirectory() as copy:
        target = Path(copy) / "db"
        _copy_base(answer["directory"], target)
        with Database(target, DatabaseSettings(), create=not answer["base"]["version"]) as database:
            if answer["base"]["version"]:
                _check(database, answer["base"], str(target))
            for delta in answer["loose_deltas"]:
                database.ingest([target / Path(delta["path"]).relative_to(answer["directory"])])
                _check(database, delta, delta["path"])
            return {key: value for key, value in database.scan() if key != META_KEY}


def _copy_base(directory: str | os.PathLike[str], target: Path) -> None:
    """Copy a base, without the parts that are being fetched, which come and go."""
    shutil.copytree(directory, target, ignore=shutil.ignore_patterns(f"{INCOMING_PREFIX}*"))


def _check(database: Database, expected: dict[str, Any], file: str) -> None:
    record = database.metadata()
    says = None if record is None else DeltaMetadata.from_json(record, file=file).version_id
    if says != VersionId(expected["version"], expected["id"]):
        raise errors.DamagedError(f"{file} says that it is {says}", file=file)


def contents(directory: str | os.PathLike[str]) -> dict[bytes, bytes]:
    """Return the rows of a base, read from a copy as the JVM would, without the reserved record."""
    with tempfile.TemporaryDirectory() as copy:
        target = Path(copy) / "db"
        _copy_base(directory, target)
        with Database(target, DatabaseSettings()) as database:
            return {key: value for key, value in database.scan() if key != b"\xff\xffmeta"}
