"""Every stateful operator: a real query, stopped, killed in mid-batch, restarted, with the right result."""

from __future__ import annotations

from dataclasses import dataclass

import pyspark
import pytest
from queries import session_settings
from queries.runs import sink_comparison
from queries.runs.run_history import History
from queries.runs.running import Room
from queries.scenarios.catalogue import SCENARIOS

# The first test of a plan plays its history.
pytestmark = [pytest.mark.spark]


@dataclass(frozen=True)
class Plan:
    """Scenarios that run in one process."""

    names: list[str]
    checkpoint_format: int
    seed: int
    acts: tuple[str, ...]
    batches: int
    marks: tuple[pytest.MarkDecorator, ...] = ()

    @property
    def kills(self) -> int:
        return sum(act.startswith("kill") for act in self.acts)


EVERY = list(SCENARIOS)
FEW = ["aggregation-append", "join-full", "pandas-event-time", "scala-flat-map-event-time"]
SOME = [
    *FEW,
    "aggregation-update",
    "session-window-append",
    "drop-duplicates-within-watermark",
    "chained-join",
    *(name for name in EVERY if name == "join-inner-column-families"),
    "processor-pandas-event-time",
]
# The others use a store like one of these.
DIFFERENT = [
    *FEW,
    "aggregation-update",
    "aggregation-complete",
    "session-window-append",
    "limit",
    "chained-join",
    "drop-duplicates-watermark",
    "drop-duplicates-within-watermark",
    "join-inner-unbounded",
    "pandas-processing-time",
    "scala-map",
    "processor-pandas-event-time",
    "processor-scala-event-time",
]
# These are queries whose stores have column families.
FEW_OF_OLDER = [
    *FEW,
    *(name for name in EVERY if name == "join-inner-column-families"),
    "processor-pandas-event-time",
]
LONG = (pytest.mark.tier("long"),)
MORE = (pytest.mark.tier("more"),)
QUICK = (
    pytest.mark.dear("two operators, an aggregation and a join, whose JVM is killed"),
    pytest.mark.timeout(900),
)
ON_OLDER = (pytest.mark.older(more=("4.2", "4.1", "4.0")),)
LONG_ON_OLDER = (pytest.mark.older(long=("4.2", "4.1", "4.0")),)
PLANS = {
    "quick": Plan(FEW[:2], 2, seed=1, acts=("kill-jvm",), batches=3, marks=QUICK),
    **{
        f"format-2-{number}": Plan(names, 2, seed=number, acts=("kill-jvm",), batches=4, marks=MORE)
        for number, names in enumerate([DIFFERENT[start::4] for start in range(4)], 1)
    },
    "format-1": Plan(FEW, 1, seed=2, acts=("kill",), batches=4, marks=MORE),
    "long-format-2": Plan(EVERY, 2, seed=1, acts=("kill", "restart", "kill-jvm"), batches=10, marks=LONG),
    "long-format-1": Plan(SOME, 1, seed=2, acts=("stop", "kill"), batches=8, marks=LONG),
}
if pyspark.__version__.startswith("4.0."):
    EVERY.remove("limit")  # it fails under checkpoint format 2, on every store
if pyspark.__version__.startswith(("4.0.", "4.1.")):
    PLANS = {
        "oldest": Plan(FEW, 2, seed=4, acts=("restart",), batches=3, marks=ON_OLDER),
        "oldest-every": Plan(
            EVERY,
            2,
            seed=3,
            acts=("restart", "kill"),
            batches=6,
            marks=LONG_ON_OLDER,
        ),
    }
elif pyspark.__version__.startswith("4.2."):
    # The long plan of every operator has its place in `make test-long`; Spark's own suites run on 4.2, too.
    PLANS = {
        "spark-4.2": Plan(
            FEW_OF_OLDER,
            2,
            seed=3,
            acts=("restart",),
            batches=4,
            marks=ON_OLDER,
        ),
        "spark-4.2-every": Plan(
            EVERY,
            2,
            seed=3,
            acts=("restart", "kill"),
            batches=6,
            marks=LONG_ON_OLDER,
        ),
    }


class Histories:
    """Return the histories of the plans, each played once, for the first test that asks for it."""

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
            session_settings.spark_options(self._provider, plan.checkpoint_format, [self._scala_jar]),
            seed=plan.seed,
            acts=list(plan.acts),
            batches=plan.batches,
        )
        try:
            history.play()
            assert history.killed_in_mid_batch >= plan.kills, "a kill hit no running batch"
            assert history.survivors == [], "processes outlived a killed JVM"
        except AssertionError as error:
            return f"the history of {name} failed: {error}"
        finally:
            print(f"{name}:", *history.log, sep="\n")
        return history


@pytest.fixture(scope="module")
def histories(tmp_path_factory, provider, scala_jar) -> Histories:
    return Histories(tmp_path_factory.mktemp("histories"), provider, scala_jar)


@pytest.mark.parametrize(
    ("plan", "name"),
    [pytest.param(plan, name, marks=PLANS[plan].marks) for plan in PLANS for name in PLANS[plan].names],
)
def test_output_is_right_after_stops_and_kills(histories, plan, name):
    history = histories.of(plan)
    sink_comparison.check(history.room, SCENARIOS[name], history.records("events"))
