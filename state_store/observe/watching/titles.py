"""The names of stateful operators for people, from Spark's schemas of their keys."""

from __future__ import annotations

import json
import re

from state_store.data.query import Operator, Query
from state_store.data.query.java_texts import JavaTexts
from state_store.data.query.operators import schema_file
from state_store.errors import StateStoreError
from state_store.observe.model.operator_words import title_of

_MADE_UP = re.compile(r"field\d+|index|__dummy__|sessionStartTime")
"""Names of key columns that Spark makes up, for joins and operators without grouping columns."""


def title(query: Query, operator: Operator) -> str:
    """Return the name of an operator, with its grouping columns if Spark's schema tells them."""
    return title_of(operator.name, _keys(query, operator))


def _keys(query: Query, operator: Operator) -> list[str]:
    """Return the names of the columns by which an operator groups; empty if they cannot be read."""
    store = next(iter(operator.stores))
    if operator.schema_files.get(store):  # column families: each has keys of its own
        return []
    path = schema_file(operator, store)
    try:
        texts = JavaTexts(query.read(path), path)
        version = texts.text()
        key = json.loads(texts.text() if version == "v1" else texts.pieces())
        names = [str(field["name"]) for field in key["fields"]]
    except (StateStoreError, OSError, ValueError, KeyError, TypeError):  # a name for people can do without
        return []
    return [name for name in names if not _MADE_UP.fullmatch(name)]
