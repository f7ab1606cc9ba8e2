"""All public functions that are given the checkpoint of a query."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import state_store

LEFT_OUT = {"bootstrap", "serve"}
"""The one needs a session of Spark; the other goes on, and shows what `doctor` raises."""


def readers(root: Path) -> dict[str, Callable[[str], Any]]:
    """Return the functions by their names, with their other arguments; targets are below `root`."""
    given = {
        "target": root / "target",
        "key": "C1",
        "since": 1,
        "query": "select 1",
        "rows": pa.table({"carrier": ["C1"]}),
        "to": "hdfs",
    }
    found = {}
    for name in sorted(set(state_store.__all__) - LEFT_OUT):
        function = getattr(state_store, name)
        if not inspect.isfunction(function):
            continue
        parameters = inspect.signature(function).parameters
        if not {"checkpoint", "checkpoints"} & parameters.keys():
            continue
        others = {
            other: 2 if (name, other) == ("repartition", "partitions") else given[other]
            for other, parameter in list(parameters.items())[1:]
            if parameter.default is inspect.Parameter.empty
            and parameter.kind is not inspect.Parameter.VAR_POSITIONAL
        }
        found[name] = partial(_called, function, others)
    return found


def _called(function: Callable[..., Any], others: dict[str, Any], checkpoint: str) -> Any:
    return function(checkpoint, **others)
