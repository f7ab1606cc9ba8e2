"""Compares what queries wrote, and what their state holds, with what should be there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable

from chaos import input_records, sink, state_rows
from chaos.life import Life
from chaos.life_places import output_of
from chaos.questions import QUESTIONS, Question
from state_store.errors import StateStoreError

Rows = list[tuple]


def check(life: Life) -> None:
    """Raise AssertionError, which says what is too much and what is too little, for all queries at once."""
    inputs = {
        name: [
            record
            for number in range(life.files)
            for record in input_records.records(life.plan.seed, name, number)
        ]
        for name in input_records.STREAMS
    }
    wrong = []
    for name in life.questions:
        question = QUESTIONS[name]
        answer = question.answer(inputs["events"], inputs["answers"])
        for written_to in sink.outputs_of(name, question.actions):
            wrong += sink.repeated(output_of(life.checkpoints.own_uri), written_to)
            output = _output(question, life, written_to)
            wrong += difference(f"output of {written_to}", output, answer.output)
        for side in question.sides:
            written = life.room / "state" / f"{name}-{side}.json"
            expected = answer.state[side]
            assert expected, f"a query without state tests nothing: {name}, {side}"
            subject = f"state of {name} {side}".rstrip()
            wrong += difference(f"{subject}, by Spark", state_rows.by_spark(written), expected)
            try:
                rows = state_rows.by_state_store(life.checkpoint(name), side, written)
            except StateStoreError as error:
                wrong.append(f"{subject}, by state_store: {error}")
            else:
                wrong += difference(f"{subject}, by state_store", rows, expected)
        wrong += _verified(life.checkpoint(name))
    assert not wrong, "\n".join(wrong)


def _output(question: Question, life: Life, written_to: str) -> Rows:
    batches = sink.read_batches(output_of(life.checkpoints.own_uri), written_to)
    newest = life.committed(question.name)
    assert len(batches) == newest + 1, f"{written_to} has {len(batches)} batches of {newest + 1}"
    rows = [row for batch in batches for row in batch]
    if question.upsert:
        rows = list({row[: question.upsert]: row for row in rows}.values())
    return rows


def difference(subject: str, actual: Iterable[tuple], expected: Iterable[tuple]) -> list[str]:
    """Return a line if the rows are not the same, each as often."""
    have, want = Counter(actual), Counter(expected)
    if have == want:
        return []
    many, few = have - want, want - have
    surplus = f"{many.total()} rows too many, such as {_some(many)}"
    return [f"{subject}: {surplus}; {few.total()} too few, such as {_some(few)}"]


def _some(rows: Counter[tuple]) -> str:
    return str([repr(row)[:200] for row in sorted(rows, key=repr)[:3]])


def _verified(checkpoint: str) -> list[str]:
    """Return the findings of `state-store verify`."""
    command = [sys.executable, "-m", "state_store.cli", "verify", checkpoint, "--all-versions", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        findings = [finding for store in json.loads(done.stdout)["stores"] for finding in store["findings"]]
    except ValueError:
        findings = [done.stdout, done.stderr]
    if done.returncode == 0 and not findings:
        return []
    return [f"state-store verify {checkpoint} ended with {done.returncode}: {findings}"]
