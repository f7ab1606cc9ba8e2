"""The lazy restores of one store: which of them goes on, for its JVM and for a merge that waits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from logging import LoggerAdapter
from pathlib import Path
from typing import Any

from state_store.agent.lazy.budget import HydrationBudget
from state_store.agent.lazy.hydration import Hydration, Progress
from state_store.core.files.deadline import Deadline
from state_store.core.files.sparse import SparseFile
from state_store.core.snapshots.context import StoreContext
from state_store.errors import InternalError, StateStoreError

LIST_NAME = "sparse.json"
"""In the directory of a base: its sparse files, for an agent that replaces another."""


class Hydrations:
    """Those of one store, by the directories of their bases. Safe for any thread."""

    def __init__(self, context: StoreContext, budget: HydrationBudget, log: LoggerAdapter[Any]) -> None:
        self._context = context
        self._budget = budget
        self._log = log
        self._lock = context.runtime.lock()
        self._running: dict[Path, Hydration] = {}

    def came(
        self, directory: Path, file: SparseFile, found_damage: Callable[[StateStoreError], object]
    ) -> None:
        """Starts to fetch a file of a base that is being made. It ends when the directory goes."""
        self._in(directory, found_damage).add([file])

    def begin(
        self,
        directory: Path,
        files: Sequence[SparseFile],
        found_damage: Callable[[StateStoreError], object],
    ) -> Hydration:
        """Fetches the files of a base that was made, and notes in the directory which they are."""
        listed = json.dumps([asdict(file) for file in files])
        (directory / LIST_NAME).write_text(listed, "utf-8")
        return self._all(directory, files, found_damage)

    def _all(
        self,
        directory: Path,
        files: Iterable[SparseFile],
        found_damage: Callable[[StateStoreError], object],
    ) -> Hydration:
        hydration = self._in(directory, found_damage)
        hydration.add(files)
        hydration.added_all()
        return hydration

    def _in(self, directory: Path, found_damage: Callable[[StateStoreError], object]) -> Hydration:
        with self._lock:
            if (known := self._running.get(directory)) is not None:
                return known
            self._running = {at: one for at, one in self._running.items() if at.exists()}
            hydration = self._running[directory] = Hydration(
                self._context,
                directory,
                budget=self._budget,
                found_damage=found_damage,
                found_no_room=self._tell_of_no_room,
            )
            return hydration

    def of(self, directory: Path, found_damage: Callable[[StateStoreError], object]) -> Hydration:
        """That of a base, which an agent before this one may have begun. Raises InternalError where the base
        has no sparse files.
        """
        with self._lock:
            known = self._running.get(directory)
        if known is not None:
            return known
        try:
            listed = json.loads((directory / LIST_NAME).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InternalError(
                f"'{directory}' has no files that are fetched bit by bit ({error})"
            ) from error
        return self._all(directory, [SparseFile(**fields) for fields in listed], found_damage)

    def wait(self, directory: Path, deadline: Deadline) -> None:
        """Until all files of the base are whole. Raises as `Hydration.wait` does."""
        with self._lock:
            known = self._running.get(directory)
        if known is not None:
            known.wait(deadline)

    def settle(self, deadline: Deadline) -> None:
        """Until nothing is being fetched: what has come is local then. Raises BusyError past the deadline."""
        for hydration in self._wanted():
            hydration.settle(deadline)

    def progress(self) -> Progress:
        """Of all of them; what had no room before, and has some now, is fetched from now on."""
        running = self._wanted()
        for hydration in running:
            hydration.go_on()
        parts = [hydration.progress() for hydration in running]
        return Progress(
            sum(part.on_demand_bytes for part in parts),
            sum(part.hydrated_bytes for part in parts),
            sum(part.left_bytes for part in parts),
            sum(part.without_room_bytes for part in parts),
        )

    def _wanted(self) -> list[Hydration]:
        """All but those of restores that failed."""
        with self._lock:
            self._running = {at: one for at, one in self._running.items() if not one.is_abandoned}
            return list(self._running.values())

    def stop(self) -> None:
        """All of them."""
        with self._lock:
            running = list(self._running.values())
        for hydration in running:
            hydration.stop()

    def _tell_of_no_room(self, size_bytes: int) -> None:
        self._log.warning(
            f"{size_bytes} bytes stay in checkpoint storage, and their rows are read from there: "
            "hydrationDiskBudget has no room for them"
        )
