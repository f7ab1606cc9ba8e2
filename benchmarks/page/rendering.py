"""The renderer of the pages: Markdown templates beside this file, which name figures of the results.

A template is Jinja. It calls the functions that are marked with `in_pages` without their first argument, the
results, and writes a number with the filter `num`. What was not measured is empty, and so is a table without
rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jinja2

from benchmarks.results import NAMES, Results, errors
from benchmarks.scenarios import executors, large_store

UNITS = {"GiB": 1 << 30, "MB": 1 << 20, "M": 1e6, "%": 0.01, "milli": 1e-3}
"""The units of figures that are not in them already."""
TEMPLATES = Path(__file__).parent
_NOT_MEASURED = jinja2.ChainableUndefined(name="a figure that was not measured")
_TABLE_WITHOUT_ROWS = re.compile(r"(?m)^\|.*\n\|[-|]+\n(?!\|)")
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        *(executors.rows, executors.floor, executors.agent_share),
        *(large_store.amplifications, large_store.growth, Results.written),
    )
}


def in_pages(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give templates a function of the results. It raises KeyError if they lack a number that it needs."""
    _FUNCTIONS[function.__name__] = function
    return function


def _names(results: Results) -> dict[str, Any]:
    """Return what templates name: each function with these results, and the results themselves."""

    def bound(function: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*arguments: Any) -> Any:
            try:
                return function(results, *arguments)
            except KeyError:
                return _NOT_MEASURED

        return measured

    functions = {name: bound(function) for name, function in _FUNCTIONS.items()}
    return {**functions, "results": results, "errors": errors, "STORES": NAMES}


def num(value: Any, form: str = "") -> str:
    """Return a number in the form, and divided by the unit, that `form` says: `.0f MB`.

    Another unit is written behind the number. A mapping is a median with its quartiles.
    """
    if value is None or isinstance(value, jinja2.Undefined):
        return ""
    if isinstance(value, Mapping):
        median, low, high = (
            f"{number:.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"
            for number in (value["median"], value["q1"], value["q3"])
        )
        return median if value["n"] < 2 else f"{median} ({low}-{high})"
    form, _, unit = form.partition(" ")
    return format(value / UNITS[unit], form) if unit in UNITS else format(value, form) + unit


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(TEMPLATES),
    undefined=jinja2.ChainableUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    finalize=lambda value: num(value) if value is None or isinstance(value, Mapping) else value,
)
_ENVIRONMENT.filters["num"] = num


def rendered(template: str, results: Results, **more: Any) -> str:
    """Return the text of a template with the figures of the results."""
    text = _ENVIRONMENT.get_template(f"{template}.txt").render(_names(results), **more)
    return re.sub(r"\n{3,}", "\n\n", _TABLE_WITHOUT_ROWS.sub("", text)).lstrip("\n")


def computed(expression: str, results: Results) -> Any:
    """Return the value of an expression of a template; None if a part was not measured."""
    try:
        return _ENVIRONMENT.compile_expression(expression)(_names(results))
    except jinja2.UndefinedError:
        return None
