"""Views: the names by which users open parts of an operator's state, each a column family of a Spark store.

| name | its rows |
|---|---|
| `default` | the state of most operators: a row for each key |
| `left`, `right` | a side of a stream-stream join: the rows that wait for the other side |
| `timers` | the timers of `transformWithState`, unless a variable has that name |
| the name of a store or of a column family | the rows of that, unchanged |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from state_store.data.dataset.layout.schemas import DEFAULT_FAMILY, FamilySchema, is_avro, read_schemas
from state_store.data.query import DEFAULT_NAME, Operator, Query
from state_store.errors import FormatError, MissingError

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
            by_name[name] = View(name, operator, store, schema)
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
    operator = next((known for known in query.operators if known.id == number), None)
    if operator is None:
        known = ", ".join(f"{each.id} ({each.name})" for each in query.operators)
        raise MissingError(
            f"{query.location} has no stateful operator {number}; there are: {known}", file=query.location
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
    known = views(query, _operator(query, number))
    if DEFAULT_NAME in known:
        return DEFAULT_NAME
    return next((side for side in _SIDES if side in known), next(iter(users_first(known)), DEFAULT_NAME))


def users_first(names: Iterable[str]) -> list[str]:
    """Return names of stores: those of users in the order of declaration, then Spark's own."""
    given = list(names)
    return sorted(given, key=lambda name: (name.startswith("$"), name == TIMERS, "-key" in name))


def _named(query: Query, operator: Operator, name: str) -> View:
    known_views = views(query, operator)
    if name not in known_views:
        raise MissingError(
            f"operator {operator.id} ({operator.name}) of {query.location} has no store '{name}'; there are: "
            f"{', '.join(users_first(known_views))}",
            file=query.location,
        )
    return known_views[name]
