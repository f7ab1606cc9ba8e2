"""A stopped query's checkpoint, copied from one state store to another.

The target gets Spark's logs, with the other store and its checkpoint format pinned, and of each store the
version that Spark committed last, under the same number. Rows are read and written by the providers
themselves, in a JVM (`jvm_bridge/scala/.../migration`); Spark's logs come last.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from state_store.core.settings.option import PREFIX
from state_store.core.settings.session import FORMAT_KEY, PROVIDER_KEY
from state_store.core.storage import open_storage
from state_store.data.dataset.rewriting import logs
from state_store.data.migration.copying import (
    PROGRAM,
    CopiedStore,
    CopyFailed,
    CopyRequest,
    RowsCopied,
    Side,
    StoreBegun,
    StoreDone,
    event_of,
)
from state_store.data.migration.presence import check_present
from state_store.data.migration.stores import INCREMENTAL, ROCKSDB, STORES, StateStore, of_provider
from state_store.data.query import Operator, Query, StoreKey
from state_store.errors import ConflictError, MissingError, OptionError, StateStoreError, from_json
from state_store.session.installed import installed_spark
from state_store.session.program import JvmProgram

_HADOOP = "spark.hadoop."
_ROW_CHECKSUMS = "spark.sql.streaming.stateStore.rowChecksum.enabled"
_SIDES = ("left", "right")
_INDEXES = tuple(f"{side}-tsWithKey" for side in _SIDES)
"""Column families of a join, format 4, that Spark keeps for itself. Their keys have several values."""
_LISTS = (*(f"{side}-keyWithTsToValues" for side in _SIDES), *_INDEXES)
"""All of its column families whose keys have several values."""
MOST_THREADS = 4


class RowProgress(Protocol):
    """Hears of the copying. Called by one thread."""

    def expect(self, rows: int) -> None:
        """A store is begun with, which has about this many rows."""

    def moved(self, rows: int) -> None:
        """Adds to the rows that were copied."""

    def store_done(self) -> None:
        """One more store is done."""


@dataclass(frozen=True)
class Migrated:
    """What was copied: from which store to which, in which checkpoint format, the version and its rows."""

    source: str
    target: str
    checkpoint_format: int
    version: int
    stores: int
    rows: int


def migrate(
    checkpoint: str,
    target: str,
    to: str,
    *,
    checkpoint_format: int | None = None,
    threads: int | None = None,
    memory: str | None = None,
    conf: Mapping[str, str] | None = None,
    progress: RowProgress | None = None,
) -> Migrated:
    """Copies the checkpoint of a stopped query to the directory `target`, which must be empty, for the state
    store `to`: `incremental`, `rocksdb` or `hdfs`.

    checkpoint_format: Spark's, 1 or 2. Default: 2, where the store has it.
    threads: how many stores are copied at a time. Default: one a core, 4 at most.
    memory: the heap of the JVM that copies, such as `4g`. Default: Java's, a quarter of the machine's memory.
    conf: configuration for both stores; what begins with `spark.hadoop.` is Hadoop's.

    Raises, before anything is written: MissingError where there is no state, or the version is gone;
    OptionError for a store, an operator or a format that does not go together, and where Java or Spark lack;
    ConflictError where the target has something. Later: ConflictError where the query has gone on meanwhile;
    StateStoreError as the stores do. What is in the target then is no query's checkpoint.
    """
    made = _Migration(checkpoint, target, to, checkpoint_format, dict(conf or {}))
    return made.run(threads or min(os.cpu_count() or 1, MOST_THREADS), memory, progress)


class _Migration:
    """One migration; all that can be refused is refused when it is made."""

    def __init__(
        self, checkpoint: str, target: str, to: str, checkpoint_format: int | None, conf: dict[str, str]
    ) -> None:
        self._query = Query.of_any_store(checkpoint)
        self._pinned = self._query.logs.pinned_conf()
        self._from = of_provider(self._pinned.get(PROVIDER_KEY), self._query.location)
        self._to = STORES[to]
        self._conf = conf
        batch = self._query.committed_batch()
        if batch is None:
            raise MissingError(
                f"{self._query.location} has no state yet: Spark has committed no batch of the query"
            )
        self._batch = batch
        self._format = checkpoint_format or self._to.formats[0]
        self._check_target_store()
        self._versions = self._query.committed()
        check_present(self._query, self._from, self._versions)
        self._check_archives()
        location = target.rstrip("/")
        self._source, self._target = open_storage(self._query.location), open_storage(location)
        self._location = logs.hadoop_uri(location)
        if not _is_empty(location):
            raise ConflictError(f"'{location}' is not empty: it is not written over", file=location)

    def run(self, threads: int, memory: str | None, progress: RowProgress | None) -> Migrated:
        planned = self._query.logs.newest_begun()
        try:
            with JvmProgram(PROGRAM, self._request(threads).to_json(), memory=memory) as program:
                for operator in self._query.operators:
                    logs.copy_operator(self._source, self._target, operator)
                ids, rows = _heard(program, progress)
            self._check_stopped(planned)
            logs.copy_logs(
                self._source,
                self._target,
                self._batch,
                conf=self._new_pins(),
                ids=self._by_operator(ids) if self._format > 1 else None,
                checkpoint_format=self._format,
            )
        except StateStoreError as error:
            if self._target.directories():
                advice = f"'{self._target.location}' is incomplete: remove it before you try again"
                raise from_json({**error.to_json(), "message": f"{error.message}. {advice}"}) from error
            raise
        return Migrated(
            self._from.name, self._to.name, self._format, self._batch + 1, len(self._versions), rows
        )

    def _check_target_store(self) -> None:
        to = self._to
        if self._format not in to.formats:
            raise OptionError(
                f"the state store {to.name} has checkpoint format {to.formats[0]} alone", option="format"
            )
        if not to.families:
            for operator in self._query.operators:
                if operator.schema_files:
                    raise OptionError(
                        f"operator {operator.id} ({operator.name}) of {self._query.location} keeps its state "
                        f"in column families, which the state store {to.name} does not have: Spark runs it "
                        "on other state stores alone",
                        option="to",
                    )

    @property
    def _source_format(self) -> int:
        return 2 if any(version.checkpoint_id for version in self._versions.values()) else 1

    def _check_archives(self) -> None:
        if (self._from, self._to) != (ROCKSDB, ROCKSDB) or self._format == self._source_format:
            return
        if installed_spark().startswith("4.0."):
            raise OptionError(
                "Spark 4.0 has one checkpoint format of RocksDB's archives in a process, so that "
                "they cannot get another one: migrate to another state store first, or with a later pyspark",
                option="format",
            )

    def _check_stopped(self, planned: int | None) -> None:
        now = self._query.logs.newest_begun()
        if now != planned or self._query.committed_batch() != self._batch:
            raise ConflictError(
                f"the query of {self._query.location} has gone on meanwhile, to batch {now}: stop it first",
                file=self._query.location,
            )

    def _new_pins(self) -> dict[str, str]:
        pins = {PROVIDER_KEY: self._to.provider}
        if self._to is INCREMENTAL and self._pinned.get(_ROW_CHECKSUMS) == "true":
            pins[_ROW_CHECKSUMS] = "false"  # its files have checksums of their own
        return pins

    def _request(self, threads: int) -> CopyRequest:
        given = {name: value for name, value in self._conf.items() if not name.startswith(_HADOOP)}
        given.setdefault(f"{PREFIX}agentPython", sys.executable)
        source_conf = {**self._pinned, **given}
        return CopyRequest(
            version=self._batch + 1,
            threads=threads,
            hadoop={
                name.removeprefix(_HADOOP): value
                for name, value in self._conf.items()
                if name.startswith(_HADOOP)
            },
            source=_side(logs.hadoop_uri(self._query.location), self._from, self._source_format, source_conf),
            target=_side(self._location, self._to, self._format, {**source_conf, **self._new_pins()}),
            stores=[
                self._copied(operator, store)
                for operator in self._query.operators
                for store in operator.stores
            ],
        )

    def _copied(self, operator: Operator, store: str) -> CopiedStore:
        keys = [StoreKey(operator.id, number, store) for number in range(operator.stores[store])]
        return CopiedStore(
            operator=operator.id,
            name=store,
            prefix_columns=operator.prefix_columns.get(store, 0),
            lists=[*operator.lists, *_LISTS],
            internal=_INDEXES,
            schema_files=[f"{self._location}/{path}" for path in operator.schema_files.get(store, ())],
            partitions=[self._versions[key].checkpoint_id for key in keys],
        )

    def _by_operator(self, ids: Mapping[StoreKey, str]) -> dict[str, list[list[str]]]:
        """As the commit log has them: for each operator, for each partition, the ids of its stores."""
        return {
            str(operator.id): [
                [ids[StoreKey(operator.id, partition, store)] for store in operator.stores]
                for partition in range(operator.partitions)
            ]
            for operator in self._query.operators
        }


def _is_empty(location: str) -> bool:
    parent, slash, name = location.rpartition("/")
    return not (open_storage(location).directories() or open_storage(parent or slash or ".").list_files(name))


def _side(location: str, store: StateStore, checkpoint_format: int, conf: Mapping[str, str]) -> Side:
    return Side(location, {**conf, **dict(store.conf), FORMAT_KEY: str(checkpoint_format)})


def _heard(program: JvmProgram, progress: RowProgress | None) -> tuple[dict[StoreKey, str], int]:
    """The ids of the versions that were written, and how many rows there are. Raises what it tells."""
    ids: dict[StoreKey, str] = {}
    rows = told = announced = done = 0
    for event in map(event_of, program.events()):
        if isinstance(event, CopyFailed):
            raise event.error
        if isinstance(event, StoreDone):
            rows, done = rows + event.rows, done + 1
            if event.checkpoint_id is not None:
                ids[event.key] = event.checkpoint_id
        if progress is None:
            continue
        if isinstance(event, StoreBegun):
            announced += 1
            progress.expect(event.rows)
        elif isinstance(event, RowsCopied):
            progress.moved(event.rows - told)
            told = event.rows
        else:
            if announced < done:  # its number of rows was not known before
                announced += 1
                progress.expect(event.rows)
            progress.store_done()
    return ids, rows
