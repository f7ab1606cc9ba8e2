"""Parser of options from the texts that Spark hands over, and their values by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields
from decimal import Decimal
from typing import Any

from state_store.core.settings.option import PREFIX, Option
from state_store.core.settings.options import OPTIONS, Options
from state_store.errors import OptionError

_ATTRIBUTES: dict[str, tuple[str, Option]] = {
    attribute.metadata["option"].name: (attribute.name, attribute.metadata["option"])
    for attribute in fields(Options)
}


def parse(texts: Mapping[str, str]) -> Options:
    """Return the options from texts by name, with or without `PREFIX`; others have their defaults.

    Raises:
        OptionError: A name does not exist (the message has the nearest one), a text is not of the type of
            its option, or values contradict each other.
    """
    values: dict[str, Any] = {}
    for name, text in texts.items():
        attribute, declared = _find(name.removeprefix(PREFIX))
        values[attribute] = declared.parse(text)
    options = Options(**values)
    _check(options)
    return options


def options(*names: str) -> tuple[Option, ...]:
    """Return the declarations of options: name, type, unit, default, meaning and trade-off of each.

    Args:
        names: options by name, with or without the prefix that they have in Spark. `NAME=VALUE` checks a
            value, as the start of a query does. Default: all options.

    Raises:
        OptionError: there is no such option, or the value is not of its type.
    """
    return tuple(map(_declared, names)) if names else OPTIONS


def _declared(given: str) -> Option:
    if not isinstance(given, str):
        raise OptionError(f"the name of an option is a text, not {given!r}")
    name, equals, value = given.partition("=")
    name = name.removeprefix(PREFIX)
    _, option = _find(name)
    if equals:
        parse({name: value})
    return option


def by_name(options: Options) -> dict[str, Any]:
    """Return the values by the names of options, as the agent's answer to `open` has them."""
    return {name: getattr(options, attribute) for name, (attribute, _) in _ATTRIBUTES.items()}


def changed_texts(options: Options) -> dict[str, str]:
    """Return those that differ from their defaults, as texts that `parse` takes, by name."""
    defaults = Options()
    values = {
        name: (declared, getattr(options, attribute), getattr(defaults, attribute))
        for name, (attribute, declared) in _ATTRIBUTES.items()
    }
    return {
        name: _text(declared, value)
        for name, (declared, value, default) in values.items()
        if value != default
    }


def _text(declared: Option, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{Decimal(repr(value)):f}"  # without an exponent
    return f"{value}ms" if declared.unit == "milliseconds" else str(value)


def _find(name: str) -> tuple[str, Option]:
    if name in _ATTRIBUTES:
        return _ATTRIBUTES[name]
    lowered = {known.lower(): known for known in _ATTRIBUTES}
    nearest = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    hint = (
        f"The nearest is {PREFIX}{lowered[nearest[0]]}."
        if nearest
        else "`state-store options` lists all that exist."
    )
    raise OptionError(f"there is no option {PREFIX}{name}. {hint}", option=PREFIX + name)


def _check(options: Options) -> None:
    if options.lease_expiry_ms <= options.merge_timeout_ms:
        raise OptionError(
            f"option {PREFIX}leaseExpiry ({options.lease_expiry_ms} ms) must be longer than "
            f"{PREFIX}mergeTimeout ({options.merge_timeout_ms} ms), or the files of a running merge could be "
            "deleted. Raise the first or lower the second.",
            option=PREFIX + "leaseExpiry",
        )
