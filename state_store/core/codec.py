"""Converts dataclasses and named tuples to values that `json` writes, and back, by their fields.

A class says nothing about JSON unless a field has another name there. Then it is decorated:

- `@json_names(size_bytes="bytes")` renames a field;
- `@json_names(version=INLINE)` puts the members of the field's value among those of the class;
- `@json_names(key=OMITTED)` leaves the field out. It has a default if the class is decoded.

A class whose callers ask for its JSON as a method is a `JsonObject`.

Fields are of type `int`, `float`, `str`, `bool`, `Path`, `Any`, `Literal[...]`, a class of this kind, or
`tuple[T, ...]`, `Sequence[T]`, `frozenset[T]` and `Mapping[str, T]` of these. `T | None` may stand outermost.
`int` is a number from 0 to 2^63 - 1; `Positive` begins at 1 and `Signed` at -2^63.

Encoding and decoding are safe for any thread.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

INLINE = ""
"""In `json_names`: the field has no member of its own; the members of its value take its place."""

OMITTED = "\0"
"""In `json_names`: the field is not in JSON."""

Positive = Annotated[int, 1]
"""A number from 1 to 2^63 - 1."""

Signed = Annotated[int, -(1 << 63)]
"""A number from -2^63 to 2^63 - 1."""

_LARGEST = (1 << 63) - 1
_REQUIRED: Any = object()
_NAMES = "__json_names__"

T = TypeVar("T")


class Mismatch(ValueError):
    """A value that does not fit its type; the message is a predicate: "lacks the field 'keys'"."""


class _Field(NamedTuple):
    """A field: its attribute, its name in JSON, how to decode it, and its value where it is absent."""

    attribute: str
    name: str
    decode: Callable[[Any, str], Any]
    default: Any


def json_names(**names: str) -> Callable[[type[T]], type[T]]:
    """Return a class decorator that gives fields other names in JSON, or `INLINE` or `OMITTED`."""

    def decorate(cls: type[T]) -> type[T]:
        setattr(cls, _NAMES, names)
        return cls

    return decorate


class JsonObject:
    """Base of dataclasses with a method `to_json`, which writes their fields."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as values for JSON."""
        return fields_to_json(self)


def to_json(value: Any) -> Any:
    """Return `value` as dicts, lists, texts, numbers, booleans and None.

    Sets are sorted. An object with a method `to_json` encodes itself.

    Raises:
        TypeError: If `value` holds something that has no form in JSON.
    """
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "to_json"):
        return value.to_json()
    if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        return fields_to_json(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(member) for key, member in value.items()}
    if isinstance(value, (set, frozenset)):
        return [to_json(member) for member in sorted(value)]
    if isinstance(value, Collection) and not isinstance(value, (bytes, bytearray)):
        return [to_json(member) for member in value]
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def fields_to_json(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass or a named tuple as a JSON object, even if it has `to_json` itself."""
    members: dict[str, Any] = {}
    for attribute, name in _names(type(value)):  # type: ignore[arg-type]
        if name == OMITTED:
            continue
        member = to_json(getattr(value, attribute))
        if name != INLINE:
            members[name] = member
        elif member is not None:
            members.update(member)
    return members


def from_json(cls: type[T], members: Any) -> T:
    """Return the instance of `cls` that a JSON object describes.

    Null counts as absent. An absent field has its default, or None if its type allows that. Members that
    `cls` does not have are ignored.

    Args:
        cls: A dataclass or a named tuple.
        members: The JSON object, as `json.loads` returns it.

    Raises:
        Mismatch: If a member is missing, or is not of its field's type.
    """
    if not isinstance(members, dict):
        raise Mismatch("is not a JSON object")
    values = {}
    for field in _fields(cls):  # type: ignore[arg-type]
        if field.name == OMITTED:
            continue
        value = members if field.name == INLINE else members.get(field.name)
        if value is not None:
            values[field.attribute] = field.decode(value, field.name)
        elif field.default is not _REQUIRED:
            values[field.attribute] = field.default
        else:
            raise Mismatch(f"lacks the field '{field.name}'")
    return cls(**values)


@functools.cache
def _names(cls: Any) -> tuple[tuple[str, str], ...]:
    """Return the attributes of a class and their names in JSON."""
    renamed: Mapping[str, str] = getattr(cls, _NAMES, {})
    return tuple((attribute, renamed.get(attribute, attribute)) for attribute, _ in _defaults(cls))


@functools.cache
def _fields(cls: Any) -> tuple[_Field, ...]:
    names, annotations = dict(_names(cls)), typing.get_type_hints(cls, include_extras=True)
    fields = []
    for attribute, default in _defaults(cls):
        annotation, is_optional = _without_none(annotations[attribute])
        if default is _REQUIRED and is_optional:
            default = None
        fields.append(_Field(attribute, names[attribute], _decoder(annotation), default))
    return tuple(fields)


def _defaults(cls: Any) -> list[tuple[str, Any]]:
    """Return the name and the default of each field."""
    if not dataclasses.is_dataclass(cls):
        return [(name, cls._field_defaults.get(name, _REQUIRED)) for name in cls._fields]
    defaults = []
    for field in dataclasses.fields(cls):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        defaults.append((field.name, _REQUIRED if default is dataclasses.MISSING else default))
    return defaults


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """Return the `T` of `T | None` and True; any other annotation and False."""
    kinds = typing.get_args(annotation)
    if type(None) not in kinds:
        return annotation, False
    (required,) = (kind for kind in kinds if kind is not type(None))
    return required, True


def _decoder(annotation: Any) -> Callable[[Any, str], Any]:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any:
        return lambda value, name: value
    if annotation is int:
        return functools.partial(_integer, 0)
    if origin is Annotated:
        return functools.partial(_integer, arguments[1])
    if annotation is float:
        return functools.partial(_instance, (float, int))
    if annotation in (str, bool):
        return functools.partial(_instance, (annotation,))
    if annotation is Path:
        return lambda value, name: Path(_instance((str,), value, name))
    if origin is Literal:
        return functools.partial(_choice, arguments)
    if origin in (tuple, frozenset, list, Sequence):
        return functools.partial(
            _members, frozenset if origin is frozenset else tuple, _decoder(arguments[0])
        )
    if origin in (dict, Mapping):
        return functools.partial(_mapping, _decoder(arguments[1]))
    return functools.partial(_object, annotation)


def _object(cls: type, value: Any, name: str) -> Any:
    return from_json(cls, value if name == INLINE else _instance((dict,), value, name))


def _integer(least: int, value: Any, name: str) -> int:
    _instance((int,), value, name)
    if not least <= value <= _LARGEST:
        raise Mismatch(f"has {value!r} as '{name}', where a number from {least} up belongs")
    return int(value)


def _instance(kinds: tuple[type, ...], value: Any, name: str) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise Mismatch(f"has {type(value).__name__} as '{name}', where {kinds[0].__name__} belongs")
    return value


def _choice(choices: tuple[Any, ...], value: Any, name: str) -> Any:
    if value not in choices:
        choice_texts = " or ".join(repr(choice) for choice in choices)
        raise Mismatch(f"has {value!r} as '{name}', where {choice_texts} belongs")
    return value


def _members(collection: type, decode: Callable[[Any, str], Any], value: Any, name: str) -> Any:
    return collection(decode(member, name) for member in _instance((list,), value, name))


def _mapping(decode: Callable[[Any, str], Any], value: Any, name: str) -> dict[str, Any]:
    return {key: decode(member, name) for key, member in _instance((dict,), value, name).items()}
