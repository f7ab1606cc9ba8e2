"""The agent of a simulated executor: the real calls, on a simulated runtime and a distant storage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulation.simulated_storage import DistantStorage
from state_store.agent.calls import Calls
from state_store.agent.supervision import as_state_store_error
from state_store.core.engine.database import DatabaseSettings
from state_store.core.snapshots.merge import INGEST
from state_store.errors import InternalError, StateStoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.site import Site
    from state_store.core.storage.contract import Storage


class Agent:
    """Its process. All stores of the executor share it; while it merges, it keeps to the limits of its
    executor.
    """

    def __init__(self, site: Site, name: str, directory: Path, wall_ahead_ms: int) -> None:
        self.process = site.scheduler.process(name)
        self.process.wall_ahead_ms = wall_ahead_ms
        self.calls = Calls(
            directory,
            settings=lambda options: DatabaseSettings(threads=1),
            open_storage=_opener(site, self),
            runtime=self.process.runtime,
        )
        self._site = site
        self._merging: dict[int, str] = {}
        self._complaints: list[str] = []
        self._merge = self.calls.scheduler._merge
        self.calls.scheduler._merge = self._watched_merge

    @property
    def merges(self) -> bool:
        """True if a store merges."""
        return bool(self._merging)

    def check(self) -> None:
        """It has kept to its limits."""
        assert not self._complaints, self._complaints

    def offered(self) -> set[str]:
        """Return the bases of events that the JVM has not acknowledged."""
        events = [event for _, event in self.calls.events._events]
        return {str(event.merged.base.directory) for event in events if event.event == "merged"}

    def check_closed(self) -> None:
        """All stores of the executor are closed: nothing of what they share is taken any more."""
        self.check()
        assert not self._merging, f"merges of {list(self._merging)} go on"
        pages = self.calls.stores._local_files
        left = [str(path) for path in pages._whole if path.exists()]
        assert not left and not pages._reserved_bytes, f"the limit of the local disk still counts {left}"

    def _watched_merge(self, store: Any, request: Any, deadline: Any) -> Any:
        """Check that a store makes one merge at a time, and the executor no more than the limit allows.

        Merges that were asked for do not count. Those of kind `ingest` have the limit for themselves.
        """
        if store.instance in self._merging:
            self._complaints.append(f"two merges of store {store.instance} at once")
        is_asked_for = not self._site.scheduler.current.name.endswith("/merge")
        group = "asked for" if is_asked_for else "ingest" if request.kind == INGEST else "publishing"
        self._merging[store.instance] = group
        count = list(self._merging.values()).count(group)
        if not is_asked_for and count > int(self._site.options["maxConcurrentMerges"]):
            self._complaints.append(f"{count} {group} merges at once")
        if len(self._merging) > 1:
            self._site.count("merges of two stores at once")
        try:
            return self._merge(store, request, deadline)
        finally:
            self._merging.pop(store.instance, None)


def _opener(site: Site, agent: Agent) -> Callable[..., Storage]:
    """From the location of a partition to its storage, as that agent has it."""
    storages = {
        partition.bucket.location: DistantStorage(
            partition.bucket, site.weather, site.scheduler, agent.process
        )
        for partition in site.partitions
    }
    return lambda uri, *, jvm: storages[uri]


class Exchange:
    """Handle a call as the agent's server does."""

    def __init__(self, calls: Calls, request: dict[str, Any]) -> None:
        self._calls = calls
        self._request = request
        self.answer: dict[str, Any] | None = None
        self.failure: StateStoreError | None = None
        self.is_abandoned = False

    def serve(self) -> None:
        try:
            answer = self._calls.handle(self._request)
        except StateStoreError as error:
            self.failure = error
        except Exception as error:
            self.failure = as_state_store_error(error)
            never_internal(self.failure, error)
        else:
            if self.is_abandoned:
                self._calls.undelivered(self._request, answer)
            else:
                self.answer = answer.to_json()


def never_internal(failure: StateStoreError, cause: BaseException | None = None) -> None:
    """A defect of the program is never a fault's doing."""
    if isinstance(failure, InternalError):
        raise AssertionError(f"internal error: {failure}") from (cause or failure)
