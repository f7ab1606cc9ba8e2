"""A merge of a store: from an older base and deltas to a new base and its snapshot.

It is skipped if it has become needless. It starts from the newest base that there is. How it ended is an
event, which the agent keeps until the JVM has acknowledged it (`EventLog`).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from state_store.agent.open_store import MergeStart, OpenStore, Prediction, SnapshotAges
from state_store.agent.restores import OfferedBase, always_lazy, restore_lazily
from state_store.core.checkpoint.lineage import Chain, new_bytes
from state_store.core.checkpoint.names import SNAPSHOT_DIRECTORY, SnapshotName, VersionId
from state_store.core.checkpoint.stored_documents import Cause, Manifest
from state_store.core.codec import INLINE, JsonObject, json_names
from state_store.core.deletion.lease import Lease, read_newest_manifest
from state_store.core.files.sparse import SparseFile
from state_store.core.files.workspace import discard
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.settings.options import changed_texts
from state_store.core.snapshots.context import LocalDatabase
from state_store.core.snapshots.merge import (
    FULL,
    INCREMENTAL,
    INGEST,
    Merged,
    Published,
    SparseFilesLostError,
    merge,
    publish,
)
from state_store.core.snapshots.restore import Restored, restore
from state_store.core.snapshots.streamed_merge import is_young, merge_young, publish_rows, restored_rows
from state_store.core.storage.contract import Deadline
from state_store.errors import BusyError, DamagedError, MissingError, StateStoreError

MAX_REASON_LENGTH = 500
"""Characters of a reason that a manifest keeps."""

MAX_ANSWERED = 256
"""Events of an answer at most: a frame that is too large is never sent, however often the JVM asks."""

MAX_EVENTS = 100_000
"""Events that nobody fetches are those of a JVM that is gone; the oldest are dropped."""


@dataclass(frozen=True)
class MergeRequest:
    """A merge of `version`; `kind` is `ingest`, `incremental` or `full`, `reason` is for people.

    A merge that was asked for by name is made even if the policy has no reason for it any more. One that
    `moves` is of kind `ingest`: it makes a base of the newest snapshot, in the place of bases whose files
    nobody else needs, and waits for no file.
    """

    version: VersionId
    kind: str
    reason: str
    by_name: bool = False
    moves: bool = False


@dataclass(frozen=True)
class MergedStore(JsonObject):
    """A merge that was made. Counts of files and bytes are those of its snapshot; kind `ingest` has none.

    Its version has `new_bytes` now, and had `new_bytes_before`: those of its delta, or of an older snapshot;
    the two are equal if the agent does not know that.
    """

    kind: str
    reason: str
    base: OfferedBase
    took_ms: float
    chain: Chain
    phases: Mapping[str, float]
    shared_files: int = 0
    new_files: int = 0
    own_files: int = 0
    uploaded_bytes: int = 0
    new_bytes: int = 0
    new_bytes_before: int = 0


@json_names(why="skipped")
@dataclass(frozen=True)
class Skipped(JsonObject):
    """A merge that was not made, and the reason."""

    why: str


class NotReady(BusyError):
    """The files that a merge builds on are still being fetched: it has done nothing, and waits again."""


def merge_store(store: OpenStore, request: MergeRequest, deadline: Deadline) -> MergedStore | Skipped:
    """Make a merge and, unless it is of kind `ingest`, publish it. One at a time for a store.

    On failure nothing is left behind, neither locally nor in checkpoint storage.

    Args:
        store: The store.
        request: The merge.
        deadline: The end of all of it: a restore that it may begin with, downloads, checksums, the compaction
            and uploads. It is checked between files, and before the archive that makes the snapshot visible.

    Returns:
        The merge, whose base is held for the JVM; or the reason why none is needed.

    Raises:
        NotReady: The base is still being fetched.
        BusyError: The deadline passed.
        StateStoreError: A step failed.
    """
    try:
        return _StoreMerge(store, request, deadline).make()
    except _CheckpointRemoved as removed:
        return Skipped(removed.message)
    finally:
        store.readers.give_back()


class _CheckpointRemoved(MissingError):
    """The checkpoint was removed after its provider was closed: a merge would bring it back."""


class _StoreMerge:
    """A merge that has begun. One thread."""

    def __init__(self, store: OpenStore, request: MergeRequest, deadline: Deadline) -> None:
        self._store = store
        self._request = request
        self._context = store.context.bounded(deadline)
        self._start_s = store.context.runtime.monotonic_s()

    def make(self) -> MergedStore | Skipped:
        store, request = self._store, self._request
        if request.moves:
            return self._moved()
        self._check_still_there()
        reason = None
        if request.kind != INGEST and self._found_newer_snapshot():
            reason = self._reason_to_skip()
            if store.readers.replaced() and reason is not None:
                self._request = replace(request, kind=INGEST)
                return self._moved()
        reason = reason or self._reason_of(store.head.chain.snapshot)
        if reason is not None:
            return Skipped(reason)
        start = self._newest_if_local()
        if start is None and store.bases.has_limit:
            if request.kind == INGEST:
                return self._with_loose_deltas()
            streamed_store = self._streamed() if self._is_too_large() else None
            if streamed_store is not None:
                return streamed_store
        with self._held(start) as (base, deltas):
            reason = self._reason_of(base.snapshot)
            if reason is not None:
                return Skipped(reason)
            size_bytes = base.size_bytes + sum(delta.size_bytes for delta in deltas)
            with store.bases.merging(size_bytes):
                merged = merge(self._context, base, deltas, request.version, request.kind)
        return self._finish(merged)

    # ---- whether and how it is made ----------------------------------------------------------------------

    def _check_still_there(self) -> None:
        """Raise _CheckpointRemoved if the provider is closed and the delta of the version is gone."""
        head = self._store.head
        if not head.is_provider_closed:
            return
        for delta in head.chain.deltas:
            path = delta.name.path
            if delta.name.version_id == self._request.version and not self._context.storage.exists(path):
                raise _CheckpointRemoved(f"'{path}' is gone: the checkpoint was removed")

    def _found_newer_snapshot(self) -> bool:
        """Return True if another process published a snapshot, from which merges go on."""
        store, storage = self._store, self._context.storage
        chain = store.head.chain
        own = {delta.name.version_id for delta in chain.deltas}
        if chain.snapshot is not None:
            own.add(chain.snapshot.version_id)
        if not own:
            return False
        names = [SnapshotName.parse(entry.name) for entry in storage.list_files(SNAPSHOT_DIRECTORY)]
        manifest, warnings = read_newest_manifest(
            storage, [name for name in names if name is not None and name.version_id in own]
        )
        self._warn(warnings)
        return manifest is not None and store.head.saw_snapshot(chain, manifest)

    def _reason_to_skip(self) -> str | None:
        """Return why a merge is not needed after another process made a snapshot, or None."""
        head = self._store.head
        before = None if self._request.by_name else head.chain.back_to(self._request.version)
        if before is not None and head.due(before) is None:
            return "another process made a snapshot, and nothing is due any more"
        return None

    def _reason_of(self, snapshot: Manifest | None) -> str | None:
        """Return why a merge is not needed if there is that snapshot, or None."""
        version = self._request.version
        if self._request.kind == INCREMENTAL and snapshot is not None and snapshot.version_id == version:
            return f"version {version} has a snapshot already"
        return None

    def _newest_if_local(self) -> MergeStart | None:
        """Return the newest base, held, and the deltas after it, if all of its files are local.

        Raises:
            NotReady: They are still being fetched.
        """
        head, bases = self._store.head, self._store.bases
        start = head.begin_merge(self._request.version)
        if start is None:
            return None
        directory = start[0].directory
        is_coming = bases.is_coming(directory)
        if bases.is_local(directory) and not is_coming:
            return start
        head.release(directory)
        if is_coming:
            raise NotReady(f"the files of '{directory}' are still being fetched")
        return None

    def _is_too_large(self) -> bool:
        """Return True if a merge on the local disk would take more than the limit leaves to merges."""
        chain = self._store.head.chain.back_to(self._request.version)
        return chain is not None and 2 * chain.size_bytes > self._store.bases.merge_bytes

    # ---- a merge on the local disk -----------------------------------------------------------------------

    @contextmanager
    def _held(self, start: MergeStart | None) -> Iterator[MergeStart]:
        """Hold a base until the body ends: the one that is held already, or one that is restored now."""
        head = self._store.head
        if start is None:
            start = restore(self._context, self._request.version).base, ()
            head.hold(start[0])
        directory = start[0].directory
        try:
            yield start
        except (DamagedError, MissingError):
            head.forget_directory(directory)  # the damage may be its own: the next merge restores
            raise
        finally:
            head.release(directory)

    # ---- a merge from storage to storage -----------------------------------------------------------------

    def _streamed(self) -> MergedStore | Skipped | None:
        """Make a snapshot of a store that does not fit on the disk, and a base of it that is cached by pages.

        An incremental merge compacts young runs that fit, if they have not outgrown the oldest, and the other
        files may be shared; any other makes a full snapshot.

        Returns:
            The merge, or None if the files are local.
        """
        store, context, request = self._store, self._context, self._request
        result = self._restored_sparsely()
        source = result.base.directory
        try:
            reason = self._reason_of(result.base.snapshot)
            if not result.sparse or reason is not None:
                discard(source)
                return Skipped(reason) if result.sparse and reason is not None else None
            self._check_still_there()
            room = store.bases.merge_bytes // 2
            if request.kind == INCREMENTAL and is_young(result):
                try:
                    merged = merge_young(context, result, room)
                except DamagedError as error:  # of the oldest run, if RocksDB wants rows of it after all
                    reason = error.message
                else:
                    try:
                        return self._finish(merged)
                    except SparseFilesLostError as error:
                        reason = error.message
                store.log.warning(f"the merge of version {request.version} reads all rows: {reason}")
                discard(source)
                result = self._restored_sparsely()
                source = result.base.directory
            rows, overwrite = restored_rows(context, result, room), request.kind == FULL
            table_bytes = min(room, context.settings.for_store(result.base.size_bytes).file_bytes)
            with self._lease() as lease:
                published = publish_rows(
                    context,
                    result.version,
                    rows,
                    lease,
                    table_bytes,
                    overwrite=overwrite,
                    cause=self._cause(),
                )
        except BaseException:
            discard(source)
            raise
        discard(source)
        merged = Merged(published.base, {}, frozenset(published.base.files))
        return self._finish(merged, published)

    def _restored_sparsely(self) -> Restored:
        """Restore the version with a lease, of which only tails are fetched, for this merge alone."""
        context, version = self._context, self._request.version
        return self._store.readers.restored(
            lambda: restore(context, version, thorough=False, ingest=False, is_lazy=always_lazy)
        )

    # ---- a base of the newest snapshot, without a merge --------------------------------------------------

    def _moved(self) -> MergedStore | Skipped:
        """Make a base of the newest snapshot for the bases whose files only their leases keep.

        Merges do not start from these any more. A failure is not a failed merge: the next look asks again.
        """
        store = self._store
        if not store.readers.wants_to_move:
            return Skipped("no base reads files that nobody else needs")
        try:
            self._found_newer_snapshot()
            merged = self._with_loose_deltas()
        except StateStoreError as error:
            store.log.warning(
                f"no base of version {self._request.version} takes the place of one whose files a newer "
                f"snapshot has replaced, and it goes on reading them: {error.message}"
            )
            return Skipped("the newest snapshot cannot be restored")
        for directory in store.readers.moved(merged.base.directory):
            store.head.forget_directory(directory)
        return merged

    def _with_loose_deltas(self) -> MergedStore:
        """Make a base of the newest snapshot and the deltas beside it, of which only tails are fetched.

        Nothing is ingested, since a database has to be complete for that. No merge starts from such a base.
        """
        store, version = self._store, self._request.version
        result = restore_lazily(store, self._context, version)
        directory = result.base.directory
        store.head.hold(result.base)
        try:
            paging = store.bases.add(directory, result.sparse, is_paged=result.is_paged)
            offered = OfferedBase.of(version, result, paging)
            return self._made(offered, None, store.head.chain, result.phases)
        except BaseException:
            store.bases.drop(directory)
            store.head.release(directory)
            raise

    # ---- its end -----------------------------------------------------------------------------------------

    def _finish(self, merged: Merged, published: Published | None = None) -> MergedStore:
        """Publish a merged base, if it is not `published`, and offer it to the JVM.

        It is removed if a step fails.
        """
        head, base, phases = self._store.head, merged.base, dict(merged.phases)
        is_offered = False
        try:
            if self._request.kind != INGEST and published is None:
                self._check_still_there()
                published = self._publish(merged)
            if published is not None:
                base = published.base
                phases.update(published.phases)
            offered = self._offered(base, is_whole=not merged.sparse)
            new_bytes_before = head.chain.new_bytes(base.version)
            chain = head.offer(base, published)
            is_offered = True
            if published is not None:
                head.published(published, phases)
            return self._made(offered, published, chain, phases, new_bytes_before)
        except BaseException:
            if is_offered:
                head.release(base.directory)
            else:
                discard(base.directory)
            raise

    def _publish(self, merged: Merged) -> Published:
        is_full = self._request.kind == FULL
        with self._lease() as lease:
            return publish(
                self._context, merged.base, lease, full=is_full, cause=self._cause(), sparse=merged.sparse
            )

    @contextmanager
    def _lease(self) -> Iterator[Lease]:
        """Yield a new lease on storage without a deadline, and log its warnings after the body."""
        own = self._store.context
        lease = Lease(own.storage, expiry_ms=self._store.options.lease_expiry_ms, runtime=own.runtime)
        yield lease
        self._warn(lease.warnings)

    def _cause(self) -> Cause:
        store, reason = self._store, self._request.reason[:MAX_REASON_LENGTH]
        before = store.head.chain.back_to(self._request.version)
        predicted_ms = None if before is None else round(store.head.predict_restore_ms(before))
        return Cause(reason, predicted_ms, changed_texts(store.options))

    def _offered(self, base: LocalDatabase, *, is_whole: bool) -> OfferedBase:
        """Return the base of a merge as the JVM opens it: cached by pages if the disk has no room for it."""
        bases, directory, version = self._store.bases, base.directory, base.version
        sparse: list[SparseFile] = []
        if bases.has_limit and not (is_whole and bases.take(directory, base.size_bytes)):
            sparse = bases.drop_stored_data(base)
            self._store.readers.hold(directory, sparse)
        names = [file.name for file in sparse]
        paging = bases.add(directory, sparse, is_paged=True)
        return OfferedBase(
            directory, version.number, version.checkpoint_id, base.keys, version, sparse=names, paging=paging
        )

    def _made(
        self,
        offered: OfferedBase,
        published: Published | None,
        chain: Chain,
        phases: Mapping[str, float],
        new_bytes_before: int | None = None,
    ) -> MergedStore:
        """Log the merge, and return it as its event has it."""
        reason, counts = self._request.reason, ""
        took_ms = (self._context.runtime.monotonic_s() - self._start_s) * 1000
        merged = MergedStore(INGEST, reason, offered, took_ms, chain, phases)
        if published is not None:
            own_bytes = new_bytes(published.manifest, new_bytes_before) or 0
            merged = replace(
                merged,
                kind=published.manifest.kind,
                shared_files=published.shared_files,
                new_files=published.new_files,
                own_files=published.own_files,
                uploaded_bytes=published.uploaded_bytes,
                new_bytes=own_bytes,
                new_bytes_before=own_bytes if new_bytes_before is None else new_bytes_before,
            )
            counts = (
                f"{merged.shared_files} files shared, {merged.new_files} new, "
                f"{merged.uploaded_bytes} bytes uploaded, "
            )
        self._store.log.info(
            f"merged version {self._request.version} ({reason}): {merged.kind}, {counts}{took_ms:.0f} ms"
        )
        return merged

    def _warn(self, warnings: Iterable[str]) -> None:
        for warning in warnings:
            self._store.log.warning(warning)


# ---- how merges ended: kept for the JVM until it has acknowledged it ---------------------------------------


@json_names(restore=INLINE)
@dataclass(frozen=True)
class MergeEnded(JsonObject):
    """Event: a merge of `store` was made; its base is offered, its snapshot published (kind `ingest`: none).

    `restore` is of the chain after it. `failures_in_row` is 0 unless merges of another kind fail.
    """

    event: ClassVar[str] = "merged"

    store: int
    merged: MergedStore
    ages: SnapshotAges
    restore: Prediction
    failures_in_row: int


@dataclass(frozen=True)
class MergeFailed(JsonObject):
    """Event: a merge of `store` failed, the `failures_in_row`-th without a success between."""

    event: ClassVar[str] = "merge_failed"

    store: int
    version: int
    kind: str
    reason: str
    error: StateStoreError
    failures_in_row: int


@dataclass(frozen=True)
class StoreClosed(JsonObject):
    """Event: the agent needs the files of a store no more. Its provider was closed before."""

    event: ClassVar[str] = "closed"

    store: int


Event = MergeEnded | MergeFailed | StoreClosed


@dataclass(frozen=True)
class EventsRequest:
    """Request for the events above number `after`, which waits up to `wait_ms` ms for the first."""

    after: int
    wait_ms: float | None = field(default=None)


@dataclass(frozen=True)
class Events(JsonObject):
    """Answer to `events`: those after the last one that the JVM has handled, each with its number."""

    events: Sequence[tuple[int, Event]]

    def to_json(self) -> dict[str, Any]:
        return {
            "events": [
                {"number": number, "event": event.event, **event.to_json()} for number, event in self.events
            ]
        }


class EventLog:
    """The events that the JVM has not yet acknowledged, oldest first. Safe for any thread.

    Events are numbered. The JVM polls with the number of the last that it has handled, so that none is lost
    when a connection breaks between.
    """

    def __init__(self, runtime: Runtime = SYSTEM) -> None:
        self._changed = runtime.condition()
        self._events: deque[tuple[int, Event]] = deque(maxlen=MAX_EVENTS)
        self._last = 0

    def add(self, event: Event) -> None:
        """Add an event under the next number, and wake the calls that wait for it."""
        with self._changed:
            self._events.append((self._last + 1, event))
            self._last += 1
            self._changed.notify_all()

    def after(self, number: int, *, wait_s: float) -> list[tuple[int, Event]]:
        """Forget the events up to `number`, and return the next ones, each with its number.

        Waits for the first of them, at most `wait_s` seconds, then returns none.
        """
        with self._changed:
            while self._events and self._events[0][0] <= number:
                self._events.popleft()
            self._changed.wait_for(lambda: bool(self._events), timeout=wait_s)
            return list(itertools.islice(self._events, MAX_ANSWERED))

    def forget(self, store: int) -> None:
        """Drop the events of a store that is closed."""
        with self._changed:
            self._events = deque(
                ((number, event) for number, event in self._events if event.store != store),
                maxlen=MAX_EVENTS,
            )
