"""Looks at every file of a store and restores what must be restorable, beside its query or without one."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from state_store.core.checkpoint.manifest import FULL, FileEntry
from state_store.core.checkpoint.metadata import META_KEY
from state_store.core.checkpoint.names import VersionId
from state_store.core.deletion.markers import Leases
from state_store.core.engine.database import Database
from state_store.core.engine.settings import DatabaseSettings
from state_store.core.files.transfer import Wanted, difference, parallel
from state_store.core.snapshots.context import StoreContext
from state_store.core.snapshots.local_database import LocalDatabase
from state_store.core.snapshots.restore import restore
from state_store.core.storage import Storage
from state_store.data.dataset.found import FoundStore
from state_store.data.dataset.html import table
from state_store.data.maintenance.descriptors import MAX_OPEN_FILES, share
from state_store.data.maintenance.workspaces import temporary_context
from state_store.data.query import Filter, Progress, ProgressOption, Query, StoreKey, reporting
from state_store.errors import StateStoreError

TRIES = 3
"""How often the committed version is restored, where the query goes on and retires it meanwhile."""

_THREADS = 4
"""Files of a store that are read at the same time."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong; `kind` as in errors, `file` is below the store's directory. `version` is the
    one that cannot be restored, where it is about one.
    """

    key: StoreKey
    kind: str
    file: str
    what: str
    version: VersionId | None = None


@dataclass(frozen=True)
class Verdict:
    """What was looked at in one store and what was found."""

    key: StoreKey
    files: int
    bytes: int
    restored: VersionId | None
    keys: int
    restorable: tuple[VersionId, ...]
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "operator": self.key.operator,
            "partition": self.key.partition,
            "name": self.key.name,
            "files": self.files,
            "bytes": self.bytes,
            "restored": _version_json(self.restored),
            "keys": self.keys,
            "restorable": [_version_json(version) for version in self.restorable],
            "findings": [
                {"kind": finding.kind, "file": finding.file, "what": finding.what}
                for finding in self.findings
            ],
        }


def verify_store(
    key: StoreKey,
    storage: Storage,
    committed: Callable[[], VersionId | None],
    *,
    every: bool = False,
    open_files: int = MAX_OPEN_FILES,
    meter: Progress | None = None,
) -> Verdict:
    """Looks at everything in one store; the version that Spark committed last must be restorable.

    `committed` reads from Spark's log which one that is; it is asked again where the query went on. With
    `every`, every version is restored. A problem is one that a second look at the directory does not explain:
    the query's own clean-up removes files while they are read here.
    """
    store = FoundStore.read(key, storage)
    settings = DatabaseSettings(max_open_files=open_files)
    sizes = store.contents.listing.sst_bytes()
    if meter is not None:
        meter.expect(sum(sizes.values()))
    with temporary_context(storage, settings) as (context, directory):
        findings = [*_unreadable(store), *_unreadable_marks(store, storage), *_shared_by_full(store)]
        findings += _checksums(store, context, committed(), directory)
        outcome = _restore_newest(store, context, committed, every=every)
    findings += outcome.findings
    if findings:
        again = FoundStore.read(key, storage)
        marks = {finding.file for finding in _unreadable_marks(again, storage)}
        findings = _confirmed(findings, again, committed(), marks)
    return Verdict(
        key,
        len(sizes) + len(store.contents.listing.snapshots),
        sum(sizes.values()),
        outcome.restored,
        outcome.keys,
        tuple(outcome.restorable),
        tuple(findings),
    )


@dataclass(frozen=True)
class _Outcome:
    """What became of restoring: the committed version (None: it failed), its number of keys, what there
    was.
    """

    restored: VersionId | None
    keys: int
    restorable: list[VersionId]
    findings: list[Finding]


def _confirmed(
    findings: list[Finding], again: FoundStore, committed: VersionId | None, marks: set[str]
) -> list[Finding]:
    """Those that a clean-up since does not explain: the file is still there or still needed, the version is
    still there or the one that Spark committed last. `marks` are the leases and tombstones that are damaged
    now.
    """
    needed = {entry.path for manifest in again.contents.manifests.values() for entry in manifest.files}
    present = again.contents.entries.keys() | marks
    versions = {*again.registry.checkpoints(), again.restorable(committed) or committed}
    return [
        finding
        for finding in findings
        if (
            finding.version in versions
            if finding.version
            else finding.file in present or finding.file in needed
        )
    ]


def _unreadable(store: FoundStore) -> Iterator[Finding]:
    for snapshot, read in store.contents.snapshots.items():
        if read.error is not None:
            yield Finding(store.key, read.error.kind, snapshot.path, read.error.message)
    sizes = store.contents.listing.sst_bytes()
    for snapshot, manifest in store.contents.manifests.items():
        for entry in manifest.files:
            if entry.path not in sizes:
                yield Finding(store.key, "missing", entry.path, f"is missing, and {snapshot.path} needs it")


def _unreadable_marks(store: FoundStore, storage: Storage) -> Iterator[Finding]:
    """Leases and tombstones; each counts until it is as old as a lease may be, and is then deleted."""
    until = "while it is young, clean-ups delete nothing"
    for path, lease in Leases.read(storage).leases.items():
        if lease.error is not None:
            yield Finding(store.key, "damaged", path, f"{lease.error.message}; {until}")
    for path in store.contents.tombstones.damaged:
        yield Finding(store.key, "damaged", path, f"'{path}' is damaged; {until}, and merges share no file")


def _shared_by_full(store: FoundStore) -> Iterator[Finding]:
    """Files of full snapshots that an older snapshot has, too."""
    manifests = sorted(store.contents.manifests.values(), key=lambda manifest: manifest.version)
    for full in (manifest for manifest in manifests if manifest.kind == FULL):
        older = {
            entry.path: manifest
            for manifest in manifests
            if manifest.version < full.version
            for entry in manifest.files
        }
        for entry in full.files:
            if entry.path in older:
                other = older[entry.path].version_id
                what = f"is shared by the full checkpoint {full.version_id} and the older {other}"
                yield Finding(store.key, "damaged", entry.path, what)


def _checksums(
    store: FoundStore, context: StoreContext, committed: VersionId | None, directory: Path
) -> list[Finding]:
    """Compares every SST with what is known of it; what the committed version needs is kept for its
    restore.
    """
    known: dict[str, FileEntry] = {
        entry.path: entry for manifest in store.contents.manifests.values() for entry in manifest.files
    }
    crcs = {delta.path: delta.crc for delta in store.contents.listing.deltas}
    newest = store.restorable(committed)
    kept = {file.path for file in store.registry.files(newest)} if newest else set()
    sizes = store.contents.listing.sst_bytes()

    def check(path: str) -> Finding | None:
        entry, local = known.get(path), directory / path.replace("/", "-")
        wanted = Wanted(
            path,
            sizes[path] if entry is None else entry.size_bytes,
            local,
            sha256=None if entry is None else entry.sha256,
            crc32=crcs.get(path),
        )
        try:
            context.storage.download(path, local)
            why = difference(wanted)
            if why is None and wanted.verifiable and path in kept:
                context.cache.keep(path, local)
        except StateStoreError as error:
            return Finding(store.key, error.kind, path, error.message)
        finally:
            local.unlink(missing_ok=True)
        return None if why is None else Finding(store.key, "damaged", path, f"is damaged: {why}")

    return [finding for finding in parallel(_THREADS, check, sorted(sizes)) if finding is not None]


def _restore_newest(
    store: FoundStore, context: StoreContext, committed: Callable[[], VersionId | None], *, every: bool
) -> _Outcome:
    """Restores the version that Spark committed last, with `every` all others too; again where Spark has
    committed another meanwhile and the first is gone.
    """
    for _ in range(TRIES):
        wanted = committed()
        if store.restorable(wanted) is None:
            store = FoundStore.read(store.key, context.storage)  # the query may have gone on since
        outcome = _restore(store, context, wanted, every=every)
        if outcome.restored is not None or committed() == wanted:
            break
    return outcome


def _lacking(store: FoundStore, version: VersionId) -> StateStoreError | None:
    """What the version cannot be made without."""
    try:
        store.contents.lineages.plan(version)
    except StateStoreError as error:
        return error
    return None


def _restore(store: FoundStore, context: StoreContext, wanted: VersionId | None, *, every: bool) -> _Outcome:
    newest, versions = store.restorable(wanted), store.registry.checkpoints()
    findings, keys, restored = [], 0, None
    if wanted is not None and newest is None:
        lacking = _lacking(store, wanted)
        what = f"version {wanted}, which Spark committed last, cannot be restored: files of it are missing"
        what = f"{what}: {lacking.message}" if lacking else what
        file = lacking.file if lacking and lacking.file else "delta/"
        findings.append(Finding(store.key, "missing", file, what, wanted))
    for version in versions if every else [newest] if newest else []:
        try:
            base = restore(context, version).base
            try:
                miscounted = _miscounted(context, base)
            finally:
                shutil.rmtree(base.directory, ignore_errors=True)
        except StateStoreError as error:
            what = f"version {version}: {error.message}"
            findings.append(Finding(store.key, error.kind, error.file or "", what, version))
            continue
        if miscounted:
            what = f"version {version}: {miscounted}"
            findings.append(Finding(store.key, "damaged", _record_of(store, version), what, version))
        if version == newest:
            keys, restored = base.keys, version
    return _Outcome(restored, keys, versions, findings)


def _record_of(store: FoundStore, version: VersionId) -> str:
    """The file that says what the version has."""
    plan = store.contents.lineages.plan(version)
    newest = plan.deltas[-1] if plan.deltas else plan.snapshot
    return newest.path if newest else ""


def _miscounted(context: StoreContext, base: LocalDatabase) -> str | None:
    """Where the record of a version counts other rows than the database has: readers go by these numbers."""
    with Database(base.directory, context.settings) as database:
        counted = Counter(int.from_bytes(key[:2], "big") for key, _ in database.scan(end=META_KEY))
    families = {family.id: (name, family.keys) for name, family in base.column_families.items()}
    for number in sorted(families.keys() | counted.keys()):
        name, keys = families.get(number, (f"number {number}", 0))
        if keys != counted[number]:
            return f"column family '{name}' has {counted[number]} rows, but the record counts {keys}"
    rows = sum(counted.values())
    if base.keys != rows:
        return f"there are {rows} rows, but the record counts {base.keys}"
    return None


def _version_json(version: VersionId | None) -> dict[str, Any] | None:
    return None if version is None else {"version": version.number, "id": version.checkpoint_id}


@dataclass(frozen=True)
class Verification:
    """The verdicts on a query's stores. Notebooks show a table.

    Attributes:
        checkpoint: the query's checkpoint directory.
        verdicts: one for each store, in the order of the stores.
    """

    checkpoint: str
    verdicts: tuple[Verdict, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All problems; none: everything is good."""
        return tuple(finding for verdict in self.verdicts for finding in verdict.findings)

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """Return the verdicts as values for JSON."""
        stores = [verdict.to_json() for verdict in self.verdicts]
        return {"checkpoint": self.checkpoint, "ok": self.ok, "stores": stores}

    def __repr__(self) -> str:
        found = "no problem" if self.ok else f"{len(self.findings)} problems"
        return f"Verification({len(self.verdicts)} stores: {found})"

    def _repr_html_(self) -> str:
        rows = [
            (
                verdict.key,
                verdict.files,
                verdict.bytes,
                verdict.restored.number if verdict.restored else None,
                verdict.keys,
                "; ".join(f"{finding.file}: {finding.what}" for finding in verdict.findings),
            )
            for verdict in self.verdicts
        ]
        return table(repr(self), ("store", "files", "bytes", "restored", "keys", "problems"), rows)


def verify(
    checkpoint: str,
    operator: int | None = None,
    partition: int | None = None,
    name: str | None = None,
    *,
    all_versions: bool = False,
    stores: int = 4,
    progress: ProgressOption = None,
) -> Verification:
    """Check all files of a query's state, and restore the version that Spark committed last.

    Writes nothing to checkpoint storage. Needs local disk for the state of a partition in the directory of
    temporary files (`TMPDIR`), for each store that is read at a time. The query may run meanwhile. Any thread
    may call it, also several at a time.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        operator: only the stores of this stateful operator.
        partition: only the stores of this partition.
        name: only the stores of this name, as Spark names them.
        all_versions: restore every version that can be restored, not the newest alone.
        stores: stores that are read at a time; fewer if file descriptors are short.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.

    Returns:
        The verdicts; damage is no exception here but in `Verification.findings`.

    Raises:
        MissingError: there is no such query or store.
        OptionError: another provider keeps the query's state.
        StorageError: the storage fails where nothing can be found out.
    """
    query = Query.open(checkpoint)
    keys = query.stores(Filter(operator, partition, name))
    resources = share(stores)
    with reporting(progress, "verified", len(keys)) as meter:
        verdicts = query.for_each(
            keys,
            lambda key, storage: verify_store(
                key,
                storage,
                lambda: query.committed().get(key),
                every=all_versions,
                open_files=resources.open_files,
                meter=meter,
            ),
            at_once=resources.stores,
            meter=meter,
        )
    return Verification(query.location, tuple(verdicts))
