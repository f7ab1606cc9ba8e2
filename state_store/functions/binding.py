"""The driver's side: schemas that a query binds to a marked function before it is pickled.

Spark passes no schema to the function of `applyInPandasWithState`. The session extension sends the schemas
with the data, but where it is missing a function gets pandas frames, from which Arrow types cannot be told
(an integer column with a null is a float there). So the schemas are bound to a marked function when it is
passed to `applyInPandasWithState`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import warnings
from typing import Any

from state_store.core.settings.session import EXTENSION_CLASS, EXTENSIONS_KEY
from state_store.functions.function_errors import VectorizationWarning
from state_store.functions.marked import BoundSchemas, MarkedFunction

HOW_TO_SET = (
    f'add {EXTENSION_CLASS} to "{EXTENSIONS_KEY}" before the session starts (state_store.spark_conf() does), '
    "with the state store's jar on the class path"
)

_CLASSIC = ("pyspark.sql.pandas.group_ops", "PandasGroupedOpsMixin")
_CONNECT = ("pyspark.sql.connect.group", "GroupedData")


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
        given = (statefulProcessor, outputStructType, outputMode, timeMode, initialState)
        return original(self, *given, *arguments, **options)

    return method


def _warn_without_protobuf(grouped: Any, name: str) -> None:
    """Warn if Spark's own worker on the driver, which calls `init`, lacks a package."""
    try:
        found = importlib.util.find_spec("google.protobuf.descriptor") is not None
    except ModuleNotFoundError:
        found = False
    if not found and hasattr(grouped._df.sparkSession, "_jsparkSession"):  # with Connect it runs elsewhere
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
