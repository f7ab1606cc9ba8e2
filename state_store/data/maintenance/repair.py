"""Find damaged and leftover files of a store, and mend the store as far as its own files allow.

Attempts above the version that Spark committed last are leftovers of starts that ended in a failure. While
the sink is down, each start of the query commits the same batch to its stores again, and Spark commits none
of these versions. The clean-ups of a query that goes on delete them; those of one that stands still do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from state_store.core.checkpoint import names
from state_store.core.checkpoint.lineage import AttemptId, Lineages
from state_store.core.codec import INLINE, JsonObject, json_names
from state_store.core.deletion.lease import StoreContents, refuse_newer_formats
from state_store.core.deletion.retention import Cleanup, Retention, RetentionPolicy, preview
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.settings.option import DURATION, at_least
from state_store.core.settings.options import Options
from state_store.core.storage import Storage
from state_store.data.dataset.checkpoints import FoundStore
from state_store.data.dataset.moments import table
from state_store.data.jobs import on_stores, workers
from state_store.data.maintenance.full_checkpoints import MAX_OPEN_FILES, share, store_full_checkpoint
from state_store.data.maintenance.verification import Finding, failed_store, verify_store
from state_store.data.query import Filter, Progress, ProgressOption, Query, StoreKey, reporting
from state_store.data.query.arguments import Location, check_flag, counted, shown
from state_store.errors import OptionError, StateStoreError

LAST_RUN_MS = 3_600_000
"""Attempts stay that are older by this or less than the newest one of their version: it is of their run."""

REMOVE, REBUILD, DISCARD = "remove", "rebuild", "discard"

_MIN_AGE_MS = 3_600_000
"""Age below which no file is removed: its writer may be at work."""

_DISCARDED = tuple(
    f"{directory}/" for directory in (names.DELTA_DIRECTORY, names.SHARED_DIRECTORY, names.SNAPSHOT_DIRECTORY)
)
_WHY = {
    names.DELTA_DIRECTORY: "no version that can be restored needs it",
    names.SHARED_DIRECTORY: "no snapshot names it",
    names.SNAPSHOT_DIRECTORY: "no version that can be restored needs it",
    names.LEASE_DIRECTORY: "its writer is dead",
    names.TOMBSTONE_DIRECTORY: "left by a clean-up that died",
}


def abandoned_attempts(
    contents: StoreContents, committed: names.VersionId, before_ms: float
) -> dict[str, int]:
    """Return the deltas of attempts that no run of the query commits any more, with their versions.

    A delta is one if its version is above the committed one, it was written before `before_ms` and more than
    `LAST_RUN_MS` before the newest attempt at its version, and no attempt that stays builds on it. Under
    checkpoint format 1, where the highest attempt counts, that one stays, too. There are none if a snapshot
    is above the committed version: Spark's log is then older than the state.

    Args:
        contents: the store.
        committed: the version that Spark committed last, read after the store.
        before_ms: the time before which an attempt was written that goes, by the clock of the storage.
    """
    if any(name.version > committed.number for name in contents.listing.snapshots):
        return {}
    above = [delta for delta in contents.listing.deltas if delta.version > committed.number]
    above.sort(key=lambda delta: delta.version, reverse=True)
    parents: set[names.VersionId | None] = set()
    abandoned: dict[str, int] = {}
    for version, attempts in groupby(above, key=lambda delta: delta.version):
        of_version = list(attempts)
        stays = _staying(contents, of_version, before_ms)
        stays |= {delta for delta in of_version if delta.version_id in parents}
        parents = {delta.builds_on for delta in stays}
        abandoned.update((delta.path, version) for delta in of_version if delta not in stays)
    return abandoned


def _staying(
    contents: StoreContents, attempts: Iterable[names.DeltaName], before_ms: float
) -> set[names.DeltaName]:
    """Return the attempts at one version that stay for their age or as the one that counts."""
    times_ms = {delta: contents.entries[delta.path].modified_ms for delta in attempts}
    limit_ms = min(before_ms, max(times_ms.values()) - LAST_RUN_MS)
    own = {delta: AttemptId.parse(delta.checkpoint_id or "") for delta in times_ms}
    highest = max((attempt.ordinal for attempt in own.values() if attempt is not None), default=None)
    return {
        delta
        for delta, at_ms in times_ms.items()
        if at_ms >= limit_ms or ((attempt := own[delta]) is not None and attempt.ordinal == highest)
    }


@json_names(size_bytes="bytes")
@dataclass(frozen=True)
class Step(JsonObject):
    """An action on one file: a leak is removed, a damaged file discarded, a snapshot made anew."""

    action: str
    file: str
    size_bytes: int
    why: str


@json_names(key=INLINE)
@dataclass(frozen=True)
class Repair(JsonObject):
    """The steps of a repair of one store, done or planned, and the problems that stay.

    `skipped` says why nothing is removed, and `undecided` why nothing is discarded.
    """

    key: StoreKey
    steps: tuple[Step, ...]
    left: tuple[Finding, ...]
    skipped: str | None = None
    undecided: str | None = None


def repair_store(
    key: StoreKey,
    storage: Storage,
    committed: Callable[[], names.VersionId | None],
    *,
    apply: bool,
    older_than_ms: int,
    leaks_only: bool = False,
    discard: bool = False,
    open_files: int = MAX_OPEN_FILES,
    meter: Progress | None = None,
    runtime: Runtime = SYSTEM,
) -> Repair:
    """Make damaged snapshots anew, then remove what no restorable version needs and what the dead left.

    A snapshot is made anew if the other files can make its version. A file is discarded only if two looks at
    the store, with fresh reads of all files, found it damaged, and if the storage let every file be read.

    Args:
        key: The store, for the findings.
        storage: The storage of the store's directory.
        committed: The version that Spark committed last (see `verify_store`).
        apply: Write; otherwise only say what would be done.
        older_than_ms: Age below which nothing is removed.
        leaks_only: Read no file for damage.
        discard: Also remove damaged files that cannot be mended, if the committed version needs none.
        open_files: Tables that a database keeps open at most.
        meter: Is told how many bytes will be read.
        runtime: The clock.

    Raises:
        FormatError: If files are of a newer program.
        StateStoreError: As `full_checkpoint`, `verify_store` and the storage do.
    """

    def look() -> tuple[Finding, ...]:
        return verify_store(key, storage, committed, open_files=open_files, meter=meter).findings

    findings = () if leaks_only else look()
    store = FoundStore.read(key, storage)
    refuse_newer_formats(store.contents.snapshots)
    rebuilt = [] if leaks_only else rebuildable(store, _bad_files(findings))
    if apply and rebuilt:
        for name in rebuilt:
            store_full_checkpoint(key, storage, name.version_id, open_files=open_files)
        findings = look()
        store = FoundStore.read(key, storage)
    elif rebuilt:
        findings = _not_healed(findings, store, set(rebuilt))
    sizes = store.contents.listing.snapshots
    steps = [Step(REBUILD, name.path, sizes.get(name, 0), "it is damaged") for name in rebuilt]
    bad, undecided = set[str](), None
    if discard and useless(store, _bad_files(findings), rebuilt):
        bad, undecided = _confirmed(store, findings, look(), rebuilt)
    newest = committed()
    sweep = _Sweep(storage, apply, older_than_ms, runtime)
    attempts = {} if newest is None else sweep.abandoned_attempts(store, newest)
    swept = sweep.run(store, newest, bad | attempts.keys())
    if swept is None:
        return Repair(key, tuple(steps), findings, "Spark has committed no batch", undecided)
    steps += _removals(store, swept, bad, attempts)
    removed = {step.file for step in steps if step.action != REBUILD}
    findings = tuple(finding for finding in findings if finding.file not in removed)
    findings += tuple(
        Finding(key, "storage", file, f"could not be deleted: {why}") for file, why in swept.refused.items()
    )
    return Repair(key, tuple(steps), findings, swept.skipped, undecided)


def _bad_files(findings: Iterable[Finding]) -> set[str]:
    """Return the files that were read and cannot be used; one that could not be read may be whole."""
    return {finding.file for finding in findings if finding.is_bad}


def _confirmed(
    store: FoundStore,
    first: Iterable[Finding],
    second: Iterable[Finding],
    rebuilt: Iterable[names.SnapshotName],
) -> tuple[set[str], str | None]:
    """Return the files to discard by two looks at the store, or why none is."""
    looks = [list(first), list(second)]
    unread = sorted({finding.file for look in looks for finding in look if not finding.is_bad})
    if unread:
        return set(), f"{len(unread)} files could not be read, '{unread[0]}' among them: try again later"
    bad = _bad_files(finding for finding in looks[0] if not finding.is_usable)
    return useless(store, bad & _bad_files(looks[1]), rebuilt), None


def useless(store: FoundStore, damaged: Iterable[str], rebuilt: Iterable[names.SnapshotName]) -> set[str]:
    """Return the damaged files that exist and the snapshots that name one, except those made anew."""
    present = store.contents.entries.keys()
    bad = {file for file in damaged if file in present and file.startswith(_DISCARDED)}
    spared = set(rebuilt)
    for name, manifest in store.contents.manifests.items():
        if name not in spared and not bad.isdisjoint(entry.path for entry in manifest.files):
            bad.add(name.path)
    return bad - {name.path for name in spared}


def rebuildable(store: FoundStore, damaged: Iterable[str]) -> list[names.SnapshotName]:
    """Return the snapshots that are damaged, or name a damaged file, and whose versions the others can make.

    They are in the order of their versions: one that is made anew serves those after it.
    """
    contents, bad_files = store.contents, set(damaged)
    restorable = {
        name
        for name, manifest in contents.restorable_snapshots.items()
        if bad_files.isdisjoint([name.path, *(entry.path for entry in manifest.files)])
    }
    deltas = [delta for delta in contents.listing.deltas if delta.path not in bad_files]
    possible = []
    for name in sorted(contents.snapshots.keys() - restorable, key=lambda snapshot: snapshot.version):
        if name.version_id in Lineages(deltas, restorable).restorable():
            possible.append(name)
            restorable.add(name)
    return possible


def _not_healed(
    findings: Iterable[Finding], store: FoundStore, rebuilt: set[names.SnapshotName]
) -> tuple[Finding, ...]:
    """Return the findings that stay once the snapshots in `rebuilt` are made anew.

    One about a shared file stays if another snapshot names that file.
    """
    manifests = store.contents.manifests
    others = {entry.path for name in manifests.keys() - rebuilt for entry in manifests[name].files}
    healed = {name.path for name in rebuilt}
    healed |= {entry.path for name in manifests.keys() & rebuilt for entry in manifests[name].files} - others
    return tuple(
        finding
        for finding in findings
        if finding.file not in healed or finding.file.startswith(f"{names.DELTA_DIRECTORY}/")
    )


@dataclass(frozen=True)
class _Sweep:
    """The last step of a repair of one store, or its preview."""

    storage: Storage
    apply: bool
    older_than_ms: int
    runtime: Runtime

    def abandoned_attempts(self, store: FoundStore, committed: names.VersionId) -> Mapping[str, int]:
        """Return the attempts that no run commits any more.

        A clock of this machine that is ahead makes none old: before one is removed, the storage is asked.
        """
        before_ms = self.runtime.wall_ms() - self.older_than_ms
        attempts = abandoned_attempts(store.contents, committed, before_ms)
        if attempts and self.apply:
            before_ms = self._retention(committed).agreed_now_ms() - self.older_than_ms
            attempts = abandoned_attempts(store.contents, committed, before_ms)
        return attempts

    def run(
        self, store: FoundStore, committed: names.VersionId | None, discarded: set[str]
    ) -> Cleanup | None:
        """Sweep; return None before the first commit, when it is not known which versions count."""
        if committed is None:
            return None
        newest = store.restorable(committed) or committed
        if not self.apply:
            return preview(
                self.storage,
                newest,
                self.older_than_ms,
                self._expiry_ms,
                discarded,
                runtime=self.runtime,
            )
        return self._retention(newest).sweep(newest, self.older_than_ms, discarded)

    def _retention(self, newest: names.VersionId) -> Retention:
        policy = RetentionPolicy(batches=newest.number, lease_expiry_ms=self._expiry_ms)
        return Retention(self.storage, policy, runtime=self.runtime)

    @property
    def _expiry_ms(self) -> int:
        return max(Options().lease_expiry_ms, self.older_than_ms)


def _removals(
    store: FoundStore, swept: Cleanup, discarded: set[str], attempts: Mapping[str, int]
) -> list[Step]:
    sizes = {path: entry.size_bytes for path, entry in {**store.contents.entries, **swept.swept}.items()}
    return [
        Step(DISCARD, path, sizes.get(path, 0), "it is damaged, and nothing can be made of it")
        if path in discarded
        else Step(REMOVE, path, sizes.get(path, 0), _why(path, attempts))
        for path in sorted({*swept.deleted, *swept.swept})
    ]


def _why(path: str, attempts: Mapping[str, int]) -> str:
    if path in attempts:
        return f"an attempt at version {attempts[path]} of a run that failed: Spark never committed it"
    if path.endswith(names.TEMPORARY_SUFFIX):
        return "an unfinished write"
    return _WHY[path.partition("/")[0]]


@dataclass(frozen=True)
class Repairs:
    """The repairs of a query's stores. Notebooks show a table.

    Attributes:
        checkpoint: the query's checkpoint directory.
        applied: whether the steps were done; False: they were only planned.
        repairs: one for each store, in the order of the stores.
    """

    checkpoint: str
    applied: bool
    repairs: tuple[Repair, ...]

    @property
    def left(self) -> tuple[Finding, ...]:
        """The problems that stay."""
        return tuple(finding for repair in self.repairs for finding in repair.left)

    @property
    def ok(self) -> bool:
        """True if no problem stays."""
        return not self.left

    def to_json(self) -> dict[str, Any]:
        """Return the repairs as values for JSON."""
        stores = [repair.to_json() for repair in self.repairs]
        return {"checkpoint": self.checkpoint, "applied": self.applied, "ok": self.ok, "stores": stores}

    def __repr__(self) -> str:
        steps = sum(len(repair.steps) for repair in self.repairs)
        done = "done" if self.applied else "planned"
        left_text = f"{counted(len(self.left), 'problem')} left"
        return f"Repairs({counted(len(self.repairs), 'store')}: {counted(steps, 'step')} {done}, {left_text})"

    def _repr_html_(self) -> str:
        rows: list[tuple[Any, ...]] = [
            (repair.key, step.action, step.file, step.size_bytes, step.why)
            for repair in self.repairs
            for step in repair.steps
        ]
        rows += [(finding.key, "stays", finding.file, 0, finding.sentence()) for finding in self.left]
        return table(repr(self), ("store", "action", "file", "bytes", "why"), rows)


def repair(
    checkpoint: Location,
    operator: int | None = None,
    partition: int | None = None,
    store: str | None = None,
    *,
    apply: bool = False,
    older_than: str = "24h",
    leaks_only: bool = False,
    discard: bool = False,
    stores: int = 4,
    spark: Any = None,
    progress: ProgressOption = None,
) -> Repairs:
    """Rebuild damaged snapshots from other files, and remove files that no restorable version needs.

    Nothing is written without `apply`. No version that can be restored is lost, but for attempts that failed
    runs left above the version that Spark committed last. The query may run meanwhile.
    Needs local disk as `verify` and `full_checkpoint` do. Any thread may call it.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        operator: only the stores of this stateful operator.
        partition: only the stores of this partition.
        store: only this store: a side of a join, a state variable, or Spark's name of a store.
        apply: do it; otherwise return what would be done.
        older_than: the age that a file must have to be removed, such as `24h`, at least `1h`: younger files
            may belong to a writer at work.
        leaks_only: read no file for damage.
        discard: also remove damaged files that cannot be mended, if the version that Spark committed last
            needs none of them.
        stores: stores that are worked on at a time in a process; fewer if file descriptors are short.
        spark: a SparkSession, whose executors then do the work, a task a store; None: this process.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.

    Raises:
        MissingError: there is no such query or store.
        OptionError: `older_than` is not such an age, or another provider keeps the query's state.
        FormatError: a file is of a newer program.
        StateStoreError: as `full_checkpoint` and the storage raise it.
    """
    if not isinstance(older_than, str):
        raise OptionError(f"{shown(older_than)} is not an age: give a text such as '1d'", option="older_than")
    problem = "not an age"
    try:
        DURATION.parse(older_than)
        problem = "too young"
        older_than_ms = int(at_least(DURATION, _MIN_AGE_MS).parse(older_than))
    except ValueError as error:
        raise OptionError(f"{older_than!r} is {problem}: {error}", option="older_than") from error
    for name, flag in (("apply", apply), ("leaks_only", leaks_only), ("discard", discard)):
        check_flag(name, flag)
    selection = Filter(operator, partition, store)
    resources, tasks = share(stores), workers(spark)
    query = Query.open(checkpoint)
    keys = query.stores(selection)

    def of_store(key: StoreKey, storage: Storage, meter: Progress | None) -> Repair:
        return repair_store(
            key,
            storage,
            lambda: query.committed().get(key),
            apply=apply,
            older_than_ms=older_than_ms,
            leaks_only=leaks_only,
            discard=discard,
            open_files=share(resources.stores).open_files,
            meter=meter,
        )

    def of_failed(key: StoreKey, error: StateStoreError) -> Repair:
        """Return the repair of a store that the storage does not let be read: the others can be repaired."""
        return Repair(key, (), (failed_store(key, error),), "the storage failed")

    with reporting(progress, "repaired" if apply else "examined", len(keys)) as meter:
        repairs = on_stores(
            query, keys, of_store, at_once=resources.stores, meter=meter, workers=tasks, otherwise=of_failed
        )
    return Repairs(query.location, apply, tuple(repairs))
