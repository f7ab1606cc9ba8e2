"""The decorators, and the marked functions that they make.

A marked function is a callable object that PySpark pickles into the query plan in place of the user's
function. Its name there carries the mark, by which the session extension knows it. In the worker it is called
in one of two ways: by the Arrow iterator worker with one iterator of record batches, where the extension is
at work, or by Spark's own `applyInPandasWithState` worker with key, frames and state, where it is not.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, get_args, overload

from state_store.functions import binding
from state_store.functions.binding import BoundSchemas, Caller, Frame, MarkedFunction, restore_marked

FRAMES: tuple[str, ...] = get_args(Frame)


class BatchedFunction(MarkedFunction):
    """A function whose groups come and go many at a time, as Arrow tables."""

    def __init__(self, func: Callable[..., Any], frame: Frame, split_groups: bool) -> None:
        super().__init__(func)
        self.frame = frame
        self.split_groups = split_groups
        self.stored_timeout = False
        self.schemas: BoundSchemas | None = None

    def bind(self, schemas: BoundSchemas) -> MarkedFunction:
        """Return a copy of this function that knows these schemas."""
        bound = restore_marked(type(self), dict(self.__dict__))
        bound.schemas = schemas
        return bound

    def caller(self, header: Any) -> Caller:
        """Return the caller of this function for the groups of a stream with this header."""
        raise NotImplementedError

    def _batches(self, batches: Iterator[Any]) -> Iterator[Any]:
        from state_store.functions import stream

        return stream.run(self, batches)

    def _group(self, key: Any, frames: Any, state: Any) -> Iterator[Any]:
        from state_store.functions import stream

        return stream.run_group(self, key, frames, state)


class VectorizedFunction(BatchedFunction):
    """A function of rows, states and context that is called for many groups at once."""

    _mark = "vectorized"

    def __init__(
        self, func: Callable[..., Any], frame: Frame, split_groups: bool, stored_timeout: bool
    ) -> None:
        if frame not in FRAMES:
            raise ValueError(f"frame is {frame!r}: state_store.vectorized knows {', '.join(FRAMES)}")
        if frame == "polars" and importlib.util.find_spec("polars") is None:
            raise ImportError(
                'frame="polars" needs the package polars, here and on the executors: pip install polars'
            )
        super().__init__(func, frame, split_groups)
        self.stored_timeout = stored_timeout

    def caller(self, header: Any) -> Caller:
        """Return the caller that passes the tables of a call, or frames made of them."""
        from state_store.functions.stream import TableCaller

        return TableCaller(self, header)


class PerGroupFunction(BatchedFunction):
    """A function of key, rows and `GroupState`, called once a group with plain Python values."""

    _mark = "per_group"

    def __init__(self, func: Callable[..., Any], split_groups: bool) -> None:
        super().__init__(func, "arrow", split_groups)

    def caller(self, header: Any) -> Caller:
        """Return the caller that takes the tables of a call apart into groups."""
        from state_store.functions.group_calls import GroupCaller

        return GroupCaller(self.func, header)


class AcceleratedFunction(MarkedFunction):
    """A function in Spark's own form (key, frames, `GroupState`), called in a leaner loop."""

    _mark = "accelerate"

    def _batches(self, batches: Iterator[Any]) -> Iterator[Any]:
        from state_store.functions import accelerated

        return accelerated.run(self.func, batches)

    def _group(self, key: Any, frames: Any, state: Any) -> Iterator[Any]:
        return self.func(key, frames, state)


# At import, because Python looks a method up before it evaluates what the method is called with:
# `df.groupBy("k").applyInPandasWithState(vectorized(f), ...)`.
binding.observe()


Processor = TypeVar("Processor", bound=type)


@overload
def vectorized(func: Processor) -> Processor: ...  # type: ignore[overload-overlap]


@overload
def vectorized(func: Callable[..., Any]) -> VectorizedFunction: ...


@overload
def vectorized(
    *, frame: Frame = "arrow", split_groups: bool = False, stored_timeout: bool = False
) -> Callable[[Callable[..., Any]], VectorizedFunction]: ...


def vectorized(
    func: Callable[..., Any] | None = None,
    *,
    frame: Frame = "arrow",
    split_groups: bool = False,
    stored_timeout: bool = False,
) -> Any:
    """Mark a function that `applyInPandasWithState` shall call for many groups at once.

    The function takes `rows`, `states` and `context` and returns a `Result`, or `None` to
    leave all groups as they are. `rows` holds the input columns and `__group`, an int32 index into
    `states`; the rows of a group are together and in the order in which Spark gives them. `states` has
    one row for each group of the call: the grouping columns, the state columns (null without state; a
    grouping column whose name a state column has too is called `key.<name>`), `__exists` and `__group`.

    Args:
        func: the function, where the decorator has no arguments.
        frame: the type of rows and states: `"arrow"` for `pyarrow.Table`, `"pandas"` for
            `pandas.DataFrame`, `"polars"` for `polars.DataFrame`, with the package polars here and on the
            executors.
        split_groups: accept a group whose rows exceed `...vectorized.maxGroupBytes` in several calls, each
            of which sees the state that the call before returned. Without it such a group is an error.
        stored_timeout: add `__timeout_ms` to `states`: the timeout that the group has from earlier batches,
            null for none. Needs the session extension, without which it is an error.

    Returns:
        The marked function, or a decorator that makes one.

    Raises:
        BadResultError: In the query, when the result breaks a rule; nothing of the call is written then.
    """

    def mark(function: Any) -> Any:
        if not isinstance(function, type):
            return VectorizedFunction(function, frame, split_groups, stored_timeout)
        from state_store.functions.vectors import processor

        if split_groups or stored_timeout or frame not in FRAMES:
            raise ValueError(
                f"state_store.vectorized takes nothing but frame={'|'.join(FRAMES)} for a class, here "
                f"{function.__name__}"
            )
        return processor.mark(function, frame)

    return mark if func is None else mark(func)


@overload
def per_group(func: Callable[..., Any]) -> PerGroupFunction: ...


@overload
def per_group(*, split_groups: bool = False) -> Callable[[Callable[..., Any]], PerGroupFunction]: ...


def per_group(func: Callable[..., Any] | None = None, *, split_groups: bool = False) -> Any:
    """Mark a function that `applyInPandasWithState` shall call for each group with plain Python values.

    The function takes `key`, `rows` and `state`. `key` is a named tuple of the grouping columns. `rows` is a
    list of `pyspark.sql.Row` with all input columns, in the order in which Spark gives them; it is empty when
    the group has timed out. `state` is Spark's `GroupState`, whose `get` and `getOption` give named tuples of
    the state columns. Values are those that `collect()` gives: a `datetime` has no zone and is in the
    session's, arrays are lists, maps dicts, structs rows.

    The function yields rows of the output schema, or returns a list of them, or `None` for none: tuples or
    lists with a value for each column, or dicts by column, where a column that is missing is null. The same
    goes for `state.update`.

    Args:
        func: the function, where the decorator has no arguments.
        split_groups: call the function several times for a group whose rows exceed
            `...vectorized.maxGroupBytes`, with the state that the call before left. Without it such a group
            is an error that names it.

    Returns:
        The marked function, or a decorator that makes one.

    Raises:
        BadResultError: In the query, when a row or a state does not fit its schema.
    """

    def mark(function: Callable[..., Any]) -> PerGroupFunction:
        return PerGroupFunction(function, split_groups)

    return mark if func is None else mark(func)


def accelerate(func: Callable[..., Any]) -> AcceleratedFunction:
    """Mark an ordinary `applyInPandasWithState` function (key, frames, `GroupState`) to run faster.

    The function stays as it is, and so do its results and errors: it is still called once for each
    group, but frames and states are made for many groups at once. On this store and on Spark's RocksDB store
    functions without a mark run so, too, unless the option `...vectorized.accelerate` is off.
    """
    return AcceleratedFunction(func)
