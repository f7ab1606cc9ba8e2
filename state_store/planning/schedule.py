"""Times at which full checkpoints are due: a fixed interval, or cron fields in a time zone, both with jitter.

The jitter of a store is a fixed share of the longest delay, from a hash of what names it, so that partitions
do not rewrite their state all at once, and each keeps its own time. Pure functions.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_LONGEST_DAYS = 366 * 5


def jitter_ms(longest_ms: int, *names: object) -> int:
    """A delay from 0 to `longest_ms` (excluded, unless 0) that only depends on the names."""
    digest = hashlib.sha256("/".join(map(str, names)).encode("utf-8")).digest()
    return int.from_bytes(digest[:8], "big") * longest_ms >> 64


def last_occurrence_ms(cron: str, zone: str, now_ms: int) -> int | None:
    """The latest time at or before `now_ms` (milliseconds since 1970 UTC) that the five fields name.

    None when there is none within five years. An hour that daylight saving skips does not occur, one that it
    repeats occurs twice.
    """
    minutes, hours, days, months, weekdays = _fields(cron)
    any_day, any_weekday = cron.split()[2] == "*", cron.split()[4] == "*"
    now = datetime.fromtimestamp(now_ms / 1000, ZoneInfo(zone))
    for back in range(_LONGEST_DAYS):
        date = now.date() - timedelta(days=back)
        by_day, by_weekday = date.day in days, date.isoweekday() % 7 in weekdays
        fits = by_day and by_weekday if any_day or any_weekday else by_day or by_weekday
        if date.month not in months or not fits:
            continue
        times = [
            _to_ms(datetime(date.year, date.month, date.day, hour, minute, fold=fold, tzinfo=ZoneInfo(zone)))
            for hour in hours
            for minute in minutes
            for fold in (0, 1)
        ]
        past = [time for time in times if time is not None and time <= now_ms]
        if past:
            return max(past)
    return None


@lru_cache(maxsize=64)
def _fields(cron: str) -> tuple[frozenset[int], ...]:
    parts = cron.split()
    fields = [_field(part, low, high) for part, (low, high) in zip(parts, _RANGES, strict=True)]
    fields[4] = frozenset(day % 7 for day in fields[4])
    return tuple(fields)


def _field(part: str, low: int, high: int) -> frozenset[int]:
    values: set[int] = set()
    for item in part.split(","):
        span, _, step = item.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            start, end = low, high
        else:
            start = int(first)
            end = int(last) if last else (high if step else start)
        values.update(range(start, end + 1, int(step or 1)))
    return frozenset(values)


def _to_ms(local: datetime) -> int | None:
    """None for a local time that does not exist."""
    utc = local.timestamp()
    back = datetime.fromtimestamp(utc, local.tzinfo)
    same = (back.hour, back.minute) == (local.hour, local.minute)
    return int(utc * 1000) if same else None
