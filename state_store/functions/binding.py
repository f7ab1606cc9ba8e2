"""Marked functions, and the driver's side: schemas that a query binds to them before they are pickled.

A marked function has the user's function, its name in the plan, and the schemas of its query. Spark passes no
schema to the function of `applyInPandasWithState`. The session extension sends the schemas with the data, but
where it is missing a function gets pandas frames, from which Arrow types cannot be told (an integer column
with a null is a float there). So the schemas are bound to a marked function when it is passed to
`applyInPandasWithState`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from typing import Any, Literal, Protocol

from state_store.core.settings.session import EXTENSION_CLASS, EXTENSIONS_KEY
from state_store.functions.group_context import VectorizationWarning

HOW_TO_SET = (
    f'add {EXTENSION_CLASS} to "{EXTENSIONS_KEY}" before the session starts (state_store.spark_conf() does), '
    "with the state store's jar on the class path"
)

_CLASSIC = ("pyspark.sql.pandas.group_ops", "PandasGroupedOpsMixin")
_CONNECT = ("pyspark.sql.connect.group", "GroupedData")

Frame = Literal["arrow", "pandas", "polars"]


@dataclasses.dataclass(frozen=True)
class BoundSchemas:
    """Schemas (Spark's JSON) and time zone of one query, and whether the user was warned."""

    rows: str
    key: str
    state: str
    output: str
    time_zone: str
    warned: bool


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


def restore_marked(cls: type[MarkedFunction], fields: dict[str, Any]) -> Any:
    """Return a marked function with these attributes; pickle calls this."""
    marked = cls.__new__(cls)
    marked.__dict__.update(fields)
    return marked


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
