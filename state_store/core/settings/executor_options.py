"""The options that all queries of an executor share."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.settings.option import EXECUTOR
from state_store.core.settings.options import Options

_SHARED = {
    field.name: field.metadata["option"]
    for field in fields(Options)
    if field.metadata["option"].scope == EXECUTOR
}


class ExecutorOptions:
    """Options of the scope *executor*. Safe for any thread.

    The first query sets them for all, until no store of the executor is open any more.
    """

    def __init__(self, runtime: Runtime = SYSTEM) -> None:
        self._lock = runtime.lock()
        self._first: dict[str, Any] = {}
        self._refused: set[tuple[str, Any]] = set()

    def settle(self, options: Options) -> tuple[Options, list[str]]:
        """Replace the options of the scope *executor* by those in force.

        Args:
            options: The options of a query.

        Returns:
            The options in force for the query, and a warning for each one that has no effect. The same value
            is warned of once.
        """
        asked = {attribute: getattr(options, attribute) for attribute in _SHARED}
        with self._lock:
            self._first = self._first or asked
            first = self._first
            refused = [
                item for item in asked.items() if item[1] != first[item[0]] and item not in self._refused
            ]
            self._refused.update(refused)
        warnings = [_warning(attribute, value, first[attribute]) for attribute, value in refused]
        return replace(options, **first), warnings

    def forget(self) -> None:
        """Note that no store is open any more: the next query is the first again."""
        with self._lock:
            self._first = {}
            self._refused.clear()


def _warning(attribute: str, asked: Any, first: Any) -> str:
    option = _SHARED[attribute]
    unit = f" {option.unit}" if option.unit else ""
    return (
        f"option {option.key} counts for the whole executor, where another query set it to {first}{unit} "
        f"first: {asked}{unit} has no effect here. Set it alike for all queries of a session."
    )
