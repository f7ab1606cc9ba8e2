"""Judgement whether Spark can start a query again, by its own files in the checkpoint directory.

Spark reads at a start: `metadata`, the two newest entries of the offset log, the newest entry of the commit
log, the logs of sources that are files, and the schemas of the stores. Stores are not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from state_store.core.storage import Storage
from state_store.data.query.java_texts import JavaTexts
from state_store.data.query.logs import FROM_A_COPY, BatchLogs, remedy_of_commits, remedy_of_offsets
from state_store.data.query.operators import Operator, schema_file, text_of
from state_store.errors import DamagedError, MissingError


@dataclass(frozen=True)
class SparkFileProblem:
    """A file of Spark's that is lost or damaged.

    Attributes:
        file: its path below the checkpoint directory.
        kind: `missing` or `damaged`, as of an error.
        problem: a predicate about the file, with its consequence and the remedy.
        stops_the_query: Spark refuses to start the query; else only tools need the file.
    """

    file: str
    kind: str
    problem: str
    stops_the_query: bool = True

    def sentence(self) -> str:
        """Return the problem with the name of the file."""
        return f"'{self.file}' {self.problem}"


def start_problems(storage: Storage, operators: Sequence[Operator]) -> list[SparkFileProblem]:
    """Return what is lost or damaged among the files that Spark reads when it starts a query again.

    Args:
        storage: the checkpoint directory.
        operators: the stateful operators of the query.

    Raises:
        StorageError: the storage fails.
    """
    logs = BatchLogs(storage)
    started = logs.newest_begun()
    try:
        committed = logs.newest_committed()
    except DamagedError:  # the log is lost as a whole
        committed = None
    if started is None and committed is None:
        return []
    return [
        *_of_metadata(storage),
        *_of_logs(storage, started, committed),
        *(() if started is None else _of_sources(storage, started)),
        *_of_schemas(storage, operators),
    ]


def _of_metadata(storage: Storage) -> Iterator[SparkFileProblem]:
    remedy = (
        f'{FROM_A_COPY}. It is a line, {{"id":"..."}}, with the id of the query, which the driver\'s log and '
        "transactional sinks have"
    )
    yield from _judged(storage, "metadata", lambda text: json.loads(text)["id"], remedy)


def _of_logs(storage: Storage, started: int | None, committed: int | None) -> Iterator[SparkFileProblem]:
    """Yield problems of the logs; batch b begins when b - 1 is committed, so they end at most one apart."""
    if started is None or (committed is not None and committed > started):
        yield SparkFileProblem(
            f"offsets/{committed}",
            "missing",
            f"is missing, though batch {committed} was committed: Spark goes back to an older batch, whose "
            f"state may be gone, or refuses to start. To mend it, {FROM_A_COPY}",
        )
    elif started > 0 and (committed is None or committed < started - 1):
        yield SparkFileProblem(
            f"commits/{started - 1}",
            "missing",
            f"is missing, though batch {started} has begun: Spark finds no version of the state that batch "
            f"{started} goes on from. To mend it, {FROM_A_COPY}",
        )
    if started is not None:
        for batch in (started - 1, started)[started == 0 :]:
            remedy = remedy_of_offsets(batch, committed if batch == started else None)
            yield from _judged(storage, f"offsets/{batch}", _checked_entry, remedy)
    if committed is not None:
        remedy = remedy_of_commits(committed, started)
        yield from _judged(storage, f"commits/{committed}", _checked_entry, remedy)


def _of_sources(storage: Storage, started: int) -> Iterator[SparkFileProblem]:
    """Yield problems of the logs of sources that are files: their offsets are numbers of entries there."""
    try:
        version, _, *offsets = text_of(storage, f"offsets/{started}").split("\n")
    except (MissingError, UnicodeDecodeError, ValueError):
        return
    for number, text in enumerate(offsets if version == "v1" else []):
        entry = _log_offset(text)
        if entry is None or entry < 0:
            continue
        paths = [f"sources/{number}/{entry}{suffix}" for suffix in ("", ".compact")]
        found = next((path for path in paths if storage.exists(path)), paths[0])
        yield from _judged(storage, found, _checked_version, FROM_A_COPY)


def _log_offset(text: str) -> int | None:
    """Return the number of the entry of a source's log that an offset names, if it is such an offset."""
    try:
        offset = json.loads(text)
    except ValueError:
        return None
    entry = offset.get("logOffset") if isinstance(offset, dict) and len(offset) == 1 else None
    return entry if isinstance(entry, int) else None


def _of_schemas(storage: Storage, operators: Sequence[Operator]) -> Iterator[SparkFileProblem]:
    for operator in operators:
        for path in dict.fromkeys(schema_file(operator, store) for store in operator.stores):
            remedy = f"{FROM_A_COPY}, or from another copy of this query's checkpoint with the same schema"
            stops = bool(operator.schema_files)
            for found in _judged(storage, path, None, remedy):
                if found.kind == "missing" and not stops:
                    problem = (
                        f"is missing: the query goes on, but tools cannot read rows. To mend it, {remedy}"
                    )
                    yield SparkFileProblem(path, "missing", problem, stops_the_query=False)
                else:
                    yield found


def _judged(storage: Storage, path: str, check: Any, remedy: str) -> Iterator[SparkFileProblem]:
    """Yield the problem of a file that is missing, empty, or refused by `check` (None: it is a schema)."""
    try:
        data = storage.read(path)
    except MissingError:
        problem = f"is missing: Spark refuses to start the query. To mend it, {remedy}"
        yield SparkFileProblem(path, "missing", problem)
        return
    try:
        if check is None:
            _check_schema(JavaTexts(data, path))
        else:
            check(data.decode("utf-8"))
    except (DamagedError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        fault = f"is damaged (it has {len(data)} bytes)" if data else "is empty"
        problem = f"{fault}: Spark refuses to start the query. To mend it, {remedy}"
        yield SparkFileProblem(path, "damaged", problem)


def _check_schema(texts: JavaTexts) -> None:
    """Raise DamagedError unless a schema's file has the texts that its version says."""
    version = texts.text()
    if version == "v3":
        texts.number(">i")
        return
    for _ in range(2):
        json.loads(texts.text() if version == "v1" else texts.pieces())


def _checked_entry(text: str) -> None:
    """Raise ValueError or IndexError unless a text is an entry of a log: its version, then JSON."""
    _checked_version(text)
    lines = text.split("\n")
    if len(lines) > 1 and not isinstance(json.loads(lines[1]), dict):
        raise ValueError(lines[1])


def _checked_version(text: str) -> None:
    """Raise ValueError or IndexError unless a text begins with the version of a log."""
    first = text.splitlines()[0]
    if first[:1] != "v" or not first[1:].isdigit():
        raise ValueError(first)
