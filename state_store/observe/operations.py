"""Full checkpoints on request: one at a time for a query. A repeated request gets the id of the first."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from state_store.core.checkpoint.stored_documents import FULL
from state_store.core.storage import open_storage
from state_store.data.dataset.checkpoints import FoundStore
from state_store.data.maintenance.full_checkpoints import full_checkpoint
from state_store.data.query import Query, StoreKey
from state_store.errors import BusyError, ConflictError, MissingError, OptionError
from state_store.observe import rest_answers
from state_store.observe.look import Watched, failure_of

IN_PROGRESS, COMPLETED = "IN_PROGRESS", "COMPLETED"

MAX_KNOWN = 100
"""Requests that are remembered after they have ended."""

MAX_OUTCOMES = 1000
"""Outcomes in one answer."""

FAILURES_KEPT = 100

_TRIGGER_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass
class _Running:
    """A request; its lists grow while it runs."""

    id: str
    query: str
    request: rest_answers.FullCheckpointRequest
    asked_ms: int
    keys: list[StoreKey] = field(default_factory=list)
    outcomes: list[rest_answers.StoreOutcome] = field(default_factory=list)
    ended_ms: int | None = None
    failure: rest_answers.Failure | None = None


class Operations:
    """Requests for full checkpoints that this service has received. Safe for any thread.

    Args:
        at_once: stores that are worked on at a time, of all queries together.
    """

    def __init__(self, at_once: int = 2) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, _Running] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="full-checkpoints")
        self._at_once = at_once
        self._outcomes: Counter[str] = Counter({"completed": 0, "failed": 0})
        self._stopped = False

    def request(
        self, watched: Watched, request: rest_answers.FullCheckpointRequest
    ) -> rest_answers.Operation:
        """Begin a full checkpoint, or join one that is running or has the same id.

        Args:
            watched: the query.
            request: the stores that are meant, and the caller's id.

        Returns:
            The request's state now.

        Raises:
            OptionError: the caller's id is not valid.
            ConflictError: a full checkpoint of other stores of the query is running, or the id is another
                query's.
            BusyError: the service is stopping.
        """
        trigger = request.trigger_id
        if trigger is not None and not _TRIGGER_ID.fullmatch(trigger):
            raise OptionError(
                "'triggerId' must be 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'", option="triggerId"
            )
        with self._lock:
            if self._stopped:
                raise BusyError("the service is stopping")
            operation = None if trigger is None else self._known.get(trigger)
            if operation is not None:
                if operation.query != watched.name or _range(operation.request) != _range(request):
                    raise ConflictError(f"the id '{trigger}' belongs to another request", option="triggerId")
                return _described(operation)
            running = next(
                (
                    other
                    for other in self._known.values()
                    if other.query == watched.name and other.ended_ms is None
                ),
                None,
            )
            if running is not None:
                if _range(running.request) == _range(request):
                    return _described(running)
                raise ConflictError(
                    f"request {running.id} for other stores of query '{watched.name}' is running; try "
                    f"again after it"
                )
            started = _Running(trigger or str(uuid.uuid4()), watched.name, request, int(time.time() * 1000))
            self._known[started.id] = started
            ended = [other.id for other in self._known.values() if other.ended_ms is not None]
            for forgotten in ended[: max(0, len(ended) - MAX_KNOWN)]:
                del self._known[forgotten]
            self._pool.submit(self._make, watched, started)
            return _described(started)

    def find(self, query: str, request_id: str) -> rest_answers.Operation:
        """Return the state of a request.

        Raises:
            MissingError: it is not known, or not any more.
        """
        with self._lock:
            operation = self._known.get(request_id)
            if operation is None or operation.query != query:
                raise MissingError(
                    "this request is not known (any more: the last 100 are kept, until the service ends). "
                    "`checkpoints/latest` says of each store when its last full checkpoint was made: "
                    "`full_ms`."
                )
            return _described(operation)

    def merges(
        self, query: str
    ) -> tuple[list[rest_answers.Merge], list[rest_answers.Merge], list[rest_answers.Merge]]:
        """Return merges of a query that wait, run, and failed, of those that were requested here."""
        waiting: list[rest_answers.Merge] = []
        running: list[rest_answers.Merge] = []
        failed: list[rest_answers.Merge] = []
        with self._lock:
            for operation in self._known.values():
                if operation.query != query:
                    continue
                done = {(o.operator, o.partition, o.store) for o in operation.outcomes}
                keys = [key for key in operation.keys if (key.operator, key.partition, key.name) not in done]
                if operation.ended_ms is None:
                    for number, key in enumerate(keys):
                        runs = number < self._at_once
                        (running if runs else waiting).append(
                            rest_answers.Merge(
                                key.operator,
                                key.partition,
                                key.name,
                                FULL,
                                "running" if runs else "waiting",
                                _reason(operation),
                                operation.asked_ms,
                                waits_for=None if runs else "stores before it in the request",
                            )
                        )
                failed += [
                    rest_answers.Merge(
                        outcome.operator,
                        outcome.partition,
                        outcome.store,
                        FULL,
                        "failed",
                        _reason(operation),
                        operation.ended_ms,
                        failure=outcome.failure,
                    )
                    for outcome in operation.outcomes
                    if outcome.failure is not None
                ]
        return waiting, running, failed[::-1][:FAILURES_KEPT]

    def outcomes(self) -> dict[str, int]:
        """Return how many requests have ended, by outcome."""
        with self._lock:
            return dict(self._outcomes)

    def stop(self) -> None:
        """Refuse further requests and wait for the store that is worked on."""
        with self._lock:
            self._stopped = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _make(self, watched: Watched, running: _Running) -> None:
        try:
            request = running.request
            query = Query.open(watched.location)
            keys = [
                key
                for key in query.stores()
                if request.operator in (None, key.operator)
                and request.partition in (None, key.partition)
                and request.store in (None, key.name)
            ]
            with self._lock:
                running.keys = keys
            if query.committed_batch() is None:
                raise MissingError(f"Spark has not committed a batch of query '{watched.name}' yet")
            with ThreadPoolExecutor(self._at_once, thread_name_prefix="full-checkpoint") as workers:
                for _ in workers.map(lambda key: self._make_store(query, running, key), keys):
                    pass
        except Exception as error:
            failure = failure_of(error)
            with self._lock:
                running.failure = failure
        with self._lock:
            failed = [outcome for outcome in running.outcomes if outcome.failure is not None]
            if failed and running.failure is None:
                running.failure = failed[0].failure
            running.ended_ms = int(time.time() * 1000)
            self._outcomes["completed" if running.failure is None else "failed"] += 1
        watched.refresh()

    def _make_store(self, query: Query, running: _Running, key: StoreKey) -> None:
        began_s = time.monotonic()
        if self._stopped:
            outcome = rest_answers.StoreOutcome(
                key.operator,
                key.partition,
                key.name,
                "failed",
                failure=rest_answers.Failure("busy", "the service was stopped"),
            )
        else:
            try:
                outcome = _already(query, key) or _made(query, key, _reason(running))
            except Exception as error:
                failure = failure_of(error)
                outcome = rest_answers.StoreOutcome(
                    key.operator, key.partition, key.name, "failed", failure=failure
                )
        with self._lock:
            running.outcomes.append(
                rest_answers.StoreOutcome(
                    outcome.operator,
                    outcome.partition,
                    outcome.store,
                    outcome.outcome,
                    outcome.version,
                    outcome.files,
                    outcome.bytes,
                    round((time.monotonic() - began_s) * 1000),
                    outcome.failure,
                )
            )


def _already(query: Query, key: StoreKey) -> rest_answers.StoreOutcome | None:
    """Return the outcome for a store whose committed version is full already; None otherwise."""
    storage = open_storage(query.uri(key))
    try:
        store = FoundStore.read(key, storage)
    finally:
        storage.close()
    version = store.restorable(query.committed()[key])
    if version is None:
        return None
    manifest = store.manifest(version)
    if manifest is None or manifest.kind != FULL or manifest.version_id != version:
        return None
    return rest_answers.StoreOutcome(
        key.operator,
        key.partition,
        key.name,
        "already",
        version.number,
        len(manifest.files),
        manifest.total_bytes,
    )


def _reason(running: _Running) -> str:
    return f"requested of state-store serve ({running.id})"


def _made(query: Query, key: StoreKey, reason: str) -> rest_answers.StoreOutcome:
    (snapshot,) = full_checkpoint(
        query.location, key.operator, key.partition, key.name, stores=1, reason=reason
    ).made
    return rest_answers.StoreOutcome(
        key.operator, key.partition, key.name, "made", snapshot.version.number, snapshot.files, snapshot.bytes
    )


def _range(request: rest_answers.FullCheckpointRequest) -> tuple[int | None, int | None, str | None]:
    return request.operator, request.partition, request.store


def _described(running: _Running) -> rest_answers.Operation:
    failed = sum(outcome.failure is not None for outcome in running.outcomes)
    is_over = running.ended_ms is not None
    versions = [o.version for o in running.outcomes if o.version is not None]
    result = rest_answers.Made(
        max(versions, default=None), running.failure.message if running.failure else None
    )
    outcomes = sorted(running.outcomes, key=lambda o: (o.failure is None, o.operator, o.partition, o.store))
    return rest_answers.Operation(
        request_id=running.id,
        status=rest_answers.Status(COMPLETED if is_over else IN_PROGRESS),
        query=running.query,
        asked_ms=running.asked_ms,
        made=len(running.outcomes) - failed,
        failed=failed,
        stores=outcomes[:MAX_OUTCOMES],
        operation=result if is_over else None,
        ended_ms=running.ended_ms,
        wanted=len(running.keys) or None,
        failure=running.failure,
    )
