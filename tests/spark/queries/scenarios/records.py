"""Seeded input for the queries: two streams of timestamped records, one file per micro-batch.

Key sets rotate, so that keys fall silent long enough to be evicted or timed out and then come back; some
files are empty or hold a single record; records are out of order within the watermark's delay, and some come
a day late. The last two files of each stream hold one record a day ahead, which closes every window and
evicts every other key.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import asdict, dataclass
from pathlib import Path

SCHEMA = "key string, ts timestamp, value long, id long, late boolean"
DELAY_S = 10
STEP_S = 8
FLUSH = "flush"
_DAY_S = 24 * 3600
_BASE_S = 1_700_000_000
_EMPTY_BATCHES = {5}
_TINY_BATCHES = {3, 8}
_KEYS = 12


@dataclass(frozen=True)
class Record:
    """An input record; `ts` is seconds since the epoch; every watermark must drop `late` records."""

    key: str
    ts: int
    value: int
    id: int
    late: bool = False


def batches(seed: int, count: int) -> list[list[Record]]:
    """Return `count` batches of records, then two that push the watermark beyond all earlier ones."""
    rng = random.Random(seed)
    history = [_batch(rng, number) for number in range(count)]
    end_s = _BASE_S + count * STEP_S + _DAY_S
    return [*history, [_flush(end_s, -1, seed)], [_flush(end_s + 1, -2, seed)]]


def write(directory: Path, history: list[list[Record]], part: slice = slice(None)) -> None:
    """Write one JSON file per batch, of a part of them.

    Modification times are a second apart, because Spark orders files by them.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(len(history))[part]:
        path = directory / file_name(number)
        path.write_text("".join(json.dumps(asdict(record)) + "\n" for record in history[number]))
        os.utime(path, (_BASE_S + number, _BASE_S + number))


def file_name(number: int) -> str:
    return f"{number:04}.json"


def _batch(rng: random.Random, number: int) -> list[Record]:
    if number in _EMPTY_BATCHES:
        return []
    size = 1 if number in _TINY_BATCHES else rng.randint(15, 45)
    active = [key for key in range(_KEYS) if (number // 3 + key) % 3 != 0]
    return [_record(rng, number, rng.choice(active), number * 1000 + place) for place in range(size)]


def _record(rng: random.Random, number: int, key: int, record_id: int) -> Record:
    late = number >= 4 and rng.random() < 0.1
    ts = _BASE_S + number * STEP_S + rng.randint(-6, 4)
    value = rng.choice([0, *range(1, 12)])
    return Record(f"k{key:02}", ts - _DAY_S if late else ts, value, record_id, late)


def _flush(ts: int, record_id: int, seed: int) -> Record:
    return Record(f"{FLUSH}-{seed}", ts, 5, record_id)
