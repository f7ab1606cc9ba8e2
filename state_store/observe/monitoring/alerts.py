"""Alert rules for Prometheus, from the rules of the verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator

from state_store.observe.model.rules import ALERT_SEVERITIES, RULES, WARNING, Alert, Rule

HEAD = """\
# Alert rules of the incremental state store, for Prometheus. Written from the declarations by `make docs`; do
# not edit. `promtool check rules` takes this file. docs/alerts.md has a paragraph on each alert.
groups:
  - name: incremental-state-store
    rules:
"""

EXTRA: tuple[tuple[Alert, str], ...] = (
    (
        Alert(
            "StateStoreAbsent",
            "absent(state_store_up)",
            "10m",
            "Nothing tells of any query: the service or the scrape is down.",
        ),
        "docs/alerts.md#alert-statestoreabsent",
    ),
)
"""Alerts that no finding belongs to, each with its link."""


def alerts() -> Iterator[tuple[Alert, str, str]]:
    """Yield every alert, the code of its finding and its link."""
    for rule in RULES:
        if rule.alert is not None:
            yield rule.alert, rule.code, rule.link
    for alert, link in EXTRA:
        yield alert, "absent", link


def severity_of(code: str) -> str:
    """Return the severity of the alert of a finding, or of that which has no finding."""
    found = {rule.code: rule.severity for rule in RULES}
    return ALERT_SEVERITIES[found.get(code, WARNING)]


def alert_rules() -> str:
    """Return the rules as YAML. Texts are quoted as in JSON, which YAML takes."""
    return HEAD + "".join(_rule(*each) for each in alerts())


def _rule(alert: Alert, code: str, link: str) -> str:
    quoted = {name: json.dumps(text) for name, text in _texts(alert, code, link).items()}
    return (
        f"      - alert: {alert.name}\n"
        f"        expr: {quoted['expression']}\n"
        f"        for: {alert.lasts}\n"
        f"        labels: {{severity: {severity_of(code)}, finding: {code}}}\n"
        "        annotations:\n"
        f"          summary: {quoted['summary']}\n"
        f"          remedy: {quoted['remedy']}\n"
        f"          runbook: {quoted['link']}\n"
    )


def _texts(alert: Alert, code: str, link: str) -> dict[str, str]:
    return {"expression": alert.expression, "summary": alert.summary, "remedy": remedy_of(code), "link": link}


def remedy_of(code: str) -> str:
    """Return the remedy of a finding, or that of the alert which has no finding."""
    found: dict[str, Rule] = {rule.code: rule for rule in RULES}
    if code in found:
        return found[code].remedy
    return "Look whether `state-store serve` runs and Prometheus reaches it."
