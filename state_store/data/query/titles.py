"""Names of stateful operators for people, such as "aggregation on user".

The words are those of this module everywhere: on the page of checkpoints, in Spark's tab and in
commands. Safe for any thread.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from state_store.data.query.operators import JOIN, OPERATOR_WORDS, JavaTexts, Operator, schema_file
from state_store.data.query.query import Query
from state_store.errors import StateStoreError

_MADE_UP = frozenset({"__dummy__", "sessionStartTime"})
"""Names of key columns that Spark makes up, for session windows and operators without columns to group by."""

MAX_KEYS = 3
"""Columns that a title names; more of them are counted."""


def title_of(name: str, keys: Sequence[str]) -> str:
    """Return the name of an operator for people, such as "aggregation on user".

    Args:
        name: Spark's name of the operator.
        keys: the columns by which it groups its rows; empty: none, or they are not known.
    """
    words = OPERATOR_WORDS.get(name, name)
    more = f" and {len(keys) - MAX_KEYS} more" if len(keys) > MAX_KEYS else ""
    return f"{words} on {', '.join(keys[:MAX_KEYS])}{more}" if keys else words


def title(query: Query, operator: Operator) -> str:
    """Return the name of an operator, with its grouping columns if Spark's schema tells them."""
    return title_of(operator.name, _grouping_columns(query, operator))


def _grouping_columns(query: Query, operator: Operator) -> list[str]:
    """Return the names of the columns by which an operator groups; empty if they cannot be read."""
    store = next(iter(operator.stores))
    if operator.schema_files.get(store) or operator.name == JOIN:  # column families have keys of their own
        return []
    path = schema_file(operator, store)
    try:
        texts = JavaTexts(query.read(path), path)
        version = texts.text()
        key = json.loads(texts.text() if version == "v1" else texts.pieces())
        names = [str(field["name"]) for field in key["fields"]]
    except (StateStoreError, OSError, ValueError, KeyError, TypeError):  # a name for people can do without
        return []
    return [name for name in names if name not in _MADE_UP]
