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
from state_store.functions.errors import VectorizationWarning
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


def _schemas(grouped: Any, output: Any, state: Any, name: str) -> BoundSchemas:
    from pyspark.sql.types import StructType

    frame = grouped._df
    session = frame.sparkSession
    counted = grouped.count().schema  # the grouping columns, then the count
    return BoundSchemas(
        rows=frame.schema.json(),
        key=StructType(counted.fields[:-1]).json(),
        state=(StructType.fromDDL(state) if isinstance(state, str) else state).json(),
        output=(StructType.fromDDL(output) if isinstance(output, str) else output).json(),
        time_zone=session.conf.get("spark.sql.session.timeZone"),
        warned=_warn_without_extension(session, name),
    )


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
        f"{name} will run group by group, as slowly as any function of applyInPandasWithState: {HOW_TO_SET}.",
        VectorizationWarning,
        stacklevel=5,
    )
    return True
