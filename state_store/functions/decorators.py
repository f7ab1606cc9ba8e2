"""The decorators, the marked functions that they make, and the schemas that a query binds to these.

A marked function is a callable object that PySpark pickles into the query plan in place of the user's
function. Its name there carries the mark, by which the session extension knows it. In the worker it is called
in one of two ways: by the Arrow iterator worker with one iterator of record batches, where the extension is
at work, or by Spark's own `applyInPandasWithState` worker with key, frames and state, where it is not.

Spark passes no schema to the function of `applyInPandasWithState`. The session extension sends the schemas
with the data, but where it is missing a function gets pandas frames, from which Arrow types cannot be told
(an integer column with a null is a float there). So the schemas are bound to a marked function on the driver,
when it is passed to `applyInPandasWithState` (`observe`).
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from typing import Any, Literal, Protocol, TypeVar, get_args, overload

from state_store.core.settings.session import EXTENSION_CLASS, EXTENSIONS_KEY
from state_store.functions.group_context import VectorizationWarning

HOW_TO_SET = (
    f'add {EXTENSION_CLASS} to "{EXTENSIONS_KEY}" before the session starts (state_store.spark_conf() does), '
    "with the state store's jar on the class path"
)

_CLASSIC = ("pyspark.sql.pandas.group_ops", "PandasGroupedOpsMixin")
_CONNECT = ("pyspark.sql.connect.group", "GroupedData")

Frame = Literal["arrow", "pandas", "polars"]
FRAMES: tuple[str, ...] = get_args(Frame)


@dataclasses.dataclass(frozen=True)
class BoundSchemas:
    """Schemas (Spark's JSON) and time zone of one query, and whether the user was warned."""

    rows: str
    key: str
    state: str
    output: str
    time_zone: str
    warned: bool


class Caller(Protocol):
    """Caller of a function for the groups of one stream."""

    def call(
        self, rows: Any, states: Any, call: Any, emit: Callable[[Any], Any]
    ) -> Generator[Any, None, Any]:
        """Call the function for the groups of two tables; yield `emit(output)` for output that comes early.

        Returns the `Changes`; raises `BadResultError` before anything of them is applied.
        """


class ManyGroups(Protocol):
    """The worker's view of a function that gets its groups many at a time."""

    __name__: str
    func: Callable[..., Any]
    frame: Frame
    split_groups: bool
    stored_timeout: bool
    schemas: BoundSchemas | None

    def caller(self, header: Any) -> Caller:
        """Return what calls this function for the groups of a stream with this header."""

    def __hash__(self) -> int: ...


class MarkedFunction:
    """The parts that both kinds of marked functions share: the user's function and the name in the plan.

    Instances are pickled with the plan, so they hold nothing but the function, its settings and the schemas
    that the driver bound to it.
    """

    _mark: str

    def __init__(self, func: Callable[..., Any]) -> None:
        if not callable(func):
            raise TypeError(f"state_store.{self._mark} marks a function, not {type(func).__name__}")
        name = getattr(func, "__name__", type(func).__name__)
        functools.update_wrapper(self, func, assigned=("__module__", "__doc__"), updated=())
        self.__name__ = f"state_store.{self._mark}({name})"
        self.__qualname__ = self.__name__
        self.func = func

    def __reduce__(self) -> tuple[Any, ...]:
        return restore_marked, (type(self), {k: v for k, v in self.__dict__.items() if k != "__wrapped__"})

    def __call__(self, *args: Any) -> Iterator[Any]:
        if len(args) == 1:
            return self._batches(args[0])
        if len(args) == 3:
            return self._group(*args)
        raise TypeError(f"{self.__name__} is called by Spark; call .func to try the function itself")

    def bind(self, schemas: BoundSchemas) -> MarkedFunction:
        """Return this function with the schemas of the query that it was passed to."""
        return self

    def _batches(self, batches: Iterator[Any]) -> Iterator[Any]:
        raise NotImplementedError

    def _group(self, key: Any, frames: Any, state: Any) -> Iterator[Any]:
        raise NotImplementedError


def restore_marked(cls: type[MarkedFunction], fields: dict[str, Any]) -> Any:
    """Return a marked function with these attributes; pickle calls this."""
    marked = cls.__new__(cls)
    marked.__dict__.update(fields)
    return marked


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
    group, but frames and states are made for many groups at once. Option
    `...vectorized.accelerate` does the same for a whole session.
    """
    return AcceleratedFunction(func)


def observe() -> None:
    """Make `applyInPandasWithState` bind schemas to marked functions; do nothing in a Python worker."""
    if "pyspark.worker" in sys.modules:
        return
    for module_name, class_name in _grouped_classes():
        try:
            grouped = getattr(importlib.import_module(module_name), class_name)
        except Exception:
            continue
        if not hasattr(grouped.applyInPandasWithState, "_state_store_original"):
            grouped.applyInPandasWithState = _binding(grouped.applyInPandasWithState)
            for name in ("transformWithState", "transformWithStateInPandas"):
                if hasattr(grouped, name):  # Spark 4.0 has one of them
                    setattr(grouped, name, _processor_binding(getattr(grouped, name), name))


def _grouped_classes() -> list[tuple[str, str]]:
    # Without gRPC an import of the Connect client fails, and in `python -c` even ends the process.
    return [_CLASSIC, _CONNECT] if importlib.util.find_spec("grpc") else [_CLASSIC]


def _binding(original: Any) -> Any:
    @functools.wraps(original)
    def applyInPandasWithState(
        self: Any, func: Any, outputStructType: Any, stateStructType: Any, outputMode: Any, timeoutConf: Any
    ) -> Any:
        if isinstance(func, MarkedFunction):
            func = func.bind(_schemas(self, outputStructType, stateStructType, func.__name__))
        return original(self, func, outputStructType, stateStructType, outputMode, timeoutConf)

    applyInPandasWithState._state_store_original = original  # type: ignore[attr-defined]
    return applyInPandasWithState


def _processor_binding(original: Any, name: str) -> Any:
    """Return a method of grouped data that tells processors marked with `vectorized` their schemas."""

    @functools.wraps(original)
    def method(
        self: Any,
        statefulProcessor: Any,
        outputStructType: Any,
        outputMode: str,
        timeMode: str,
        initialState: Any = None,
        *arguments: Any,
        **options: Any,
    ) -> Any:
        from pyspark.sql.types import StructType

        from state_store.functions.vectors import processor

        _warn_without_protobuf(self, name)
        if processor.is_marked(statefulProcessor):
            schemas = _schemas(self, outputStructType, StructType(), type(statefulProcessor).__name__)
            bound = processor.BoundProcessor(
                rows=schemas.rows,
                key=schemas.key,
                output=schemas.output,
                initial=None if initialState is None else initialState._df.schema.json(),
                time_zone=schemas.time_zone,
                of_rows=name == "transformWithState",
                time_mode=timeMode,
            )
            statefulProcessor = processor.bind(statefulProcessor, bound)
        call_arguments = (statefulProcessor, outputStructType, outputMode, timeMode, initialState)
        return original(self, *call_arguments, *arguments, **options)

    return method


def _warn_without_protobuf(grouped: Any, name: str) -> None:
    """Warn if Spark's own worker on the driver, which calls `init`, lacks a package."""
    try:
        has_protobuf = importlib.util.find_spec("google.protobuf.descriptor") is not None
    except ModuleNotFoundError:
        has_protobuf = False
    is_local = hasattr(grouped._df.sparkSession, "_jsparkSession")  # with Connect it runs elsewhere
    if is_local and not has_protobuf:
        warnings.warn(
            f"{name} needs the package protobuf on the driver, and {sys.executable} has none: Spark's worker "
            'there will fail ("driver worker exited unexpectedly"). Install it: pip install protobuf.',
            RuntimeWarning,
            stacklevel=3,
        )


def _schemas(grouped: Any, output: Any, state: Any, name: str) -> BoundSchemas:
    from pyspark.sql.types import StructType

    frame = grouped._df
    session = frame.sparkSession
    counted = grouped.count().schema  # the grouping columns, then the count
    return BoundSchemas(
        rows=frame.schema.json(),
        key=StructType(counted.fields[:-1]).json(),
        state=_json(state),
        output=_json(output),
        time_zone=session.conf.get("spark.sql.session.timeZone"),
        warned=_warn_without_extension(session, name),
    )


def _json(schema: Any) -> str:
    from pyspark.sql.types import StructType

    text: str = (StructType.fromDDL(schema) if isinstance(schema, str) else schema).json()
    return text


def _has_extension(session: Any) -> bool:
    """Return True if a session is known to have the extension, by name or by the jar's service file."""
    if EXTENSION_CLASS in session.conf.get(EXTENSIONS_KEY, ""):
        return True
    classic = getattr(session, "_jsparkSession", None)
    if classic is None:  # a client of Spark Connect, which does not see the server's rules
        return False
    return EXTENSION_CLASS in classic.sessionState().columnarRules().mkString(" ")


def _warn_without_extension(session: Any, name: str) -> bool:
    if _has_extension(session):
        return False
    warnings.warn(
        f"{name} will run group by group, as slowly as in any query without the extension: {HOW_TO_SET}.",
        VectorizationWarning,
        stacklevel=5,
    )
    return True


# At import, because Python looks a method up before it evaluates what the method is called with:
# `df.groupBy("k").applyInPandasWithState(vectorized(f), ...)`.
observe()
