"""Fields of answers: a type, a unit and a meaning each, declared once.

An answer is a frozen dataclass whose fields are made with `declared`. A field that a source does not know is
None in Python and absent in JSON, never 0. Safe for any thread.
"""

from __future__ import annotations

from dataclasses import MISSING, field, fields, is_dataclass
from typing import Any

DRIVER = "driver"
"""The tab of a running application, which hears of each commit and merge from the executors."""

HISTORY = "history"
"""The History Server, which reads the events of an application that has ended."""

SERVE = "serve"
"""`state-store serve` and `state-store doctor`, which read the files in checkpoint storage."""

EVERYWHERE = (DRIVER, HISTORY, SERVE)
RUNNING = (DRIVER, HISTORY)


def declared(
    meaning: str,
    *,
    sources: tuple[str, ...] = EVERYWHERE,
    name: str | None = None,
    default: Any = MISSING,
) -> Any:
    """Declare a field of an answer.

    Args:
        meaning: a sentence for the reference page.
        sources: the sources that can know the field; it is absent in answers of the others.
        name: the name in JSON; None: the name in Python.
        default: the value where none is given. A field without one is in every answer.

    Returns:
        A dataclass field.
    """
    metadata = {"meaning": meaning, "sources": sources, "name": name}
    if default is MISSING:
        return field(metadata=metadata)
    if isinstance(default, (list, dict)):
        made = type(default)
        return field(default_factory=made, metadata=metadata)
    return field(default=default, metadata=metadata)


def to_json(value: Any) -> Any:
    """Return an answer as JSON values; fields that are None are left out.

    Args:
        value: a dataclass of this model, or a list, dict, number, text or None.

    Returns:
        Dicts, lists and plain values, which `json.dumps` takes.
    """
    if is_dataclass(value):
        found = {
            (entry.metadata.get("name") or entry.name): getattr(value, entry.name) for entry in fields(value)
        }
        return {name: to_json(inner) for name, inner in found.items() if inner is not None}
    if isinstance(value, (list, tuple)):
        return [to_json(inner) for inner in value]
    if isinstance(value, dict):
        return {name: to_json(inner) for name, inner in value.items() if inner is not None}
    return value
