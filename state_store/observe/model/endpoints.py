"""Endpoints of the REST API: method, path, parameters, answer and errors, declared once."""

from __future__ import annotations

from dataclasses import dataclass

from state_store.observe.model import rest_answers
from state_store.observe.model.rest_answers import DRIVER, EVERYWHERE, SERVE

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
