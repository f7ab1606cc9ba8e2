"""The documents in the jar are those of the declarations, and valid by their own standards."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from state_store.observe import documents, metrics
from state_store.observe.documents import SORT_FIELDS
from state_store.observe.rest_answers import Checkpoint, Query, Store, to_json
from state_store.observe.verdict import RULES, Group, Totals


@pytest.mark.parametrize("name", documents.documents())
def test_the_document_in_the_jar_is_current(name: str, checkout: Path) -> None:
    text = (checkout / documents.DIRECTORY / name).read_text(encoding="utf-8")
    assert text == documents.documents()[name], "run `make docs`"


def references(value: Any) -> set[str]:
    """Return all references of a JSON schema."""
    if isinstance(value, dict):
        own = {value["$ref"]} if "$ref" in value else set()
        return own.union(*(references(inner) for inner in value.values()))
    if isinstance(value, list):
        return set().union(*(references(inner) for inner in value))
    return set()


def test_every_reference_leads_to_a_definition() -> None:
    for document, defined in (
        (documents.schema(), "$defs"),
        (documents.openapi()["components"], "schemas"),
    ):
        prefix = "#/$defs/" if defined == "$defs" else "#/components/schemas/"
        assert {name.removeprefix(prefix) for name in references(document)} <= document[defined].keys()


def test_every_path_parameter_is_declared() -> None:
    for path, methods in documents.openapi()["paths"].items():
        for operation in methods.values():
            named = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
            assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}


def test_metrics_follow_the_conventions_of_prometheus() -> None:
    names = [metric.name for metric in metrics.METRICS]
    assert len(names) == len(set(names))
    for metric in metrics.METRICS:
        assert metric.name.startswith("state_store_")
        assert metric.name.endswith("_total") == (metric.kind == metrics.COUNTER), metric.name
        assert bool(metric.buckets) == (metric.kind == metrics.HISTOGRAM), metric.name
        assert not metric.name.endswith(("_ms", "_milliseconds"))
        assert metric.meaning.endswith(".")


def test_metrics_show_fields_that_exist() -> None:
    of_query = {entry.name for cls in (Query, Totals) for entry in fields(cls)}
    computed = {"up", "severity", "scan_ms", "scan_errors", "merges_waiting", "merges_running"}
    computed |= {"restore_objective_ms"}
    known = {
        metrics.OF_QUERY: of_query | computed,
        metrics.OF_GROUP: {entry.name for entry in fields(Group)},
        metrics.OF_STORE: {entry.name for entry in fields(Store)},
    }
    for metric in metrics.METRICS:
        if metric.field is not None:
            assert metric.field in known[metric.subject], metric.name


def test_alerts_are_about_declared_metrics() -> None:
    names = {metric.name for metric in metrics.METRICS}
    for rule in RULES:
        if rule.alert is not None:
            words = rule.alert.expression.replace("(", " ").replace(")", " ").replace("[", " ").split()
            used = {word for word in words if word.startswith("state_store_")}
            assert used and used <= names, rule.alert.name


def test_stores_are_sorted_by_their_fields() -> None:
    assert set(SORT_FIELDS) <= {entry.name for entry in fields(Store)}


def test_an_absent_figure_is_left_out() -> None:
    shown = to_json(Checkpoint(1, 0, 3, {}, 0, 0, 0, 0))
    assert "shared_bytes" not in shown
    assert shown["deltas"] == 0
