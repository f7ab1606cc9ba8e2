"""Comparison of a scenario's sink with the required content."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from queries.runs import row_sink
from queries.runs.row_sink import Batch
from queries.runs.running import Room
from queries.scenarios import records
from queries.scenarios.records import Record
from queries.scenarios.scenario import Scenario


def check(room: Room, scenario: Scenario, events: list[list[Record]]) -> None:
    """Raises AssertionError, which shows the rows too many and too few, unless the output is exactly right.

    `events` are the records of each file of the stream of that name.
    """
    error = room.error(scenario.name)
    assert not error.exists(), f"{scenario.name} failed: {error.read_text()}"
    _check_options(room, scenario)
    if scenario.until_state_is_empty:
        _check_balance(_batches(room, scenario), events)
    elif scenario.replay:
        batches = _batches(room, scenario)
        _check_batches(batches, scenario.replay(_read_by(batches, room, events)))
    else:
        expected = [json.loads(line) for line in room.expected(scenario.name).read_text().splitlines()]
        assert expected, "a query without an answer tests nothing"
        _equal(_final(room, scenario), expected)


def _check_options(room: Room, scenario: Scenario) -> None:
    """Check that Spark used the options of the scenario."""
    if scenario.conf:
        log = [
            entry for entry in (room.checkpoint(scenario.name) / "offsets").iterdir() if entry.name.isdigit()
        ]
        pinned = json.loads(log[0].read_text().splitlines()[1])["conf"]
        assert scenario.conf.items() <= pinned.items(), f"{scenario.name} ran with {pinned}"


def _final(room: Room, scenario: Scenario) -> list[dict]:
    if scenario.file_sink:
        return _committed_files(room, scenario)
    batches = _batches(room, scenario)
    if scenario.mode == "complete":
        return batches[-1].rows
    rows = [row for batch in batches for row in batch.rows]
    if scenario.upsert:
        rows = list({tuple(row[column] for column in scenario.upsert): row for row in rows}.values())
    return rows


def _batches(room: Room, scenario: Scenario) -> list[Batch]:
    return row_sink.read_batches(room.output(scenario.name))


def _read_by(batches: list[Batch], room: Room, events: list[list[Record]]) -> list[list[Record]]:
    """The records of each batch, in the order in which Spark reads them.

    A batch is one file, or none; and two, the larger first, when the query was killed after the source had
    noted a file and before the batch began.
    """
    assert batches[-1].last_file == len(events) - 1, "the query has not read all files"
    read, first = [], 0
    for batch in batches:
        files = range(first, batch.last_file + 1)
        by_size = sorted(files, key=lambda file: -_size(room, file))
        read.append([record for file in by_size for record in events[file]])
        first = batch.last_file + 1
    return read


def _size(room: Room, file: int) -> int:
    return (room.input("events") / records.file_name(file)).stat().st_size


def _committed_files(room: Room, scenario: Scenario) -> list[dict]:
    """Return the rows of files in the file sink's log; remains of killed batches do not count."""
    names = set()
    for log in (room.output(scenario.name) / "_spark_metadata").glob("[0-9]*"):
        names |= {
            json.loads(line)["path"].removeprefix("file://") for line in log.read_text().splitlines()[1:]
        }
    texts = [Path(name).read_text() for name in sorted(names)]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def _check_batches(actual: list[Batch], expected: list[list[dict]]) -> None:
    for number, (batch, wanted) in enumerate(zip(actual, expected, strict=True)):
        _equal(batch.rows, wanted, f"in batch {number}: ")


def _check_balance(actual: list[Batch], events: list[list[Record]]) -> None:
    """Processing-time time-outs come at any time, but each record is in one ended group."""
    ended: Counter[tuple[str, str]] = Counter()
    for row in (row for batch in actual for row in batch.rows if row["kind"] != "seen"):
        ended.update({(row["key"], "n"): row["n"], (row["key"], "total"): row["total"]})
    expected: Counter[tuple[str, str]] = Counter()
    for record in (record for batch in events for record in batch):
        expected.update({(record.key, "n"): 1, (record.key, "total"): record.value})
    assert ended == expected
    assert any(row["kind"] == "closed" for batch in actual for row in batch.rows)


def _equal(actual: Iterable[dict], expected: Iterable[dict], where: str = "") -> None:
    have, want = (Counter(json.dumps(row, sort_keys=True) for row in rows) for rows in (actual, expected))
    assert have == want, f"{where}too many: {dict(have - want)}; too few: {dict(want - have)}"
