"""Check every file of a store, and restore the versions that must be restorable.

`_verified.json` keeps the result. It lies in the checkpoint directory itself, beside Spark's `metadata`:
Spark, the query and all commands but `verify`, `doctor` and `serve` neither list nor read it, and copies of a
checkpoint do not have it. A verification of some stores replaces the problems of these stores alone.

Findings are immutable, safe for any thread. In this order: findings; their file; the checks of a store;
`verify`, which checks all of them.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from state_store.core.checkpoint.lineage import Lineages
from state_store.core.checkpoint.names import VersionId
from state_store.core.checkpoint.stored_documents import FULL, META_KEY, FileEntry
from state_store.core.codec import INLINE, OMITTED, JsonObject, Mismatch, from_json, json_names
from state_store.core.deletion.lease import Leases, StoreContents
from state_store.core.engine.database import Database, DatabaseSettings
from state_store.core.files.transfer import Wanted, difference, parallel
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.snapshots.context import LocalDatabase, StoreContext
from state_store.core.snapshots.restore import restore
from state_store.core.storage import Storage, open_storage
from state_store.core.storage.local_disk import remove_unneeded
from state_store.data.dataset.checkpoints import FoundStore
from state_store.data.dataset.moments import table
from state_store.data.jobs import on_stores, workers
from state_store.data.maintenance.full_checkpoints import MAX_OPEN_FILES, share, temporary_context
from state_store.data.query import Filter, Progress, ProgressOption, Query, StoreKey, reporting
from state_store.data.query.arguments import Location, check_flag, counted
from state_store.errors import (
    DamagedError,
    LocalDiskError,
    MissingError,
    StateStoreError,
    StorageError,
    as_store_error,
)

_BAD = ("damaged", "missing", "format")
"""Kinds that say that a file cannot be used; the others say that it could not be looked at."""

FILE = "_verified.json"
"""Name of the file, in the checkpoint directory."""

_FORMAT = 1

_MAX_PROBLEMS = 1000

_NAMED = re.compile(r"(delta|shared|snapshot)/(\d+)")

_KINDS = {"delta": "delta", "shared": "table", "snapshot": "archive of the snapshot"}

TRIES = 3
"""Attempts to restore the committed version while the query goes on and retires versions."""

_THREADS = 4
"""Files of a store that are read at the same time."""


@json_names(key=OMITTED, problem="what", is_usable=OMITTED)
@dataclass(frozen=True)
class Finding(JsonObject):
    """A problem.

    `kind` is that of an error. `file` is below the store's directory, and `problem` is a predicate about it.
    Without a `key` it is one of Spark's files, below the checkpoint directory.
    `versions` cannot be restored because of it. A file that `is_usable` is whole, and only refers to others
    that it should not refer to.
    """

    key: StoreKey | None
    kind: str
    file: str
    problem: str
    versions: tuple[VersionId, ...] = ()
    is_usable: bool = False

    @property
    def is_bad(self) -> bool:
        """True if the file was read and cannot be used; False if the storage did not let it be read."""
        return self.kind in _BAD

    def sentence(self) -> str:
        """Return the problem and the versions that it costs."""
        return f"{self.problem}{_costs(self.versions)}"


@json_names(key=INLINE)
@dataclass(frozen=True)
class Verdict(JsonObject):
    """Result of checking one store.

    `restored` is the version that was restored last as the committed one, with `keys` rows. `restorable` are
    the versions that can be made from files that are not bad.
    """

    key: StoreKey
    files: int
    bytes: int
    restored: VersionId | None
    keys: int
    restorable: tuple[VersionId, ...]
    findings: tuple[Finding, ...]


def failed_store(key: StoreKey, error: StateStoreError) -> Finding:
    """Return the finding that the storage failed at the directory of a store as a whole.

    Raises:
        StateStoreError: another error than one of checkpoint storage.
    """
    if isinstance(error, LocalDiskError) or not isinstance(error, StorageError):
        raise error
    return Finding(key, error.kind, error.file or key.path, f"could not be read or written: {error.message}")


def _costs(versions: Iterable[VersionId]) -> str:
    """Return a clause such as "; versions 3-6 cannot be restored"."""
    numbers = sorted({version.number for version in versions})
    if not numbers:
        return ""
    ends = [number for number in numbers if number + 1 not in numbers]
    starts = [number for number in numbers if number - 1 not in numbers]
    runs = [str(end) if start == end else f"{start}-{end}" for start, end in zip(starts, ends, strict=True)]
    return f"; version{'s' if len(numbers) > 1 else ''} {', '.join(runs)} cannot be restored"


@dataclass(frozen=True)
class KnownProblem(JsonObject):
    """A file that could not be used when it was verified.

    Attributes:
        operator: number of the operator.
        partition: number of the partition.
        store: name of the store.
        file: the file, below the store's directory.
        kind: kind of the error.
        problem: the finding's sentence, a predicate about the file.
        bytes: size of the file then; None: it was not there.
        modified_ms: time of the file then, by the storage's clock.
    """

    operator: int
    partition: int
    store: str
    file: str
    kind: str
    problem: str
    bytes: int | None = None
    modified_ms: int | None = None

    @property
    def key(self) -> StoreKey:
        """The store."""
        return StoreKey(self.operator, self.partition, self.store)

    def sentence(self) -> str:
        """Return the file by its kind and version, the store, and the problem."""
        match = _NAMED.match(self.file)
        file = f"the {_KINDS[match[1]]} of version {int(match[2])}" if match else self.file
        return f"{file} in store {self.operator}/{self.partition}/{self.store} {self.problem}"


@dataclass(frozen=True)
class Verified(JsonObject):
    """Everything that verifications of a query have left.

    Attributes:
        verified_ms: when the newest verification of all stores ended; None: there was none.
        version: the version of the state that it restored.
        problems: the problems, of the newest verification of each store.
        format: format of the file.
    """

    verified_ms: int | None = None
    version: int | None = None
    problems: tuple[KnownProblem, ...] = ()
    format: int = _FORMAT

    def after(
        self,
        checked: Collection[StoreKey],
        problems: Sequence[KnownProblem],
        *,
        whole_ms: int | None,
        version: int | None,
    ) -> Verified:
        """Return what is known after another verification.

        Args:
            checked: the stores that it read.
            problems: the problems that it found in them.
            whole_ms: when it ended if it read all stores; None: it did not.
            version: the version that it restored.
        """
        others = (
            tuple(problem for problem in self.problems if problem.key not in checked)
            if whole_ms is None
            else ()
        )
        return Verified(
            self.verified_ms if whole_ms is None else whole_ms,
            self.version if whole_ms is None else version,
            (*problems, *others)[:_MAX_PROBLEMS],
        )


NEVER_VERIFIED = Verified()
"""The result where there is none."""


def read_verified(storage: Storage) -> Verified:
    """Return what verifications have left in a checkpoint directory; nothing if nobody can read it.

    Raises:
        StorageError: the storage fails.
    """
    try:
        verified = from_json(Verified, json.loads(storage.read(FILE)))
    except (MissingError, ValueError, Mismatch):  # none, cut off, or of a later release
        return NEVER_VERIFIED
    return verified if verified.format == _FORMAT else NEVER_VERIFIED


def leave_result(
    location: str,
    checked: Sequence[tuple[StoreKey, Sequence[Finding]]],
    *,
    is_whole: bool,
    version: int | None,
    now_ms: int,
) -> str | None:
    """Write what a verification found into the checkpoint directory, beside what is known of other stores.

    Args:
        location: the checkpoint directory.
        checked: the stores that were read, with the findings about their files.
        is_whole: these are all stores of the query.
        version: the version that was restored.
        now_ms: the time, milliseconds since 1970 UTC.

    Returns:
        The reason if that cannot be done, such as that the user may not write there; None if it is done.
    """
    try:
        problems = [problem for key, findings in checked for problem in _problems(location, key, findings)]
        with closing(open_storage(location)) as storage:
            before = read_verified(storage)
            after = before.after(
                {key for key, _ in checked}, problems, whole_ms=now_ms if is_whole else None, version=version
            )
            storage.write(FILE, json.dumps(after.to_json(), indent=1).encode(), overwrite=True)
    except (StateStoreError, OSError) as error:
        return as_store_error(error).message
    return None


def _problems(location: str, key: StoreKey, findings: Sequence[Finding]) -> Iterator[KnownProblem]:
    """Yield the findings of a store that cost rows or versions, each with its file as it is listed now."""
    costly = [finding for finding in findings if finding.is_bad and not finding.is_usable]
    if not costly:
        return
    directories = {finding.file.rpartition("/")[0] for finding in costly} - {""}
    with closing(open_storage(f"{location}/{key.path}")) as storage:
        listed = {f"{name}/{entry.name}": entry for name in directories for entry in storage.list_files(name)}
    for finding in costly:
        entry = listed.get(finding.file)
        yield KnownProblem(
            key.operator,
            key.partition,
            key.name,
            finding.file,
            finding.kind,
            finding.sentence(),
            entry.size_bytes if entry else None,
            entry.modified_ms if entry else None,
        )


def verify_store(
    key: StoreKey,
    storage: Storage,
    committed: Callable[[], VersionId | None],
    *,
    every: bool = False,
    open_files: int = MAX_OPEN_FILES,
    meter: Progress | None = None,
    runtime: Runtime = SYSTEM,
) -> Verdict:
    """Check everything in one store; the version that Spark committed last must be restorable.

    A file that looks damaged is read a second time. A problem is reported only if a second look at the
    directory does not explain it: the query's own clean-up removes files while they are read here.

    Args:
        key: The store, for the findings.
        storage: The storage of the store's directory; nothing is written to it.
        committed: Reads from Spark's log which version that is; asked again if the query goes on.
        every: Restore every restorable version, not the newest alone.
        open_files: Tables that a database keeps open at most.
        meter: Is told how many bytes will be read.
        runtime: Clocks and threads.

    Raises:
        LocalDiskError: If the directory for temporary files is full or cannot be written.
        StorageError: If the directory cannot be listed, or an archive cannot be read.
    """
    store = FoundStore.read(key, storage)
    settings = DatabaseSettings(max_open_files=open_files)
    sizes = store.contents.listing.sst_bytes()
    if meter is not None:
        meter.expect(sum(sizes.values()))
    with temporary_context(storage, settings, runtime=runtime) as (context, directory):
        findings = [*_unreadable(store), *_unreadable_marks(store, storage), *_shared_by_full(store)]
        findings += _checksums(store, context, committed(), directory)
        outcome = _restore_newest(store, context, committed, every=every)
    findings += outcome.findings
    restorable = outcome.store.registry.checkpoints()
    if findings:
        again = FoundStore.read(key, storage)
        marks = {finding.file for finding in _unreadable_marks(again, storage)}
        findings = _confirmed(findings, again, committed(), marks)
        findings = _once_each(findings, again.contents)
        bad_files = {finding.file for finding in findings if finding.is_bad and not finding.is_usable}
        lost = {version for finding in findings for version in finding.versions}
        restorable = [
            version for version in restorable_without(again.contents, bad_files) if version not in lost
        ]
    return Verdict(
        key,
        len(sizes) + len(store.contents.listing.snapshots),
        sum(sizes.values()),
        outcome.restored,
        outcome.keys,
        tuple(restorable),
        tuple(findings),
    )


def restorable_without(contents: StoreContents, bad_files: Collection[str]) -> list[VersionId]:
    """Return the versions that can be made without `bad_files`, oldest first."""
    snapshots = {
        name
        for name, manifest in contents.restorable_snapshots.items()
        if name.path not in bad_files and not any(entry.path in bad_files for entry in manifest.files)
    }
    deltas = [delta for delta in contents.listing.deltas if delta.path not in bad_files]
    return Lineages(deltas, snapshots).restorable()


@dataclass(frozen=True)
class _Outcome:
    """The result of restoring a store.

    It has the committed version (None if that failed), its number of keys, the store as it was found, and the
    problems.
    """

    restored: VersionId | None
    keys: int
    store: FoundStore
    findings: list[Finding]


def _confirmed(
    findings: list[Finding], again: FoundStore, committed: VersionId | None, marks: set[str]
) -> list[Finding]:
    """Return the findings that a clean-up since then does not explain.

    The file of such a one is still there or still needed, or the version is still there or is the one that
    Spark committed last. `marks` are the leases and tombstones that are damaged now.
    """
    paths = {entry.path for manifest in again.contents.manifests.values() for entry in manifest.files}
    present = again.contents.entries.keys() | marks
    versions = {*again.registry.checkpoints(), again.restorable(committed) or committed}
    return [
        finding
        for finding in findings
        if (
            any(version in versions for version in finding.versions)
            if finding.versions
            else finding.file in present or finding.file in paths
        )
    ]


def _once_each(findings: Iterable[Finding], contents: StoreContents) -> list[Finding]:
    """Return one finding for each file, with all versions that it costs."""
    by_file: dict[str, Finding] = {}
    for finding in findings:
        first = by_file.setdefault(finding.file, finding)
        by_file[finding.file] = replace(first, versions=_ordered({*first.versions, *finding.versions}))
    everything = restorable_without(contents, ())
    return [
        replace(finding, versions=_ordered({*finding.versions, *_lost_by(finding, contents, everything)}))
        for finding in by_file.values()
    ]


def _lost_by(finding: Finding, contents: StoreContents, everything: list[VersionId]) -> set[VersionId]:
    if not finding.is_bad or finding.is_usable:
        return set()
    return set(everything) - set(restorable_without(contents, {finding.file}))


def _ordered(versions: Iterable[VersionId]) -> tuple[VersionId, ...]:
    return tuple(sorted(versions, key=lambda version: (version.number, version.checkpoint_id or "")))


def _predicate(message: str, storage: Storage, file: str) -> str:
    """Return an error's message without the name of the file that it begins with."""
    for name in (f"'{storage.location}/{file}' ", f"'{file}' "):
        if message.startswith(name):
            return message[len(name) :]
    return message


def _unreadable(store: FoundStore) -> Iterator[Finding]:
    for snapshot, read in store.contents.snapshots.items():
        if read.error is not None:
            message = read.error.message
            if read.error.file is not None:
                message = message.removeprefix(f"'{read.error.file}' ")
            yield Finding(store.key, read.error.kind, snapshot.path, message)
    sizes = store.contents.listing.sst_bytes()
    for snapshot, manifest in store.contents.manifests.items():
        for entry in manifest.files:
            if entry.path not in sizes:
                yield Finding(store.key, "missing", entry.path, f"is missing, and {snapshot.path} needs it")


def _unreadable_marks(store: FoundStore, storage: Storage) -> Iterator[Finding]:
    """Yield the leases and tombstones that are damaged; each counts until it is as old as a lease may be."""
    consequence = "while it is young, clean-ups delete nothing"
    for path, lease in Leases.read(storage).leases.items():
        if lease.error is not None:
            problem = _predicate(lease.error.message, storage, path)
            yield Finding(store.key, "damaged", path, f"{problem}; {consequence}")
    for path in store.contents.tombstones.damaged:
        yield Finding(store.key, "damaged", path, f"is damaged; {consequence}, and merges share no file")


def _shared_by_full(store: FoundStore) -> Iterator[Finding]:
    """Yield the files of full snapshots that an older snapshot has, too."""
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
                problem = f"is shared by the full checkpoint {full.version_id} and the older {other}"
                yield Finding(store.key, "damaged", entry.path, problem, is_usable=True)


def _checksums(
    store: FoundStore, context: StoreContext, committed: VersionId | None, directory: Path
) -> list[Finding]:
    """Compare every SST with its checksum; the files of the committed version are kept for its restore."""
    entries: dict[str, FileEntry] = {
        entry.path: entry for manifest in store.contents.manifests.values() for entry in manifest.files
    }
    crcs = {delta.path: delta.crc for delta in store.contents.listing.deltas}
    newest = store.restorable(committed)
    committed_paths = {file.path for file in store.registry.files(newest)} if newest else set()
    sizes = store.contents.listing.sst_bytes()

    def read(path: str) -> str | None:
        """Fetch the file and return how it differs from what is known of it."""
        entry, local = entries.get(path), directory / path.replace("/", "-")
        expected_file = Wanted(
            path,
            sizes[path] if entry is None else entry.size_bytes,
            local,
            sha256=None if entry is None else entry.sha256,
            crc32=crcs.get(path),
        )
        try:
            context.storage.download(path, local)
            why = difference(expected_file)
            if why is None and expected_file.verifiable and path in committed_paths:
                context.cache.keep(path, local)
            return why
        finally:
            remove_unneeded(local)

    def check(path: str) -> Finding | None:
        try:
            why = read(path)
            if why is None:
                return None
            if read(path) is None:
                problem = (
                    f"was read wrongly once ({why}) and rightly the second time: check the way to the storage"
                )
                return Finding(store.key, "storage", path, problem)
        except LocalDiskError:
            raise
        except StateStoreError as error:
            return Finding(store.key, error.kind, path, _predicate(error.message, context.storage, path))
        return Finding(store.key, "damaged", path, f"is damaged: {why}")

    findings = parallel(_THREADS, check, sorted(sizes), runtime=context.runtime)
    return [finding for finding in findings if finding is not None]


def _restore_newest(
    store: FoundStore, context: StoreContext, committed: Callable[[], VersionId | None], *, every: bool
) -> _Outcome:
    """Restore the version that Spark committed last, and all others with `every`.

    Begin again if Spark has committed another one meanwhile and the first is gone.
    """
    for _ in range(TRIES):
        version = committed()
        if store.restorable(version) is None:
            store = FoundStore.read(store.key, context.storage)  # the query may have gone on since
        outcome = _restore(store, context, version, every=every)
        if outcome.restored is not None or committed() == version:
            break
    return outcome


def _missing(store: FoundStore, version: VersionId) -> Finding:
    """Return the finding that the committed version cannot be made, and the file that it lacks."""
    lineages = store.contents.lineages
    versions, file = [version, *lineages.history(version)[1:]], "delta/"
    problem = f"is missing, and version {version}, which Spark committed last, needs it"
    try:
        lineages.plan(version)
    except MissingError as error:
        file = error.file or file
        oldest = lineages.delta(versions[-1])
        if oldest is not None and oldest.builds_on is not None:
            versions.append(oldest.builds_on)
    except StateStoreError as error:
        file, problem = error.file or file, error.message
    return Finding(store.key, "missing", file, problem, tuple(versions))


def _restore(store: FoundStore, context: StoreContext, target: VersionId | None, *, every: bool) -> _Outcome:
    newest, versions = store.restorable(target), store.registry.checkpoints()
    findings, keys, read_version = [], 0, None
    if target is not None and newest is None:
        findings.append(_missing(store, target))
    for version in versions if every else [newest] if newest else []:
        try:
            rows, miscounted = _count(context, version)
        except LocalDiskError:
            raise
        except StateStoreError as error:
            file = _below(error.file or "", context.storage)
            problem = _predicate(error.message, context.storage, file)
            findings.append(Finding(store.key, error.kind, file, problem, (version,)))
            continue
        if miscounted:
            findings.append(Finding(store.key, "damaged", _record_of(store, version), miscounted, (version,)))
        if version == newest:
            keys, read_version = rows, version
    return _Outcome(read_version, keys, store, findings)


def _count(context: StoreContext, version: VersionId) -> tuple[int, str | None]:
    """Restore a version, a second time if it looks damaged; return its keys and how its record miscounts."""
    try:
        base = restore(context, version).base
    except DamagedError:
        base = restore(context, version).base
    try:
        return base.keys, _miscounted(context, base)
    finally:
        shutil.rmtree(base.directory, ignore_errors=True)


def _below(file: str, storage: Storage) -> str:
    """Return a file's path below the store's directory."""
    return file.removeprefix(f"{storage.location}/")


def _record_of(store: FoundStore, version: VersionId) -> str:
    """Return the file with the record of the version's contents."""
    plan = store.contents.lineages.plan(version)
    newest = plan.deltas[-1] if plan.deltas else plan.snapshot
    return newest.path if newest else ""


def _miscounted(context: StoreContext, base: LocalDatabase) -> str | None:
    """Return how the record of a version counts other rows than the database has: readers rely on it."""
    with Database(base.directory, context.settings) as database:
        rows_of = Counter(int.from_bytes(key[:2], "big") for key, _ in database.scan(end=META_KEY))
    families = {family.id: (name, family.keys) for name, family in base.column_families.items()}
    for number in sorted(families.keys() | rows_of.keys()):
        name, keys = families.get(number, (f"number {number}", 0))
        if keys != rows_of[number]:
            return f"column family '{name}' has {rows_of[number]} rows, but the record counts {keys}"
    rows = sum(rows_of.values())
    if base.keys != rows:
        return f"there are {rows} rows, but the record counts {base.keys}"
    return None


@dataclass(frozen=True)
class Verification:
    """The verdicts on a query's stores. Notebooks show a table.

    Attributes:
        checkpoint: the query's checkpoint directory.
        verdicts: one for each store, in the order of the stores.
        of_spark: problems of Spark's own files, without which the query cannot start again.
        not_left: why the result could not be left in the checkpoint for `doctor` and `serve`; None: it was,
            or should not be.
    """

    checkpoint: str
    verdicts: tuple[Verdict, ...]
    of_spark: tuple[Finding, ...] = ()
    not_left: str | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All problems; none: everything is good."""
        return (*self.of_spark, *(finding for verdict in self.verdicts for finding in verdict.findings))

    @property
    def ok(self) -> bool:
        """True if no problem was found."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """Return the verdicts as values for JSON."""
        stores = [verdict.to_json() for verdict in self.verdicts]
        of_spark = [finding.to_json() for finding in self.of_spark]
        document = {"checkpoint": self.checkpoint, "ok": self.ok, "spark": of_spark, "stores": stores}
        return document if self.not_left is None else {**document, "not_left": self.not_left}

    def __repr__(self) -> str:
        problems = "no problem" if self.ok else counted(len(self.findings), "problem")
        return f"Verification({counted(len(self.verdicts), 'store')}: {problems})"

    def _repr_html_(self) -> str:
        rows: list[tuple[Any, ...]] = [
            (
                verdict.key,
                verdict.files,
                verdict.bytes,
                verdict.restored.number if verdict.restored else None,
                verdict.keys,
                "; ".join(f"{finding.file} {finding.sentence()}" for finding in verdict.findings),
            )
            for verdict in self.verdicts
        ]
        rows += [
            ("", None, None, None, None, f"{finding.file} {finding.sentence()}") for finding in self.of_spark
        ]
        return table(repr(self), ("store", "files", "bytes", "restored", "keys", "problems"), rows)


def verify(
    checkpoint: Location,
    operator: int | None = None,
    partition: int | None = None,
    store: str | None = None,
    *,
    all_versions: bool = False,
    stores: int = 4,
    spark: Any = None,
    progress: ProgressOption = None,
    leave_result: bool = True,
) -> Verification:
    """Check all files of a query's state, and restore the version that Spark committed last.

    Files of Spark that a restart reads are checked, too: `metadata`, the logs and the schemas.

    Leaves its result in `_verified.json` in the checkpoint directory, where `doctor` and `serve` find it, and
    writes nothing else to checkpoint storage. Needs local disk for the state of a partition in the directory
    of temporary files (`TMPDIR`), for each store that is read at a time. The query may run meanwhile. Any
    thread may call it, also several at a time.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        operator: only the stores of this stateful operator.
        partition: only the stores of this partition.
        store: only this store: a side of a join, a state variable, or Spark's name of a store.
        all_versions: restore every version that can be restored, not the newest alone.
        stores: stores that are read at a time in a process; fewer if file descriptors are short.
        spark: a SparkSession, whose executors then do the work, a task a store; None: this process.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.
        leave_result: leave the result in the checkpoint. A user who may not write there gets the verdicts
            all the same, and the reason in `Verification.not_left`.

    Returns:
        The verdicts; damage is not an exception here but in `Verification.findings`.

    Raises:
        MissingError: there is no such query or store.
        OptionError: another provider keeps the query's state.
        StorageError: the storage fails where nothing can be found out.
    """
    check_flag("all_versions", all_versions)
    check_flag("leave_result", leave_result)
    selection = Filter(operator, partition, store)
    resources, tasks = share(stores), workers(spark)
    query = Query.open(checkpoint)
    keys = query.stores(selection)

    def of_store(key: StoreKey, storage: Storage, meter: Progress | None) -> Verdict:
        return verify_store(
            key,
            storage,
            lambda: query.committed().get(key),
            every=all_versions,
            open_files=share(resources.stores).open_files,
            meter=meter,
        )

    def of_failed(key: StoreKey, error: StateStoreError) -> Verdict:
        """Return the verdict on a store that the storage does not let be read: the others can be read."""
        return Verdict(key, 0, 0, None, 0, (), (failed_store(key, error),))

    with reporting(progress, "verified", len(keys)) as meter:
        verdicts = on_stores(
            query, keys, of_store, at_once=resources.stores, meter=meter, workers=tasks, otherwise=of_failed
        )
    not_left = _left(query, verdicts, is_whole=selection == Filter()) if leave_result else None
    verdicts += [_unexpected(key) for key in query.unexpected_partitions() if _keeps(selection, key)]
    of_spark = tuple(
        Finding(None, problem.kind, problem.file, problem.problem) for problem in query.start_problems()
    )
    return Verification(query.location, tuple(verdicts), of_spark, not_left)


def _left(
    query: Query, verdicts: Sequence[Verdict], *, is_whole: bool, runtime: Runtime = SYSTEM
) -> str | None:
    """Leave the verdicts on stores where the doctor looks for them; return the reason if that cannot be done.

    Stores that the storage did not let be read are not verified: what was known of them stays.
    """
    read = [verdict for verdict in verdicts if all(finding.is_bad for finding in verdict.findings)]
    numbers = [verdict.restored.number for verdict in read if verdict.restored is not None]
    return leave_result(
        query.location,
        [(verdict.key, verdict.findings) for verdict in read],
        is_whole=is_whole and len(read) == len(verdicts),
        version=max(numbers, default=None),
        now_ms=runtime.wall_ms(),
    )


def _keeps(selection: Filter, key: StoreKey) -> bool:
    return selection.operator in (None, key.operator) and selection.partition in (None, key.partition)


def _unexpected(key: StoreKey) -> Verdict:
    """Return the verdict on the directory of a partition that the query does not have."""
    problem = "is the directory of a partition that the query does not have: nothing reads it"
    return Verdict(key, 0, 0, None, 0, (), (Finding(key, "damaged", key.path, problem),))
