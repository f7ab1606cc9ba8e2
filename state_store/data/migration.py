"""A stopped query's checkpoint, copied from one state store to another.

The target gets Spark's logs, with the other store and its checkpoint format pinned, and of each store the
version that Spark committed last, under the same number. The providers themselves read and write the rows, in
a JVM (`jvm_bridge/scala/.../migration`); Spark's logs come last.

As a Spark job a task copies some of the stores, by a JVM of its own, into a local directory, and stores the
files under the receipts of `dataset.rewriting.store_writer`: so each store counts once, however often a task
is repeated, and a job that was interrupted goes on.

The state stores are Spark's two and this project's: values, safe for any thread.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from state_store.core.checkpoint.names import DELTA_DIRECTORY, VersionId
from state_store.core.deletion.lease import read_listing
from state_store.core.files.transfer import parallel
from state_store.core.runtime import ScratchDirectory
from state_store.core.settings import session
from state_store.core.settings.option import PREFIX
from state_store.core.storage import Storage, open_storage
from state_store.core.storage.local_disk import tells_full_disk
from state_store.data.dataset.export import local_path
from state_store.data.dataset.partitions import identified
from state_store.data.dataset.rewriting import copying
from state_store.data.dataset.rewriting.store_writer import Receipts, WrittenStore
from state_store.data.jobs import Workers, workers
from state_store.data.query import LISTED_AT_ONCE, Operator, ProgressOption, Query, StoreKey, reporting
from state_store.data.query.arguments import Location, checked_location, shown
from state_store.data.query.targets import Stopped, new_checkpoint
from state_store.errors import MissingError, OptionError, StateStoreError, StorageError, from_json
from state_store.session.jar import JvmProgram
from state_store.session.releases import installed_spark, minor_of

_SPARKS = "org.apache.spark.sql.execution.streaming.state"

PROGRAM = "org.apache.spark.sql.execution.streaming.state.incremental.migration.Migration"
"""Name of its class."""

_HADOOP = "spark.hadoop."
_SIDES = ("left", "right")
_INDEXES = tuple(f"{side}-tsWithKey" for side in _SIDES)
"""Spark's own column families of a join in format 4. Their keys have several values."""
_LISTS = (*(f"{side}-keyWithTsToValues" for side in _SIDES), *_INDEXES)
"""All column families of a join in format 4 whose keys have several values."""
MAX_THREADS = 4
TASK_MEMORY = "1g"
TASK_MEMORY_BYTES = 1 << 30
"""Heap of a task's JVM: an executor may run as many as it has cores."""

_HEAP = re.compile(r"([1-9][0-9]{0,8})([kKmMgGtT]?)")
_MIN_HEAP_BYTES = 64 << 20


@dataclass(frozen=True)
class StateStore:
    """A state store.

    Attributes:
        name: its short name.
        provider: its class.
        formats: its checkpoint formats, the preferred one first.
        families: True if a store of it can have several column families.
        conf: settings that its provider gets in addition to those that the query pinned.
    """

    name: str
    provider: str
    formats: tuple[int, ...]
    families: bool
    conf: tuple[tuple[str, str], ...] = ()

    def conf_of(self, checkpoint_format: int) -> dict[str, str]:
        """Return the settings of a session that reads or writes a checkpoint of a format."""
        return {**dict(self.conf), session.FORMAT_KEY: str(checkpoint_format)}


HDFS = StateStore("hdfs", f"{_SPARKS}.HDFSBackedStateStoreProvider", formats=(1,), families=False)
ROCKSDB = StateStore(
    "rocksdb",
    f"{_SPARKS}.RocksDBStateStoreProvider",
    formats=(2, 1),
    families=True,
    # Off: a commit uploads a snapshot, and opening a version writes nothing.
    conf=(("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "false"),),
)
INCREMENTAL = StateStore("incremental", session.PROVIDER_CLASS, formats=(2, 1), families=True)
STORES = {store.name: store for store in (INCREMENTAL, HDFS, ROCKSDB)}


def joins_with_delimiter(spark: str) -> bool:
    """Return True if a release of Spark knows only one way to join values in RocksDB: with a delimiter."""
    return minor_of(spark) in ("4.0", "4.1")


def of_provider(provider: str | None, checkpoint: str) -> StateStore:
    """Return the state store of a provider class. Raises OptionError if it is unknown."""
    for store in STORES.values():
        if store.provider == provider:
            return store
    predicate = f"has the state store {provider}" if provider else "does not say which state store it has"
    raise OptionError(
        f"the query of {checkpoint} {predicate}; a query can be moved between "
        + " and ".join([", ".join(list(STORES)[:-1]), list(STORES)[-1]]),
        option=session.PROVIDER_KEY,
    )


def check_present(query: Query, store: StateStore, versions: Mapping[StoreKey, VersionId]) -> None:
    """Check by the names of files that versions exist, before anything is read or written.

    Of a version with an id in Spark's RocksDB store only the last file is checked: the names of the others
    are in that file.

    Args:
        query: the query.
        store: its state store.
        versions: the version of each store.

    Raises:
        MissingError: a version, or a file of it, does not exist.
    """
    parallel(LISTED_AT_ONCE, lambda key: _check(query, store, key, versions[key]), versions)


def _check(query: Query, store: StateStore, key: StoreKey, version: VersionId) -> None:
    if store is INCREMENTAL:
        with closing(query.storage(key)) as storage:
            identified(read_listing(storage), version.number, version, f"store {key}")
        return
    names = {entry.name for entry in query.list_files(key.path)}
    if store is HDFS:
        _check_chain(key, names, version.number, "snapshot", "delta")
    elif version.checkpoint_id is None:
        _check_chain(key, names, version.number, "zip", "changelog")
    else:
        file = f"{version.number}_{version.checkpoint_id}"
        if not {f"{file}.zip", f"{file}.changelog"} & names:
            raise _gone(key, version.number, f"{file}.zip")


def _check_chain(key: StoreKey, names: Collection[str], version: int, snapshot: str, change: str) -> None:
    """Follow a version back to a snapshot; each version between has a file with its changes."""
    for number in range(version, 0, -1):
        if f"{number}.{snapshot}" in names:
            return
        if f"{number}.{change}" not in names:
            raise _gone(key, version, f"{number}.{change}")


def _gone(key: StoreKey, version: int, file: str) -> MissingError:
    path = f"{key.path}/{file}"
    return MissingError(
        f"version {version}, which Spark committed last, is not in store {key} any more: '{path}' does not "
        "exist",
        file=path,
    )


class RowProgress(Protocol):
    """Receiver of the progress of the copying. Called by one thread."""

    def expect(self, rows: int) -> None:
        """Start a store of about this many rows."""

    def moved(self, rows: int) -> None:
        """Add to the rows that were copied."""

    def store_done(self) -> None:
        """Count a finished store."""


@dataclass(frozen=True)
class Side:
    """A side of the copy: a checkpoint directory, and the configuration that its provider gets.

    Attributes:
        location: the checkpoint directory.
        pins: the configuration in its offset log.
        conf: the configuration of the session that copies, which goes before the pins.
    """

    location: str
    pins: Mapping[str, str]
    conf: Mapping[str, str]

    def to_json(self) -> dict[str, object]:
        """Return the fields as the program reads them."""
        return {"state": f"{self.location}/state", "pins": dict(self.pins), "conf": dict(self.conf)}


@dataclass(frozen=True)
class CopiedStore:
    """A store of an operator.

    Attributes:
        operator: Spark's number of the operator.
        name: Spark's name of the store.
        prefix_columns: columns of the key that are its prefix, if Spark's schema does not say so.
        lists: the column families whose keys have several values.
        internal: column families that are Spark's own, beside those whose names say so.
        schema_files: files that describe the families, the newest last; if empty, the store has its own file.
        partitions: the id of the version in the source, by partition.
    """

    operator: int
    name: str
    prefix_columns: int
    lists: Sequence[str]
    internal: Sequence[str]
    schema_files: Sequence[str]
    partitions: Mapping[int, str | None]

    def to_json(self) -> dict[str, object]:
        """Return the fields as the program reads them."""
        return {
            "operator": self.operator,
            "name": self.name,
            "prefix_columns": self.prefix_columns,
            "lists": [*self.lists],
            "internal": [*self.internal],
            "schema_files": [*self.schema_files],
            "partitions": [{"partition": number, "id": id_} for number, id_ in self.partitions.items()],
        }


@dataclass(frozen=True)
class CopyRequest:
    """A request to copy one version of all stores, `threads` of them at a time.

    `hadoop` are settings in addition to those that the JVM finds.
    """

    version: int
    threads: int
    hadoop: Mapping[str, str]
    source: Side
    target: Side
    stores: Sequence[CopiedStore]

    def to_json(self) -> dict[str, object]:
        """Return the fields as the program reads them."""
        return {
            "version": self.version,
            "threads": self.threads,
            "hadoop": dict(self.hadoop),
            "source": self.source.to_json(),
            "target": self.target.to_json(),
            "stores": [store.to_json() for store in self.stores],
        }


@dataclass(frozen=True)
class StoreBegun:
    """Event: work on a store of about this many rows begins."""

    rows: int


@dataclass(frozen=True)
class RowsCopied:
    """Event: the rows of all stores that were copied so far."""

    rows: int


@dataclass(frozen=True)
class StoreDone:
    """Event: a store was copied; `checkpoint_id` is the id of its version in the target, if it has one."""

    key: StoreKey
    rows: int
    checkpoint_id: str | None


@dataclass(frozen=True)
class CopyFailed:
    """Event: the program ends with an error."""

    error: StateStoreError


CopyEvent = StoreBegun | RowsCopied | StoreDone | CopyFailed


def event_of(fields: Mapping[str, Any]) -> CopyEvent:
    """Return the event in a line of the program. Raises KeyError for a line of another program."""
    if "error" in fields:
        return CopyFailed(from_json(fields["error"]))
    if "done" in fields:
        store = fields["done"]
        key = StoreKey(store["operator"], store["partition"], store["name"])
        return StoreDone(key, store["rows"], store["id"])
    if "expected" in fields:
        return StoreBegun(fields["expected"])
    return RowsCopied(fields["rows"])


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
    spark: Any = None,
    progress: ProgressOption = None,
) -> Migrated:
    """Copy the checkpoint of a stopped query to another directory, for another state store.

    If it fails, nothing is left in the target; with `spark` the same call goes on with what is there. Any
    thread may call it, one at a time for a target.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        target: an empty directory, a path or a URI.
        to: the other state store: `incremental`, `rocksdb` or `hdfs`.
        checkpoint_format: Spark's, 1 or 2. Default: 2, if the store has it.
        threads: stores that are copied at a time. Default: one a core, 4 at most; with `spark` one a task.
        memory: the heap of the JVM that copies, such as `4g`. Default: Java's, a quarter of the machine's
            memory; with `spark` 1g for each task.
        conf: configuration for both stores; keys that begin with `spark.hadoop.` are Hadoop's.
        spark: a SparkSession, whose executors then copy, into a target that all machines share, through the
            local disk of a store; None: this process. Its settings `spark.hadoop.` count, too.
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
    tasks = workers(spark)
    of_session = dict(spark.sparkContext.getConf().getAll()) if tasks.are_elsewhere else {}
    hadoop = {name: value for name, value in of_session.items() if name.startswith(_HADOOP)}
    migration = _Migration(checkpoint, target, to, checkpoint_format, {**hadoop, **(conf or {})})
    with reporting(progress, "copied", migration.stores, "rows") as meter:
        if tasks.are_elsewhere:
            return migration.run_by_spark(target, tasks, threads or 1, memory or TASK_MEMORY, meter)
        return migration.run(target, threads or min(os.cpu_count() or 1, MAX_THREADS), memory, meter)


def _check_memory(memory: str | None) -> None:
    """Raise OptionError unless the text is a heap size that suffices for a JVM with Spark's classes."""
    if memory is None:
        return
    match = _HEAP.fullmatch(memory) if isinstance(memory, str) else None
    if match is None:
        raise OptionError(f"memory is a size such as 512m or 4g, not {memory!r}", option="memory")
    size_bytes = int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[match[2].lower()]
    if not _MIN_HEAP_BYTES <= size_bytes < 1 << 50:
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
        self._from = of_provider(self._pinned.get(session.PROVIDER_KEY), self._query.location)
        self._to = STORES[to]
        self._conf = conf
        self._stopped = Stopped(self._query)  # first: a batch that ends meanwhile is noticed
        self._batch = self._query.newest_batch()
        self._format = checkpoint_format or self._to.formats[0]
        self._check_target_store()
        self._versions = self._query.committed(self._batch)
        check_present(self._query, self._from, self._versions)
        self._check_archives()
        self._check_lists()
        self._source = open_storage(self._query.location)
        self._location = copying.hadoop_uri(checked_location(target, "target"))

    @property
    def stores(self) -> int:
        """The number of the query's stores."""
        return len(self._versions)

    def run(
        self, target: Location, threads: int, memory: str | None, progress: RowProgress | None
    ) -> Migrated:
        """Copy all stores, and then Spark's logs."""
        with (
            new_checkpoint("migrate", self._query.location, target) as (storage, location),
            JvmProgram(
                PROGRAM, self._request().of(self._location, [*self._versions], threads), memory=memory
            ) as program,
        ):
            self._describe(storage)
            with self._stopped.during():
                done = list(_followed(program, progress, _disks(location)))
            ids = {store.key: store.checkpoint_id for store in done if store.checkpoint_id is not None}
            return self._finish(storage, ids, sum(store.rows for store in done))

    def run_by_spark(
        self, target: Location, tasks: Workers, threads: int, memory: str, progress: Any
    ) -> Migrated:
        """Copy all stores by the tasks of a job, and then Spark's logs."""
        if self._to is not INCREMENTAL and self._format == 1:
            raise OptionError(
                f"the files of the state store {self._to.name} have the same names in each attempt of a task "
                "in checkpoint format 1: migrate without Spark"
                + (", or to format 2" if 2 in self._to.formats else ""),
                option="format",
            )
        operation = (
            f"migrate of version {self._batch + 1} to {self._to.name} in checkpoint format {self._format} by "
            "Spark"
        )
        with new_checkpoint(operation, self._query.location, target, goes_on=True) as (storage, location):
            self._describe(storage)
            receipts = Receipts(location)
            copy = _TaskCopy(self._query, self._request(), location, receipts, threads, memory)
            keys = [*self._versions]
            # A task for each core, as each starts a JVM, which has to warm up: of eight stores with 2 million
            # rows four tasks a core took three times the processor time. One that is repeated copies only
            # stores that are not there yet.
            count = min(len(keys), tasks.parallelism)
            with self._stopped.during():
                results = tasks.run(copy, [keys[n::count] for n in range(count)], at_once=1, meter=progress)
                written = {key: store for stores in results for key, store in stores.items()}
                receipts.remove_orphans(written.items())
            ids = {key: store.checkpoint_id for key, store in written.items()}
            return self._finish(storage, ids, sum(store.rows for store in written.values()))

    def _describe(self, target: Storage) -> None:
        for operator in self._query.operators:
            copying.copy_operator(self._source, target, operator)

    def _finish(self, target: Storage, ids: Mapping[StoreKey, str], rows: int) -> Migrated:
        """Copy Spark's logs."""
        copying.copy_logs(
            self._source,
            target,
            self._batch,
            conf=self._new_pins(),
            ids=self._by_operator(ids) if self._format > 1 else None,
            checkpoint_format=self._format,
        )
        return Migrated(
            self._from.name, self._to.name, self._format, self._batch + 1, len(self._versions), rows
        )

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
                        f"operator {operator.id} ({operator.words}) of {self._query.location} keeps its "
                        f"state in column families, which the state store {to.name} does not have: Spark "
                        "runs it only on other state stores",
                        option="to",
                    )

    def _check_lists(self) -> None:
        """Refuse lists that the installed Spark cannot read from RocksDB, since a later one wrote them."""
        if (
            self._from is ROCKSDB
            and self._pinned.get(session.MERGE_OPERATOR_KEY, session.UNNAMED[session.MERGE_OPERATOR_KEY])
            != session.WITH_DELIMITER
            and any(operator.schema_files for operator in self._query.operators)
            and joins_with_delimiter(installed_spark())
        ):
            raise OptionError(
                f"the query of {self._query.location} began on Spark 4.2 or later, which joins the values of "
                f"lists in RocksDB in a way that Spark {installed_spark()} cannot read "
                f"({session.MERGE_OPERATOR_KEY}): migrate with the pyspark that the query ran on",
                option=session.MERGE_OPERATOR_KEY,
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
        pins = {session.PROVIDER_KEY: self._to.provider}
        if (
            self._to is INCREMENTAL
            and self._pinned.get(session.ROW_CHECKSUMS_KEY, session.UNNAMED[session.ROW_CHECKSUMS_KEY])
            == "true"
        ):
            pins[session.ROW_CHECKSUMS_KEY] = "false"  # its files have their own checksums
        if self._to is ROCKSDB and joins_with_delimiter(installed_spark()):
            pins[session.MERGE_OPERATOR_KEY] = session.WITH_DELIMITER
        return pins

    def _request(self) -> _Request:
        conf = {name: value for name, value in self._conf.items() if not name.startswith(_HADOOP)}
        return _Request(
            version=self._batch + 1,
            hadoop={
                name.removeprefix(_HADOOP): value
                for name, value in self._conf.items()
                if name.startswith(_HADOOP)
            },
            source=Side(
                copying.hadoop_uri(self._query.location),
                self._pinned,
                {**conf, **self._from.conf_of(self._source_format)},
            ),
            pins={**self._pinned, **self._new_pins()},
            conf={**conf, **self._to.conf_of(self._format)},
            operators=self._query.operators,
            versions=self._versions,
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


@dataclass(frozen=True)
class _Request:
    """A request for any of a query's stores and any target directory. A value: tasks get copies."""

    version: int
    hadoop: Mapping[str, str]
    source: Side
    pins: Mapping[str, str]
    conf: Mapping[str, str]
    operators: Sequence[Operator]
    versions: Mapping[StoreKey, VersionId]

    def of(self, location: str, keys: Collection[StoreKey], threads: int) -> dict[str, object]:
        """Return the request, as the program reads it, to copy some stores to a directory, from here."""
        python = {f"{PREFIX}agentPython": sys.executable}
        stores = []
        for operator in self.operators:
            for name in operator.stores:
                of_store = sorted(key for key in keys if (key.operator, key.name) == (operator.id, name))
                if of_store:
                    stores.append(self._copied(operator, name, of_store, location))
        return CopyRequest(
            version=self.version,
            threads=threads,
            hadoop=self.hadoop,
            source=Side(self.source.location, self.source.pins, {**python, **self.source.conf}),
            target=Side(location, self.pins, {**python, **self.conf}),
            stores=stores,
        ).to_json()

    def _copied(self, operator: Operator, store: str, keys: Sequence[StoreKey], location: str) -> CopiedStore:
        return CopiedStore(
            operator=operator.id,
            name=store,
            prefix_columns=operator.prefix_columns.get(store, 0),
            lists=[*operator.lists, *_LISTS],
            internal=_INDEXES,
            schema_files=[f"{location}/{path}" for path in operator.schema_files.get(store, ())],
            partitions={key.partition: self.versions[key].checkpoint_id for key in keys},
        )


@dataclass(frozen=True)
class _TaskCopy:
    """The work of a task: copies stores to a local directory, and stores their files in the target."""

    query: Query
    request: _Request
    location: str
    receipts: Receipts
    threads: int
    memory: str

    def __call__(self, keys: Sequence[StoreKey], progress: Any) -> dict[StoreKey, WrittenStore]:
        """Copy the stores that have no receipt yet."""
        receipts = {key: self.receipts.of(key) for key in keys}
        done = {key: written for key, written in receipts.items() if written is not None}
        if progress is not None:
            for _ in done:
                progress.store_done()
        todo = [key for key in keys if key not in done]
        if not todo:
            return done
        with ScratchDirectory("state-store-") as scratch:
            with (
                closing(open_storage(self.query.location)) as source,
                closing(open_storage(scratch)) as local,
            ):
                for operator in self.query.operators:
                    copying.copy_operator(source, local, operator)
            request = self.request.of(copying.hadoop_uri(scratch), todo, self.threads)
            with JvmProgram(PROGRAM, request, memory=self.memory) as program:
                for store in _followed(program, progress, [tempfile.gettempdir()]):
                    done[store.key] = self._stored(store, Path(scratch) / store.key.path)
        return done

    def _stored(self, store: StoreDone, place: Path) -> WrittenStore:
        """Store the files of a store, that of its version last; return what counts as the store."""
        files = {
            path.relative_to(place).as_posix(): path
            for path in sorted(place.rglob("*"))
            if path.is_file() and not path.name.startswith(".") and "_metadata" not in path.parts
        }
        of_version = re.compile(rf"({DELTA_DIRECTORY}/)?0*{self.request.version}[_.][^/]*\.(sst|zip)")
        (last,) = filter(of_version.fullmatch, files)
        others = [name for name in files if name != last]
        size_bytes = sum(path.stat().st_size for path in files.values())
        with closing(open_storage(f"{self.location}/{store.key.path}")) as storage:
            for name in (*others, last):
                storage.upload(files[name], name)
            stored = WrittenStore(store.checkpoint_id or "", last, store.rows, size_bytes, tuple(others))
            counted = self.receipts.claim(store.key, stored)
        for path in files.values():
            path.unlink()
        return counted


def _disks(target: str) -> list[str]:
    """Return the directories on local disks that a migration without Spark fills."""
    return [tempfile.gettempdir(), *([] if local_path(target) is None else [target])]


def _followed(program: JvmProgram, progress: RowProgress | None, disks: Sequence[str]) -> Iterator[StoreDone]:
    """Follow the program to its end; yield the stores as they are done.

    Raises the error that the program reports, if a disk is full with the `disks` that may be.
    """
    reported = announced = done = 0
    for event in map(event_of, program.events()):
        if isinstance(event, CopyFailed):
            raise _with_disks(event.error, disks)
        if isinstance(event, StoreDone):
            done += 1
            yield event
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


def _with_disks(error: StateStoreError, disks: Sequence[str]) -> StateStoreError:
    """Return an error of the program; a full disk, which passes for damage there, with what a user can do."""
    if not tells_full_disk(error.message):
        return error
    full = " or ".join(f"'{directory}'" for directory in disks)
    return StorageError(
        f"{error.message} (free space in {full}, or set TMPDIR to another directory)", file=disks[-1]
    )
