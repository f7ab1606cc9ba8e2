"""The state of one task: a connection, the present group, and the operations that wait to be sent.

A *run* is a number of groups that are handled one after the other. At its start, one message takes what the
run before has written and asks for the state that the groups of the next run are likely to read; each
variable learns that from the runs before. The JVM answers while the worker handles this run, whose state was
asked for a run earlier. A read that was not foreseen takes the waiting operations with it. The JVM does
operations in their order, so a read sees all writes before it; the state of a run is asked for ahead only if
none of its keys is in the run before.

A value of plain types travels as the tuple that it is (`RowCodec`). Any other travels as the pickle that
PySpark's own client of state makes and reads, so that conversions, and their errors, are PySpark's.
"""

from __future__ import annotations

import decimal
import io
import math
import pickle
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.serializers import CPickleSerializer
from pyspark.sql import types
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient

DONE, REFUSED = 0, 1


class StateCallError(Exception):
    """A call on state failed in the JVM; the text says why."""


class Channel:
    """Channel to the JVM's `StateServer`, which sends one message after the other. Used by one thread.

    The JVM reads no message while it writes an answer, so the answer to a posted message is read before
    another message goes.
    """

    def __init__(self, address: str, secret: str) -> None:
        """Connect to `address`, the path of a Unix socket or `host:port`.

        Args:
            address: where the JVM listens for the worker of this task.
            secret: the text by which the JVM knows that worker.
        """
        if address.startswith("/"):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.connect(address)
        else:
            host, _, port = address.rpartition(":")
            self._socket = socket.create_connection((host, int(port)))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb", 1 << 16)
        self._is_due = False
        self._posted: tuple[int, Any] = (DONE, None)
        self._send(secret)

    def call(self, *message: Any) -> Any:
        """Send a message and return the result of its answer.

        Raises:
            StateCallError: the JVM refused the call or failed in it, or in the posted message before it.
            OSError, EOFError: the JVM has closed the connection, as after an error of a call before.
        """
        self._settle()
        self._send(message)
        return _result(*self._receive())

    def post(self, *message: Any) -> None:
        """Send a message whose answer `answer` returns. Raises errors as `call`."""
        self._settle()
        self._send(message)
        self._is_due = True

    def answer(self) -> Any:
        """Return the result of the last posted message. Raises errors as `call`."""
        self._settle()
        return _result(*self._posted)

    def _settle(self) -> None:
        """Receive the answer to a posted message, if that is still to come."""
        if self._is_due:
            self._is_due = False
            self._posted = self._receive()
            _result(*self._posted)

    def close(self) -> None:
        """Close the connection; the JVM's server ends."""
        self._file.close()
        self._socket.close()

    def _send(self, message: Any) -> None:
        buffer = io.BytesIO()
        buffer.write(b"\0\0\0\0")
        pickler = pickle.Pickler(buffer, 4)
        pickler.fast = True  # messages hold plain values alone: no object comes twice by reference
        pickler.dump(message)
        data = buffer.getbuffer()
        struct.pack_into("!i", data, 0, len(data) - 4)
        self._socket.sendall(data)

    def _receive(self) -> tuple[int, Any]:
        """Return status and result of the next answer."""
        (length,) = struct.unpack("!i", self._read(4))
        status, result = pickle.loads(self._read(length))
        return status, result

    def _read(self, length: int) -> bytes:
        data = self._file.read(length)
        if len(data) < length:
            raise EOFError("the JVM has closed the connection to the state of this task")
        return data


def _result(status: int, result: Any) -> Any:
    if status != DONE:
        raise StateCallError(result)
    return result


# The codes of operations, as in the JVM's `StateAnswers`.
KEY = 0
VALUE_GET = 1
VALUE_UPDATE = 2
CLEAR = 3
LIST_GET = 4
LIST_APPEND = 5
LIST_APPEND_ONE = 6
LIST_PUT = 7
MAP_GET = 8
MAP_CONTAINS = 9
MAP_UPDATE = 10
MAP_REMOVE = 11
MAP_ENTRIES = 12
TIMER_REGISTER = 13
TIMER_DELETE = 14
TIMER_LIST = 15
EXISTS = 16
ITERATE = 17
VALUE_UPDATES = 18
MAP_UPDATES = 19

_FAILURE = "state of processors"
"""The beginning of an error in operations that were sent together."""

_MAX_OPERATIONS = 200_000
_MAX_BYTES = 16 << 20


class Session:
    """The state of one task, as the worker sees it. Used by one thread.

    `slot` is the place of the present group's key among the keys of the run; `group` counts all groups.
    `stamp` changes with each group and each message: a write with the same stamp still waits, in this group.
    """

    def __init__(self, channel: Channel, keys: RowCodec, max_state_records: int) -> None:
        self.channel = channel
        self.max_state_records = max_state_records
        self.variables: list[Any] = []  # of `Variable`, which register themselves
        self.slot = 0
        self.group = 0
        self.stamp = 0
        self.batches = False
        self._keys = keys
        self._pending: list[Any] = []
        self._pending_bytes = 0
        self._key: Any = None
        self._key_sent = False
        self._iterators = 0
        self._run = _Run((), [], [])
        self._ahead: _Run | None = None
        self._groups_before = 0

    def begin(self, keys: Sequence[Any], next_keys: Sequence[Any] = ()) -> None:
        """Start a run over groups with these keys; ask for the state of that with `next_keys`, if given."""
        run, self._ahead = self._ahead, None
        if run is None or run.keys != keys:
            run = self._new_run(keys)
            fetched = self._exchange(_FAILURE, *run.reads)[1] if self._pending or run.fetched else []
        else:
            fetched = self._answer()[1] if run.fetched else []
        for place, variable in enumerate(run.fetched):
            variable.fill(fetched[place :: len(run.fetched)])
        for variable in self.variables:
            if variable not in run.fetched:
                variable.fill([])
        self._run = run
        if next_keys:
            self._ask_ahead(next_keys)
        self._groups_before = len(keys)
        self.batches = True

    def _new_run(self, keys: Sequence[Any]) -> _Run:
        """Return a run; its variables decide what to fetch by the reads since they did so last."""
        for variable in self.variables:
            variable.decide(self._groups_before)
        self._groups_before = 0
        fetched = [variable for variable in self.variables if variable.prefetches]
        return _Run(keys, [self._keys.key(key) for key in keys], fetched)

    def _ask_ahead(self, keys: Sequence[Any]) -> None:
        run = self._new_run(keys)
        if run.places.keys().isdisjoint(self._run.places):
            self._ahead = run
            if self._pending or run.fetched:
                with _failure(_FAILURE):
                    self.channel.post("run", self._taken(), *run.reads)

    def _answer(self) -> Any:
        with _failure(_FAILURE):
            return self.channel.answer()

    def fetch(self, variable: Any) -> None:
        """Fetch what a variable holds for all keys of the run, unless `begin` or this did so already."""
        run = self._run
        if variable in run.fetched:
            return
        run.fetched.append(variable)
        variable.fill(self._exchange(_FAILURE, list(run.places), list(variable.fetch()))[1])

    def enter(self, number: int) -> None:
        """Make the group with this number in the run the present one."""
        self._key = self._run.sent[number]
        self.slot = self._run.slots[number]
        self.group += 1
        self.stamp += 1
        self._key_sent = False

    def end(self) -> None:
        """Send the waiting operations; each later call is a message of its own."""
        self.flush()
        self.stamp += 1
        self._key = None
        self.batches = False
        self._groups_before = 0

    def flush(self) -> None:
        """Send the waiting operations."""
        if self._pending:
            self._exchange(_FAILURE, [], [])

    def write(self, failure: str, is_safe: bool, length: int, code: int, *arguments: Any) -> None:
        """Add an operation without a result; send it at once if the JVM may refuse it.

        Args:
            failure: the beginning of the message of an error, as PySpark has it.
            is_safe: whether the JVM surely takes it.
            length: about how many bytes it takes, 0 for few.
            code: of the operation.
            arguments: of the operation.
        """
        self._add(code, arguments)
        self._pending_bytes += length
        if not is_safe or not self.batches:
            self._exchange(failure, [], [])
        elif self._pending_bytes > _MAX_BYTES or len(self._pending) > _MAX_OPERATIONS:
            self.flush()

    def write_quick(self, *operation: Any) -> int:
        """Add an operation that the JVM surely takes, and that takes few bytes; only in a run.

        The operation ends with 1, for one write, and a value.

        Returns:
            The place of the value, for `write_again` as long as `stamp` is what it was before this call.
        """
        pending = self._pending
        if not self._key_sent and self._key is not None:
            pending += (KEY, self._key)
            self._key_sent = True
        pending += operation
        place = len(pending) - 1
        if place >= _MAX_OPERATIONS:
            self.flush()
        return place

    def write_again(self, place: int, value: Any) -> None:
        """Write a value in place of one that waits; the JVM counts both writes."""
        self._pending[place] = value
        self._pending[place - 1] += 1

    def read(self, failure: str, code: int, *arguments: Any) -> Any:
        """Return the result of an operation that was not foreseen; `failure` as in `write`."""
        self._add(code, arguments)
        return self._exchange(failure, [], [])[0][-1]

    def call(self, failure: str, *message: Any) -> Any:
        """Send the waiting operations, then another message; return its result."""
        self.flush()
        with _failure(failure):
            return self.channel.call(*message)

    def new_iterator(self) -> int:
        """Return a number for an iterator in the JVM."""
        self._iterators += 1
        return self._iterators

    def _add(self, code: int, arguments: tuple[Any, ...]) -> None:
        pending = self._pending
        if not self._key_sent and self._key is not None:
            pending += (KEY, self._key)
            self._key_sent = True
        pending.append(code)
        pending += arguments

    def _exchange(self, failure: str, keys: list[Any], fetches: list[Any]) -> Any:
        with _failure(failure):
            return self.channel.call("run", self._taken(), keys, fetches)

    def _taken(self) -> list[Any]:
        """Return the waiting operations, which wait no more."""
        operations, self._pending = self._pending, []
        self._pending_bytes = 0
        self._key_sent = False
        self.stamp += 1
        return operations


class _Run:
    """The groups of a run: keys as the caller has them, and as they travel, with the place of each.

    `fetched` has the variables whose states are known for all keys when the run begins, or since.
    """

    def __init__(self, keys: Sequence[Any], sent: list[Any], fetched: list[Any]) -> None:
        self.keys = keys
        self.sent = sent
        self.fetched = fetched
        self.places: dict[Any, int] = {}
        self.slots = [self.places.setdefault(key, len(self.places)) for key in sent]

    @property
    def reads(self) -> tuple[list[Any], list[Any]]:
        """The keys and the reads of each key that bring what `fetched` has, as a message has them."""
        keys = list(self.places) if self.fetched else []
        return keys, [part for variable in self.fetched for part in variable.fetch()]


@contextmanager
def _failure(text: str) -> Iterator[None]:
    """Raise PySpark's error, which begins with this text, for a call that failed."""
    try:
        yield
    except StateCallError as error:
        raise PySparkRuntimeError(f"{text}: {error}") from None


_INTEGERS = {types.ByteType: 7, types.ShortType: 15, types.IntegerType: 31, types.LongType: 63}
_SCALARS = frozenset((int, float, str, bytes, bytearray, bool, type(None)))
_LARGE = 4096


def _client() -> Any:
    """Return PySpark's client of state without a connection, for its conversions."""
    client = object.__new__(StatefulProcessorApiClient)
    client.pickleSer = CPickleSerializer()
    return client


class RowCodec:
    """Rows of one schema (`pyspark.sql.types.StructType`).

    Args:
        schema: the schema.
        are_keys: whether rows are keys, of which those that come back unchanged are compared by Python: then
            numbers that Python and Spark do not compare alike (NaN, -0.0) do not count as such.
        come_back: False if the store may not give back what it was given.
    """

    def __init__(self, schema: types.StructType, are_keys: bool = False, come_back: bool = True) -> None:
        self.schema = schema
        self._length = len(schema.fields)
        self._names = schema.names
        self._has_texts = any(isinstance(field.dataType, types.StringType) for field in schema.fields)
        self._dump = _client()._serialize_to_bytes
        self._exact = [_exact(field, are_keys) for field in schema.fields]
        self._is_plain = all(self._exact)
        has_doubles = any(isinstance(field.dataType, types.DoubleType) for field in schema.fields)
        self.all_kept = self._is_plain and not has_doubles
        """True if `is_kept` is true for each key that comes from the JVM."""
        self._come_back = come_back
        self._safe = [_safe(field.dataType, field.nullable) for field in schema.fields]
        self.is_quick = self._quick_check()

    def _quick_check(self) -> Callable[[Any], bool]:
        """Return a check that a value is a tuple that travels as it is, comes back unchanged, and is small.

        A value that fails the check may be one, too.
        """
        exact = self._exact
        if not self._is_plain or self._has_texts or not self._come_back:
            return lambda value: False
        if len(exact) == 1:  # most values and keys
            only = exact[0]
            limit = 1 << _INTEGERS.get(type(self.schema.fields[0].dataType), 0)
            if limit > 1:  # a check within a check takes as long as the rest
                return lambda value: (
                    type(value) is tuple
                    and len(value) == 1
                    and type(value[0]) is int
                    and -limit <= value[0] < limit
                )
            return lambda value: type(value) is tuple and len(value) == 1 and only(value[0])  # type: ignore[misc]
        return lambda value: type(value) is tuple and self._is_exact(value)

    def sent(self, value: Any) -> tuple[Any, bool, bool, int]:
        """Return `value` as it travels, and the facts of it.

        The facts: whether it comes back unchanged, whether the JVM surely takes it, and about how many bytes
        it takes in a message (0 for few).

        Raises:
            Exception: the error of PySpark for a value that it cannot convert.
        """
        if self._is_plain:
            kind = type(value)
            if (kind is tuple or kind is list) and self._is_exact(value):
                length = _size(value) if self._has_texts else 0
                return (value if kind is tuple else tuple(value)), self._come_back, True, length
        dumped = self._dump(self.schema, value)
        return dumped, False, self._is_safe(value), len(dumped)

    def key(self, value: tuple[Any, ...]) -> Any:
        """Return a grouping key as it travels; two are equal if and only if they are the same key."""
        return self.sent(value)[0]

    def tuple(self, travelled: Any) -> tuple[Any, ...]:
        """Return a value that came from the JVM as the tuple that PySpark gives."""
        return travelled if type(travelled) is tuple else tuple(pickle.loads(travelled))

    def row(self, travelled: Any) -> types.Row:
        """Return a value that came from the JVM as the `Row` that PySpark gives."""
        if type(travelled) is tuple:
            row = tuple.__new__(types.Row, travelled)
            object.__setattr__(row, "__fields__", self._names)
            return row
        return pickle.loads(travelled)

    @property
    def of_iterators(self) -> Callable[[Any], Any] | None:
        """The function that makes what came from the JVM a tuple; `None` if it always is that tuple."""
        return None if self._is_plain else self.tuple

    def is_kept(self, travelled: Any) -> bool:
        """Return True if a key that came from the JVM may be compared with others by Python."""
        return type(travelled) is tuple and self._is_exact(travelled)

    def _is_exact(self, value: Any) -> bool:
        if len(value) != self._length:
            return False
        if self._length == 1:  # most values and keys; a loop takes twice the time
            return self._exact[0](value[0])  # type: ignore[misc]
        for item, exact in zip(value, self._exact, strict=True):  # noqa: SIM110 (a generator takes twice the time)
            if not exact(item):  # type: ignore[misc]
                return False
        return True

    def _is_safe(self, value: Any) -> bool:
        try:
            return len(value) == self._length and all(map(_call, self._safe, value))
        except TypeError:
            return False


def _size(value: Any) -> int:
    """Return how many characters the long texts of a value have."""
    total = 0
    for item in value:
        if type(item) is str and len(item) > _LARGE:
            total += len(item)
    return total


def _call(check: Callable[[Any], bool], value: Any) -> bool:
    return check(value)


def _exact(field: types.StructField, is_key: bool) -> Callable[[Any], bool] | None:
    """Return a check that a value of this field comes back unchanged; `None` if no check can tell.

    In a key the check fails, too, for a value that is equal to another one in Python and not in Spark.

    The rule for types is that of the JVM's `RowCodec.isPlain`.
    """
    kind, nullable = type(field.dataType), field.nullable
    if kind in _INTEGERS:
        limit = 1 << _INTEGERS[kind]
        return lambda v: (-limit <= v < limit) if type(v) is int else v is None and nullable
    if kind is types.DoubleType and is_key:
        return lambda v: _is_usual(v) if type(v) is float else v is None and nullable
    if kind is types.DoubleType:
        return lambda v: type(v) is float or (v is None and nullable)
    if kind is types.BooleanType:
        return lambda v: type(v) is bool or (v is None and nullable)
    if kind is types.StringType and field.dataType == types.StringType():
        return lambda v: (type(v) is str and _is_text(v)) or (v is None and nullable)
    return None


def _is_usual(value: float) -> bool:
    """Return True if Python takes `value` for equal to the number with its bits alone: not NaN, not -0.0."""
    return value == value if value else math.copysign(1.0, value) > 0


def _is_text(value: str) -> bool:
    """Return True if UTF-8 has the text: an unpaired surrogate comes back as another character."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _safe(kind: types.DataType, nullable: bool) -> Callable[[Any], bool]:
    """Return a predicate: if it holds for a value that PySpark converted, the JVM takes the value.

    A value that fails the check is written at once, so that an error of the JVM has the line of the user.
    """
    inner: Callable[[Any], bool]
    if isinstance(kind, types.DecimalType):
        limit = decimal.Decimal(10) ** (kind.precision - kind.scale) - 1

        def inner(value: Any) -> bool:
            return type(value) is decimal.Decimal and value.is_finite() and abs(value) < limit

    elif isinstance(kind, types.ArrayType):
        element = _safe(kind.elementType, kind.containsNull)

        def inner(value: Any) -> bool:
            return type(value) in (list, tuple) and all(map(element, value))

    elif isinstance(kind, types.MapType):
        key, item = _safe(kind.keyType, False), _safe(kind.valueType, kind.valueContainsNull)

        def inner(value: Any) -> bool:
            return type(value) is dict and all(map(key, value)) and all(map(item, value.values()))

    elif isinstance(kind, types.StructType):
        checks = [_safe(field.dataType, field.nullable) for field in kind.fields]

        def inner(value: Any) -> bool:
            return (
                isinstance(value, (list, tuple))
                and len(value) == len(checks)
                and all(map(_call, checks, value))
            )

    elif isinstance(kind, (types.DateType, types.TimestampType, types.TimestampNTZType)):
        import datetime

        def inner(value: Any) -> bool:
            return isinstance(value, datetime.date)

    elif type(kind) in _INTEGERS or isinstance(
        kind, (types.FloatType, types.DoubleType, types.BooleanType, types.StringType, types.BinaryType)
    ):

        def inner(value: Any) -> bool:
            return type(value) in _SCALARS

    else:

        def inner(value: Any) -> bool:
            return False

    return lambda value: nullable if value is None else inner(value)
