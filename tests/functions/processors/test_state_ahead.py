"""The state of a run is asked for while the run before is handled: what a processor reads stays the same."""

from __future__ import annotations

import json
import pickle
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
import pytest
import wire
from calls_of_state import MapState
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.streaming import StatefulProcessor
from waiting import PATIENCE_S

from state_store.functions.processors.processor_loop import ProcessorLoop, TaskHeader
from state_store.functions.processors.task_state import DONE, REFUSED, Channel, RowCodec, Session
from state_store.functions.processors.variables import BatchedMap

LONG = wire.schema({"n": "long"})
TEXT = wire.schema({"t": "string"})


class Server:
    """A server that speaks as the JVM's `StateServer`, to one channel: it reads, answers, and reads again."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        self._answer = answer
        self.calls: list[list[Any]] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        host, port = self._listening.getsockname()
        return f"{host}:{port}"

    def close(self) -> None:
        self._thread.join(PATIENCE_S)
        self._listening.close()
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        connection, _ = self._listening.accept()
        with connection, connection.makefile("rwb") as file:
            assert self._read(file) == "secret"
            while (message := self._read(file)) is not None:
                self.calls.append(list(message))
                data = pickle.dumps(self._reply(message))
                file.write(struct.pack("!i", len(data)) + data)
                file.flush()

    def _reply(self, message: Any) -> tuple[int, Any]:
        try:
            return DONE, self._answer(*message)
        except ValueError as error:
            return REFUSED, str(error)

    @staticmethod
    def _read(file: Any) -> Any:
        head = file.read(4)
        return pickle.loads(file.read(*struct.unpack("!i", head))) if head else None


@contextmanager
def served(answer: Callable[..., Any], schema: Any = LONG) -> Iterator[tuple[Session, BatchedMap, Server]]:
    """Yield a session, one of its maps, which fetches all entries, and their server."""
    with closing(Server(answer)) as server:
        channel = Channel(server.address, "secret")
        channel._socket.settimeout(PATIENCE_S)
        session = Session(channel, RowCodec(LONG, are_keys=True), 500)
        entries = BatchedMap(session, 0, LONG, schema)
        entries.decide = lambda groups: None  # type: ignore[method-assign]
        entries.prefetches = True
        try:
            yield session, entries, server
        finally:
            channel.close()


CALLS = ("updateValue", "getValue", "containsKey", "removeKey", "iterator", "clear", "flush")
GROUPS = st.lists(
    st.tuples(
        st.integers(0, 5).map(lambda key: (key,)),
        st.lists(st.tuples(st.sampled_from(CALLS), st.integers(0, 2).map(lambda key: (key,))), max_size=4),
    ),
    min_size=1,
    max_size=3,
)


def played(runs: Any, ahead: bool) -> tuple[list[Any], Any]:
    """Return what each call gives, and the store's content; `ahead`: the keys of each next run are known."""
    store, found = MapState(LONG, plain=True), []
    with served(store.call) as (session, entries, _):
        keys = [[key for key, _ in groups] for groups in runs]
        for number, groups in enumerate(runs):
            session.begin(keys[number], keys[number + 1] if ahead and number + 1 < len(runs) else ())
            for place, (_, calls) in enumerate(groups):
                session.enter(place)
                for at, (name, key) in enumerate(calls):
                    if name == "updateValue":
                        entries.updateValue(key, (100 * number + 10 * place + at,))
                    elif name == "flush":
                        session.flush()
                    elif name == "iterator":
                        found.append(list(entries.iterator()))
                    elif name == "clear":
                        entries.clear()
                    else:
                        found.append(getattr(entries, name)(key))
        session.end()
    return found, store.maps


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(runs=st.lists(GROUPS, min_size=2, max_size=6))
def test_a_processor_reads_the_same_if_its_state_was_asked_for_ahead(runs):
    assert played(runs, ahead=True) == played(runs, ahead=False)


def test_the_state_of_the_next_run_is_asked_for_with_the_writes_of_the_run_before():
    store = MapState(LONG, plain=True)
    with served(store.call) as (session, entries, server):
        runs = [[(0,), (1,)], [(2,)], [(3,)], [(3,), (4,)]]
        for keys, next_keys in zip(runs, [*runs[1:], []], strict=True):
            session.begin(keys, next_keys)
            for number, key in enumerate(keys):
                session.enter(number)
                entries.updateValue((7,), key)
        session.end()
    assert [keys for _, _, keys, _ in server.calls] == [[(0,), (1,)], [(2,)], [(3,)], [(3,), (4,)], []]
    written = [[value for value in waiting if type(value) is tuple] for _, waiting, _, _ in server.calls]
    assert [values[::3] for values in written] == [[], [], [(0,), (1,)], [(2,), (3,)], [(3,), (4,)]]
    assert {key: [value for _, value in held.values()] for key, held in store.maps.items()} == {
        (key,): [(key,)] for key in range(5)
    }


def test_large_messages_and_answers_wait_for_each_other():
    text = "x" * 1000

    def answer(name: str, waiting: list[Any], keys: list[Any], fetches: list[Any]) -> Any:
        return [[], [([((1,), (text,))] * 100, True) for _ in keys]]

    with served(answer, TEXT) as (session, entries, server):
        runs = [[(100 * run + number,) for number in range(100)] for run in range(4)]
        for keys, next_keys in zip(runs, [*runs[1:], []], strict=True):
            session.begin(keys, next_keys)
            for number in range(len(keys)):
                session.enter(number)
                for place in range(100):
                    entries.updateValue((place,), (text,))
                assert entries.getValue((1,)).t == text
        session.end()
    assert [len(keys) for _, _, keys, _ in server.calls] == [100, 100, 100, 100, 0]


def test_a_write_that_is_refused_in_a_posted_message_fails_the_next_call_and_the_next_run():
    def answer(name: str, waiting: list[Any], keys: list[Any], fetches: list[Any]) -> Any:
        if waiting:
            raise ValueError("no room")
        return [[], [([], True) for _ in keys]]

    with served(answer) as (session, entries, _):
        session.begin([(0,)], [(1,)])
        session.enter(0)
        entries.updateValue((1,), (1,))
        session.begin([(1,)], [(2,)])
        session.enter(0)
        entries.updateValue((1,), (1,))
        with pytest.raises(PySparkRuntimeError, match="Error checking map state exists: no room"):
            entries.exists()
        with pytest.raises(PySparkRuntimeError, match="state of processors: no room"):
            session.begin([(2,)])


class Looks(StatefulProcessor):
    """Looks for one key in the map of each group."""

    def init(self, handle: Any) -> None:
        self._entries = handle.getMapState("entries", LONG, LONG)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        assert not self._entries.containsKey((1,))
        return iter(())

    def close(self) -> None:
        pass


def test_no_run_is_asked_for_before_the_first_has_shown_what_is_read():
    store = MapState(LONG, plain=True)

    def answer(name: str, *message: Any) -> Any:
        return store.call(name, *message) if name == "run" else 0

    with closing(Server(answer)) as server:
        numbers = dict.fromkeys(("first_value", "max_bytes", "max_group_bytes"), 0)
        times = {"batch_time_ms": -1, "watermark_ms": -1, "time_zone": "UTC"}
        limits = {"max_records": 500, "max_state_records": 500}
        of_rows = {"key": LONG.jsonValue(), "key_offsets": "0", "of_rows": True, "runner": {}}
        header = {"address": server.address, "secret": "secret", **numbers, **times, **limits, **of_rows}
        loop = ProcessorLoop(Looks(), LONG, TaskHeader(json.dumps(header), "none"))
        batches = [pa.record_batch({"n": list(range(start, start + 2500))}) for start in (0, 2500)]
        assert list(loop.answers(iter(batches))) == []
    runs = [(len(message[2]), bool(message[1])) for message in server.calls if message[0] == "run"]
    single_reads, fetches = [(0, True)] * 32, [1000, 1000, 468, 1000, 1000, 500]
    assert runs == [*single_reads, *((groups, False) for groups in fetches)]
