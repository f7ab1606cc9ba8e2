"""The tasks of one batch: of each partition one attempt after the other, until one of each has succeeded."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulation.executor import Executor
from simulation.partition import Partition
from simulation.terms import QueryFailedError
from simulation.truth import Version, random_changes
from simulation.turns import Thread
from state_store.errors import DamagedError, FormatError, MissingError, StateStoreError

if TYPE_CHECKING:
    from simulation.cluster_history import History

MAX_FAILURES = 4
"""Attempts at a task before the query fails, as Spark's `spark.task.maxFailures`."""


@dataclass
class _Attempt:
    """A task that runs, or ran, on an executor."""

    executor: Executor
    thread: Thread | None = None
    version: Version | None = None
    has_failed: bool = False

    @property
    def is_lost(self) -> bool:
        return self.executor.is_dead and self.version is None


class Stage:
    """The attempts at one partition in one batch, of which the first has been launched."""

    def __init__(self, history: History, partition: Partition, chance: random.Random) -> None:
        self._history = history
        self._partition = partition
        self._before = partition.committed[-1]
        self._chance = chance
        self._attempts: list[_Attempt] = []
        self._launch(history.preferred(chance), again=False)
        self._failures = 0
        self._may_speculate = chance.random() < 0.3
        self._patience_s = chance.uniform(0.5, 20)
        self._until_s = history.scheduler.now_s + self._patience_s

    @property
    def winner(self) -> Version | None:
        """Version that the first successful attempt has committed; None if there is none yet."""
        return next((attempt.version for attempt in self._attempts if attempt.version is not None), None)

    def go_on(self) -> None:
        """Launch another attempt if one is needed. Raises QueryFailedError."""
        now_s = self._history.scheduler.now_s
        over = [attempt for attempt in self._attempts if attempt.has_failed or attempt.is_lost]
        if len(over) > self._failures:
            self._failures = len(over)
            if self._failures >= MAX_FAILURES:
                raise QueryFailedError
        if len(over) == len(self._attempts):
            self._launch(self._anywhere())
        elif now_s >= self._until_s:
            is_stuck = now_s >= self._until_s + 60
            if is_stuck or (self._may_speculate and len(self._attempts) < 3):
                self._launch(self._anywhere())
                self._until_s = now_s + (self._patience_s if not is_stuck else 0)

    def _anywhere(self) -> Executor:
        return self._chance.choice(self._history.executors)

    def _launch(self, executor: Executor, *, again: bool = True) -> None:
        history, partition, before = self._history, self._partition, self._before
        attempt = _Attempt(executor)
        provider = executor.provider(history.run_id, partition)
        task = history.new_task(again=again)
        # Without ids two copies of a task have to come to the same rows: nobody tells which one Spark took.
        change = random_changes(history.chance if history.ids else history.chance_of_job(partition.number))
        history.note("task of", before[0] + 1, "of partition", partition.number, "on", executor.name)

        def work() -> None:
            try:
                attempt.version = provider.run_task(before, change, task)
            except StateStoreError as error:
                message = str(error).replace(f"{history.site.directory}/", "")  # another one each time
                history.scheduler.note("task failed:", type(error).__name__, message)
                attempt.has_failed = True
                self._check_error(error)
            history.wake_driver()

        self._attempts.append(attempt)
        attempt.thread = history.scheduler.start(executor.jvm, f"task-{before[0] + 1}", work)

    def _check_error(self, error: StateStoreError) -> None:
        """Return the error with which a task of the newest version may fail."""
        history = self._history
        history.count(f"task: {error.kind}")
        if isinstance(error, (MissingError, DamagedError, FormatError)):
            is_current = self._before == self._partition.committed[-1]
            was_cleaned = history.site.is_cleaned and str(history.site.directory) in str(error)
            assert not (history.is_honest and is_current) or was_cleaned, f"a task failed: {error}"
        assert not history.is_quiet, f"without faults a task failed: {error}"
