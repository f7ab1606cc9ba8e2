"""A query's checkpoint directory with real files, made by the product's own code and Spark's logs as text."""

from __future__ import annotations

import copy
import json
import os
import shutil
import uuid
import zlib
from pathlib import Path

from state_store.core.checkpoint.lineage import AttemptId
from state_store.core.checkpoint.names import DeltaName, VersionId, parent_of
from state_store.core.checkpoint.stored_documents import Cause, ColumnFamily, DeltaMetadata
from state_store.core.deletion.lease import Lease
from state_store.core.engine.database import Database, DatabaseSettings, write_delta
from state_store.core.files.workspace import LocalCache, Workspace
from state_store.core.settings.options import Options
from state_store.core.settings.session import PROVIDER_CLASS, PROVIDER_KEY
from state_store.core.snapshots.context import LocalDatabase, StoreContext
from state_store.core.snapshots.merge import Published, merge, publish
from state_store.core.snapshots.restore import Restored, restore
from state_store.core.storage import Storage, open_storage
from state_store.data.query import StoreKey
from state_store.errors import StateStoreError

Rows = dict[bytes, "bytes | None"]


class QueryDirectory:
    """An operator with stores; `commit` makes a batch, `merge` a snapshot of a store."""

    def __init__(
        self,
        root: Path,
        scratch: Path,
        *,
        partitions: int = 2,
        names: tuple[str, ...] = ("default",),
        provider: str = PROVIDER_CLASS,
        ids: bool = True,
        location: str | None = None,
        settings: DatabaseSettings | None = None,
    ) -> None:
        self.root, self.scratch, self.ids = root, scratch, ids
        self.location = location or str(root)
        self.storage = open_storage(self.location)
        self.keys = [StoreKey(0, partition, name) for partition in range(partitions) for name in names]
        self.version = 0
        self.state: dict[StoreKey, dict[bytes, bytes]] = {key: {} for key in self.keys}
        self.newest: dict[StoreKey, VersionId] = {}
        self.settings = settings or DatabaseSettings()
        self._before, self._older = copy.deepcopy(self.state), dict(self.newest)
        self._provider = provider
        self._names = names
        self._family = 0
        self._removed: dict[StoreKey, list[bytes]] = {}
        self.uncounted: dict[str, int] = {}
        """Rows that the written records leave out of their count, of a `family` or the `store`."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        self._describe(partitions)

    def copied(self, root: Path) -> QueryDirectory:
        """Return an independent copy of the query in another local directory."""
        other = copy.deepcopy(self)
        shutil.copytree(self.root, root)
        other.root, other.location, other.storage = root, str(root), open_storage(str(root))
        return other

    def commit(self, rows: Rows, *, logged: bool = True) -> None:
        """Run a batch that writes `rows` into every store; with `logged` Spark's commit log has it."""
        self.version += 1
        self._before, self._older = copy.deepcopy(self.state), dict(self.newest)
        conf = {PROVIDER_KEY: self._provider}
        metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": conf}
        self._write(f"offsets/{self.version - 1}", metadata, "{}")
        for key in self.keys:
            self.newest[key] = self.write_version(key, rows, self.newest.get(key))
        if logged:
            self._log_commit()

    def multiply(self, partitions: int) -> None:
        """Give every partition the files of the first, which is the only one so far."""
        (first,) = self.keys
        self.keys = [StoreKey(0, partition) for partition in range(partitions)]
        for key in self.keys[1:]:
            shutil.copytree(self.root / first.path, self.root / key.path, copy_function=os.link)
            self.newest[key], self.state[key] = self.newest[first], dict(self.state[first])
        self._describe(partitions)
        self._log_commit()

    def run_again(self, rows: Rows) -> None:
        """Run the newest batch again with another result: another attempt at its version."""
        self.state = copy.deepcopy(self._before)
        for key in self.keys:
            self.newest[key] = self.write_version(key, rows, self._older.get(key))

    def restored(self, key: StoreKey) -> dict[bytes, bytes]:
        """Return the rows of a store's newest version, from its files."""
        base, place = self._base(key)
        with Database(base.directory, place.settings) as database:
            return {name[2:]: value for name, value in database.scan() if name.startswith(b"\0\0")}

    def complaints(self, key: StoreKey) -> str:
        """Return the warnings of a restore of a store's newest version, or its error."""
        try:
            return "\n".join(self._restore(key)[0].warnings)
        except StateStoreError as error:
            return error.message

    def commit_anew(self, rows: Rows, family: int) -> None:
        """Run a batch that removes the column family, and makes it anew with another id."""
        before, self._family = self._family, family
        self._removed = {
            key: [before.to_bytes(2, "big") + name for name in state] for key, state in self.state.items()
        }
        self.state = {key: {} for key in self.keys}
        self.commit(rows)
        self._removed = {}

    def write_version(self, key: StoreKey, rows: Rows, parent: VersionId | None) -> VersionId:
        """Store the delta of a store's next version."""
        removed = self._removed.get(key, [])
        at = VersionId(self.version, self._new_id(key))
        state = self.state[key]
        state.update({name: value for name, value in rows.items() if value is not None})
        for name in [name for name, value in rows.items() if value is None]:
            state.pop(name, None)
        parent_id = parent_of(parent or VersionId(0, None))
        puts = sum(value is not None for value in rows.values())
        counts = {scope: len(state) - self.uncounted.get(scope, 0) for scope in ("family", "store")}
        families = {"default": ColumnFamily(self._family, False, counts["family"])}
        record = DeltaMetadata(
            at.number,
            at.checkpoint_id,
            parent_id,
            counts["store"],
            puts,
            len(rows) + len(removed) - puts,
            families,
            "tests",
        )
        local = self.scratch / f"{uuid.uuid4()}.sst"
        written = {self._family.to_bytes(2, "big") + name: value for name, value in rows.items()}
        written.update(dict.fromkeys(removed))
        write_delta(local, sorted(written.items()), record)
        crc = zlib.crc32(local.read_bytes())
        self.store(key).upload(local, DeltaName(at.number, at.checkpoint_id, parent_id, crc).path)
        return at

    def _new_id(self, key: StoreKey) -> str:
        """Return an id as Spark makes it, or as the store does without Spark's."""
        if self.ids:
            return str(uuid.uuid4())
        attempts = [path for path in self.files(key) if path.match(f"delta/{self.version:020}_*")]
        return str(AttemptId(len(attempts), "0" * 8, 0, uuid.uuid4().hex[:8]))

    def merge(self, key: StoreKey, kind: str, cause: Cause | None = None) -> Published:
        """Make a snapshot of the newest version, from its newest snapshot, as the agent does."""
        base, place = self._base(key)
        merged = merge(place, base, [], base.version, kind)
        lease = Lease(place.storage, expiry_ms=Options().lease_expiry_ms)
        return publish(place, merged.base, lease, full=kind == "full", cause=cause)

    def store(self, key: StoreKey) -> Storage:
        return open_storage(f"{self.location}/{key.path}")

    def files(self, key: StoreKey) -> list[Path]:
        return sorted(path for path in (self.root / key.path).glob("[!_]*/*") if path.is_file())

    def _base(self, key: StoreKey) -> tuple[LocalDatabase, StoreContext]:
        restored, place = self._restore(key)
        return restored.base, place

    def _restore(self, key: StoreKey) -> tuple[Restored, StoreContext]:
        directory = self.scratch / str(uuid.uuid4())
        workspace = Workspace(directory)
        workspace.open()
        cache = LocalCache(directory / "cache", 1 << 30).store(str(key))
        place = StoreContext(self.store(key), cache, workspace, self.settings)
        return restore(place, self.newest[key]), place

    def _describe(self, partitions: int) -> None:
        stores = [
            {"storeName": name, "numColsPrefixKey": 0, "numPartitions": partitions} for name in self._names
        ]
        operator = {"operatorId": 0, "operatorName": "applyInPandasWithState"}
        self._write("state/0/_metadata/metadata", {"operatorInfo": operator, "stateStoreInfo": stores})
        self.storage.write("metadata", b'{"id":"0b7a4a3c-6f0e-4c7e-9a53-6b8f9a1d2c3e"}', overwrite=True)
        schema = b"".join(len(text).to_bytes(2, "big") + text for text in (b"v1", b"{}", b"{}"))
        for name in self._names:
            path = f"{StoreKey(0, 0, name).path}/_metadata/schema"
            self.storage.write(path, schema, overwrite=True)

    def _log_commit(self) -> None:
        by_partition: list[list[str]] = []
        for key in self.keys:
            if key.name == self._names[0]:
                by_partition.append([])
            by_partition[-1].append(str(self.newest[key].checkpoint_id))
        unique = {"stateUniqueIds": {"0": by_partition}} if self.ids else {}
        self._write(f"commits/{self.version - 1}", {"nextBatchWatermarkMs": 0, **unique})

    def _write(self, path: str, content: dict, *more: str) -> None:
        text = "\n".join(["v1", json.dumps(content), *more])
        self.storage.write(path, text.encode(), overwrite=True)


def rows(first: int, count: int, value: bytes = b"v") -> Rows:
    """Return `count` keys from number `first`, each with `value`."""
    return {f"key-{number:06}".encode(): value * 20 for number in range(first, first + count)}
