"""The input: two streams of records, of which each file follows from the seed and its number.

A key opens in one file, is silent or not in those that follow, and closes for good with its last record; some
never close. Events are out of order within the watermark's delay, and from `LATE_FROM` on some come a day
late. Nothing depends on how Spark divides the files into batches.
"""

from __future__ import annotations

import functools
import json
import os
import random
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

SCHEMA = "key string, ts timestamp, value long, id long, last boolean, late boolean"
DELAY_S = 30
STEP_S = 10
STREAMS = ("events", "answers")
LATE_FROM = 40
"""The number of the first file with late records: the watermark has moved by then, however large the
batches are."""

_BASE_S = 1_700_000_000
_DAY_S = 86_400
_OPENED_A_FILE = 12
_MAX_LIFE = 30
_IMMORTAL = 8


@dataclass(frozen=True)
class Record:
    """A record; `ts` is seconds since the epoch, `last` closes the key."""

    key: str
    ts: int
    value: int
    id: int
    last: bool = False
    late: bool = False


def records(seed: int, stream: str, number: int) -> list[Record]:
    """Return the records of file `number` of that stream."""
    rng = random.Random(f"{seed}/{stream}/{number}")
    made = []
    for key, closes in _open_keys(seed, number):
        is_last = closes == number
        chance = 0.4 if closes >= 0 else 0.05
        if is_last or key[1] == number or rng.random() < chance:
            late = number >= LATE_FROM and not is_last and rng.random() < 0.03
            ts = _BASE_S + number * STEP_S + rng.randint(-20, 9) - (_DAY_S if late else 0)
            record_id = number * 10_000 + len(made)
            name = f"k{key[1]:05}-{key[0]:02}"
            made.append(Record(name, ts, rng.randint(0, 9), record_id, is_last, late))
    rng.shuffle(made)
    return made


def _open_keys(seed: int, number: int) -> Iterator[tuple[tuple[int, int], int]]:
    """The keys that are open in a file: (place, the file that opens it), and the file that closes it; -1:
    none does.
    """
    for place in range(_OPENED_A_FILE):
        first = 0 if place % _IMMORTAL == 0 else max(0, number - _MAX_LIFE)
        for opens in range(first, number + 1):
            closes = -1 if place % _IMMORTAL == 0 else opens + _life(seed, opens, place)
            if closes < 0 or number <= closes:
                yield (place, opens), closes


@functools.lru_cache(maxsize=100_000)
def _life(seed: int, opens: int, place: int) -> int:
    return 1 + zlib.crc32(f"{seed}/{opens}/{place}".encode()) % _MAX_LIFE


def write(directory: Path, seed: int, stream: str, number: int) -> None:
    """Add a file to the input, whole or not at all; Spark reads files in the order of their times."""
    directory.mkdir(parents=True, exist_ok=True)
    fresh = directory / f".{number:05}.json"
    lines = (json.dumps(asdict(record)) for record in records(seed, stream, number))
    fresh.write_text("".join(line + "\n" for line in lines))
    os.utime(fresh, (_BASE_S + number, _BASE_S + number))
    fresh.replace(directory / fresh.name[1:])
