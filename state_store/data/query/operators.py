"""The stateful operators of a query, by Spark's metadata and by what else is in the checkpoint directory.

Spark writes for each operator `state/<operator>/_metadata/metadata` (its name, its stores and their number of
partitions), or `state/<operator>/_metadata/v2/<batch>` for an operator with column families. The number of
partitions there is that of the session, `spark.sql.shuffle.partitions`. An operator without grouping keys has
one partition all the same, so the commit log and the schema of the keys are asked, too.

An operator has a name for people, such as "aggregation on user" (`Operator.title`), which is the same on the
page of checkpoints, in Spark's tab and in commands.

A store is named by its operator, its partition and its own name (`StoreKey`). Schema files have texts as
Java's `DataOutputStream` writes them (`JavaTexts`).

Safe for any thread.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from state_store.core.storage import Storage
from state_store.data.query.arguments import check_name, check_number
from state_store.errors import DamagedError, MissingError, StateStoreError

DEFAULT_NAME = "default"

_PIECES_LIMIT = 1 << 10
"""Number of pieces of a text that no schema reaches."""

_LIST_STATE = "ListState"
_LIMIT = "globalLimit"
"""Spark's name of the operator that counts all rows in one partition."""

_AGGREGATION = "stateStoreSave"
"""Spark's name of an aggregation, which is in one partition if it has no grouping keys."""

JOIN = "symmetricHashJoin"
"""Spark's name of a join. Its key columns are called `field0` and so on, whatever the query calls them."""

OPERATOR_WORDS = {
    _AGGREGATION: "aggregation",
    "sessionWindowStateStoreSaveExec": "aggregation in session windows",
    "dedupe": "deduplication",
    "dedupeWithinWatermark": "deduplication within the watermark",
    JOIN: "join of two streams",
    "flatMapGroupsWithState": "flatMapGroupsWithState",
    "applyInPandasWithState": "applyInPandasWithState",
    "transformWithStateExec": "transformWithState",
    "transformWithStateInPandasExec": "transformWithState in Python",
    "transformWithStateInPySparkExec": "transformWithState in Python",
    _LIMIT: "limit",
}
"""Words for what a stateful operator does, by Spark's name of it. The tab reads them from the jar."""

MAX_KEYS = 3
"""Columns that a title names; more of them are counted."""

_MADE_UP = frozenset({"__dummy__", "sessionStartTime"})
"""Names of key columns that Spark makes up, for session windows and operators without columns to group by."""

_SCHEMA_FILE = re.compile(r"state/[0-9]+/_stateSchema/[^/]+/[^/]+")

_NO_COLUMNS: list[object] = []


@dataclass(frozen=True, order=True)
class StoreKey:
    """A store of a query: Spark's operator id, partition and store name."""

    operator: int
    partition: int
    name: str = DEFAULT_NAME

    @property
    def path(self) -> str:
        """Its directory below the checkpoint directory."""
        path = f"state/{self.operator}/{self.partition}"
        return path if self.name == DEFAULT_NAME else f"{path}/{self.name}"

    def __str__(self) -> str:
        return f"{self.operator}/{self.partition}/{self.name}"


@dataclass(frozen=True)
class Filter:
    """A choice of stores; None stands for all.

    `name` is Spark's name of a store, a side of a join (`left`, `right`), or a state variable.

    Raises:
        OptionError: a number or a name is of another type.
    """

    operator: int | None = None
    partition: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        """Check the types of the values."""
        check_number("operator", self.operator, optional=True)
        check_number("partition", self.partition, optional=True)
        check_name("store", self.name)


class JavaTexts:
    """A reader of texts and numbers, one after the other. Methods raise DamagedError if bytes are missing."""

    def __init__(self, data: bytes, path: str) -> None:
        self._data, self._path, self._at = data, path, 0

    def text(self) -> str:
        """Read a text of `writeUTF`: 2 bytes with its length, then modified UTF-8."""
        size = self.number(">H")
        data = self._data[self._at : self._at + size]
        self._at += size
        if len(data) != size:
            raise self._damaged()
        try:
            return _from_java(data)
        except ValueError as error:
            raise self._damaged() from error

    def pieces(self) -> str:
        """Read a long text that is written in pieces: 4 bytes with their number, then each as a text."""
        count = self.number(">i")
        if not 0 <= count < _PIECES_LIMIT:
            raise self._damaged()
        return "".join(self.text() for _ in range(count))

    def numbered_pieces(self) -> tuple[int, str]:
        """Read pieces that may have a number of 2 bytes before them; return the number (0 without one) too.

        The two cases differ, because both numbers read as one of 4 bytes exceed any number of pieces.
        """
        start, number = self._at, 0
        if not 0 < self.number(">i") < _PIECES_LIMIT:
            self._at = start
            number = self.number(">h")
            start += 2
        self._at = start
        return number, self.pieces()

    def number(self, form: str) -> int:
        """Read an integer in the form that `struct` calls `form`."""
        (number,) = self._take(form)
        return int(number)

    def _take(self, form: str) -> tuple[Any, ...]:
        size = struct.calcsize(form)
        data = self._data[self._at : self._at + size]
        self._at += size
        if len(data) != size:
            raise self._damaged()
        return struct.unpack(form, data)

    def _damaged(self) -> DamagedError:
        return DamagedError(f"'{self._path}' is damaged: it is not a schema of Spark's", file=self._path)


def _from_java(data: bytes) -> str:
    """Decode Java's modified UTF-8: surrogates are encoded each by itself, and zero as two bytes."""
    return (
        data.replace(b"\xc0\x80", b"\0")
        .decode("utf-8", "surrogatepass")
        .encode("utf-16-le", "surrogatepass")
        .decode("utf-16-le")
    )


@dataclass(frozen=True)
class Operator:
    """A stateful operator.

    Attributes:
        id: its number in the query.
        name: Spark's name of the kind of operator.
        stores: the number of partitions of each of its stores, by the store's name.
        prefix_columns: how many columns of a store's keys come first in their encoding, by the store's name
            (0: keys have no prefix).
        schema_files: Spark's files of the schemas of a store, oldest first, where its metadata names them.
        lists: the column families where a key has a list of values.
        variables: the state variables of `transformWithState`.
        is_in_one_partition: whether Spark keeps its state in one partition, however many the query has.
    """

    id: int
    name: str
    stores: dict[str, int]
    prefix_columns: dict[str, int] = field(default_factory=dict)
    schema_files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    lists: frozenset[str] = frozenset()
    variables: tuple[str, ...] = ()
    is_in_one_partition: bool = False

    @property
    def words(self) -> str:
        """Words for what it does; Spark's name of an operator that has none."""
        return OPERATOR_WORDS.get(self.name, self.name)

    def title(self, keys: Sequence[str]) -> str:
        """Return its name for people, such as "aggregation on user".

        Args:
            keys: the columns by which it groups its rows; empty: none, or they are not known.
        """
        more = f" and {len(keys) - MAX_KEYS} more" if len(keys) > MAX_KEYS else ""
        return f"{self.words} on {', '.join(keys[:MAX_KEYS])}{more}" if keys else self.words

    @property
    def partitions(self) -> int:
        """The number of partitions, which is the same for all of its stores."""
        return next(iter(self.stores.values()))


def operators_of(storage: Storage) -> list[Operator]:
    """Return the stateful operators of the query in a checkpoint directory, by their numbers.

    Their numbers of partitions are those of the metadata; see `with_partitions`.

    Raises:
        DamagedError: metadata cannot be read, or an operator that has a directory has none.
    """
    operators: list[Operator] = []
    while True:
        number = len(operators)
        path = f"state/{number}/_metadata/metadata"
        try:
            text = text_of(storage, path)
        except MissingError:
            batches = described_batches(storage, number)
            if not batches:
                break
            path = description_path(number, max(batches))
            text = text_of(storage, path)
        operators.append(parsed(number, text, path))
    if operators:
        _check_complete(storage, operators)
    return operators


def _check_complete(storage: Storage, operators: list[Operator]) -> None:
    """Raise DamagedError if there is the directory of an operator without metadata."""
    numbers = [int(name) for name in storage.directories("state") if name.isdigit()]
    extra = min((number for number in numbers if number >= len(operators)), default=None)
    if extra is not None:
        path = f"state/{len(operators)}/_metadata/metadata"
        raise DamagedError(
            f"'{storage.location}/state/{extra}' has state of operator {extra}, but '{path}' does not "
            "exist: without Spark's metadata the state cannot be read",
            file=path,
        )


def with_partitions(operator: Operator, storage: Storage, committed: Mapping[int, int]) -> Operator:
    """Return the operator with the number of partitions that it has.

    Args:
        operator: as Spark's metadata describe it.
        storage: the checkpoint directory.
        committed: the numbers of partitions in Spark's commit log, by operator; none under checkpoint
            format 1.

    Raises:
        DamagedError: the schema of an aggregation's keys cannot be read, or an operator that has one
            partition was committed in several.
    """
    keyless = operator.name == _LIMIT or (operator.name == _AGGREGATION and _has_no_keys(operator, storage))
    count = committed.get(operator.id, 1 if keyless else operator.partitions)
    if keyless and count != 1:
        raise DamagedError(
            f"operator {operator.id} ({operator.words}) of {storage.location} has no grouping keys, so it "
            f"has one partition, but Spark's commit log has {count}",
            file="commits",
        )
    return replace(operator, stores=dict.fromkeys(operator.stores, count), is_in_one_partition=keyless)


def _has_no_keys(operator: Operator, storage: Storage) -> bool:
    """Return True if the keys of an aggregation have no columns; False if Spark's file of them is missing."""
    path = schema_file(operator, next(iter(operator.stores)))
    try:
        texts = JavaTexts(storage.read(path), path)
    except MissingError:
        return False
    version = texts.text()
    if version not in ("v1", "v2"):
        return False
    text = texts.text() if version == "v1" else texts.pieces()
    try:
        return bool(json.loads(text)["fields"] == _NO_COLUMNS)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"'{path}' is damaged: it has no schema of keys: {error!r}", file=path) from error


def grouping_columns(operator: Operator, storage: Storage) -> list[str]:
    """Return the names of the columns by which an operator groups; empty if they cannot be read."""
    store = next(iter(operator.stores))
    if operator.schema_files.get(store) or operator.name == JOIN:  # column families have keys of their own
        return []
    path = schema_file(operator, store)
    try:
        texts = JavaTexts(storage.read(path), path)
        version = texts.text()
        key = json.loads(texts.text() if version == "v1" else texts.pieces())
        names = [str(field["name"]) for field in key["fields"]]
    except (StateStoreError, OSError, ValueError, KeyError, TypeError):  # a name for people can do without
        return []
    return [name for name in names if name not in _MADE_UP]


def schema_file(operator: Operator, store: str) -> str:
    """Return the path of Spark's newest file of the schemas of a store."""
    files = operator.schema_files.get(store)
    return files[-1] if files else f"{StoreKey(operator.id, 0, store).path}/_metadata/schema"


def relative_schema_file(named: str) -> str:
    """Return a schema file that metadata name with its whole path as a path below the checkpoint directory.

    Directories above the checkpoint may have names of Spark's too, so the directories are counted from the
    end: `state/<operator>/_stateSchema/<store>/<file>`.

    Raises:
        ValueError: the path has other directories.
    """
    path = "/".join(named.split("/")[-5:])
    if not _SCHEMA_FILE.fullmatch(path):
        raise ValueError(f"'{named}' is not a schema file of Spark's")
    return path


def described_batches(storage: Storage, number: int) -> list[int]:
    """Return the batches since which there are metadata of an operator with column families."""
    listed = storage.list_files(f"state/{number}/_metadata/v2")
    return [int(entry.name) for entry in listed if entry.name.isdigit()]


def description_path(number: int, batch: int) -> str:
    """Return the path of the metadata of an operator since a batch."""
    return f"state/{number}/_metadata/v2/{batch}"


def parsed(number: int, text: str, path: str) -> Operator:
    """Return an operator as Spark's metadata describe it. Raises DamagedError, which names the path."""
    try:
        described: dict[str, Any] = json.loads(text.splitlines()[1])
        name = str(described["operatorInfo"]["operatorName"])
        listed = described["stateStoreInfo"]
        stores = {str(store["storeName"]): int(store["numPartitions"]) for store in listed}
        if not stores or len(set(stores.values())) > 1:
            raise ValueError(f"its stores have the numbers of partitions {stores}")
        prefixes = {store["storeName"]: int(store.get("numColsPrefixKey", 0)) for store in listed}
        schemas = {
            store["storeName"]: tuple(relative_schema_file(file) for file in store["stateSchemaFilePaths"])
            for store in listed
            if store.get("stateSchemaFilePaths")
        }
        variables = dict(_variables(described.get("operatorPropertiesJson") or "{}"))
        lists = frozenset(variable for variable, kind in variables.items() if _LIST_STATE in kind)
        return Operator(number, name, stores, prefixes, schemas, lists, tuple(variables))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{path} is not Spark's operator metadata: {error!r}", file=path) from error


def _variables(properties: str) -> Iterable[tuple[str, str]]:
    """Yield the name and the kind of each state variable of an operator."""
    for listed in json.loads(properties).get("stateVariables", []):
        variable = json.loads(listed) if isinstance(listed, str) else listed
        yield str(variable["stateName"]), str(variable["stateVariableType"])


def text_of(storage: Storage, path: str) -> str:
    """Return the text of a file of Spark's. Raises MissingError."""
    return storage.read(path).decode("utf-8")
