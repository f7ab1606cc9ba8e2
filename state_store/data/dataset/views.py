"""Views: the names by which users open parts of an operator's state, each a column family of a Spark store.

| name | its rows |
|---|---|
| `default` | the state of most operators: a row for each key |
| `left`, `right` | a side of a stream-stream join: the rows that wait for the other side |
| `timers` | the timers of `transformWithState`, unless a variable has that name |
| the name of a store or of a column family | the rows of that, unchanged |

The schemas of column families are read from the files in which Spark describes them. Most operators have one
file for each store, `state/<operator>/0[/<store>]/_metadata/schema`: a version, then the schemas of key and
value as JSON, in pieces as Java writes texts. Operators with column families have several files, oldest
first, which the operator's metadata name. Each describes all families, and how their keys are encoded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from state_store.core.settings.session import ENCODING_KEY, UNNAMED
from state_store.data.query import DEFAULT_NAME, Operator, Query
from state_store.data.query.operators import JavaTexts, schema_file
from state_store.data.rows.decoder import KeyLayout
from state_store.data.rows.types import schema_of
from state_store.errors import DamagedError, FormatError, MissingError

if TYPE_CHECKING:
    import pyarrow

DEFAULT_FAMILY = "default"

ROWS_OF_SIDE = "-keyWithIndexToValue"
_SIDES = ("left", "right")
TIMERS = "timers"
EVENT_TIMERS = "$eventTimers"
TIMERS_OF_KEYS, KEYS_OF_TIMERS = "_keyToTimestamp", "_timestampToKey"
"""Suffixes of the families of timers: ordered by key, and by the time at which they fire."""

TIMER_MS = "expiryTimestampMs"
EXPIRES_MS = "ttlExpirationMs"
"""Columns with the time at which a timer fires, and a row expires, in ms since 1970 UTC."""

TIME_TO_LIVE = "$ttl_"
"""Prefix of the families in which Spark orders the rows of a state variable by expiry."""

NO_VALUE = "__dummy__"
"""Spark's name for the only field of a value that has no content."""

SESSIONS = "sessionWindow"
"""Prefix of the names of Spark's operators of session windows."""

_TIMERS = (EVENT_TIMERS + TIMERS_OF_KEYS, "$procTimers" + TIMERS_OF_KEYS)


@dataclass(frozen=True)
class Writers:
    """The fields with which Spark wrote rows in Avro, by the number of the schema in each row.

    `newest_keys` and `newest_values` are the numbers with which rows are written now.
    """

    keys: Mapping[int, Sequence[pyarrow.Field]]
    values: Mapping[int, Sequence[pyarrow.Field]]
    newest_keys: int
    newest_values: int


@dataclass(frozen=True)
class FamilySchema:
    """The rows of one column family: the fields of keys and values, and the encoding of keys.

    `avro` is None unless rows are encoded with Avro.
    """

    family: str
    key: pyarrow.Schema
    value: pyarrow.Schema
    layout: KeyLayout
    avro: Writers | None = None


def read_schemas(query: Query, operator: Operator, store: str) -> list[FamilySchema]:
    """Return the column families of a store of an operator, as the newest of Spark's files describes them.

    Raises:
        MissingError: there is no such file.
        DamagedError: a file cannot be read.
        FormatError: a file has an unknown version.
    """
    files = operator.schema_files.get(store)
    path = schema_file(operator, store)
    texts = JavaTexts(query.read(path), path)
    version = texts.text()
    if version not in ("v1", "v2", "v3"):
        raise FormatError(f"'{path}' is of version '{version}', which this release does not know", file=path)
    if version == "v3":
        newest = _families(texts, path)
        if files and is_avro(query):
            older_families = [_families(_after_version(query, file), file) for file in files[:-1]]
            return [_with_writers(family, [*older_families, newest]) for family in newest]
        return [family for family, _, _ in newest]
    key, value = (texts.text() if version == "v1" else texts.pieces() for _ in range(2))
    layout = KeyLayout(tuple(range(operator.prefix_columns.get(store, 0))))
    return [FamilySchema(DEFAULT_FAMILY, schema_of(key, file=path), schema_of(value, file=path), layout)]


def is_avro(query: Query) -> bool:
    """Return True if the query's state variables are in Avro. Raises FormatError for unknown encodings."""
    encoding = query.logs.pinned_conf().get(ENCODING_KEY, UNNAMED[ENCODING_KEY])
    if encoding not in ("unsaferow", "avro"):
        raise FormatError(
            f"the state of {query.location} is encoded with '{encoding}' ({ENCODING_KEY}), which is not known"
        )
    return encoding == "avro"


_Numbered = tuple[FamilySchema, int, int]
"""A family, and the numbers of its schemas of keys and of values."""


def _families(texts: JavaTexts, path: str) -> list[_Numbered]:
    return [_family(texts, path) for _ in range(texts.number(">i"))]


def _after_version(query: Query, path: str) -> JavaTexts:
    texts = JavaTexts(query.read(path), path)
    texts.text()
    return texts


def _with_writers(newest: _Numbered, files: Sequence[Sequence[_Numbered]]) -> FamilySchema:
    """Return the family with the schemas of all files."""
    schema, newest_keys, newest_values = newest
    same = [numbered for file in files for numbered in file if numbered[0].family == schema.family]
    keys = {number: list(family.key) for family, number, _ in same}
    values = {number: list(family.value) for family, _, number in same}
    return replace(schema, avro=Writers(keys, values, newest_keys, newest_values))


def _family(texts: JavaTexts, path: str) -> _Numbered:
    """Read one family from a file.

    The texts are a name, the schemas of key and value (each after its number in later releases), the encoder
    of keys, and the schema of the keys of a map, or nothing.
    """
    name = texts.text()
    key_number, text = texts.numbered_pieces()
    key = schema_of(text, file=path)
    value_number, text = texts.numbered_pieces()
    value = schema_of(text, file=path)
    try:
        encoder = json.loads(texts.pieces())
        layout = _layout(encoder)
    except (TypeError, ValueError) as error:
        raise DamagedError(f"'{path}' is damaged: it has no encoder of keys: {error!r}", file=path) from error
    texts.pieces()
    return FamilySchema(name, key, value, layout), key_number, value_number


def _layout(encoder: Mapping[str, Any]) -> KeyLayout:
    if "orderingOrdinals" in encoder:
        return KeyLayout(tuple(encoder["orderingOrdinals"]), is_ordered=True)
    return KeyLayout(tuple(range(encoder.get("numColsPrefixKey", 0))))


@dataclass(frozen=True)
class View:
    """A named part of an operator's state: column family `schema.family` of Spark's store `store`.

    `hidden` are columns of the key that are not shown. `has_no_values` hides all columns of the value, which
    have no content. `has_groups` says that the first column of the value is a user's state, whose fields are
    shown as columns. `is_index_of_map` marks an index over a map of `transformWithState`, whose key column
    has both a key and a user's key.
    """

    name: str
    operator: Operator
    store: str
    schema: FamilySchema
    hidden: tuple[str, ...] = ()
    has_no_values: bool = False
    is_index_of_map: bool = False

    @property
    def address(self) -> tuple[str, str]:
        """The store and the column family that have its rows."""
        return self.store, self.schema.family

    @property
    def is_list(self) -> bool:
        """True if a key has a list of values, each of which is a row of the view."""
        return self.schema.family in self.operator.lists

    @property
    def is_side(self) -> bool:
        """True for a side of a join, where the last column of keys is hidden."""
        return bool(self.hidden)

    @property
    def has_timers(self) -> bool:
        """True if its rows are the timers, by their keys."""
        return self.schema.family in _TIMERS

    @property
    def is_another_name(self) -> bool:
        """True if another view shows all columns of the same rows."""
        return self.is_side or self.has_no_values

    def has_no_content(self, number: int) -> bool:
        """Return True if a field of the value is a placeholder, or repeats a column of the key."""
        field = self.schema.value.field(number)
        is_placeholder = field.name == NO_VALUE and str(field.type) == "null"
        return self.has_no_values or is_placeholder or self.repeats_key(number)

    def repeats_key(self, number: int) -> bool:
        """Return True if the field of the value is a column of the key: a session has its key in both."""
        name = self.schema.value.field(number).name
        is_first = self.schema.value.get_all_field_indices(name)[0] == number
        return self.operator.name.startswith(SESSIONS) and name in self.schema.key.names and is_first

    @property
    def has_row_numbers(self) -> bool:
        """True if the last column of the key numbers the rows that wait with the same key."""
        return ROWS_OF_SIDE in self.store + self.schema.family

    @property
    def has_groups(self) -> bool:
        """True if the first column of the value is a user's state."""
        return self.schema.value.names[:1] == ["groupState"]


def views(query: Query, operator: Operator) -> dict[str, View]:
    """Return all views of an operator's state by name. Raises as `read_schemas`."""
    by_name: dict[str, View] = {}
    for store in operator.stores:
        for schema in read_schemas(query, operator, store):
            name = store if schema.family == DEFAULT_FAMILY else schema.family
            by_name[name] = View(name, operator, store, _with_own_names(schema, operator))
    for name, view in by_name.items():
        indexed = by_name.get(name.removeprefix(TIME_TO_LIVE))
        if indexed is not None and indexed is not view and indexed.schema.layout.first:
            by_name[name] = replace(view, is_index_of_map="elementKey" in view.schema.key.names)
    for side in _SIDES:
        rows = by_name.get(side + ROWS_OF_SIDE)
        if rows is not None:
            by_name[side] = View(side, operator, rows.store, rows.schema, ("index",))
    timers = next((by_name[name] for name in _TIMERS if name in by_name), None)
    if timers is not None and TIMERS not in by_name:
        by_name[TIMERS] = replace(timers, name=TIMERS, has_no_values=True)
    return by_name


def _with_own_names(schema: FamilySchema, operator: Operator) -> FamilySchema:
    """Return the schema in which each column of the key has a name of its own: `name`, `name_2`, ...

    Spark calls all expressions by which an aggregation groups `_groupingexpression`. A session has the
    columns of its key in its value, too.
    """
    import pyarrow

    names = schema.key.names
    if len(set(names)) == len(names):
        return schema
    taken, own_names = {*names}, dict[str, list[str]]()
    for name in names:
        same = own_names.setdefault(name, [])
        number, own = len(same) + 1, name
        while same and own in taken:
            own, number = f"{name}_{number}", number + 1
        taken.add(own)
        same.append(own)

    def renamed(fields: pyarrow.Schema) -> pyarrow.Schema:
        left = {name: iter(own) for name, own in own_names.items()}
        return pyarrow.schema(
            [field.with_name(next(left.get(field.name, iter(())), field.name)) for field in fields]
        )

    value = renamed(schema.value) if operator.name.startswith(SESSIONS) else schema.value
    return replace(schema, key=renamed(schema.key), value=value)


def view(query: Query, number: int, name: str = DEFAULT_NAME) -> View:
    """Return the view of that name in the newest version.

    Raises:
        MissingError: there is no such view; the message lists the existing ones.
        FormatError: Spark encoded the state in another way than as rows.
    """
    operator = _operator(query, number)
    return _named(query, operator, name)


def view_at(query: Query, number: int, name: str, batch: int) -> View:
    """Return the view of that name after a batch: a restart of a query may add and drop state variables.

    Raises as `view`; the message says which versions have a view that this one lacks.
    """
    described = query.described_at(_operator(query, number))
    since = next((first for first in described if first <= batch), min(described))
    try:
        return _named(query, described[since], name)
    except MissingError as error:
        others = [first for first in described if first != since and name in views(query, described[first])]
        if not others:
            raise
        until = min((first for first in described if first > others[0]), default=None)
        last = "on" if until is None else f"to {until}"
        raise MissingError(
            f"{error.message}; it is there from version {others[0] + 1} {last}", file=query.location
        ) from error


def _operator(query: Query, number: int) -> Operator:
    operator = next((names for names in query.operators if names.id == number), None)
    if operator is None:
        names = ", ".join(
            f"{known_operator.id} ({known_operator.words})" for known_operator in query.operators
        )
        raise MissingError(
            f"{query.location} has no stateful operator {number}; there are: {names}", file=query.location
        )
    if is_avro(query) and not operator.name.startswith("transformWithState"):
        raise FormatError(
            f"the state of {query.location} is encoded with Avro, which is only known of transformWithState"
        )
    return operator


def default_name(query: Query, number: int) -> str:
    """Return the default store of an operator.

    It is the only store of most operators, the left side of a join, the first variable of
    `transformWithState`.

    Raises:
        MissingError: there is no such operator.
    """
    names = views(query, _operator(query, number))
    if DEFAULT_NAME in names:
        return DEFAULT_NAME
    return next((side for side in _SIDES if side in names), next(iter(users_first(names)), DEFAULT_NAME))


def users_first(names: Iterable[str]) -> list[str]:
    """Return names of stores: those of users in the order of declaration, then Spark's own."""
    names_as_given = list(names)
    return sorted(names_as_given, key=lambda name: (name.startswith("$"), name == TIMERS, "-key" in name))


def _named(query: Query, operator: Operator, name: str) -> View:
    known_views = views(query, operator)
    if name not in known_views:
        raise MissingError(
            f"operator {operator.id} ({operator.words}) of {query.location} has no store '{name}'; there "
            f"are: {', '.join(users_first(known_views))}",
            file=query.location,
        )
    return known_views[name]
