"""The tab's metrics of stores are those of `state-store serve`, by the same figures."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from state_store.observe import metrics
from state_store.observe.metrics import MAX_STORES, METRICS
from state_store.observe.rest_answers import DRIVER, SERVE, Store
from state_store.observe.service import exposition

pytestmark = pytest.mark.spark

QUERY = 'a "query"\n\\ of two lines'

BOTH = [
    metric
    for metric in METRICS
    if {SERVE, DRIVER} <= set(metric.sources) and metric.subject in (metrics.OF_STORE, metrics.OF_GROUP)
]
"""Metrics that both have and that are computed of stores."""


def store(number: int, partitions: int) -> Store:
    """Return a store whose figures are its own; some are unknown, and some have fractions."""
    figures: dict[str, Any] = {
        metric.field: (number + 1) * 1_000_003 + place / 8
        for place, metric in enumerate(BOTH)
        if metric.field is not None and (number + place) % 5
    }
    operator, partition = divmod(number, partitions)
    known = {field.name for field in fields(Store)}
    figures = {name: value for name, value in figures.items() if name in known}
    figures["bytes"] = (number % 7) ** 9 * 1_000
    return Store(operator, partition, "left" if operator % 2 else "default", **figures)


def of_serve(stores: list[Store]) -> str:
    """Return the text of `serve` about a query whose last look has these stores."""
    look = SimpleNamespace(
        id="id", batch=1, stores=stores, objective_ms=None, took_ms=1.0, error=None, history=[]
    )
    state = SimpleNamespace(look=look, error=None, errors=0)
    totals = SimpleNamespace(
        damaged_stores=0, start_problems=0, verify_problems=None, verified_ms=None, unverified_since_ms=None
    )
    watched = SimpleNamespace(
        name=QUERY,
        location="/data",
        state=lambda: state,
        totals=lambda _: totals,
        verdict=lambda _: SimpleNamespace(severity="fine"),
        requests=SimpleNamespace(counts=dict),
    )
    operations = SimpleNamespace(outcomes=dict)
    return exposition(SimpleNamespace(watched={QUERY: watched}, operations=operations)).decode("utf-8")


def of_tab(jvm: Any, stores: list[Store]) -> str:
    """Return the text of Spark's tab about a query with these stores."""
    package = jvm.org.apache.spark.sql.execution.streaming.state.incremental
    parse, as_scala = package.checkpoint.Json.parse, jvm.scala.jdk.javaapi.CollectionConverters.asScala
    nodes = jvm.java.util.ArrayList()
    for figures in stores:
        nodes.add(
            parse(json.dumps({name: value for name, value in asdict(figures).items() if value is not None}))
        )
    of_stores, nothing = as_scala(nodes).toSeq(), jvm.scala.Predef.Map().empty()
    groups = package.observed.Verdict.grouped(of_stores)
    values = package.observed.MetricValues(nothing, nothing)
    figures = package.observed.Figures(QUERY, parse("{}"), of_stores, groups, values, nothing)
    queries = jvm.java.util.ArrayList()
    queries.add(figures)
    return str(package.observed.Exposition.of(as_scala(queries).toSeq()))


def samples(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return the values of the series of stores and groups, by metric and labels."""
    names = {metric.name for metric in BOTH}
    return {
        family.name: {
            tuple(sorted(pair for pair in sample.labels.items() if pair[1])): sample.value
            for sample in family.samples
        }
        for family in text_string_to_metric_families(text)
        if family.name in names
    }


@pytest.mark.parametrize("partitions", [1, 3, MAX_STORES // 2, MAX_STORES // 2 + 1])
def test_the_driver_s_metrics_of_stores_equal_those_of_serve(spark, partitions: int) -> None:
    stores = [store(number, partitions) for number in range(2 * partitions)]
    shown, served = samples(of_tab(spark._jvm, stores)), samples(of_serve(stores))
    assert shown.keys() == served.keys() == {metric.name for metric in BOTH}
    for name, values in served.items():
        assert shown[name].keys() == values.keys(), name
        assert shown[name] == pytest.approx(values, rel=1e-9, abs=1e-6), name
    assert {dict(labels)["query"] for labels in served["state_store_chain_bytes"]} == {QUERY}
