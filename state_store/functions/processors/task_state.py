"""The state of one task: a connection, the present group, and the operations that wait to be sent.

A *run* is a number of groups that are handled one after the other. At its start, one message takes what the
run before has written and brings the state that the groups of this run are likely to read; each variable
learns that from the runs before. A read that was not foreseen takes the waiting operations with it. The JVM
does operations in their order, so a read sees all writes before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkRuntimeError

from state_store.functions.processors.channel import Channel, StateCallError

if TYPE_CHECKING:
    from state_store.functions.processors.value_codec import RowCodec

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

_MOST_OPERATIONS = 200_000
_MOST_BYTES = 16 << 20


class Session:
    """The state of one task, as the worker sees it. Used by one thread.

    `slot` is the place of the present group's key among the keys of the run; `group` counts all groups.
    """

    def __init__(self, channel: Channel, keys: RowCodec, max_state_records: int) -> None:
        self.channel = channel
        self.max_state_records = max_state_records
        self.variables: list[Any] = []  # of `Variable`, which register themselves
        self.slot = 0
        self.group = 0
        self.batches = False
        self._keys = keys
        self._pending: list[Any] = []
        self._pending_bytes = 0
        self._key: Any = None
        self._key_sent = False
        self._iterators = 0
        self._run_keys: list[Any] = []
        self._slots: list[int] = []
        self._groups_before = 0
        self._run = 0
        self._fetched: dict[Any, int] = {}

    def begin(self, keys: Sequence[tuple[Any, ...]]) -> None:
        """Start a run over groups with these keys."""
        self._run_keys = [self._keys.key(key) for key in keys]
        places: dict[Any, int] = {}
        self._slots = [places.setdefault(key, len(places)) for key in self._run_keys]
        for variable in self.variables:
            variable.decide(self._groups_before)
        wanted = [variable for variable in self.variables if variable.prefetches]
        fetches = [part for variable in wanted for part in variable.fetch()]
        if self._pending or wanted:
            fetched = self._exchange("state of processors", list(places) if wanted else [], fetches)[1]
            for number, variable in enumerate(wanted):
                variable.fill(fetched[number :: len(wanted)])
        for variable in self.variables:
            if variable not in wanted:
                variable.fill([])
        self._groups_before = len(keys)
        self._run += 1
        self.batches = True

    def fetch(self, variable: Any) -> None:
        """Fetch what a variable holds for all keys of the run, unless `begin` or this did so already."""
        if variable.prefetches or self._fetched.get(variable) == self._run:
            return
        self._fetched[variable] = self._run
        fetched = self._exchange(
            "state of processors", list(dict.fromkeys(self._run_keys)), list(variable.fetch())
        )
        variable.fill(fetched[1])

    def enter(self, number: int) -> None:
        """Make the group with this number in the run the present one."""
        self._key = self._run_keys[number]
        self.slot = self._slots[number]
        self.group += 1
        self._key_sent = False

    def end(self) -> None:
        """Send the waiting operations; each later call is a message of its own."""
        self.flush()
        self._key = None
        self.batches = False
        self._groups_before = 0

    def flush(self) -> None:
        """Send the waiting operations."""
        if self._pending:
            self._exchange("state of processors", [], [])

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
        elif self._pending_bytes > _MOST_BYTES or len(self._pending) > _MOST_OPERATIONS:
            self.flush()

    def write_quick(self, *operation: Any) -> None:
        """Add an operation that the JVM surely takes, and that takes few bytes; only in a run."""
        pending = self._pending
        if not self._key_sent and self._key is not None:
            pending += (KEY, self._key)
            self._key_sent = True
        pending += operation
        if len(pending) > _MOST_OPERATIONS:
            self.flush()

    def read(self, failure: str, code: int, *arguments: Any) -> Any:
        """Return the result of an operation that was not foreseen; `failure` as in `write`."""
        self._add(code, arguments)
        return self._exchange(failure, [], [])[0][-1]

    def call(self, failure: str, *message: Any) -> Any:
        """Send the waiting operations, then another message; return its result."""
        self.flush()
        try:
            return self.channel.call(*message)
        except StateCallError as error:
            raise PySparkRuntimeError(f"{failure}: {error}") from None

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
        operations, self._pending = self._pending, []
        self._pending_bytes = 0
        self._key_sent = False
        try:
            return self.channel.call("run", operations, keys, fetches)
        except StateCallError as error:
            raise PySparkRuntimeError(f"{failure}: {error}") from None
