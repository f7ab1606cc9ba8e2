"""Words for Spark's stateful operators, as a user of a query knows them. The tab reads them from the jar."""

from __future__ import annotations

from collections.abc import Sequence

WORDS = {
    "stateStoreSave": "aggregation",
    "sessionWindowStateStoreSaveExec": "aggregation in session windows",
    "dedupe": "deduplication",
    "dedupeWithinWatermark": "deduplication within the watermark",
    "symmetricHashJoin": "join of two streams",
    "flatMapGroupsWithState": "flatMapGroupsWithState",
    "applyInPandasWithState": "applyInPandasWithState",
    "transformWithStateExec": "transformWithState",
    "transformWithStateInPandasExec": "transformWithState in Python",
    "transformWithStateInPySparkExec": "transformWithState in Python",
    "globalLimit": "limit",
}
"""Words for what an operator does, by Spark's name of it."""

MOST_KEYS = 3
"""Columns that a title names; more of them are counted."""


def title_of(name: str, keys: Sequence[str]) -> str:
    """Return the name of an operator for people, such as "aggregation on user".

    Args:
        name: Spark's name of the operator.
        keys: the columns by which it groups its rows; empty: none, or they are not known.
    """
    words = WORDS.get(name, name)
    more = f" and {len(keys) - MOST_KEYS} more" if len(keys) > MOST_KEYS else ""
    return f"{words} on {', '.join(keys[:MOST_KEYS])}{more}" if keys else words
