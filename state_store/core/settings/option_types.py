"""Types of option values: parsers of texts, with messages for users whose text is none.

Parsers raise ValueError whose message completes "is set to X, but ...". Immutable, safe for any thread.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from state_store.core.settings.cron import Cron

BYTE_UNITS = {"": 1, "b": 1} | {
    letter + more: 1 << 10 * power
    for power, letter in enumerate("kmgtp", start=1)
    for more in ("", "b", "ib")
}
DURATION_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class OptionType:
    """A type by name. `parse` reads a text or raises ValueError; `least` is the smallest value, if any."""

    name: str
    unit: str
    parse: Callable[[str], Any]
    least: int | None = None


def _bytes(text: str) -> int:
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.lower())
    if not match or match[2] not in BYTE_UNITS:
        raise ValueError("a size in bytes is needed, such as 512m or 2g")
    return int(match[1]) * BYTE_UNITS[match[2]]


def _duration_ms(text: str) -> int:
    if text == "0":
        return 0
    match = re.fullmatch(r"([0-9]+)\s*([a-z]+)", text.lower())
    if not match or match[2] not in DURATION_UNITS_MS:
        raise ValueError("a duration with its unit is needed, such as 500ms, 30s, 10min, 1h or 7d")
    return int(match[1]) * DURATION_UNITS_MS[match[2]]


def _int(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d+", text):
        raise ValueError("a whole number is needed")
    return int(text)


def _float(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", text):
        raise ValueError("a number of 0 or more is needed, such as 2.5")
    return float(text)


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
    if text:
        Cron.parse(text)
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
            raise ValueError(f"{least}{' ' + base.unit if base.unit else ''} or more is needed")
        return value

    return OptionType(base.name, base.unit, parse, least)


def one_of(*choices: str) -> OptionType:
    """Return the type of one of some words; case does not matter."""
    by_lower = {choice.lower(): choice for choice in choices}

    def parse(text: str) -> str:
        if text.lower() not in by_lower:
            raise ValueError(f"one of {', '.join(choices)} is needed")
        return by_lower[text.lower()]

    return OptionType(" or ".join(choices), "", parse)
