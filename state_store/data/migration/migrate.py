"""A stopped query's checkpoint, copied from one state store to another.

The target gets Spark's logs, with the other store and its checkpoint format pinned, and of each store the
version that Spark committed last, under the same number. The providers themselves read and write the rows, in
a JVM (`jvm_bridge/scala/.../migration`); Spark's logs come last.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from state_store.core.settings.option import PREFIX
from state_store.core.settings.session import (
    MERGE_OPERATOR_KEY,
    PROVIDER_KEY,
    ROW_CHECKSUMS_KEY,
    UNNAMED,
    WITH_DELIMITER,
)
from state_store.core.storage import Storage, open_storage
from state_store.data.dataset.rewriting import spark_files
from state_store.data.migration.jvm_copy import (
    PROGRAM,
    CopiedStore,
    CopyFailed,
    CopyRequest,
    RowProgress,
    RowsCopied,
    Side,
    StoreBegun,
    StoreDone,
    event_of,
)
from state_store.data.migration.state_stores import (
    INCREMENTAL,
    ROCKSDB,
    STORES,
    check_present,
    joins_with_delimiter,
    of_provider,
)
from state_store.data.query import Operator, ProgressOption, Query, StoreKey, reporting
from state_store.data.query.arguments import Location, checked_location, shown
from state_store.data.query.targets import Stopped, new_checkpoint
from state_store.errors import OptionError
from state_store.session.jar_program import JvmProgram
from state_store.session.releases import installed_spark

_HADOOP = "spark.hadoop."
_SIDES = ("left", "right")
_INDEXES = tuple(f"{side}-tsWithKey" for side in _SIDES)
"""Spark's own column families of a join in format 4. Their keys have several values."""
_LISTS = (*(f"{side}-keyWithTsToValues" for side in _SIDES), *_INDEXES)
"""All column families of a join in format 4 whose keys have several values."""
MAX_THREADS = 4
_HEAP = re.compile(r"([1-9][0-9]{0,8})([kKmMgGtT]?)")
_LEAST_HEAP_BYTES = 64 << 20


@dataclass(frozen=True)
class Migrated:
    """The result of a migration.

    Attributes:
        source: the state store that the query had.
        target: the state store that the copy has.
        checkpoint_format: the checkpoint format of the copy.
        version: the version that was copied.
        stores: the number of stores.
        rows: the number of rows in all stores.
    """

    source: str
    target: str
    checkpoint_format: int
    version: int
    stores: int
    rows: int


def migrate(
    checkpoint: Location,
    target: Location,
    to: str,
    *,
    checkpoint_format: int | None = None,
    threads: int | None = None,
    memory: str | None = None,
    conf: Mapping[str, str] | None = None,
    progress: ProgressOption = None,
) -> Migrated:
    """Copy the checkpoint of a stopped query to another directory, for another state store.

    If it fails, nothing is left in the target. Any thread may call it, one at a time for a target.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        target: an empty directory, a path or a URI.
        to: the other state store: `incremental`, `rocksdb` or `hdfs`.
        checkpoint_format: Spark's, 1 or 2. Default: 2, if the store has it.
        threads: stores that are copied at a time. Default: one a core, 4 at most.
        memory: the heap of the JVM that copies, such as `4g`. Default: Java's, a quarter of the machine's
            memory.
        conf: configuration for both stores; keys that begin with `spark.hadoop.` are Hadoop's.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`, of rows.

    Raises:
        MissingError: there is no state, or the version is gone.
        OptionError: an argument is wrong; a store, an operator and a format do not go together; Java or Spark
            is missing.
        ConflictError: the target is not empty, or the query has gone on meanwhile.
        StateStoreError: as the stores raise it.
    """
    if not isinstance(to, str) or to not in STORES:
        raise OptionError(f"to is {', '.join(STORES)}, not {shown(to)}", option="to")
    for name, number, bound in (("checkpoint_format", checkpoint_format, 2), ("threads", threads, 1024)):
        if number is not None and (
            isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= bound
        ):
            raise OptionError(f"{name} is a number from 1 to {bound}, not {number!r}", option=name)
    _check_memory(memory)
    if conf is not None and not isinstance(conf, Mapping):
        raise OptionError(f"conf is a mapping, not {shown(conf)}", option="conf")
    for key, value in (conf or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise OptionError(f"conf has texts as keys and values, not {key!r}: {value!r}", option="conf")
    migration = _Migration(checkpoint, target, to, checkpoint_format, dict(conf or {}))
    at_once = threads or min(os.cpu_count() or 1, MAX_THREADS)
    with reporting(progress, "copied", migration.stores, "rows") as meter:
        return migration.run(target, at_once, memory, meter)


def _check_memory(memory: str | None) -> None:
    """Raise OptionError unless the text is a heap size that suffices for a JVM with Spark's classes."""
    if memory is None:
        return
    match = _HEAP.fullmatch(memory) if isinstance(memory, str) else None
    if match is None:
        raise OptionError(f"memory is a size such as 512m or 4g, not {memory!r}", option="memory")
    size_bytes = int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[match[2].lower()]
    if not _LEAST_HEAP_BYTES <= size_bytes < 1 << 50:
        raise OptionError(f"memory is {memory}: a JVM needs at least 64m here", option="memory")


class _Migration:
    """A migration; its constructor refuses all that can be refused."""

    def __init__(
        self,
        checkpoint: Location,
        target: Location,
        to: str,
        checkpoint_format: int | None,
        conf: dict[str, str],
    ) -> None:
        self._query = Query.of_any_store(checkpoint)
        self._pinned = self._query.logs.pinned_conf()
        self._from = of_provider(self._pinned.get(PROVIDER_KEY), self._query.location)
        self._to = STORES[to]
        self._conf = conf
        self._batch = self._query.newest_batch()
        self._format = checkpoint_format or self._to.formats[0]
        self._check_target_store()
        self._versions = self._query.committed()
        check_present(self._query, self._from, self._versions)
        self._check_archives()
        self._check_lists()
        self._source = open_storage(self._query.location)
        self._location = spark_files.hadoop_uri(checked_location(target, "target"))
        self._stopped = Stopped(self._query)

    @property
    def stores(self) -> int:
        """The number of the query's stores."""
        return len(self._versions)

    def run(
        self, target: Location, threads: int, memory: str | None, progress: RowProgress | None
    ) -> Migrated:
        """Copy all stores, and then Spark's logs."""
        with (
            new_checkpoint("migrate", self._query.location, target) as (storage, _),
            JvmProgram(PROGRAM, self._request(threads).to_json(), memory=memory) as program,
        ):
            rows = self._copy(program, storage, progress)
        return Migrated(
            self._from.name, self._to.name, self._format, self._batch + 1, len(self._versions), rows
        )

    def _copy(self, program: JvmProgram, target: Storage, progress: RowProgress | None) -> int:
        for operator in self._query.operators:
            spark_files.copy_operator(self._source, target, operator)
        with self._stopped.during():
            ids, rows = _followed(program, progress)
        spark_files.copy_logs(
            self._source,
            target,
            self._batch,
            conf=self._new_pins(),
            ids=self._by_operator(ids) if self._format > 1 else None,
            checkpoint_format=self._format,
        )
        return rows

    def _check_target_store(self) -> None:
        to = self._to
        if self._format not in to.formats:
            raise OptionError(
                f"the state store {to.name} has only checkpoint format {to.formats[0]}", option="format"
            )
        if not to.families:
            for operator in self._query.operators:
                if operator.schema_files:
                    raise OptionError(
                        f"operator {operator.id} ({operator.name}) of {self._query.location} keeps its state "
                        f"in column families, which the state store {to.name} does not have: Spark runs it "
                        "only on other state stores",
                        option="to",
                    )

    def _check_lists(self) -> None:
        """Refuse lists that the installed Spark cannot read from RocksDB, since a later one wrote them."""
        if (
            self._from is ROCKSDB
            and self._pinned.get(MERGE_OPERATOR_KEY, UNNAMED[MERGE_OPERATOR_KEY]) != WITH_DELIMITER
            and any(operator.schema_files for operator in self._query.operators)
            and joins_with_delimiter(installed_spark())
        ):
            raise OptionError(
                f"the query of {self._query.location} began on Spark 4.2 or later, which joins the values of "
                f"lists in RocksDB in a way that Spark {installed_spark()} cannot read "
                f"({MERGE_OPERATOR_KEY}): migrate with the pyspark that the query ran on",
                option=MERGE_OPERATOR_KEY,
            )

    @property
    def _source_format(self) -> int:
        return 2 if any(version.checkpoint_id for version in self._versions.values()) else 1

    def _check_archives(self) -> None:
        if (self._from, self._to) != (ROCKSDB, ROCKSDB) or self._format == self._source_format:
            return
        if installed_spark().startswith("4.0."):
            raise OptionError(
                "Spark 4.0 has one checkpoint format of RocksDB's archives in a process: "
                "migrate to another state store first, or use a later pyspark",
                option="format",
            )

    def _new_pins(self) -> dict[str, str]:
        pins = {PROVIDER_KEY: self._to.provider}
        if (
            self._to is INCREMENTAL
            and self._pinned.get(ROW_CHECKSUMS_KEY, UNNAMED[ROW_CHECKSUMS_KEY]) == "true"
        ):
            pins[ROW_CHECKSUMS_KEY] = "false"  # its files have their own checksums
        if self._to is ROCKSDB and joins_with_delimiter(installed_spark()):
            pins[MERGE_OPERATOR_KEY] = WITH_DELIMITER
        return pins

    def _request(self, threads: int) -> CopyRequest:
        given = {name: value for name, value in self._conf.items() if not name.startswith(_HADOOP)}
        given.setdefault(f"{PREFIX}agentPython", sys.executable)
        return CopyRequest(
            version=self._batch + 1,
            threads=threads,
            hadoop={
                name.removeprefix(_HADOOP): value
                for name, value in self._conf.items()
                if name.startswith(_HADOOP)
            },
            source=Side(
                spark_files.hadoop_uri(self._query.location),
                self._pinned,
                {**given, **self._from.conf_of(self._source_format)},
            ),
            target=Side(
                self._location,
                {**self._pinned, **self._new_pins()},
                {**given, **self._to.conf_of(self._format)},
            ),
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
        """Return the ids as the commit log has them: by operator, then by partition, an id for each store."""
        return {
            str(operator.id): [
                [ids[StoreKey(operator.id, partition, store)] for store in operator.stores]
                for partition in range(operator.partitions)
            ]
            for operator in self._query.operators
        }


def _followed(program: JvmProgram, progress: RowProgress | None) -> tuple[dict[StoreKey, str], int]:
    """Follow the program to its end; return the ids of the versions that it wrote, and the number of rows.

    Raises the error that the program reports.
    """
    ids: dict[StoreKey, str] = {}
    rows = reported = announced = done = 0
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
            progress.moved(event.rows - reported)
            reported = event.rows
        else:
            if announced < done:  # the number of its rows was not known before
                announced += 1
                progress.expect(event.rows)
            progress.store_done()
    return ids, rows
