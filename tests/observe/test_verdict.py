"""The verdict is a function of figures; the cases are shared with the tab in Spark's UI."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from state_store.observe.generated_files import alert_rules, alert_section, severity_of
from state_store.observe.rest_answers import Failure, Store, to_json
from state_store.observe.verdict import (
    CRITICAL,
    GROUP,
    NOTE,
    QUERY,
    RULES,
    SEVERITIES,
    STORE,
    WARNING,
    Group,
    Totals,
    in_words,
    judge,
    totals_of,
)

CASES = json.loads((Path(__file__).parent / "cases/verdict.json").read_text(encoding="utf-8"))


def store_of(values: dict[str, Any]) -> Store:
    """Return a store with these figures, as JSON has them."""
    failures = {name: Failure(**values[name]) for name in ("error", "last_failure") if name in values}
    return Store(**{**values, **failures})


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_the_verdict_is_that_of_its_case(case: dict[str, Any]) -> None:
    verdict = judge(
        Totals(**case["totals"]),
        [store_of(values) for values in case["stores"]],
        case["now_ms"],
        error=Failure(**case["error"]) if "error" in case else None,
        batch=case.get("batch"),
    )
    assert verdict.severity == case["severity"]
    assert verdict.sentence == case["sentence"]
    assert len(verdict.findings) == len(case["findings"])
    for finding, expected in zip(verdict.findings, case["findings"], strict=True):
        shown = to_json(finding)
        assert {name: shown.get(name) for name in expected} == expected


def test_rules_name_fields_that_exist() -> None:
    subjects = {QUERY: Totals, STORE: Store, GROUP: Group}
    for rule in RULES:
        names = {entry.name for entry in fields(subjects[rule.subject])}
        assert rule.field in names, rule.code
        assert rule.above_field is None or rule.above_field in names, rule.code
        assert rule.severity in SEVERITIES


def test_an_alert_has_the_severity_of_its_finding() -> None:
    """A fact that wakes somebody is red on the page, and one that is green on the page wakes nobody."""
    shown = {CRITICAL: "page", WARNING: "ticket", NOTE: "info"}
    found = re.findall(
        r"alert: (\w+)\n.*\n.*\n *labels: \{severity: (\w+), finding: ([\w-]+)\}", alert_rules()
    )
    rules = {rule.code: rule for rule in RULES}
    assert {code for _, _, code in found} == {*rules, "absent"}
    for alert, severity, code in found:
        assert severity == shown[rules[code].severity if code in rules else WARNING], alert
        (paragraph,) = re.findall(rf"### Alert: {alert}\n\n.*\(severity `(\w+)`\)", alert_section())
        assert paragraph == severity


def test_a_query_whose_alert_wakes_somebody_is_not_fine() -> None:
    """The verdict of a query of which one finding alone is true, for each finding."""
    colours = {"page": "critical", "ticket": "warning", "info": "fine"}
    for case in CASES:
        if len(case["findings"]) == 1:
            assert case["severity"] == colours[severity_of(case["findings"][0]["code"])], case["case"]


def test_every_rule_has_a_case_in_which_it_is_true() -> None:
    found = {finding["code"] for case in CASES for finding in case["findings"]}
    assert {rule.code for rule in RULES} == found


GIB = 1 << 30


@pytest.mark.parametrize(
    ("stored", "unneeded", "ratio"),
    [
        ((5 * GIB, 5 * GIB), (3 * GIB, GIB), 4 / 6),
        ((5 * GIB, 5 * GIB), (5 * GIB, 2 * GIB), 7 / 3),
        ((3 * GIB,), (GIB,), None),
        ((3 * GIB,), (3 * GIB,), None),
        ((None,), (None,), None),
    ],
)
def test_the_share_of_unneeded_bytes_is_of_all_stores(
    stored: tuple[int | None, ...], unneeded: tuple[int | None, ...], ratio: float | None
) -> None:
    stores = [
        Store(0, number, "default", stored_bytes=all_, unneeded_bytes=part)
        for number, (all_, part) in enumerate(zip(stored, unneeded, strict=True))
    ]
    assert totals_of(stores).wasted_ratio == ratio


@pytest.mark.parametrize(
    ("figure", "unit", "words"),
    [
        (999, "duration", "999 ms"),
        (1000, "duration", "1.0 s"),
        (119_900, "duration", "119.9 s"),
        (120_000, "duration", "2 min"),
        (7_200_000, "duration", "2 h"),
        (172_800_000, "duration", "2 d"),
        (999, "bytes", "999 bytes"),
        (1_500_000, "bytes", "1.5 MB"),
        (4.14, "ratio", "4.1"),
        (6, "number", "6"),
    ],
)
def test_figures_are_put_in_words(figure: float, unit: str, words: str) -> None:
    assert in_words(figure, unit) == words


def test_stores_cannot_be_restored_for_their_own_reason() -> None:
    """The reason is not that of a later look, which failed as a whole."""
    broken = Store(0, 1, "default", error=Failure("damaged", "a delta is lost"))
    totals = totals_of([broken], unreadable=True)
    verdict = judge(totals, [broken], 1_000_000, error=Failure("storage", "403 Forbidden"))
    sentences = {finding.code: finding.sentence for finding in verdict.findings}
    assert "403 Forbidden" in sentences["unreadable"]
    assert sentences["store-damaged"].endswith("committed last: a delta is lost")
