"""The batches of a query, by Spark's logs. Safe for any thread.

Spark writes `offsets/<batch>`, with the pinned configuration, when a batch begins, and `commits/<batch>` when
it has ended.

The second half judges whether Spark can start the query again. Spark reads at a start: `metadata`, the two
newest entries of the offset log, the newest entry of the commit log, the logs of sources that are files, and
the schemas of the stores. Stores are not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from state_store.core.settings.session import pinned_conf
from state_store.core.storage import Storage
from state_store.data.query.operators import JavaTexts, Operator, StoreKey, schema_file, text_of
from state_store.errors import DamagedError, MissingError

_MAX_SKEW_MS = 60_000
"""The most that the clocks of the driver and of the storage are taken to differ."""

FROM_A_COPY = "put it back from a copy of the checkpoint of the same batch"


def remedy_of_commits(batch: int, started: int | None) -> str:
    """Return what to do about the newest entry of the commit log; `started` is the newest batch begun."""
    if batch == started:
        return (
            f"{FROM_A_COPY}; if there is none, and the sink may see batch {batch} twice, remove it: Spark "
            "repeats that batch"
        )
    return FROM_A_COPY


def remedy_of_offsets(batch: int, committed: int | None) -> str:
    """Return what to do about a lost entry of the offset log; `committed` is the newest committed batch."""
    if committed == batch - 1:
        return f"{FROM_A_COPY}; if there is none, remove it: Spark plans batch {batch} anew"
    return FROM_A_COPY


@dataclass(frozen=True)
class CommitTimes:
    """When the versions of a query were committed, as far as that is known.

    Attributes:
        ends_ms: the times of the batches in Spark's commit log, in ms since 1970 UTC.
        copied: the batches among them whose file is a copy, and younger than the batch.
    """

    ends_ms: Mapping[int, int]
    copied: frozenset[int] = frozenset()

    def of(self, version: int, file_ms: int, *, is_committed: bool = True) -> int | None:
        """Return when a version was committed, or its file was written, in ms since 1970 UTC.

        Args:
            version: the version.
            file_ms: the time of its file, which in a copy says when that was copied.
            is_committed: it is the one that Spark has committed under its number.

        Returns:
            None if Spark's log has forgotten the batch, and the file is a copy.
        """
        batch, known_ms = version - 1, self.ends_ms.get(version - 1)
        if known_ms is not None:
            return known_ms if is_committed or batch in self.copied else file_ms
        if not self.ends_ms:
            return file_ms
        if batch > max(self.ends_ms):
            return None if max(self.ends_ms) in self.copied else file_ms
        return file_ms if file_ms <= self.ends_ms[min(self.ends_ms)] + _MAX_SKEW_MS else None


class BatchLogs:
    """The offset log and the commit log in the checkpoint directory of a query."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._batch_ms: dict[int, int] = {}

    def pinned_conf(self) -> dict[str, str]:
        """Return the configuration that Spark pinned when the query began; empty before its first batch.

        Raises DamagedError if the newest entry of the offset log cannot be read.
        """
        newest = self._newest("offsets")
        if newest is None:
            return {}
        path = f"offsets/{newest}"
        try:
            return pinned_conf(text_of(self._storage, path))
        except (AttributeError, ValueError) as error:
            raise DamagedError(
                f"{path} is not an entry of Spark's offset log ({error!r}), and Spark refuses to start the "
                f"query: {remedy_of_offsets(newest, self._newest('commits'))}",
                file=path,
            ) from error

    def newest_begun(self) -> int | None:
        """Return the newest batch that Spark has started; None before the first."""
        return self._newest("offsets")

    def newest_committed(self) -> int | None:
        """Return the newest batch that Spark has committed; None before the first.

        Raises DamagedError if the commit log is lost: a second batch begins when the first is committed.
        """
        return max(self.commits_ms(), default=None)

    def commits_ms(self) -> dict[int, int]:
        """Return what `commit_times_ms` does. Raises DamagedError as `newest_committed`."""
        times = self.commit_times_ms()
        started = None if times else self._newest("offsets")
        if started:
            raise DamagedError(
                f"'{self._storage.location}/commits' has no entry, although batch {started} has begun: "
                "Spark's commit log is lost, and so is the knowledge which versions of the stores "
                "count. Put it back from a copy of the checkpoint",
                file="commits",
            )
        return times

    def commit_times_ms(self) -> dict[int, int]:
        """Return the times of the files of Spark's commit log by their batches, in ms since 1970 UTC.

        The clock is that of the storage. One listing: `end_times_ms` looks at more.
        """
        return {
            int(entry.name): entry.modified_ms
            for entry in self._storage.list_files("commits")
            if entry.name.isdigit()
        }

    def end_times_ms(self) -> Mapping[int, int]:
        """Return when each batch of Spark's commit log was committed, as `end_times` finds it."""
        return self.end_times().ends_ms

    def end_times(self) -> CommitTimes:
        """Return when each batch of Spark's commit log was committed.

        The times are those of the entries' files, by the clock of the storage. In a copy, whose files are
        younger than the batches that followed, a batch counts as committed when the next began, and the
        newest as soon after its begin as the batch before.
        """
        times = self.commit_times_ms()
        oldest = min(times, default=None)
        if oldest is None or self._began_before(oldest + 1, times.get(oldest, 0)) is None:
            return CommitTimes(times)
        newest, by_batch = max(times), dict(times)
        for batch, at_ms in times.items():
            began_ms = self._began_before(batch + 1, at_ms)
            if began_ms is not None:
                by_batch[batch] = began_ms
        began_ms = by_batch.get(newest - 1, 0)
        if began_ms != times.get(newest - 1, 0):
            took_ms = began_ms - (self.batch_ms(newest - 1) or began_ms)
            by_batch[newest] = min(times[newest], began_ms + max(1, took_ms))
        return CommitTimes(by_batch, frozenset(batch for batch, ms in by_batch.items() if ms != times[batch]))

    def _began_before(self, batch: int, at_ms: int) -> int | None:
        """Return when a batch began; None if that is unknown, or not clearly before a time."""
        began_ms = self._batch_ms.get(batch)
        if began_ms is None:
            began_ms = self.batch_ms(batch)
            if began_ms is None:
                return None
            self._batch_ms[batch] = began_ms
        return began_ms if 0 < began_ms <= at_ms - _MAX_SKEW_MS else None

    def watermark_ms(self, batch: int) -> int | None:
        """Return the watermark with which a batch ran, in ms since 1970 UTC.

        It is 0 for a query without a watermark, and None where Spark has forgotten the batch.
        """
        return self._time_ms(f"offsets/{batch}", "batchWatermarkMs")

    def next_watermark_ms(self, batch: int) -> int | None:
        """Return the watermark that a batch left to the next one; 0 and None as for `watermark_ms`."""
        return self._time_ms(f"commits/{batch}", "nextBatchWatermarkMs")

    def batch_ms(self, batch: int) -> int | None:
        """Return when a batch ran, in ms since 1970 UTC: the processing time that its rows saw.

        It is None where Spark has forgotten the batch, or has not run it.
        """
        return self._time_ms(f"offsets/{batch}", "batchTimestampMs")

    def _time_ms(self, path: str, name: str) -> int | None:
        try:
            return int(json.loads(text_of(self._storage, path).splitlines()[1])[name])
        except (MissingError, IndexError, KeyError, ValueError):
            return None

    def committed_ids(self, batch: int, operators: Sequence[Operator]) -> dict[StoreKey, str]:
        """Return the id of each store's version after a batch; empty under checkpoint format 1.

        Raises:
            MissingError: the log does not have the batch.
            DamagedError: the entry cannot be read, or has another number of ids than there are stores.
        """
        path = f"commits/{batch}"
        by_operator = self._ids_of(path)
        by_store: dict[StoreKey, str] = {}
        for operator in operators:
            for partition, ids in enumerate(by_operator.get(operator.id, [])):
                if len(ids) != len(operator.stores):
                    raise DamagedError(
                        f"{path} has {len(ids)} ids for partition {partition} of operator {operator.id} "
                        f"({operator.name}), whose metadata name {len(operator.stores)} stores",
                        file=path,
                    )
                for name, id_ in zip(operator.stores, ids, strict=True):
                    by_store[StoreKey(operator.id, partition, name)] = id_
        return by_store

    def partition_counts(self) -> dict[int, int]:
        """Return the number of partitions of each operator in the newest entry of the commit log.

        It is empty under checkpoint format 1, and before the first commit. Raises DamagedError when the entry
        cannot be read.
        """
        newest = self._newest("commits")
        if newest is None:
            return {}
        try:
            ids = self._ids_of(f"commits/{newest}")
        except MissingError:  # the query has gone on, and Spark has removed the entry
            return {}
        return {operator: len(partitions) for operator, partitions in ids.items()}

    def _ids_of(self, path: str) -> dict[int, list[list[str]]]:
        """Return the ids in an entry of the commit log: by operator, for each partition one a store.

        The ids of a partition are in the order of the stores in the operator's metadata.
        """
        lines = text_of(self._storage, path).splitlines()
        if not lines:
            raise DamagedError(
                f"{path} is empty: no row is lost, but it is not known which versions of the stores Spark "
                f"committed, and Spark refuses to start the query: {self._remedy(path)}",
                file=path,
            )
        try:
            by_operator = json.loads(lines[1]).get("stateUniqueIds") or {} if len(lines) > 1 else {}
            return {
                int(operator): [[str(id_) for id_ in ids] for ids in partitions]
                for operator, partitions in by_operator.items()
            }
        except (AttributeError, TypeError, ValueError) as error:
            raise DamagedError(
                f"{path} is not an entry of Spark's commit log ({error!r}), and Spark refuses to start the "
                f"query: {self._remedy(path)}",
                file=path,
            ) from error

    def _remedy(self, path: str) -> str:
        return remedy_of_commits(int(path.rpartition("/")[2]), self._newest("offsets"))

    def _newest(self, log: str) -> int | None:
        batches = [int(entry.name) for entry in self._storage.list_files(log) if entry.name.isdigit()]
        return max(batches, default=None)


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
    """Yield problems of the logs of sources that are files: their offsets are numbers of entries there.

    The entry of a batch has an offset for each place of a source in the plan, and Spark numbers the sources:
    a stream that a join or a union reads twice has two offsets, which are always equal, and one log.
    """
    offsets = _source_offsets(storage, started)
    before = _source_offsets(storage, started - 1)
    histories = list(zip(offsets, before if len(before) == len(offsets) else offsets, strict=True))
    sources = list(dict.fromkeys(histories))
    if len(sources) < len(offsets) and storage.list_files(f"sources/{len(offsets) - 1}"):
        sources = []  # the last place has a source of its own, so each has
    judged = set()
    for place, (text, history) in enumerate(zip(offsets, histories, strict=True)):
        entry = _log_offset(text)
        if entry is None or entry < 0:
            continue
        fewest = sources.index(history) if sources else place
        paths = [
            f"sources/{number}/{entry}{suffix}"
            for number in range(fewest, place + 1)
            for suffix in ("", ".compact")
        ]
        path_of_log = next((path for path in paths if storage.exists(path)), paths[0])
        if path_of_log not in judged:
            judged.add(path_of_log)
            yield from _judged(storage, path_of_log, _checked_version, FROM_A_COPY)


def _source_offsets(storage: Storage, batch: int) -> list[str]:
    """Return the offsets of the sources in an entry of the offset log; empty if it has none by number."""
    try:
        version, _, *offsets = text_of(storage, f"offsets/{batch}").split("\n")
    except (MissingError, UnicodeDecodeError, ValueError):
        return []
    return offsets if version == "v1" else []


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
            for finding in _judged(storage, path, None, remedy):
                if finding.kind == "missing" and not stops:
                    problem = (
                        f"is missing: the query goes on, but tools cannot read rows. To mend it, {remedy}"
                    )
                    yield SparkFileProblem(path, "missing", problem, stops_the_query=False)
                else:
                    yield finding


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
