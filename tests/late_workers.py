"""Streaming queries that are restarted if their Python worker on the driver started too late.

Spark gives the worker that `transformWithState` starts on the driver ten seconds, and no option changes that.
On a busy machine that is not always enough: the query fails before its first batch, and its user starts it
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

MOST = 5
"""Bound of the restarts of a query."""

_MESSAGE = "Python worker failed to connect back"


def was_late(error: object) -> bool:
    """Return True if a query failed because its worker was late."""
    late = _MESSAGE in str(error)
    if late:
        print(_MESSAGE, flush=True)
    return late


def run(
    start: Callable[[], StreamingQuery], wait: Callable[[StreamingQuery], None] | None = None
) -> StreamingQuery:
    """Start the query and wait for its end, or until `wait` returns. Raises the query's error."""
    (query,) = run_all([start], wait)
    return query


def run_all(
    starts: Iterable[Callable[[], StreamingQuery]], wait: Callable[[StreamingQuery], None] | None = None
) -> list[StreamingQuery]:
    """Start the queries together and wait for their ends. Raises the first error.

    Args:
        starts: functions that start a query each.
        wait: what waits for a query, if its own end is not what is waited for.
    """
    return [_ended(start, query, wait) for start, query in [(start, start()) for start in starts]]


def _ended(
    start: Callable[[], StreamingQuery],
    query: StreamingQuery,
    wait: Callable[[StreamingQuery], None] | None,
) -> StreamingQuery:
    for _ in range(MOST):
        try:
            wait(query) if wait else query.awaitTermination()
        except StreamingQueryException as error:
            if not was_late(error):
                raise
            query = start()
        else:
            return query
    wait(query) if wait else query.awaitTermination()
    return query
