"""Check of answers against the schema of the API."""

from __future__ import annotations

from typing import Any

from state_store.observe.documents import schema

_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
}
_DEFINITIONS = schema()["$defs"]


def check(answer: Any, definition: str, source: str) -> None:
    """Assert that an answer fits a definition, with only the fields that the source can know."""
    _check(answer, {"$ref": f"#/$defs/{definition}"}, definition, source)


def _check(value: Any, shape: dict[str, Any], place: str, source: str) -> None:
    if "$ref" in shape:
        shape = _DEFINITIONS[shape["$ref"].rpartition("/")[2]]
    kind = shape["type"]
    if kind == "array":
        assert isinstance(value, list), place
        for item in value:
            _check(item, shape["items"], f"{place}[]", source)
    elif kind == "object" and "properties" in shape:
        assert isinstance(value, dict), place
        assert value.keys() <= shape["properties"].keys(), f"{place}: {value.keys()}"
        assert set(shape["required"]) <= value.keys(), f"{place}: {value.keys()}"
        for name, inner in value.items():
            known_by = shape["properties"][name].get("x-sources", [source])
            assert source in known_by, f"{place}.{name} is not known to {source}"
            _check(inner, shape["properties"][name], f"{place}.{name}", source)
    elif kind == "object":
        for name, inner in value.items():
            _check(inner, shape["additionalProperties"], f"{place}.{name}", source)
    else:
        assert isinstance(value, _TYPES[kind]), f"{place} is {value!r}, no {kind}"
        assert kind == "boolean" or not isinstance(value, bool), place
