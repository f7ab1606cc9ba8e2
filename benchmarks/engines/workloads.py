"""The work that each engine does, and the files by which a job tells how far it is.

Row number i is one of a round of `keys` rows. In the workload `counter` its key is its place in the round. A
key keeps a count and a sum, and how often each of three steps occurred; each row gives a row out: key, count,
sum. `frames` is the same for functions on frames.

In `sessions` each place belongs to two keys, which take turns of six rounds. The events of a turn are near
to each other and are a session; then the key is silent for longer than the gap that ends it. A key keeps the
list of its session's events, and a timer in event time closes the session, which gives a row out: key, count
and sum of the events, moment of the last. If the key's next event is there before the timer, it closes it.

This module runs in the environment of every engine, so it needs the standard library alone.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

COUNTER, FRAMES, SESSIONS = "counter", "frames", "sessions"
SPEED, OUTPUTS, LATENCY = "speed", "outputs", "latency"
"""Purposes of a job: outputs are discarded, kept and summed up, or the moment of each is noted."""

MARKS, FIRST = "marks", "first"
SUMMARY, MOMENTS = "outputs.json", "moments"

FIRST_MS, ROUND_MS, GAP_MS = 1_700_000_000_000, 10_000, 25_000
TURN = 6
"""Rounds of a turn, and so the events of a session."""


def options(description: str | None) -> argparse.Namespace:
    """Return the options of a job's command line; its directory may have the files of an earlier life."""
    parser = argparse.ArgumentParser(description=description)
    add_rows(parser)
    parser.add_argument("--form", required=True)
    parser.add_argument("--batches", type=int, required=True)
    parser.add_argument("--root", type=Path, required=True, help="directory for all files of the job")
    parser.add_argument("--purpose", choices=[SPEED, OUTPUTS, LATENCY], default=SPEED)
    parser.add_argument("--checkpoint-s", type=int, default=5, help="between checkpoints, without batches")
    parser.add_argument("--batch-s", type=int, default=0, help="least seconds for the rows of a batch")
    parser.add_argument("--port", type=int, help="port on which rows arrive, if their purpose is latency")
    parser.add_argument("--broker", help="address of Kafka")
    parser.add_argument("--topic")
    asked = parser.parse_args()
    (asked.root / MARKS).mkdir(parents=True, exist_ok=True)
    return asked


def add_rows(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which rows there are."""
    parser.add_argument("--workload", choices=[COUNTER, FRAMES, SESSIONS], default=COUNTER)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True, help="rows of a batch")


def counter_row(number: Any, keys: int) -> tuple[Any, Any]:
    """Return key and value of a row of the counter; sums of the values are exact in any order.

    Args:
        number: the number of the row, or an array of them, as in `session_row`.
        keys: the number of keys.
    """
    key = number % keys
    return key, key % 97 + 0.5


def session_row(number: Any, keys: int) -> tuple[Any, Any, Any]:
    """Return key, value and moment (in ms) of an event; moments ascend with the numbers."""
    place, turn = number % keys, number // keys
    moment_ms = FIRST_MS + turn * ROUND_MS + place * ROUND_MS // keys
    return 2 * place + (turn + place) // TURN % 2, number % 97 + 0.5, moment_ms


def step_of(count: int) -> int:
    """Return the step that a count belongs to."""
    return count // 2 % 3


class Progress:
    """A counter of rows that leaves a file at the end of each batch."""

    def __init__(self, root: Path, rows: int) -> None:
        self._marks = root / MARKS
        self._rows = rows
        self._left = rows
        self._batch = 0

    def add(self) -> None:
        """Count a row."""
        self._left -= 1
        if not self._left:
            (self._marks / str(self._batch)).touch()
            self._batch += 1
            self._left = self._rows


class Outputs:
    """The outputs of a job; the first leaves a file."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._asked = asked
        self._outputs: list[Sequence[float]] = []

    def add(self, output: Sequence[float]) -> None:
        """Keep an output: its numbers, the key first."""
        if not self._outputs:
            (self._asked.root / FIRST).touch()
        self._outputs.append(output)

    @property
    def are_complete(self) -> bool:
        """Return True if there are as many outputs as rows."""
        return len(self._outputs) >= self._asked.rows * self._asked.batches

    def write(self) -> None:
        """Write a summary of all outputs, and one of the last output of each key.

        Sessions that only the end of the input closes are left out: engines differ in whether they do.
        """
        outputs = self._outputs
        if self._asked.workload == SESSIONS:
            last_batch = session_row(self._asked.rows * (self._asked.batches - 1), self._asked.keys)
            outputs = [output for output in outputs if output[3] + 3 * GAP_MS < last_batch[2]]
        last = {output[0]: output for output in sorted(outputs)}
        texts = {**summary(outputs), "last": summary(last.values())}
        (self._asked.root / SUMMARY).write_text(json.dumps(texts))


class Moments(Outputs):
    """The moment at which each output of the counter was there."""

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__(asked)
        self._numbers, self._moments_s = array("q"), array("d")

    def add(self, output: Sequence[float]) -> None:
        """Note an output: its key and count tell the number of the row."""
        if not self._numbers:
            (self._asked.root / FIRST).touch()
        self._moments_s.append(time.monotonic())
        self._numbers.append(int((output[1] - 1) * self._asked.keys + output[0]))

    @property
    def are_complete(self) -> bool:
        """Return True if there are as many outputs as rows."""
        return len(self._numbers) >= self._asked.rows * self._asked.batches

    def write(self) -> None:
        """Write the moments in the order of the rows."""
        ordered = array("d", [0.0]) * len(self._numbers)
        for number, moment_s in zip(self._numbers, self._moments_s, strict=True):
            ordered[number] = moment_s
        (self._asked.root / MOMENTS).write_bytes(ordered.tobytes())


def outputs_of(asked: argparse.Namespace) -> Outputs | None:
    """Return what takes the outputs of a job; None if they are discarded."""
    takers = {SPEED: None, OUTPUTS: Outputs, LATENCY: Moments}
    taker = takers[asked.purpose]
    return taker(asked) if taker is not None else None


def last_of_counter(keys: int, rows: int) -> dict[str, int]:
    """Return the summary of the last output of each key of the counter after as many rows."""
    return summary((key, rows // keys, rows // keys * counter_row(key, keys)[1]) for key in range(keys))


def summary(outputs: Iterable[Sequence[float]]) -> dict[str, int]:
    """Return the number of outputs and a checksum that does not depend on their order."""
    count = total = 0
    for output in outputs:
        count += 1
        total += zlib.crc32(",".join(f"{number:.1f}" for number in output).encode())
    return {"rows": count, "checksum": total}
