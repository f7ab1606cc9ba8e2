"""The text that Prometheus scrapes, written from the declarations in `model.metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from state_store.observe.model.declared import SERVE
from state_store.observe.model.metrics import (
    COUNTER,
    LABELS,
    MAX_STORES,
    METRICS,
    OF_GROUP,
    OF_QUERY,
    OF_STORE,
    Metric,
)
from state_store.observe.model.rest_answers import Store
from state_store.observe.serving.service import Answers
from state_store.observe.verdict import LEVELS, grouped
from state_store.observe.watching.watched import State, Watched

_OVER: dict[str, Callable[[Iterable[float]], float]] = {"max": max, "min": min, "sum": sum}

_OF_TOTALS = ("damaged_stores", "start_problems", "verify_problems", "verified_ms", "unverified_since_ms")

Sample = tuple[list[str], float]


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
        for metric in METRICS:
            if SERVE not in metric.sources:
                continue
            names = [*self._labels(metric), *metric.labels]
            kind = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
            family = kind(metric.name, metric.meaning, labels=names)
            for labels, value in self._samples(metric):
                family.add_metric(labels, value)
            yield family

    def _labels(self, metric: Metric) -> tuple[str, ...]:
        return () if metric.name == "state_store_full_checkpoint_requests_total" else LABELS[metric.subject]

    def _samples(self, metric: Metric) -> Iterator[Sample]:
        if metric.name == "state_store_full_checkpoint_requests_total":
            for outcome, count in self._answers.operations.outcomes().items():
                yield [outcome], count
            return
        for watched, state in self._states:
            if metric.subject == OF_QUERY:
                yield from _of_query(metric, watched, state)
            elif state.look is not None and metric.subject == OF_GROUP:
                for group in grouped(state.look.stores):
                    value = getattr(group, metric.field or "")
                    if value is not None:
                        yield [watched.name, str(group.operator), group.store], value * metric.scale
            elif state.look is not None and metric.subject == OF_STORE:
                yield from _of_stores(metric, watched.name, state.look.stores)


def _of_query(metric: Metric, watched: Watched, state: State) -> Iterator[Sample]:
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


def _of_stores(metric: Metric, query: str, stores: Iterable[Store]) -> Iterator[Sample]:
    """Yield a sample a store; of a query with more than 500 stores, a sample for the partitions together."""
    counted = list(stores)
    apart = len(counted) <= MAX_STORES
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
