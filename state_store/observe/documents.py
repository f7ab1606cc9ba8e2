"""Endpoints of the REST API, declared once, and documents of all declarations.

    python -m state_store.observe.documents [CHECKOUT]

An endpoint is its method, path, parameters, answer and errors. The documents are JSON schema, OpenAPI, and
rules and metrics as data. They lie among the resources of the jar. `make docs` writes them; a test compares.
Python 3.10 and later write them.
"""

from __future__ import annotations

import inspect
import json
import sys
import types
from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from state_store import __version__
from state_store.data.query.operators import MAX_KEYS, OPERATOR_WORDS
from state_store.observe import rest_answers
from state_store.observe.metrics import LABELS, MAX_STORES, METRICS, progress_metrics
from state_store.observe.rest_answers import DRIVER, EVERYWHERE, SERVE
from state_store.observe.verdict import RULES, Group, Totals

API = "v1"


SORT_FIELDS = (
    "bytes",
    "deltas",
    "files",
    "keys",
    "restore_predicted_ms",
    "stored_bytes",
    "committed_ms",
    "partition",
)
"""Fields of `Store` that a page of stores can be sorted by."""


MAX_STORES_A_PAGE = 1000


MAX_HISTORY = 1000


MAX_FILES = 500
"""Bounds of one answer."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of an endpoint.

    Attributes:
        name: its name.
        meaning: what it does.
        kind: `integer` or `string`.
        place: `path` or `query`.
        default: value where none is given, for people.
        minimum: least integer.
        maximum: largest integer.
        choices: texts that are allowed; empty: any.
    """

    name: str
    meaning: str
    kind: str = "string"
    place: str = "query"
    default: str | None = None
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Endpoint:
    """An endpoint below `v1`.

    Attributes:
        name: name of the operation.
        method: HTTP method.
        path: path below `v1`, with parameters in braces.
        summary: what it answers.
        answer: class of the answer.
        status: HTTP status of the answer.
        parameters: parameters in path and query.
        errors: HTTP statuses of problems, each with its reason.
        sources: the programs that have the endpoint; the others answer 404 with the reason.
        body: class of the request's body.
    """

    name: str
    method: str
    path: str
    summary: str
    answer: type
    parameters: tuple[Parameter, ...] = ()
    errors: tuple[tuple[int, str], ...] = ()
    status: int = 200
    sources: tuple[str, ...] = EVERYWHERE
    body: type | None = None


_QUERY = Parameter("query", "Name of the query, or its id.", place="path")


_VERSION = Parameter("version", "A version: the state after batch version - 1.", "integer", "path", minimum=0)


_OPERATOR = Parameter("operator", "Only this operator.", "integer", minimum=0)


_PARTITION = Parameter("partition", "Only this partition.", "integer", minimum=0)


_STORE = Parameter("store", "Only stores of this name.")


_CHOICE = (_OPERATOR, _PARTITION, _STORE)


_ONE_STORE = (
    Parameter("operator", "The operator.", "integer", default="0", minimum=0),
    Parameter("partition", "The partition.", "integer", default="0", minimum=0),
    Parameter("store", "The store's name.", default="default"),
)


_PAGED = (
    Parameter("sort", "Field to sort by, largest first.", default="bytes", choices=SORT_FIELDS),
    Parameter("offset", "Stores to skip.", "integer", default="0", minimum=0),
    Parameter(
        "limit", "Most stores to return.", "integer", default="50", minimum=1, maximum=MAX_STORES_A_PAGE
    ),
)


_UNKNOWN = (404, "There is no such query here; the answer names those that are.")


_FOREIGN = (400, "The checkpoint that `serve` was given is one of another state store.")


_UNREAD = (503, "The query was not read yet, or cannot be read.")


_NO_FIGURES = (_FOREIGN, _UNKNOWN, _UNREAD)


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "service", "GET", "", "Describe the program that answers, and what it can do.", rest_answers.Service
    ),
    Endpoint("queries", "GET", "/queries", "List the queries, the worst first.", rest_answers.Queries),
    Endpoint(
        "query", "GET", "/queries/{query}", "Describe a query.", rest_answers.Query, (_QUERY,), (_UNKNOWN,)
    ),
    Endpoint(
        "verdict",
        "GET",
        "/queries/{query}/verdict",
        "Say what is wrong, worst first, and what to do.",
        rest_answers.Verdict,
        (_QUERY,),
        _NO_FIGURES,
    ),
    Endpoint(
        "checkpoints",
        "GET",
        "/queries/{query}/checkpoints",
        "Return counts, a summary over stores, and the history.",
        rest_answers.Checkpoints,
        (
            _QUERY,
            Parameter("limit", "Most checkpoints.", "integer", default="100", minimum=1, maximum=MAX_HISTORY),
            Parameter("before", "Only versions below this.", "integer", minimum=0),
        ),
        _NO_FIGURES,
    ),
    Endpoint(
        "latest",
        "GET",
        "/queries/{query}/checkpoints/latest",
        "Describe the newest checkpoint, store by store.",
        rest_answers.CheckpointDetails,
        (_QUERY, *_CHOICE, *_PAGED),
        _NO_FIGURES,
    ),
    Endpoint(
        "checkpoint",
        "GET",
        "/queries/{query}/checkpoints/{version}",
        "Describe one version, store by store.",
        rest_answers.CheckpointDetails,
        (_QUERY, _VERSION, *_CHOICE, *_PAGED),
        _NO_FIGURES,
    ),
    Endpoint(
        "checkpoint-files",
        "GET",
        "/queries/{query}/checkpoints/{version}/files",
        "List the files of one version of a store, and which versions need each.",
        rest_answers.StoreFiles,
        (_QUERY, _VERSION, *_ONE_STORE),
        _NO_FIGURES,
        sources=(SERVE,),
    ),
    Endpoint(
        "files",
        "GET",
        "/queries/{query}/files",
        "List the files of all versions of a store, and which versions need each.",
        rest_answers.StoreFiles,
        (_QUERY, *_ONE_STORE),
        _NO_FIGURES,
        sources=(SERVE,),
    ),
    Endpoint(
        "stores",
        "GET",
        "/queries/{query}/stores",
        "List the stores as they are now.",
        rest_answers.Stores,
        (_QUERY, *_CHOICE, *_PAGED),
        _NO_FIGURES,
    ),
    Endpoint(
        "config",
        "GET",
        "/queries/{query}/config",
        "Return the configuration in force.",
        rest_answers.Configuration,
        (_QUERY,),
        _NO_FIGURES,
    ),
    Endpoint(
        "merges",
        "GET",
        "/queries/{query}/merges",
        "List merges that wait, run or failed.",
        rest_answers.Merges,
        (_QUERY,),
        _NO_FIGURES,
    ),
    Endpoint(
        "request-full",
        "POST",
        "/queries/{query}/checkpoints",
        "Request a full checkpoint of all stores, or of some.",
        rest_answers.Accepted,
        (_QUERY,),
        (
            (400, "The body is not a request, or names an operator, partition or store that is not there."),
            _FOREIGN,
            (401, "A token is needed."),
            (403, "The request comes from another site, or its user may not do this."),
            _UNKNOWN,
            (405, "Full checkpoints cannot be requested here; the answer says where."),
            (409, "A full checkpoint of other stores of the query is running."),
            (413, "The body is too large."),
            (415, "The body is not `application/json`."),
            (429, "Too many requests; `Retry-After` says when to try again."),
            _UNREAD,
        ),
        status=202,
        sources=(DRIVER, SERVE),
        body=rest_answers.FullCheckpointRequest,
    ),
    Endpoint(
        "trigger",
        "GET",
        "/queries/{query}/checkpoints/triggers/{id}",
        "Return the state of a request for a full checkpoint.",
        rest_answers.Operation,
        (_QUERY, Parameter("id", "The request's id.", place="path")),
        (_UNKNOWN, (404, "The request is not known any more; the answer says where the truth is.")),
        sources=(DRIVER, SERVE),
    ),
)
"""The endpoints below `v1`. `/metrics` and `/healthz` are beside it."""


DIRECTORY = "jvm_bridge/resources/state-store/v1"
"""Directory of the documents in a checkout; in the jar they are below `state-store/v1`."""


_PLAIN = {int: "integer", float: "number", str: "string", bool: "boolean"}


def answer_types() -> Iterator[type]:
    """Yield the dataclasses of answers, and of the figures that rules are about."""
    for _, cls in inspect.getmembers(rest_answers, is_dataclass):
        if cls.__module__ == rest_answers.__name__:
            yield cast(type, cls)
    yield from (Group, Totals)


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
        return type_schema(next(argument for argument in arguments if argument is not type(None)), prefix)
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
                    "description": " ".join(sentences),
                    "content": {
                        "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
                    },
                }
                for status, sentences in sorted(reasons.items())
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
    """Return rules and metrics as data, for the tab in Spark's UI and the stores' metrics in the progress."""
    return {
        "api": API,
        "max_stores": MAX_STORES,
        "labels": {subject: list(names) for subject, names in LABELS.items()},
        "operator_words": OPERATOR_WORDS,
        "max_keys": MAX_KEYS,
        "rules": [_without_none(asdict(rule)) for rule in RULES],
        "metrics": [_without_none(asdict(metric)) for metric in METRICS],
        "progress": [
            {"name": metric.name, "kind": metric.kind, "meaning": metric.meaning}
            for metric in progress_metrics()
        ],
    }


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def documents() -> dict[str, str]:
    """Return the texts of the documents by their names."""
    files = {"schema.json": schema(), "openapi.json": openapi(), "declarations.json": declarations()}
    return {name: json.dumps(content, indent=1, ensure_ascii=False) + "\n" for name, content in files.items()}


def main(checkout: Path) -> None:
    """Write the documents into a checkout."""
    directory = checkout / DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in documents().items():
        (directory / name).write_text(text, encoding="utf-8")
        print(f"wrote {directory / name}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
