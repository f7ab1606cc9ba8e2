"""All scenarios by name."""

from __future__ import annotations

from queries.scenarios import aggregations, deduplication, group_functions, joins, stateful_processors
from queries.scenarios.scenario import Scenario

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in [
        *aggregations.SCENARIOS,
        *deduplication.SCENARIOS,
        *joins.SCENARIOS,
        *group_functions.SCENARIOS,
        *stateful_processors.SCENARIOS,
    ]
}
