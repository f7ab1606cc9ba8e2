"""A query that goes on with a real checkpoint: random batches, by the store without a JVM."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import state_store
from state_store.core.deletion.lease import read_listing
from state_store.core.deletion.retention import Retention, RetentionPolicy
from state_store.core.storage import open_storage
from state_store.data.dataset.columns import FAMILY_BYTES, decoded_keys, encoded_keys, partition_of
from state_store.data.dataset.views import View, views
from state_store.data.embedded import EmbeddedStore
from state_store.data.query import Operator, Query, StoreKey
from state_store.errors import FormatError

Row = tuple[str, bytes]
"""A column family, and a key in it."""


class RunningQuery:
    """The query; `batch` runs a batch that puts and removes keys it has or had, and new ones."""

    def __init__(self, root: Path, seed: int = 0) -> None:
        self.root = root
        self._random = random.Random(seed)
        query = Query.open(str(root))
        self._has_ids = any(version.checkpoint_id for version in query.committed().values())
        self._keys: dict[StoreKey, list[Row]] = {key: [] for key in query.stores()}
        self._values: dict[str, list[bytes]] = {}
        for key, version in query.committed().items():
            with EmbeddedStore.open(query.uri(key), has_checkpoint_ids=self._has_ids) as store:
                assert store.version.number == version.number
                for family in store.families:
                    for name, value in store.scan(family=family):
                        self._keys[key].append((family, name))
                        self._values.setdefault(f"{key.operator}/{key.name}/{family}", []).append(value)
        for operator in query.operators:
            for view in views(query, operator).values():
                if not view.is_another_name:
                    self._add_new_keys(operator, view)

    def batch(self, changes: int = 10, *, puts: float = 0.6) -> None:
        """Run a batch with so many changes of each store."""
        query = Query.open(str(self.root))
        last = query.newest_batch()
        ids: dict[str, list[list[str]]] = {}
        for operator in query.operators:
            ids[str(operator.id)] = [
                [
                    str(self._committed(StoreKey(operator.id, number, name), changes, puts))
                    for name in operator.stores
                ]
                for number in range(operator.partitions)
            ]
        self._log("offsets", last, {})
        self._log("commits", last, {"stateUniqueIds": ids} if self._has_ids else {})

    def _committed(self, key: StoreKey, changes: int, puts: float) -> str | None:
        draw = self._random
        with EmbeddedStore.open(f"{self.root}/{key.path}", has_checkpoint_ids=self._has_ids) as store:
            pool = self._keys[key]
            for family, name in draw.sample(pool, min(changes, len(pool))):
                if draw.random() < puts:
                    store.put(name, draw.choice(self._values[f"{key.operator}/{key.name}/{family}"]), family)
                else:
                    store.remove(name, family)
            id_ = store.commit().checkpoint_id
            if draw.random() < 0.2:
                store.checkpoint()
        return id_

    def remove_family(self, key: StoreKey) -> str:
        """Run a batch that removes a column family of the only store, and return its name."""
        with EmbeddedStore.open(f"{self.root}/{key.path}", has_checkpoint_ids=self._has_ids) as store:
            name = next(name for name in store.families if name != "default")
            for row, _ in store.scan(family=name):
                store.remove(row, name)
            store._committed = {other: family for other, family in store.families.items() if other != name}
            changes = store._changes
            changes._families.pop(name)
            id_ = str(store.commit().checkpoint_id)
        last = Query.open(str(self.root)).newest_batch()
        self._log("offsets", last, {})
        self._log("commits", last, {"stateUniqueIds": {str(key.operator): [[id_]]}} if self._has_ids else {})
        return name

    def retire(self, retained: int) -> None:
        """Keep so many versions, as the agents of a running query do, and no older file than they need."""
        state_store.full_checkpoint(self.root)
        for key, newest in Query.open(str(self.root)).committed().items():
            storage = open_storage(f"{self.root}/{key.path}")
            if newest.checkpoint_id is None:
                newest = read_listing(storage).attempts.resolve(newest.number)
            assert Retention(storage, RetentionPolicy(batches=retained)).cleanup(newest).skipped is None

    def _add_new_keys(self, operator: Operator, view: View) -> None:
        """Add keys that the state never had to those that batches choose from: texts with another end."""
        import pyarrow

        family = view.schema.family
        known = [
            name
            for key, rows in self._keys.items()
            if (key.operator, key.name) == (operator.id, view.store)
            for of, name in rows
            if of == family
        ]
        columns = decoded_keys(
            view, [bytes(FAMILY_BYTES) + name for name in known], range(len(view.schema.key))
        )
        if not known or not any(pyarrow.types.is_string(column.type) for column in columns):
            return
        for ending in range(3):
            others = [
                pyarrow.array([f"{text}-{ending}" for text in column.to_pylist()], column.type)
                if pyarrow.types.is_string(column.type)
                else column
                for column in columns
            ]
            for number, name in enumerate(encoded_keys(view, others, len(known)).to_pylist()):
                place = partition_of(view, [column.slice(number, 1) for column in others])
                assert place is not None
                self._keys[StoreKey(operator.id, place, view.store)].append((family, name))

    def _log(self, log: str, last: int, more: dict[str, Any]) -> None:
        lines = (self.root / log / str(last)).read_text().split("\n")
        lines[1] = json.dumps({**json.loads(lines[1]), **more})
        (self.root / log / str(last + 1)).write_text("\n".join(lines))


def described(checkpoint: str) -> dict[str, Any]:
    """Return all rows that Spark keeps, by operator and store, each with its partition, without an order."""
    query = Query.open(checkpoint)
    found: dict[str, Any] = {}
    for operator in query.operators:
        for name, view in views(query, operator).items():
            if view.is_another_name:
                continue
            try:
                with state_store.open(checkpoint, operator.id, name) as state:
                    rows = state.to_arrow().to_pylist()
                    assert state.count() == len(rows) or view.is_list
            except FormatError:
                raise
            found[f"{operator.id}/{name}"] = sorted(map(repr, rows))
    return found
