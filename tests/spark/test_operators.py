"""Every stateful operator: a real query, stopped, killed in mid-batch, restarted, and right in the end."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from queries import settings, verdict
from queries.catalogue import SCENARIOS
from queries.history import History
from queries.running import Room


@dataclass(frozen=True)
class Group:
    """Scenarios that share the fate of one process."""

    names: list[str]
    checkpoint_format: int
    seed: int
    ends: tuple[str, ...]
    batches: int = 12


GROUPS = {
    "rows": Group(
        [name for name in SCENARIOS if not name.startswith(("join", "pandas", "scala"))],
        checkpoint_format=2,
        seed=1,
        ends=("kill", "stop", "kill-jvm"),
    ),
    "joins": Group(
        [name for name in SCENARIOS if name.startswith("join")],
        checkpoint_format=2,
        seed=2,
        ends=("kill", "stop", "kill-jvm"),
    ),
    "groups": Group(
        [name for name in SCENARIOS if name.startswith(("pandas", "scala"))],
        checkpoint_format=2,
        seed=3,
        ends=("kill-jvm", "stop", "kill"),
    ),
    "format-1": Group(
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
        seed=4,
        ends=("stop", "kill", "kill"),
        batches=10,
    ),
}


class Histories:
    """The histories of the groups, each played once, when the first test asks for it."""

    def __init__(self, directory, provider, scala_jar):
        self._directory, self._provider, self._scala_jar = directory, provider, scala_jar
        self._played: dict[str, History | AssertionError] = {}

    def of(self, name: str) -> History:
        if name not in self._played:
            self._played[name] = self._play(name)
        outcome = self._played[name]
        if isinstance(outcome, AssertionError):
            raise outcome
        return outcome

    def _play(self, name: str) -> History | AssertionError:
        group = GROUPS[name]
        history = History(
            Room(self._directory / name),
            [SCENARIOS[scenario] for scenario in group.names],
            settings.spark_options(self._provider, group.checkpoint_format, [self._scala_jar]),
            seed=group.seed,
            ends=list(group.ends),
            batches=group.batches,
        )
        try:
            history.play()
        except AssertionError as error:
            return error
        finally:
            print(f"{name}:", *history.log, sep="\n")
        return history


@pytest.fixture(scope="module")
def histories(tmp_path_factory, provider, scala_jar) -> Histories:
    return Histories(tmp_path_factory.mktemp("histories"), provider, scala_jar)


@pytest.mark.parametrize(
    ("group", "name"), [(group, name) for group in GROUPS for name in GROUPS[group].names]
)
def test_output_is_right_after_stops_and_kills(histories, group, name):
    history = histories.of(group)
    verdict.check(history.room, SCENARIOS[name], history.records("events"))


@pytest.mark.parametrize("group", GROUPS)
def test_kills_hit_running_batches(histories, group):
    assert histories.of(group).killed_in_mid_batch >= 2
