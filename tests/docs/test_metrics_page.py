"""Metrics have one declaration: the pages and both planes know no other names, and all of these."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from state_store.observe.metrics import ADDED_UP, METRICS, OF_SPARK, SAME, progress_metrics
from state_store.observe.rest_answers import DRIVER

IN_PROGRESS = {metric.name for metric in progress_metrics()}
FOR_PROMETHEUS = {metric.name: metric for metric in METRICS}


def names_in_scala(checkout: Path, file: str, name: str) -> list[str]:
    """Return the literals in the Scala sources that look like names of metrics, in files of a name."""
    sources = (checkout / "jvm_bridge/scala").rglob(file)
    return [found for source in sources for found in re.findall(f'"({name})"', source.read_text("utf-8"))]


def test_each_metric_in_the_progress_has_one_reader_in_scala(checkout: Path) -> None:
    assert sorted(names_in_scala(checkout, "StoreMetrics.scala", r"incremental[A-Z]\w*")) == sorted(
        IN_PROGRESS
    )


def test_scala_counts_what_is_declared_to_be_counted_there(checkout: Path) -> None:
    counted = {metric.name for metric in METRICS if DRIVER in metric.sources and metric.kind != "gauge"}
    assert set(names_in_scala(checkout, "*.scala", r"state_store_\w+")) == counted


def test_names_are_declared_once() -> None:
    assert len(IN_PROGRESS) == len(progress_metrics())
    assert len(FOR_PROMETHEUS) == len(METRICS)


@pytest.mark.parametrize("metric", progress_metrics(), ids=lambda metric: metric.name)
def test_two_names_of_one_fact_say_how_they_compare(metric) -> None:
    assert (metric.series is None) == (metric.relation is None)
    if metric.series is not None:
        name, _, selector = metric.series.removesuffix("}").partition("{")
        other = FOR_PROMETHEUS[name.removesuffix("_sum")]
        assert DRIVER in other.sources
        assert not selector or re.fullmatch(rf'({"|".join(other.labels)})!?="\w+"', selector)
        assert metric.relation != SAME or other.kind == "gauge"
        assert metric.relation != ADDED_UP or other.kind in ("counter", "histogram")


def test_spark_s_own_figures_are_compared_with_declared_metrics() -> None:
    assert {name for _, name, _ in OF_SPARK} <= FOR_PROMETHEUS.keys()


def test_metrics_that_the_documents_name_exist(checkout: Path) -> None:
    for page in (checkout / "docs").rglob("*.md"):
        named = set(re.findall(r"`(incremental[A-Z]\w+)`", page.read_text(encoding="utf-8")))
        assert named <= IN_PROGRESS, (
            f"{page.name} names metrics that do not exist: {sorted(named - IN_PROGRESS)}"
        )
