"""Parser of cron fields, for the check of an option and for the schedule that keeps it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from state_store.core.compat import zip

_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_ITEM = re.compile(r"(?:\*|(\d+)(?:-(\d+))?)(?:/(\d+))?")


@dataclass(frozen=True)
class Cron:
    """Five parsed fields. `weekdays` are 0 (Sunday) to 6.

    If `any_day` or `any_weekday` says that its field is `*`, a date has to fit both fields. Otherwise one
    of them is enough, as in cron.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Return the fields minute, hour, day of month, month and day of week.

        Raises:
            ValueError: The text is no schedule; the message says why.
        """
        parts = text.split()
        if len(parts) != len(_RANGES):
            raise ValueError("five cron fields are needed: minute, hour, day of month, month, day of week")
        fields = [_field(part, low, high) for part, (low, high) in zip(parts, _RANGES, strict=True)]
        minutes, hours, days, months, weekdays = fields
        weekdays = frozenset(day % 7 for day in weekdays)
        return cls(minutes, hours, days, months, weekdays, parts[2] == "*", parts[4] == "*")

    def has_date(self, month: int, day: int, weekday: int) -> bool:
        """Return True if the schedule has a time on that date; `weekday` as in `weekdays`."""
        by_day, by_weekday = day in self.days, weekday in self.weekdays
        fits = by_day and by_weekday if self.any_day or self.any_weekday else by_day or by_weekday
        return month in self.months and fits


def _field(part: str, low: int, high: int) -> frozenset[int]:
    return frozenset(value for item in part.split(",") for value in _item(item, low, high))


def _item(item: str, low: int, high: int) -> range:
    match = _ITEM.fullmatch(item)
    if not match:
        raise ValueError(f"{item!r} is not a cron item: *, 5, 1-5, */10 and lists of these are")
    first = int(match[1]) if match[1] else low
    last = int(match[2]) if match[2] else first if match[1] and not match[3] else high
    step = int(match[3] or 1)
    if not low <= first <= last <= high or step == 0:
        raise ValueError(f"{item!r} is outside {low} to {high}")
    return range(first, last + 1, step)
