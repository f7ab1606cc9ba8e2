"""Documents written from the declarations: JSON schema, OpenAPI, and rules and metrics as data.

    python -m state_store.observe.model.documents [CHECKOUT]

The documents lie among the resources of the jar. `make docs` writes them; a test compares. Python 3.10 and
later.
"""

from __future__ import annotations

import inspect
import json
import sys
import types
from collections.abc import Iterator
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from state_store import __version__
from state_store.observe.model import rest_answers, rules
from state_store.observe.model.endpoints import API, ENDPOINTS, Endpoint
from state_store.observe.model.metrics import LABELS, MAX_STORES, METRICS
from state_store.observe.model.rest_answers import EVERYWHERE
from state_store.observe.model.rules import MAX_KEYS, OPERATOR_WORDS, RULES

DIRECTORY = "jvm_bridge/resources/state-store/v1"
"""Directory of the documents in a checkout; in the jar they are below `state-store/v1`."""

_PLAIN = {int: "integer", float: "number", str: "string", bool: "boolean"}


def answer_types() -> Iterator[type]:
    """Yield the dataclasses of answers, whose fields have a meaning, in the order of their declaration."""
    for module in (rest_answers, rules):
        for _, cls in inspect.getmembers(module, is_dataclass):
            if cls.__module__ == module.__name__ and all("meaning" in each.metadata for each in fields(cls)):
                yield cast(type, cls)


def type_schema(hint: Any, prefix: str) -> dict[str, Any]:
    """Return the JSON schema of a type.

    Args:
        hint: the type: a plain one, a list, a dict with texts as keys, a dataclass, or an optional one of
            these.
        prefix: where definitions are, for references.

    Raises:
        TypeError: the type has no schema.
    """
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if isinstance(hint, type) and is_dataclass(hint):
        return {"$ref": f"{prefix}{hint.__name__}"}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is list:
        return {"type": "array", "items": type_schema(arguments[0], prefix)}
    if origin is dict:
        return {"type": "object", "additionalProperties": type_schema(arguments[1], prefix)}
    if origin in (Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
        return type_schema(next(each for each in arguments if each is not type(None)), prefix)
    raise TypeError(f"the type {hint} of a declared field has no JSON schema")


def class_schema(cls: type, prefix: str) -> dict[str, Any]:
    """Return the JSON schema of a dataclass of answers."""
    hints = get_type_hints(cls)
    properties, required = {}, []
    for entry in fields(cls):
        name = entry.metadata["name"] or entry.name
        shape = {**type_schema(hints[entry.name], prefix), "description": entry.metadata["meaning"]}
        if entry.metadata["sources"] != EVERYWHERE:
            shape["x-sources"] = list(entry.metadata["sources"])
        properties[name] = shape
        if entry.default is MISSING and entry.default_factory is MISSING:
            required.append(name)
    return {
        "type": "object",
        "description": (cls.__doc__ or "").split("\n")[0],
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def schema() -> dict[str, Any]:
    """Return the JSON schema (2020-12) of all answers, below `$defs`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:incremental-state-store:{API}",
        "title": "Answers of the incremental state store's REST API",
        "$defs": {cls.__name__: class_schema(cls, "#/$defs/") for cls in answer_types()},
    }


def openapi() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(f"/{API}{endpoint.path}", {})[endpoint.method.lower()] = _operation(endpoint)
    prefix = "#/components/schemas/"
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Incremental state store",
            "version": __version__,
            "description": "Checkpoints of a query's state. `state-store serve` has these paths at its root, "
            "the driver below `/checkpoints/api`, the History Server below "
            "`/history/APPLICATION/checkpoints/api`.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {cls.__name__: class_schema(cls, prefix) for cls in answer_types()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    reasons: dict[int, list[str]] = {}
    for status, reason in endpoint.errors:
        reasons.setdefault(status, []).append(reason)
    described: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "x-sources": list(endpoint.sources),
        "parameters": [
            {
                "name": parameter.name,
                "in": parameter.place,
                "required": parameter.place == "path",
                "description": parameter.meaning,
                "schema": {
                    "type": parameter.kind,
                    **({"minimum": parameter.minimum} if parameter.minimum is not None else {}),
                    **({"maximum": parameter.maximum} if parameter.maximum is not None else {}),
                    **({"enum": list(parameter.choices)} if parameter.choices else {}),
                    **({"default": _typed(parameter.default, parameter.kind)} if parameter.default else {}),
                },
            }
            for parameter in endpoint.parameters
        ],
        "responses": {
            str(endpoint.status): {
                "description": endpoint.summary,
                "content": {
                    "application/json": {
                        "schema": {"$ref": f"#/components/schemas/{endpoint.answer.__name__}"}
                    }
                },
            },
            **{
                str(status): {
                    "description": " ".join(found),
                    "content": {
                        "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
                    },
                }
                for status, found in sorted(reasons.items())
            },
        },
    }
    if endpoint.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {
                "application/json": {"schema": {"$ref": f"#/components/schemas/{endpoint.body.__name__}"}}
            },
        }
        described["security"] = [{}, {"token": []}]
    return described


def _typed(text: str, kind: str) -> Any:
    return int(text) if kind == "integer" else text


def declarations() -> dict[str, Any]:
    """Return rules and metrics as data, for the tab in Spark's UI."""
    return {
        "api": API,
        "max_stores": MAX_STORES,
        "labels": {subject: list(names) for subject, names in LABELS.items()},
        "operator_words": OPERATOR_WORDS,
        "most_keys": MAX_KEYS,
        "rules": [_without_none(asdict(rule)) for rule in RULES],
        "metrics": [_without_none(asdict(metric)) for metric in METRICS],
    }


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def documents() -> dict[str, str]:
    """Return the texts of the documents by their names."""
    made = {"schema.json": schema(), "openapi.json": openapi(), "declarations.json": declarations()}
    return {name: json.dumps(content, indent=1, ensure_ascii=False) + "\n" for name, content in made.items()}


def main(checkout: Path) -> None:
    """Write the documents into a checkout."""
    directory = checkout / DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in documents().items():
        (directory / name).write_text(text, encoding="utf-8")
        print(f"wrote {directory / name}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
