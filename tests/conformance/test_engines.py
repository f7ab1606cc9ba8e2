"""Both engines live through the same histories with the same answers; each goes on from the other's files.

One machine draws the histories; a dict says what the answers must be. `--hypothesis-seed=N` repeats a run.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from driver import Jvm
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from conformance.engines import EMPTY, EmbeddedEngine, Engine, JvmEngine
from state_store.core.checkpoint.names import VersionId

pytestmark = pytest.mark.spark

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
KEYS = st.one_of(TEXTS, st.sampled_from(["", "a", "ab", "b", "\x00", "\uffff", "k" * 300]))
VALUES = st.one_of(TEXTS, st.integers(0, 9).map(lambda number: f"{number}" * 5000))
WALK = settings(
    max_examples=6, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
LONG_WALK = settings(WALK, max_examples=150, stateful_step_count=60)


class Side:
    """A directory, the engine that works on it now, and its versions, as the machine counts them."""

    def __init__(self, directory: Path, make: Callable[[Path], Engine]) -> None:
        self.directory = directory
        self.engine = make(directory)
        self.versions = [EMPTY]


class Engines(RuleBasedStateMachine):
    """Every step is made in both engines. `self.states` has the rows of every version, by the same number."""

    def __init__(self, jvm: Jvm) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="conformance-"))
        makes: list[Callable[[Path], Engine]] = [lambda directory: JvmEngine(jvm, directory), EmbeddedEngine]
        self.makes = makes
        self.sides = [Side(self.root / str(number) / "0" / "0", make) for number, make in enumerate(makes)]
        self.states: list[dict[str, str]] = [{}]
        self.at = 0
        self.rows: dict[str, str] = {}

    @rule(key=KEYS, value=VALUES)
    def put(self, key: str, value: str) -> None:
        for side in self.sides:
            side.engine.put(key, value)
        self.rows[key] = value

    @rule(key=KEYS)
    def remove(self, key: str) -> None:
        for side in self.sides:
            side.engine.remove(key)
        self.rows.pop(key, None)

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), removed=st.booleans())
    def change_one_that_is_there(self, data: st.DataObject, removed: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.rows)))
        if removed:
            self.remove(key)
        else:
            self.put(key, "changed " + self.rows[key][:10])

    @rule(key=KEYS)
    def get(self, key: str) -> None:
        for side in self.sides:
            assert side.engine.get(key) == self.rows.get(key)

    @rule()
    def scan(self) -> None:
        for side in self.sides:
            assert side.engine.scan() == self.rows

    @rule(merge=st.sampled_from([False, False, True]))
    def commit(self, merge: bool) -> None:
        for side in self.sides:
            side.versions.append(side.engine.commit(merge=merge))
        numbers = {side.versions[-1].number for side in self.sides}
        assert len(numbers) == 1
        self.states.append(dict(self.rows))
        self.at = len(self.states) - 1

    @rule()
    def commit_nothing(self) -> None:
        self.abort()
        self.commit(merge=False)

    @rule()
    def abort(self) -> None:
        for side in self.sides:
            side.engine.abort()
        self.rows = dict(self.states[self.at])

    @precondition(lambda self: len(self.states) > 1)
    @rule(data=st.data())
    def load(self, data: st.DataObject) -> None:
        """Back to any version: a batch that runs again."""
        self.at = data.draw(st.integers(1, len(self.states) - 1))
        for side in self.sides:
            side.engine.load(side.versions[self.at])
        self.rows = dict(self.states[self.at])
        self.scan()

    @precondition(lambda self: self.at > 0)
    @rule()
    def change_sides(self) -> None:
        """Each engine goes on from what the other has committed."""
        for side in self.sides:
            side.engine.close()
        self.makes.reverse()
        for side, make in zip(self.sides, self.makes, strict=True):
            side.engine = make(side.directory)
            side.engine.load(side.versions[self.at])
        self.rows = dict(self.states[self.at])
        self.scan()

    def teardown(self) -> None:
        try:
            for side in self.sides:
                for number, version in enumerate(side.versions):
                    if version != EMPTY:
                        reader = EmbeddedEngine(side.directory)
                        reader.load(version)
                        assert reader.scan() == self.states[number]
                        reader.close()
        finally:
            for side in self.sides:
                side.engine.close()
            shutil.rmtree(self.root, ignore_errors=True)


@pytest.mark.tier("more")
def test_the_same_histories_have_the_same_answers(jvm: Jvm) -> None:
    run_state_machine_as_test(lambda: Engines(jvm), settings=WALK)


@pytest.mark.tier("long")
@pytest.mark.timeout(1800)
def test_many_histories_have_the_same_answers(jvm: Jvm) -> None:
    run_state_machine_as_test(lambda: Engines(jvm), settings=LONG_WALK)


def test_a_row_is_what_spark_makes_of_it(jvm: Jvm, tmp_path: Path) -> None:
    """Texts of every length modulo a word, written by one engine and read by the other."""
    rows = {"x" * length: "y" * (17 - length) for length in range(18)} | {"ünï": "∅\U0001f600"}
    for number, (make, other) in enumerate([(JvmEngine, EmbeddedEngine), (EmbeddedEngine, JvmEngine)]):
        location = tmp_path / str(number) / "0" / "0"
        writer = _make(make, jvm, location)
        for key, value in rows.items():
            writer.put(key, value)
        version: VersionId = writer.commit()
        writer.close()
        reader = _make(other, jvm, location)
        reader.load(version)
        assert reader.scan() == rows
        reader.close()


def _make(kind: type, jvm: Jvm, location: Path) -> Engine:
    return kind(jvm, location) if kind is JvmEngine else kind(location)
