"""A processor's methods in a worker without a JVM.

A `StopIteration` out of one is the error that PySpark makes of it in its own worker. All timers that have
expired are one group, as there.
"""

from __future__ import annotations

import json
import socket
from typing import Any

import pyarrow as pa
import pytest
import wire
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorHandleState
from pyspark.sql.streaming.stateful_processor_util import (
    TransformWithStateInPandasFuncMode,
    TransformWithStateInPandasUdfUtils,
)
from pyspark.util import fail_on_stopiteration

from state_store.functions.processors import processor_loop, task_state
from state_store.functions.processors.processor_loop import TaskHeader

KEY = wire.schema({"k": "long"})


class Stops(StatefulProcessor):
    """Lets a `StopIteration` out of the method with this name."""

    def __init__(self, method: str) -> None:
        self._method = method

    def _stop(self, method: str) -> None:
        if method == self._method:
            next(iter(()))

    def init(self, handle: Any) -> None:
        self._stop("init")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        list(rows)
        self._stop("handleInputRows")
        return [Row(k=1)]

    def close(self) -> None:
        self._stop("close")


class Client:
    """PySpark's client of state, for a processor without state."""

    handle_state = StatefulProcessorHandleState.CREATED

    def set_handle_state(self, state: Any) -> None:
        self.handle_state = state

    def set_implicit_key(self, key: Any) -> None:
        pass

    def remove_implicit_key(self) -> None:
        pass

    def get_timestamps(self, time_mode: str) -> tuple[int, int]:
        return -1, -1


class Channel:
    """The same for this project's client."""

    def __init__(self, address: str, secret: str) -> None:
        pass

    def call(self, name: str, *message: Any) -> Any:
        return [[], []]

    def close(self) -> None:
        pass


def sparks(processor: StatefulProcessor) -> None:
    """Make the calls of PySpark's worker."""
    utils = TransformWithStateInPandasUdfUtils(processor, "none")
    function, client = fail_on_stopiteration(utils.transformWithStateUDF), Client()
    mode = TransformWithStateInPandasFuncMode
    list(function(client, mode.PROCESS_DATA, (1,), iter([Row(k=1)])))
    list(function(client, mode.PROCESS_TIMER, None, iter([])))
    list(function(client, mode.COMPLETE, None, iter([])))


def ours(processor: StatefulProcessor, output: Any = KEY, time_mode: str = "none") -> list[pa.RecordBatch]:
    fields = {
        **dict.fromkeys(("address", "secret", "time_zone"), "none"),
        **dict.fromkeys(("first_value", "batch_time_ms", "watermark_ms", "max_bytes", "max_group_bytes"), 0),
        **dict.fromkeys(("max_records", "max_state_records"), 500),
        "key": json.loads(KEY.json()),
        "key_offsets": "0",
        "of_rows": True,
        "runner": {},
    }
    loop = processor_loop._loop(processor, output, TaskHeader(json.dumps(fields), time_mode))
    return list(loop.answers(iter([pa.record_batch({"k": [1]})])))


@pytest.mark.parametrize("method", ["init", "handleInputRows", "close", "none"])
def test_a_method_that_stops_fails_as_in_pysparks_worker(monkeypatch, method):
    monkeypatch.setattr(processor_loop, "Channel", Channel)
    errors = []
    for run in (sparks, ours):
        try:
            run(Stops(method))
            errors.append("none")
        except Exception as error:
            errors.append(f"{type(error).__name__} {error}")
    assert errors[1] == errors[0]
    assert (errors[0] == "none") == (method == "none")


class Expiring(Channel):
    """A client with 7 timers that have expired, which come in three answers."""

    def __init__(self, address: str, secret: str) -> None:
        self._timers = [((n,), n) for n in range(7)]

    def call(self, name: str, *message: Any) -> Any:
        if name != "expired":
            return [[], []]
        first, self._timers = self._timers[:3], self._timers[3:]
        return first, bool(self._timers)


class Refills(Stops):
    """Gives one `bytearray` for each timer, filled again."""

    def __init__(self) -> None:
        super().__init__("none")
        self._data = bytearray(1)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        self._data[:] = bytes([expiredTimerInfo.getExpiryTimeInMs()])
        yield Row(k=key[0], b=self._data)


def test_an_object_that_timers_refill_is_what_it_was_at_the_end_of_all_timers(monkeypatch):
    """PySpark's worker converts the output of all timers at once, however many there are."""
    monkeypatch.setattr(processor_loop, "Channel", Expiring)
    monkeypatch.setattr(processor_loop, "_RUN", 2)
    batches = ours(Refills(), wire.schema({"k": "long", "b": "binary"}), "processingTime")
    given = [(row["k"], row["b"]) for batch in batches for row in batch.to_pylist()]
    assert given == [(1, None), *((n, b"\x06") for n in range(7))]


def test_a_connection_that_the_jvm_has_closed_is_no_error_of_pysparks() -> None:
    """The JVM closes it after an error, which the processor may have caught."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        channel = task_state.Channel(f"127.0.0.1:{server.getsockname()[1]}", "secret")
        server.accept()[0].close()
        session = task_state.Session(channel, task_state.RowCodec(wire.schema({"k": "long"}), True), 10)
        with pytest.raises((OSError, EOFError)):
            session.call("Error setting handle state", "state", "INITIALIZED")
