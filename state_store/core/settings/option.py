"""Option: its name in Spark's configuration, its type, default, meaning and trade-off.

An `OptionType` parses the text of a value, with a message for the user whose text has none: its parser raises
ValueError whose message completes "is set to X, but ...". `state_store.core.settings.options` declares all
options. Immutable, safe for any thread.
"""

from __future__ import annotations

import math
import re
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from state_store.errors import OptionError

_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_ITEM = re.compile(r"(?:\*|(\d+)(?:-(\d+))?)(?:/(\d+))?")

BYTE_UNITS = {"": 1, "b": 1} | {
    letter + more: 1 << 10 * power
    for power, letter in enumerate("kmgtp", start=1)
    for more in ("", "b", "ib")
}
DURATION_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

MAX_BYTES = (1 << 63) - 1
"""Largest size: the JVM has no larger number."""

MAX_DURATION_MS = 36_500 * DURATION_UNITS_MS["d"]
"""Longest duration, 100 years. No thread can wait for three times as long."""

_LONGEST_MONTHS = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
"""Days of the months that never have 31."""

PREFIX = "spark.sql.streaming.stateStore.incremental."
QUERY = "query"
"""Scope of an option that each query has for itself."""
EXECUTOR = "executor"
"""Scope of an option that all queries on an executor share: it counts as the first of them sets it."""


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
            ValueError: The text is not a schedule; the message says why.
        """
        parts = text.split()
        if len(parts) != len(_RANGES):
            raise ValueError("five cron fields are needed: minute, hour, day of month, month, day of week")
        fields = [_field(part, low, high) for part, (low, high) in zip(parts, _RANGES, strict=True)]
        minutes, hours, days, months, weekdays = fields
        weekdays = frozenset(day % 7 for day in weekdays)
        return cls(minutes, hours, days, months, weekdays, parts[2] == "*", parts[4] == "*")

    @property
    def has_dates(self) -> bool:
        """True if there is a date that fits, in some year."""
        by_day = any(min(self.days) <= _LONGEST_MONTHS.get(month, 31) for month in self.months)
        return by_day or not (self.any_day or self.any_weekday)

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


@dataclass(frozen=True)
class OptionType:
    """A type by name. `parse` reads a text or raises ValueError; `least` is the smallest value, if any."""

    name: str
    unit: str
    parse: Callable[[str], Any]
    least: int | None = None


TOO_LARGE = {
    "size": "a size of less than 8192p is needed",
    "duration": "a duration of 36500d (100 years) or less is needed",
}
"""The words for values that are too large, by the name of the type."""


def _bytes(text: str) -> int:
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.lower())
    if not match or match[2] not in BYTE_UNITS:
        raise ValueError("a size in bytes is needed, such as 512m or 2g")
    value = int(match[1]) * BYTE_UNITS[match[2]]
    if value > MAX_BYTES:
        raise ValueError(TOO_LARGE["size"])
    return value


def _duration_ms(text: str) -> int:
    if text == "0":
        return 0
    match = re.fullmatch(r"([0-9]+)\s*([a-z]+)", text.lower())
    if not match or match[2] not in DURATION_UNITS_MS:
        raise ValueError("a duration with its unit is needed, such as 500ms, 30s, 10min, 1h or 7d")
    value = int(match[1]) * DURATION_UNITS_MS[match[2]]
    if value > MAX_DURATION_MS:
        raise ValueError(TOO_LARGE["duration"])
    return value


def _int(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d+", text):
        raise ValueError("a whole number is needed")
    return int(text)


def _float(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", text):
        raise ValueError("a number of 0 or more is needed, such as 2.5")
    value = float(text)
    if math.isinf(value):
        raise ValueError("a smaller number is needed")
    return value


def _bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false is needed")
    return text.lower() == "true"


def _time_zone(text: str) -> str:
    try:
        zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            "the name of a time zone is needed, such as UTC or Europe/Berlin; "
            "if that is one, this machine lacks it: install the package tzdata"
        ) from None
    return text


def _cron(text: str) -> str:
    if text and not Cron.parse(text).has_dates:
        raise ValueError("none of its months has such a day")
    return " ".join(text.split())


BYTES = OptionType("size", "bytes", _bytes)
DURATION = OptionType("duration", "milliseconds", _duration_ms)
INT = OptionType("integer", "", _int)
FLOAT = OptionType("number", "", _float)
BOOL = OptionType("boolean", "", _bool)
TEXT = OptionType("text", "", str)
TIME_ZONE = OptionType("time zone", "", _time_zone)
CRON = OptionType("cron schedule", "", _cron)


def at_least(base: OptionType, least: int) -> OptionType:
    """Return `base` restricted to values of `least` or more."""

    def parse(text: str) -> Any:
        value = base.parse(text)
        if value < least:
            raise ValueError(too_small(least, base))
        return value

    return OptionType(base.name, base.unit, parse, least)


def too_small(least: int, type_: OptionType) -> str:
    """Return the words for values of a type that are below the least."""
    return f"{_written(least, type_)} or more is needed"


def _written(value: int, type_: OptionType) -> str:
    """Return a value as users write it, in the largest unit that has it as a whole number."""
    units = {BYTES.name: BYTE_UNITS, DURATION.name: DURATION_UNITS_MS}.get(type_.name, {"": 1})
    fitting = {size: unit for unit, size in reversed(units.items()) if value % size == 0}
    size = max(fitting)
    unit = "min" if "min" in units and fitting[size] == "m" else fitting[size]
    return f"{value // size}{unit}"


def one_of(*choices: str) -> OptionType:
    """Return the type of one of some words; case does not matter."""
    by_lower = {choice.lower(): choice for choice in choices}

    def parse(text: str) -> str:
        if text.lower() not in by_lower:
            raise ValueError(f"one of {', '.join(choices)} is needed")
        return by_lower[text.lower()]

    return OptionType(" or ".join(choices), "", parse)


@dataclass(frozen=True)
class Option:
    """Declaration of an option. `default` is a text as users write it; `scope` is QUERY or EXECUTOR."""

    name: str
    type: OptionType
    default: str
    group: str
    doc: str
    trade_off: str
    scope: str = QUERY

    @property
    def key(self) -> str:
        """The full name in Spark's configuration."""
        return PREFIX + self.name

    @property
    def unit(self) -> str:
        """Unit of the value: bytes, milliseconds, or an empty text."""
        return self.type.unit

    def parse(self, text: str) -> Any:
        """Return the value that `text` stands for.

        Raises:
            OptionError: The text has no value of this type; the error names the option.
        """
        try:
            return self.type.parse(text.strip())
        except ValueError as error:
            default = self.default or "empty"
            message = f"option {self.key} is set to {text!r}, but {error}. Its default is {default}."
            raise OptionError(message, option=self.key) from None


def option(
    name: str,
    type: OptionType,
    default: str,
    *,
    group: str,
    doc: str,
    trade_off: str,
    scope: str = QUERY,
) -> Any:
    """Return a field of `Options` that carries its declaration."""
    declared = Option(name, type, default, group, " ".join(doc.split()), " ".join(trade_off.split()), scope)
    return field(default=declared.parse(default), metadata={"option": declared})
