"""The interface of what does work on many items, such as stores, and the one that does it in threads here.

`workers(spark)` chooses: without a session the threads of this process, with one its executors. So a tool has
one code path. Work on executors is pickled: what it captures has to be a value, or must say how it is made
again there, as `Query` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from state_store.core.files.transfer import parallel
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage import Storage
from state_store.data.jobs.spark_tasks import SparkTasks
from state_store.data.query import LISTED_AT_ONCE, Progress, Query, StoreKey

T = TypeVar("T")
R = TypeVar("R")


class Workers(Protocol):
    """Threads or executors that do work on items. One run at a time."""

    @property
    def are_elsewhere(self) -> bool:
        """True if work is done in other processes, so that it must not share objects with its caller."""

    @property
    def parallelism(self) -> int:
        """The number of items from which on nobody is idle."""

    def run(
        self,
        work: Callable[[T, Progress | None], R],
        items: Sequence[T],
        *,
        at_once: int,
        meter: Progress | None = None,
    ) -> list[R]:
        """Do `work` on each item, and return the results in the order of the items.

        The first failure is raised, after the work that was begun has ended.

        Args:
            work: gets an item and a receiver of its progress; called by several threads or processes, and
                for an item perhaps more than once.
            items: the items.
            at_once: items that are worked on at a time in a process.
            meter: receives the progress.
        """


class Threads:
    """Threads of this process."""

    are_elsewhere = False
    parallelism = 1

    def __init__(self, runtime: Runtime = SYSTEM) -> None:
        self._runtime = runtime

    def run(
        self,
        work: Callable[[T, Progress | None], R],
        items: Sequence[T],
        *,
        at_once: int,
        meter: Progress | None = None,
    ) -> list[R]:
        """Do as `Workers.run` says. After a failure no further item is begun."""
        return parallel(at_once, lambda item: work(item, meter), items, runtime=self._runtime)


def workers(spark: Any, runtime: Runtime = SYSTEM) -> Workers:
    """Return the executors of a Spark session, or the threads of this process if `spark` is None.

    Raises:
        OptionError: `spark` is no session of the classic API.
    """
    return Threads(runtime) if spark is None else SparkTasks.of(spark, runtime)


def on_stores(
    query: Query,
    keys: Sequence[StoreKey],
    work: Callable[[StoreKey, Storage, Progress | None], R],
    *,
    at_once: int = LISTED_AT_ONCE,
    meter: Progress | None = None,
    workers: Workers | None = None,
) -> list[R]:
    """Call `work` for every store and return the results in the order of `keys`.

    Args:
        query: the query.
        keys: the stores.
        work: gets a store, its storage, which is closed afterwards, and a receiver of its progress.
        at_once: stores that are worked on at a time in a process.
        meter: receives the bytes that `work` moves, and each store that is done.
        workers: who works; None: threads of this process.
    """

    def of_store(key: StoreKey, meter: Progress | None) -> R:
        storage = query.storage(key)
        try:
            return work(key, storage if meter is None else meter.metered(storage), meter)
        finally:
            storage.close()
            if meter is not None:
                meter.store_done()

    return (workers or Threads()).run(of_store, keys, at_once=at_once, meter=meter)
