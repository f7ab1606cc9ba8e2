"""A seed says all that can be said before: faults, options and input; the answers follow from the input."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from chaos import input_records
from chaos.life import draw_questions
from chaos.plan import FAULTS_A_LIFE, KINDS, PLACEMENTS, PROFILES, RESTORES, STORAGES, plans
from chaos.questions import QUESTIONS, WITH_PYTHON, note


def test_the_same_seed_makes_the_same_plans():
    assert plans(7, 500) == plans(7, 500)
    assert plans(7, 500) != plans(8, 500)


@pytest.mark.parametrize("faults", [1, 10, 60, 61, 500])
def test_plans_have_as_many_faults_as_asked_for(faults):
    made = plans(3, faults)
    assert sum(len(plan.faults) for plan in made) == faults
    assert max(len(plan.faults) for plan in made) <= FAULTS_A_LIFE


def test_many_faults_meet_every_kind_every_profile_and_both_formats():
    made = plans(1, 500)
    assert {fault.kind for plan in made for fault in plan.faults} == set(KINDS)
    assert {plan.profile for plan in made} == set(PROFILES)
    assert {plan.checkpoint_format for plan in made} == {1, 2}
    assert {plan.placement for plan in made} == set(PLACEMENTS)
    assert {plan.restores for plan in made} == set(RESTORES)


@pytest.mark.parametrize("storage", STORAGES)
def test_every_fault_that_a_storage_has_meets_it(storage):
    made = plans(1, 500, kinds=STORAGES[storage])
    assert {fault.kind for plan in made for fault in plan.faults} == set(STORAGES[storage])


def test_faults_that_last_end_and_no_others_take_time():
    faults = [fault for plan in plans(2, 300, kinds=STORAGES["hdfs"]) for fault in plan.faults]
    assert {fault.lasts for fault in faults} == {True, False}
    assert all((fault.for_s > 0) == fault.lasts for fault in faults)
    assert all(fault.lasts for fault in faults if fault.kind.startswith(("stop-", "starve-")))


def test_a_file_of_the_input_follows_from_seed_and_number():
    assert input_records.records(3, "events", 50) == input_records.records(3, "events", 50)
    assert input_records.records(3, "events", 50) != input_records.records(4, "events", 50)


def test_the_input_has_what_the_queries_are_asked_for():
    """Keys that close, once and for all, and keys that do not; late records; ids that name one record."""
    events = [record for number in range(60) for record in input_records.records(3, "events", number)]
    closed: set[str] = set()
    for number in range(60):
        records = input_records.records(3, "events", number)
        assert not closed & {record.key for record in records}
        closed |= {record.key for record in records if record.last}
    assert 100 < len(closed) < len({record.key for record in events})
    assert any(record.late for record in events)
    assert Counter(record.id for record in events).most_common(1)[0][1] == 1
    assert len({len(note(record.key, 1, 1)) for record in events[:50]}) > 20


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_every_answer_has_output_and_state(question):
    events, answers = (
        [record for number in range(30) for record in input_records.records(3, name, number)]
        for name in input_records.STREAMS
    )
    answer = question.answer(events, answers)
    assert answer.output
    assert set(answer.state) == set(question.sides)
    assert all(answer.state.values())


def test_there_are_python_workers_to_hit_however_few_the_queries():
    drawn = [draw_questions(random.Random(seed), 1, QUESTIONS) for seed in range(50)]
    assert {name for names in drawn for name in names} == WITH_PYTHON
