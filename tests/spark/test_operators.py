"""Every stateful operator: a real query, stopped, killed in mid-batch, restarted, and right in the end."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from queries import settings, verdict
from queries.catalogue import SCENARIOS
from queries.history import History
from queries.running import Room

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@dataclass(frozen=True)
class Plan:
    """Scenarios that share the fate of one process."""

    names: list[str]
    checkpoint_format: int
    seed: int
    acts: tuple[str, ...]
    batches: int


PLANS = {
    "format-2": Plan(list(SCENARIOS), 2, seed=1, acts=("kill", "restart", "kill-jvm"), batches=10),
    "format-1": Plan(
        [
            "aggregation-append",
            "aggregation-update",
            "session-window-append",
            "drop-duplicates-within-watermark",
            "chained-join",
            "join-full",
            "join-inner-column-families",
            "pandas-event-time",
            "scala-flat-map-event-time",
        ],
        checkpoint_format=1,
        seed=2,
        acts=("stop", "kill"),
        batches=8,
    ),
}


class Histories:
    """The histories of the plans, each played once, when the first test asks for it."""

    def __init__(self, directory, provider, scala_jar):
        self._directory, self._provider, self._scala_jar = directory, provider, scala_jar
        self._played: dict[str, History | str] = {}

    def of(self, name: str) -> History:
        if name not in self._played:
            self._played[name] = self._play(name)
        outcome = self._played[name]
        if isinstance(outcome, str):
            pytest.fail(outcome, pytrace=False)
        return outcome

    def _play(self, name: str) -> History | str:
        plan = PLANS[name]
        history = History(
            Room(self._directory / name),
            [SCENARIOS[scenario] for scenario in plan.names],
            settings.spark_options(self._provider, plan.checkpoint_format, [self._scala_jar]),
            seed=plan.seed,
            acts=list(plan.acts),
            batches=plan.batches,
        )
        try:
            history.play()
        except AssertionError as error:
            return f"the history of {name} failed: {error}"
        finally:
            print(f"{name}:", *history.log, sep="\n")
        return history


@pytest.fixture(scope="module")
def histories(tmp_path_factory, provider, scala_jar) -> Histories:
    return Histories(tmp_path_factory.mktemp("histories"), provider, scala_jar)


@pytest.mark.parametrize(("plan", "name"), [(plan, name) for plan in PLANS for name in PLANS[plan].names])
def test_output_is_right_after_stops_and_kills(histories, plan, name):
    history = histories.of(plan)
    verdict.check(history.room, SCENARIOS[name], history.records("events"))


@pytest.mark.parametrize("plan", PLANS)
def test_kills_hit_running_batches(histories, plan):
    assert histories.of(plan).killed_in_mid_batch >= 2


def test_nothing_outlives_a_killed_jvm(histories):
    assert histories.of("format-2").survivors == []
