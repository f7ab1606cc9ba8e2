"""JSON objects that a checkpoint carries: their format number, and reading and writing by fields.

A type is a dataclass or a named tuple, as `state_store.core.codec` has them.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from state_store.core.codec import Mismatch, fields_to_json, from_json
from state_store.errors import DamagedError, FormatError

FORMAT = 1
"""The only checkpoint format so far; a reader refuses any other."""

T = TypeVar("T")


def decode(cls: type[T], data: bytes, file: str) -> T:
    """Return the object in the bytes of `file`.

    Raises:
        DamagedError: If the bytes are no JSON object, or a field is missing or of another type.
        FormatError: If the object is of a format that this program does not know.
    """
    try:
        fields = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise damaged(file, f"is not JSON ({error})") from error
    try:
        if not isinstance(fields, dict):
            raise Mismatch("is not a JSON object")
        _check_format(fields, file)
        return from_json(cls, fields)
    except Mismatch as error:
        raise damaged(file, str(error)) from error


def encode(document: Any) -> bytes:
    """Return a dataclass, or a dict of fields, as one JSON object in UTF-8, `format` first."""
    fields = document if isinstance(document, dict) else fields_to_json(document)
    text = json.dumps({"format": FORMAT, **fields}, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8")


def damaged(file: str, predicate: str) -> DamagedError:
    """Return an error that says what is wrong with `file`: "it", then `predicate`."""
    return DamagedError(f"'{file}' is damaged: it {predicate}", file=file)


def _check_format(fields: dict[str, Any], file: str) -> None:
    number = fields.get("format")
    if number is None:
        raise Mismatch("lacks the field 'format'")
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise Mismatch(f"has {number!r} as 'format', where a number from 0 up belongs")
    if number != FORMAT:
        raise FormatError(
            f"'{file}' has checkpoint format {number}, this program knows format {FORMAT}: "
            "read it with the version of the program that wrote it, or a newer one",
            file=file,
        )
