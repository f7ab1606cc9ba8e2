"""Answers to requests, from the watched queries: those of the REST API, and the text that Prometheus scrapes.

No HTTP here. The text is written from the declarations in `metrics`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from state_store import __version__
from state_store.core.checkpoint.names import VersionId
from state_store.core.settings.option import PREFIX, Option
from state_store.core.settings.options import OPTIONS
from state_store.core.settings.session import FORMAT_KEY, PROVIDER_KEY
from state_store.data.query import StoreKey
from state_store.errors import KINDS, BusyError, FormatError, MissingError, OptionError
from state_store.observe import metrics, rest_answers
from state_store.observe.documents import API, MAX_FILES
from state_store.observe.figures import store_files, version_of
from state_store.observe.look import Look, State, Watched
from state_store.observe.operations import Operations
from state_store.observe.verdict import LEVELS, grouped

_LASTING = (OptionError.KIND, FormatError.KIND)
"""Kinds of errors of a look that the next look meets again: the checkpoint is another store's, or newer."""


_OVER: dict[str, Callable[[Iterable[float]], float]] = {"max": max, "min": min, "sum": sum}


_OF_TOTALS = ("damaged_stores", "start_problems", "verify_problems", "verified_ms", "unverified_since_ms")


Sample = tuple[list[str], float]


class Answers:
    """The answers of `state-store serve`. Safe for any thread.

    Args:
        watched: the queries, by name.
        operations: requests for full checkpoints.
        read_only: full checkpoints cannot be requested.
        documentation: address of the documentation, for links; None: links are shown as texts.
    """

    def __init__(
        self,
        watched: Sequence[Watched],
        operations: Operations,
        *,
        read_only: bool = False,
        documentation: str | None = None,
    ) -> None:
        self.watched = {query.name: query for query in watched}
        self.operations = operations
        self.read_only = read_only
        self.documentation = documentation

    def service(self) -> rest_answers.Service:
        """Describe the program that answers."""
        because = "it was started with --read-only; use `state-store full DIR`" if self.read_only else None
        return rest_answers.Service(
            API, __version__, rest_answers.SERVE, not self.read_only, self.documentation, because
        )

    def queries(self) -> rest_answers.Queries:
        """List the queries, the worst first."""
        queries = [self.query(name) for name in self.watched]
        return rest_answers.Queries(sorted(queries, key=lambda query: (-LEVELS[query.verdict], query.name)))

    def query(self, name: str) -> rest_answers.Query:
        """Describe a query."""
        watched = self.find(name)
        state = watched.state()
        look = state.look
        verdict = watched.verdict(state)
        return rest_answers.Query(
            name=watched.name,
            checkpoint=watched.location,
            verdict=verdict.severity,
            sentence=verdict.sentence if look or state.error else None,
            verified_ms=look.verified.verified_ms if look else None,
            verified_version=look.verified.version if look else None,
            verify_problems=len(look.verified.problems) if look else None,
            read_ms=look.at_ms if look else None,
            id=look.id if look else None,
            batch=look.batch if look else None,
            version=look.batch + 1 if look and look.batch is not None else None,
            committed_ms=look.committed_ms if look else None,
            stores=len(look.stores) if look else None,
            error=state.error,
            operators=list(look.operators) if look else [],
        )

    def verdict(self, name: str) -> rest_answers.Verdict:
        """Say what is wrong with a query."""
        watched = self.find(name)
        state = watched.state()
        if state.look is None and state.error is None:
            raise BusyError(f"query '{name}' was not read yet; try again in a moment")
        return watched.verdict(state)

    def checkpoints(self, name: str, *, limit: int, before: int | None) -> rest_answers.Checkpoints:
        """Return the history of a query's checkpoints, newest first."""
        state, look = self._read(name)
        history = state.history
        wrote = [checkpoint.wrote for checkpoint in history]
        counts = rest_answers.Counts(
            delta=sum(set(kinds) == {"delta"} for kinds in wrote),
            merge=sum("merge" in kinds for kinds in wrote),
            full=sum("full" in kinds for kinds in wrote),
            restorable=sum(bool(checkpoint.restorable) for checkpoint in history),
        )
        checkpoints = [checkpoint for checkpoint in history if before is None or checkpoint.version < before]
        page = checkpoints[::-1][:limit]
        oldest = min(look.stores, key=lambda store: store.full_ms or 0, default=None)
        return rest_answers.Checkpoints(
            counts,
            _summary(look.stores),
            page,
            len(checkpoints) > len(page),
            history[-1] if history else None,
            full_version=oldest.full_version if oldest else None,
            full_ms=oldest.full_ms if oldest else None,
            latest_failure=_latest_failure(self.operations.merges(self.find(name).name)[2]),
        )

    def latest(
        self,
        name: str,
        *,
        is_selected: Callable[[rest_answers.Store], bool],
        sort: str,
        offset: int,
        limit: int,
    ) -> rest_answers.CheckpointDetails:
        """Describe the newest checkpoint, store by store."""
        state, look = self._read(name)
        if not state.history:
            raise MissingError(f"Spark has not committed a batch of query '{name}' yet")
        total, page = paged(look.stores, is_selected, sort, offset, limit)
        return rest_answers.CheckpointDetails(state.history[-1], total, offset, page)

    def checkpoint(
        self,
        name: str,
        version: int,
        *,
        is_selected: Callable[[rest_answers.Store], bool],
        sort: str,
        offset: int,
        limit: int,
    ) -> rest_answers.CheckpointDetails:
        """Describe a version. Figures of single stores are of the newest version only.

        Raises:
            MissingError: the version is not known.
        """
        state, look = self._read(name)
        checkpoint = next(
            (version_figures for version_figures in state.history if version_figures.version == version), None
        )
        if checkpoint is None:
            numbers = [version_figures.version for version_figures in state.history]
            have = f"versions {numbers[0]} to {numbers[-1]} are known" if numbers else "none is known yet"
            raise MissingError(f"query '{name}' has no version {version}; {have}")
        if look.batch is not None and version == look.batch + 1:
            return self.latest(name, is_selected=is_selected, sort=sort, offset=offset, limit=limit)
        places = [
            rest_answers.Store(
                key.operator,
                key.partition,
                key.name,
                version=version,
                files=len(files),
                bytes=sum(f.size_bytes for f in files),
            )
            for key, files in _needed(look, version)
        ]
        total, page = paged(places, is_selected, sort, offset, limit)
        return rest_answers.CheckpointDetails(checkpoint, total, offset, page)

    def stores(
        self,
        name: str,
        *,
        is_selected: Callable[[rest_answers.Store], bool],
        sort: str,
        offset: int,
        limit: int,
    ) -> rest_answers.Stores:
        """Return a page of stores."""
        _, look = self._read(name)
        total, page = paged(look.stores, is_selected, sort, offset, limit)
        return rest_answers.Stores(total, offset, page, look.batch + 1 if look.batch is not None else None)

    def files(self, name: str, key: StoreKey, *, version: int | None = None) -> rest_answers.StoreFiles:
        """Return the files of a store.

        Raises:
            MissingError: the store is not there, cannot be read, or has no such version.
        """
        _, look = self._read(name)
        store = look.found.get(key)
        if store is None:
            raise MissingError(f"query '{name}' has no store {key} that can be read")
        held = None if version is None else version_of(store, version, _newest_by_store(look).get(key))
        files = store_files(store, version=held, limit=MAX_FILES)
        if version is not None and held is None:
            have = f"{files.versions[0]} to {files.versions[-1]}" if files.versions else "none"
            raise MissingError(
                f"version {version} of store {key} cannot be restored; versions that can be: {have}"
            )
        return files

    def config(self, name: str) -> rest_answers.Configuration:
        """Return the configuration that Spark pinned and the query's merges found, and the objective."""
        _, look = self._read(name)
        values = {key[len(PREFIX) :]: value for key, value in look.pinned.items() if key.startswith(PREFIX)}
        if look.options is not None:
            values = {**{option.name: option.default for option in OPTIONS}, **values, **look.options}
        values["restoreObjective"] = f"{look.objective_ms}ms"
        declared: dict[str, Option] = {option.name: option for option in OPTIONS}
        settings = [
            rest_answers.Setting(option, value, declared[option].default, declared[option].doc)
            for option, value in sorted(values.items())
            if option in declared
        ]
        checkpoint_format = look.pinned.get(FORMAT_KEY)
        return rest_answers.Configuration(
            settings,
            look.pinned.get(PROVIDER_KEY),
            int(checkpoint_format) if checkpoint_format and checkpoint_format.isdigit() else None,
        )

    def merges(self, name: str) -> rest_answers.Merges:
        """List the merges that were requested here."""
        return rest_answers.Merges(*self.operations.merges(self.find(name).name))

    def request_full(self, name: str, request: rest_answers.FullCheckpointRequest) -> rest_answers.Operation:
        """Request a full checkpoint.

        Raises:
            OptionError: the request names stores that are not there, or another type.
        """
        watched = self.find(name)
        _, look = self._read(name)
        if request.checkpoint_type != "FULL":
            raise OptionError(
                f"'checkpointType' must be FULL, not {request.checkpoint_type!r}: incremental checkpoints "
                f"are made by "
                "every batch",
                option="checkpointType",
            )
        if not any(
            request.operator in (None, s.operator)
            and request.partition in (None, s.partition)
            and request.store in (None, s.store)
            for s in look.stores
        ):
            raise OptionError(f"query '{name}' has no store that the request names", option="operator")
        return self.operations.request(watched, request)

    def trigger(self, name: str, request_id: str) -> rest_answers.Operation:
        """Return the state of a request."""
        return self.operations.find(self.find(name).name, request_id)

    def find(self, name: str) -> Watched:
        """Return a watched query by its name or Spark's id.

        Raises:
            MissingError: there is none.
        """
        by_name = self.watched.get(name)
        if by_name is None:
            for watched in self.watched.values():
                look = watched.state().look
                if look is not None and look.id == name:
                    return watched
            have = ", ".join(sorted(self.watched)[:20])
            raise MissingError(f"there is no query of this name here; there are: {have}")
        return by_name

    def _read(self, name: str) -> tuple[State, Look]:
        state = self.find(name).state()
        if state.look is None:
            why = state.error.message if state.error else "it was not read yet; try again in a moment"
            kind = state.error.kind if state.error and state.error.kind in _LASTING else BusyError.KIND
            raise KINDS[kind](f"query '{name}' cannot be shown: {why}")
        return state, state.look


def _newest_by_store(look: Look) -> dict[StoreKey, VersionId]:
    """Return the version of each store that Spark committed last, as far as it can be restored."""
    return {
        StoreKey(store.operator, store.partition, store.store): VersionId(store.version, store.checkpoint_id)
        for store in look.stores
        if store.version is not None
    }


def _needed(look: Look, version: int) -> list:
    files_by_store = []
    newest = _newest_by_store(look)
    for key, store in look.found.items():
        held = version_of(store, version, newest.get(key))
        if held is not None:
            files_by_store.append(
                (key, [file for file in store.registry.files(held) if not file.is_snapshot])
            )
    return files_by_store


def paged(
    stores: Sequence[rest_answers.Store],
    is_selected: Callable[[rest_answers.Store], bool],
    sort: str,
    offset: int,
    limit: int,
) -> tuple[int, list[rest_answers.Store]]:
    """Return the number of stores that are chosen, and a page of them: broken ones first, then the largest.

    Args:
        stores: all stores.
        is_selected: the filter.
        sort: the field to sort by.
        offset: stores to skip.
        limit: stores to return at most.
    """
    selected = [store for store in stores if is_selected(store)]
    if sort == "partition":
        selected.sort(key=lambda store: (store.operator, store.store, store.partition))
    else:
        selected.sort(
            key=lambda store: (
                store.error is None and store.verify_problem is None,
                -(getattr(store, sort) or 0),
                store.operator,
                store.partition,
            )
        )
    return len(selected), selected[offset : offset + limit]


def _latest_failure(failed: Sequence[rest_answers.Merge]) -> rest_answers.Happening | None:
    """Return the newest of the merges that failed, in words."""
    if not failed:
        return None
    newest = max(failed, key=lambda merge: merge.since_ms or 0)
    why = newest.failure.message if newest.failure else "no reason is known"
    return rest_answers.Happening(
        newest.since_ms or 0,
        f"A {newest.kind} merge failed: {why}",
        newest.operator,
        newest.partition,
        newest.store,
        newest.version,
    )


def _summary(stores: Sequence[rest_answers.Store]) -> rest_answers.Summary:
    def spread(name: str) -> rest_answers.Spread | None:
        values = sorted(value for store in stores if (value := getattr(store, name)) is not None)
        if not values:
            return None
        return rest_answers.Spread(_quantile(values, 0.5), _quantile(values, 0.95), values[-1], sum(values))

    return rest_answers.Summary(
        bytes=spread("bytes"),
        files=spread("files"),
        keys=spread("keys"),
        deltas=spread("deltas"),
        restore_predicted_ms=spread("restore_predicted_ms"),
        stored_bytes=spread("stored_bytes"),
    )


def _quantile(ascending: Sequence[float], share: float) -> float:
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


def exposition(answers: Answers) -> bytes:
    """Return the metrics of all queries in Prometheus's text format, version 0.0.4.

    Args:
        answers: the watched queries.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Queries(answers))
    return generate_latest(registry)


class _Queries(Collector):
    """The families of one scrape."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._states = [(watched, watched.state()) for watched in answers.watched.values()]

    def collect(self) -> Iterable[Family]:
        for metric in metrics.METRICS:
            if rest_answers.SERVE not in metric.sources:
                continue
            names = [*self._labels(metric), *metric.labels]
            kind = CounterMetricFamily if metric.kind == metrics.COUNTER else GaugeMetricFamily
            family = kind(metric.name, metric.meaning, labels=names)
            for labels, value in self._samples(metric):
                family.add_metric(labels, value)
            yield family

    def _labels(self, metric: metrics.Metric) -> tuple[str, ...]:
        return (
            ()
            if metric.name == "state_store_full_checkpoint_requests_total"
            else metrics.LABELS[metric.subject]
        )

    def _samples(self, metric: metrics.Metric) -> Iterator[Sample]:
        if metric.name == "state_store_full_checkpoint_requests_total":
            for outcome, count in self._answers.operations.outcomes().items():
                yield [outcome], count
            return
        for watched, state in self._states:
            if metric.subject == metrics.OF_QUERY:
                yield from _samples_of_query(metric, watched, state)
            elif state.look is not None and metric.subject == metrics.OF_GROUP:
                for group in grouped(state.look.stores):
                    value = getattr(group, metric.field or "")
                    if value is not None:
                        yield [watched.name, str(group.operator), group.store], value * metric.scale
            elif state.look is not None and metric.subject == metrics.OF_STORE:
                yield from _samples_of_stores(metric, watched.name, state.look.stores)


def _samples_of_query(metric: metrics.Metric, watched: Watched, state: State) -> Iterator[Sample]:
    look = state.look
    if metric.name == "state_store_query_info":
        yield [watched.name, (look.id if look else None) or "", "", "", watched.location], 1
        return
    if metric.name == "state_store_storage_requests_total":
        for kind, count in watched.requests.counts().items():
            yield [watched.name, kind], count
        return
    figures: Mapping[str, Any] = {
        "up": int(look is not None and state.error is None),
        "severity": LEVELS[watched.verdict(state).severity],
        "batch": look.batch if look else None,
        "stores": len(look.stores) if look else None,
        **dict.fromkeys(_OF_TOTALS),
        **({name: getattr(watched.totals(state), name) for name in _OF_TOTALS} if look else {}),
        "restore_objective_ms": look.objective_ms if look else None,
        "scan_ms": look.took_ms if look else None,
        "scan_errors": state.errors,
    }
    value = figures[metric.field or ""]
    if value is not None:
        yield [watched.name], value * metric.scale


def _samples_of_stores(
    metric: metrics.Metric, query: str, stores: Iterable[rest_answers.Store]
) -> Iterator[Sample]:
    """Yield a sample a store; of a query with more than 500 stores, a sample for the partitions together."""
    counted = list(stores)
    apart = len(counted) <= metrics.MAX_STORES
    together: dict[tuple[int, str], list[float]] = {}
    for store in counted:
        value = getattr(store, metric.field or "")
        if value is None:
            continue
        if apart:
            yield [query, str(store.operator), store.store, str(store.partition)], value * metric.scale
        else:
            together.setdefault((store.operator, store.store), []).append(value)
    for (operator, name), values in sorted(together.items()):
        yield [query, str(operator), name, ""], _OVER[metric.over](values) * metric.scale
