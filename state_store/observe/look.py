"""A look at a query: once, by the doctor, or again and again, at a query that is watched.

A look reads listings of the query's stores, and archives of snapshots that were not known before, with as few
requests as possible; its storage can only be read, and counts them (`Looker`). `doctor` looks once and gives
the verdict. A query that is watched has a thread of its own that looks at it, and everybody is answered from
the last look (`Watched`).
"""

from __future__ import annotations

import fnmatch
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from state_store.core.checkpoint.lineage import describe_restorable
from state_store.core.checkpoint.names import SnapshotName, VersionId
from state_store.core.deletion.lease import ReadSnapshot, StoreContents
from state_store.core.files.transfer import parallel
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.settings.option import DURATION
from state_store.core.settings.options import Options, parse
from state_store.core.settings.session import check_pinned
from state_store.core.storage import Entry, Storage, open_storage
from state_store.core.storage.open import without_secret
from state_store.data.dataset.checkpoints import FoundStore
from state_store.data.dataset.moments import latest
from state_store.data.maintenance.verification import NEVER_VERIFIED, KnownProblem, Verified, read_verified
from state_store.data.query import LISTED_AT_ONCE, CommitTimes, Operator, Query, SparkFileProblem, StoreKey
from state_store.data.query.arguments import Location, check_text, checked_location
from state_store.data.query.query import not_committed
from state_store.errors import MissingError, OptionError, StateStoreError, StorageError, as_store_error
from state_store.observe.figures import VersionFigures, broken_store, lineage_figures, store_figures
from state_store.observe.rest_answers import Checkpoint, Failure, OperatorNames, Store, Verdict
from state_store.observe.verdict import Totals, judge, totals_of

_log = logging.getLogger(__name__)

IDLE_S = 600.0
"""Seconds without a request after which storage is not looked at any more, until the next request."""


PACED_STORES, MAX_PACE_S = 200, 300.0
"""Stores of a query that are looked at at the usual pace, and the most seconds between two looks at more."""


MAX_HISTORY = 2000
"""Checkpoints that are remembered after their files are gone."""


@dataclass(frozen=True)
class Look:
    """Everything that a look found. Immutable.

    Attributes:
        at_ms: when it began, milliseconds since 1970 UTC.
        took_ms: how long it took.
        id: Spark's id of the query, if it could be read.
        batch: the batch that Spark committed last; None before the first.
        committed_ms: when it was committed.
        operators: the stateful operators.
        stores: figures of the stores, in order.
        found: the files of each store that could be read.
        history: checkpoints, oldest first.
        objective_ms: the restore objective, milliseconds; 0: there is none.
        pinned: the configuration that Spark pinned.
        options: options of the query that differ from their defaults, by name, as its newest merge found
            them; None if no snapshot says.
        start_problems: files of Spark's that are lost or damaged, so that the query cannot start again.
        verified: everything that verifications have left, without problems whose files are other ones now.
        began_ms: when the query began, by the oldest description of its operators; None if nothing says it.
    """

    at_ms: int
    took_ms: float
    id: str | None
    batch: int | None
    committed_ms: int | None
    operators: tuple[OperatorNames, ...]
    stores: tuple[Store, ...]
    found: Mapping[StoreKey, FoundStore]
    history: tuple[Checkpoint, ...]
    objective_ms: int
    pinned: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] | None = None
    start_problems: tuple[SparkFileProblem, ...] = ()
    verified: Verified = NEVER_VERIFIED
    began_ms: int | None = None

    def totals(self, *, unreadable: bool = False) -> Totals:
        """Return the figures of the query; `unreadable` if a later look failed."""
        return totals_of(
            self.stores,
            unreadable=unreadable,
            committed_ms=self.committed_ms,
            start_problems=len(self.start_problems),
            verify_problems=len(self.verified.problems),
            verified_ms=self.verified.verified_ms,
            began_ms=self.began_ms,
        )

    @property
    def verify_failure(self) -> Failure | None:
        """The first problem that verifications have found; None if there is none."""
        if not self.verified.problems:
            return None
        return _failure(self.verified.problems[0])

    @property
    def start_failure(self) -> Failure | None:
        """Why a restart of the query would fail; None if nothing says so."""
        if not self.start_problems:
            return None
        first = self.start_problems[0]
        more = f" (and {len(self.start_problems) - 1} more files)" if len(self.start_problems) > 1 else ""
        return Failure(first.kind, first.sentence() + more)


class Looker:
    """Observer that looks at one query again and again, and remembers what cannot change.

    Archives of snapshots are immutable: each is read once. If Spark has committed nothing since the last
    look, only its commit log is listed, and the stores again at every `UNCHANGED_LOOKS`th look. One thread at
    a time.

    Args:
        location: the checkpoint directory, a path or URI.
        requests: where requests to storage are counted.
        objective_ms: the restore objective that predictions are compared with, milliseconds; 0: none; None:
            the query's own, as its newest merge found it, or the default.
        runtime: the clock.
    """

    UNCHANGED_LOOKS = 10

    def __init__(
        self,
        location: str,
        *,
        requests: Requests | None = None,
        objective_ms: int | None = None,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self.location = without_secret(location).rstrip("/") or "/"
        self.requests = requests or Requests()
        self.objective_ms = objective_ms
        self.is_local = False
        self._runtime = runtime
        self._known: dict[StoreKey, Mapping[SnapshotName, ReadSnapshot]] = {}
        self._storages: dict[StoreKey, CountedStorage] = {}
        self._root: CountedStorage | None = None
        self._query: Query | None = None
        self._id: str | None = None
        self._pinned: dict[str, str] = {}
        self._began_ms: int | None = None
        self._titles: dict[int, str] = {}
        self._last: Look | None = None
        self._commit_ms: int | None = None
        self._skipped = 0
        self._looks = 0

    def look(self, *, fully: bool = False) -> Look:
        """Look at the query.

        Args:
            fully: list the stores even if Spark has committed nothing since the last look.

        Raises:
            StateStoreError: the checkpoint is not a query of this store, or storage fails. A store that is
                damaged does not raise: its figures are an error.
        """
        began_ms, began_s = self._runtime.wall_ms(), self._runtime.monotonic_s()
        query = self._opened()
        commits_ms = query.logs.commits_ms()
        batch = max(commits_ms, default=None)
        last = self._last
        if last is not None and last.batch is not None and commits_ms.get(last.batch) != self._commit_ms:
            # Another query has taken its place, or the directory is gone, or Spark has removed the entry.
            self._query = None
            query = self._opened()
            last = self._last
        if (
            last is not None
            and not fully
            and last.batch == batch
            and self._skipped < self.UNCHANGED_LOOKS - 1
        ):
            self._skipped += 1
            return last
        self._skipped = 0
        committed = query.committed(batch) if batch is not None else {}
        names = {operator.id: operator.name for operator in query.operators}
        keys = query.stores()
        times = query.logs.end_times()
        pairs = parallel(
            LISTED_AT_ONCE, lambda key: self._read(key, committed.get(key), names[key.operator], times), keys
        )
        by_key = {key: store for key, (store, _, _) in zip(keys, pairs, strict=True) if store is not None}
        options = _options(by_key.values())
        objective_ms = self.objective_ms
        if objective_ms is None:
            objective_ms = _objective_ms(options or {})
        verified = _still_true(self._verified(), by_key)
        problems = {problem.key: _failure(problem) for problem in reversed(verified.problems)}
        look = Look(
            began_ms,
            (self._runtime.monotonic_s() - began_s) * 1000,
            self._id,
            batch,
            None if batch is None else times.ends_ms.get(batch),
            tuple(_names(operator, by_key, self._titles.get(operator.id)) for operator in query.operators),
            tuple(
                replace(
                    figures,
                    restore_objective_ms=None if figures.version is None else objective_ms,
                    verify_problem=problems.get(key),
                )
                for key, (_, figures, _) in zip(keys, pairs, strict=True)
            ),
            by_key,
            tuple(_history([history for _, _, history in pairs], objective_ms, _batches_ms(query, times))),
            objective_ms,
            self._pinned,
            options,
            self._start_problems(query),
            verified,
            self._began_ms,
        )
        self._last = look
        self._commit_ms = None if batch is None else commits_ms[batch]
        return look

    def _verified(self) -> Verified:
        assert self._root is not None
        try:
            return read_verified(self._root)
        except (StateStoreError, OSError):  # the figures do not depend on it
            return self._last.verified if self._last is not None else NEVER_VERIFIED

    def _start_problems(self, query: Query) -> tuple[SparkFileProblem, ...]:
        """Return the problems of Spark's own files, read at the first look and at every tenth one."""
        self._looks += 1
        if self._last is not None and self._looks % self.UNCHANGED_LOOKS != 1:
            return self._last.start_problems
        return tuple(problem for problem in query.start_problems() if problem.stops_the_query)

    def close(self) -> None:
        """Close the connections to storage."""
        for storage in (*self._storages.values(), self._root):
            if storage is not None:
                storage.close()
        self._storages, self._root, self._query = {}, None, None

    def _opened(self) -> Query:
        if self._query is not None:
            return self._query
        if self._root is None:
            self._root = CountedStorage(open_storage(self.location), self.requests)
            self.is_local = self._root.is_local
        query = Query.described_in(self._root, self.location)
        if query is None:
            Query.open(self.location)  # raises, with the reason
            raise MissingError(f"{self.location} has no stateful operator", file=self.location)
        self._pinned = dict(query.logs.pinned_conf())
        check_pinned(self._pinned, self.location)
        try:
            self._id = str(json.loads(query.read("metadata"))["id"])
        except (StateStoreError, ValueError, KeyError, TypeError):
            self._id = None
        if self._last is not None and are_apart(self._last.id, self._id):
            self._last, self._looks = None, 0  # what another query had says nothing of this one
        described = [*query.list_files("state/0/_metadata"), *query.list_files("state/0/_metadata/v2")]
        self._began_ms = min((entry.modified_ms for entry in described), default=None)
        if self._pinned and query.committed_batch() is not None:  # before, partitions may not be known
            self._query = query
            self._titles = {operator.id: query.title(operator) for operator in query.operators}
        return query

    def _read(
        self, key: StoreKey, committed: VersionId | None, operator_name: str, times: CommitTimes
    ) -> tuple[FoundStore | None, Store, list[VersionFigures]]:
        place = Store(key.operator, key.partition, key.name, operator_name=operator_name)
        try:
            if key not in self._storages:
                storage = open_storage(f"{self.location}/{key.path}")
                self._storages[key] = CountedStorage(storage, self.requests)
            contents = StoreContents.read(self._storages[key], self._known.get(key))
            store = FoundStore(key, contents)
        except (StateStoreError, OSError) as error:
            failure = failure_of(error)
            if failure.kind == "storage":
                raise
            return None, broken_place(place, failure), []
        self._known[key] = contents.snapshots
        if committed is None:
            return store, place, []
        try:
            version = store.restorable(committed)
            if version is None:
                raise MissingError(
                    f"version {committed.number} of store {key} cannot be restored; "
                    f"{describe_restorable(store.registry.checkpoints())}",
                    file=key.path,
                )
            history = lineage_figures(store, version, times, is_local=self.is_local)
            figures = store_figures(store, version, history, times, operator_name=operator_name)
            return store, figures, history
        except StateStoreError as error:
            return store, broken_store(store, operator_name, Failure(**error.to_json())), []


def are_apart(before: str | None, now: str | None) -> bool:
    """Return True if ids of queries, as far as they could be read, are those of two."""
    return None not in (before, now) and before != now


def failure_of(error: Exception) -> Failure:
    """Return an error as an answer has it."""
    if isinstance(error, (StateStoreError, OSError)):
        return Failure(**as_store_error(error).to_json())
    return Failure("internal", f"a defect of this program: {error!r}")


def _failure(problem: KnownProblem) -> Failure:
    return Failure(problem.kind, problem.sentence(), problem.file)


def _still_true(verified: Verified, stores: Mapping[StoreKey, FoundStore]) -> Verified:
    """Return what is known without the problems whose files were deleted or written anew since."""

    def is_there(problem: KnownProblem) -> bool:
        store = stores.get(problem.key)
        if store is None:
            return True
        entries = store.contents.entries
        names = fnmatch.filter(entries, problem.file) if "*" in problem.file else [problem.file]
        entry = entries.get(names[0]) if names else None
        now = (None, None) if entry is None else (entry.size_bytes, entry.modified_ms)
        return now == (problem.bytes, problem.modified_ms)

    return replace(verified, problems=tuple(filter(is_there, verified.problems)))


def broken_place(place: Store, failure: Failure) -> Store:
    """Return a store whose files cannot be read, with the reason."""
    return Store(
        place.operator, place.partition, place.store, operator_name=place.operator_name, error=failure
    )


def _options(stores: Iterable[FoundStore]) -> Mapping[str, str] | None:
    """Return the options that the newest snapshot with options says, or None."""
    pairs = [
        (manifest.created_ms, manifest.cause.options)
        for store in stores
        for manifest in store.contents.manifests.values()
        if manifest.cause is not None and manifest.cause.options is not None
    ]
    return max(pairs, key=lambda pair: pair[0])[1] if pairs else None


def _objective_ms(options: Mapping[str, str]) -> int:
    name = "restoreObjective"
    try:
        return parse({name: options[name]} if name in options else {}).restore_objective_ms
    except OptionError:  # a later release may write it in another way
        return Options().restore_objective_ms


def _names(operator: Operator, stores: Mapping[StoreKey, FoundStore], title: str | None) -> OperatorNames:
    families: dict[str, bool] = {}
    for key, store in stores.items():
        if key.operator == operator.id and store.contents.manifests:
            newest = max(store.contents.manifests.values(), key=lambda manifest: manifest.version)
            families.update({name: family.internal for name, family in newest.column_families.items()})
            break
    names = sorted(families, key=lambda name: (families[name], name))
    return OperatorNames(
        operator.id,
        operator.name,
        list(operator.stores),
        title,
        [name for name in names if name != "default"],
    )


def _batches_ms(query: Query, times: CommitTimes) -> dict[int, int]:
    """Return how long batches took, by the times of the files of Spark's logs."""
    if times.copied:
        return {}
    began = {
        int(entry.name): entry.modified_ms for entry in query.list_files("offsets") if entry.name.isdigit()
    }
    return {
        batch: end_ms - began[batch]
        for batch, end_ms in times.ends_ms.items()
        if batch in began and end_ms >= began[batch]
    }


def _history(
    of_stores: list[list[VersionFigures]], objective_ms: int, batches_ms: Mapping[int, int]
) -> list[Checkpoint]:
    rows: dict[int, list[VersionFigures]] = {}
    for figures in of_stores:
        for version in figures:
            rows.setdefault(version.version, []).append(version)
    checkpoints = []
    for number in sorted(rows):
        same = rows[number]
        wrote: dict[str, int] = {}
        for version in same:
            for kind in version.wrote:
                wrote[kind] = wrote.get(kind, 0) + 1
        checkpoints.append(
            Checkpoint(
                version=number,
                batch=number - 1,
                batch_ms=batches_ms.get(number - 1),
                made_ms=latest(version.made_ms for version in same),
                stores=len(same),
                wrote=wrote,
                deltas=max(version.deltas for version in same),
                files=sum(version.files for version in same),
                bytes=sum(version.bytes for version in same),
                new_bytes=sum(version.new_bytes for version in same),
                deltas_since_full=max(version.deltas_since_full for version in same),
                shared_bytes=sum(version.shared_bytes for version in same),
                restorable=len(same) == len(of_stores),
                restore_predicted_ms=round(max(version.restore_ms for version in same), 1),
                restore_objective_ms=objective_ms,
                reasons=sorted({version.reason for version in same if version.reason is not None}),
            )
        )
    return checkpoints


@dataclass(frozen=True, repr=False)
class Examination:
    """The result of an examination.

    Attributes:
        verdict: the findings, worst first.
        look: the figures; None if the checkpoint could not be read.
    """

    verdict: Verdict
    look: Look | None

    def __repr__(self) -> str:
        return f"Examination({self.verdict.severity}: {self.verdict.sentence})"


def doctor(checkpoint: Location, *, restore_objective: str | None = None) -> Examination:
    """Say what is wrong with a query's checkpoints, worst first, and what to do.

    Reads listings and archives of snapshots, no state and no rows. The query may run meanwhile.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        restore_objective: the longest acceptable restore, such as `10s`; `0`: any time is. Default:
            the query's `restoreObjective`, as its newest merge found it.

    Raises:
        MissingError: no stateful query has committed a batch there.
        OptionError: an argument is wrong, or another provider keeps the query's state.
    """
    location = checked_location(checkpoint)
    return examine(location, objective_ms=objective_ms(restore_objective))


def objective_ms(restore_objective: str | None) -> int | None:
    """Return an objective in milliseconds, None for the query's own. Raise OptionError if it is wrong."""
    return None if restore_objective is None else duration_ms(restore_objective, "restoreObjective")


def duration_ms(text: str, option: str) -> int:
    """Return a duration such as `10s` in milliseconds. Raise OptionError, which names the option."""
    try:
        return int(DURATION.parse(check_text(option, text, "'10s'")))
    except ValueError as error:
        raise OptionError(f"'{text}' is not a duration such as 10s: {error}", option=option) from None


def examine(checkpoint: str, *, objective_ms: int | None = None, runtime: Runtime = SYSTEM) -> Examination:
    """Look at a query's checkpoint once, and say what is wrong with it.

    Reads listings and archives of snapshots, no state and no rows. The query may run meanwhile.

    Args:
        checkpoint: the checkpoint directory, a path or URI.
        objective_ms: the query's restoreObjective, milliseconds; 0: none; None: as its newest merge found it,
            or the default.
        runtime: the clock.

    Raises:
        MissingError: no stateful query has committed a batch there.
        OptionError: another provider keeps the query's state.
    """
    looker = Looker(checkpoint, objective_ms=objective_ms, runtime=runtime)
    try:
        look = looker.look()
    except (MissingError, OptionError):
        raise
    except (StateStoreError, OSError) as error:
        failure = failure_of(error)
        verdict = judge(totals_of([], unreadable=True), [], runtime.wall_ms(), error=failure)
        return Examination(verdict, None)
    finally:
        looker.close()
    if look.batch is None:
        raise not_committed(checkpoint)
    verdict = judge(
        look.totals(),
        look.stores,
        runtime.wall_ms(),
        start=look.start_failure,
        verify=look.verify_failure,
        batch=look.batch,
    )
    return Examination(verdict, look)


@dataclass(frozen=True)
class State:
    """Everything that is known of a watched query at one moment. Immutable.

    Attributes:
        look: the last successful look; None before the first.
        error: why the last look failed; None if it succeeded.
        errors: looks that failed.
        history: checkpoints, oldest first, those that cannot be restored any more included.
    """

    look: Look | None = None
    error: Failure | None = None
    errors: int = 0
    history: tuple[Checkpoint, ...] = ()


class Watched:
    """A query that is looked at, at most once in `every_s` seconds, while somebody asks.

    All viewers share the looks: a hundred of them cost storage as much as one. Nobody waits for a look; slow
    storage makes answers old, never slow. Safe for any thread.

    Args:
        name: name in addresses.
        location: the checkpoint directory, a path or URI.
        every_s: least seconds between the beginnings of two looks.
        grows: they grow in proportion to the stores beyond `PACED_STORES`, to `MAX_PACE_S` at most, so
            that looks at many stores cost no more requests than those at some.
        objective_ms: the restore objective, milliseconds; 0: none; None: the query's own.
        idle_s: seconds without a request after which looking stops.
    """

    def __init__(
        self,
        name: str,
        location: str,
        *,
        every_s: float,
        grows: bool = False,
        objective_ms: int | None = None,
        idle_s: float = IDLE_S,
    ) -> None:
        self.name = name
        self.location = location
        self.requests = Requests()
        self._looker = Looker(location, requests=self.requests, objective_ms=objective_ms)
        self._every_s, self._grows, self._idle_s = every_s, grows, idle_s
        self._state = State()
        self._changed = threading.Condition()
        self._asked_s = time.monotonic()
        self._fully = False
        self._stopped = False
        self._thread = threading.Thread(target=self._watch, name=f"watch-{name}", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End after the look that is under way. May be called more than once."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def state(self) -> State:
        """Return the last state, and keep the looks going."""
        with self._changed:
            if time.monotonic() - self._asked_s > self._idle_s:
                self._changed.notify_all()
            self._asked_s = time.monotonic()
            return self._state

    def refresh(self) -> None:
        """Look as soon as the pace allows, at all stores, even if Spark has committed nothing."""
        with self._changed:
            self._fully = True
            self._asked_s = time.monotonic()
            self._changed.notify_all()

    def wait_for_look(self, timeout_s: float) -> bool:
        """Wait until the first look has ended, well or not.

        Args:
            timeout_s: seconds to wait at most.

        Returns:
            True if it has ended.
        """
        with self._changed:
            return self._changed.wait_for(
                lambda: self._state.look is not None or self._state.error is not None, timeout_s
            )

    def totals(self, state: State) -> Totals:
        """Return the figures of the query."""
        look = state.look
        unreadable = state.error is not None
        if look is None:
            return totals_of([], unreadable=unreadable)
        return look.totals(unreadable=unreadable)

    def verdict(self, state: State) -> Verdict:
        """Return the verdict on the query, now."""
        look = state.look
        return judge(
            self.totals(state),
            look.stores if look else (),
            int(time.time() * 1000),
            error=state.error,
            start=look.start_failure if look else None,
            verify=look.verify_failure if look else None,
            batch=look.batch if look else None,
        )

    def look_now(self) -> None:
        """Look once, in the calling thread. For the thread of `start`, and for tests without it."""
        with self._changed:
            fully, self._fully = self._fully, False
            before = self._state
        try:
            look = self._looker.look(fully=fully)
            is_another = before.look is not None and are_apart(before.look.id, look.id)
            history = () if is_another else before.history
            state = State(look, None, before.errors, _remembered(history, look.history))
        except Exception as error:  # without its thread, the last look would be shown for ever
            failure = failure_of(error)
            if failure.kind == "internal":
                _log.error("a look at %s failed", self.location, exc_info=error)
            elif failure != before.error:
                said = json.dumps(
                    failure.message, ensure_ascii=False
                )  # without characters that act on terminals
                _log.warning("query '%s' cannot be read: %s", self.name, said)
            state = replace(before, error=failure, errors=before.errors + 1)
        with self._changed:
            self._state = state
            self._changed.notify_all()

    def pace_s(self) -> float:
        """Return the least seconds between the beginnings of two looks, with as many stores as there are."""
        look = self._state.look
        stores = len(look.stores) if self._grows and look is not None else 0
        return max(self._every_s, min(MAX_PACE_S, self._every_s * stores / PACED_STORES))

    def _watch(self) -> None:
        while not self._stopped:
            began_s = time.monotonic()
            self.look_now()
            with self._changed:
                self._changed.wait_for(
                    lambda: self._stopped, max(0.0, began_s + self.pace_s() - time.monotonic())
                )
                while (
                    not self._stopped and time.monotonic() - self._asked_s > self._idle_s and not self._fully
                ):
                    self._changed.wait(self._idle_s)
        self._looker.close()


def _remembered(before: tuple[Checkpoint, ...], now: tuple[Checkpoint, ...]) -> tuple[Checkpoint, ...]:
    """Return what is there now, after older checkpoints that were there before."""
    if not now:
        return before
    if before and before[-1] is now[-1]:
        return before
    current = {checkpoint.version for checkpoint in now}
    older = [
        replace(checkpoint, restorable=False)
        for checkpoint in before
        if checkpoint.version not in current and checkpoint.version < now[0].version
    ]
    return (*older, *now)[-MAX_HISTORY:]


LIST, READ = "list", "read"
"""Kinds of requests."""


class Requests:
    """Numbers of requests by kind. Safe for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter({LIST: 0, READ: 0})

    def add(self, kind: str) -> None:
        """Count one request."""
        with self._lock:
            self._counts[kind] += 1

    def counts(self) -> dict[str, int]:
        """Return the numbers so far."""
        with self._lock:
            return dict(self._counts)


class CountedStorage(Storage):
    """A storage whose listings and reads are counted, and which refuses every write.

    Attributes:
        storage: the storage behind it.
        requests: where requests are counted.
    """

    def __init__(self, storage: Storage, requests: Requests) -> None:
        self.location = storage.location
        self.is_local = storage.is_local
        self.storage = storage
        self.requests = requests

    def list_files(self, directory: str) -> list[Entry]:
        """List the files of a directory."""
        self.requests.add(LIST)
        return self.storage.list_files(directory)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read a file, or a part of it."""
        self.requests.add(READ)
        return self.storage.read(path, offset, length)

    def exists(self, path: str) -> bool:
        """Return True if a file exists."""
        self.requests.add(LIST)
        return self.storage.exists(path)

    def directories(self, directory: str | None = None) -> list[str]:
        """List the directories in a directory."""
        self.requests.add(LIST)
        return self.storage.directories(directory)

    def download(self, path: str, local: Path) -> None:
        """Refuse: nothing is downloaded in order to look."""
        raise self._refused(path)

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        """Refuse."""
        raise self._refused(path)

    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        """Refuse."""
        raise self._refused(path)

    def delete(self, path: str) -> None:
        """Refuse."""
        raise self._refused(path)

    def close(self) -> None:
        """Close the storage behind it."""
        self.storage.close()

    def _refused(self, path: str) -> StorageError:
        return StorageError(
            f"'{self.location}/{path}' is not written by a program that only looks", file=path
        )
