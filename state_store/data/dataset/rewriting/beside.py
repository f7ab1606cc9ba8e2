"""A repartition beside a running query: most of the work while it runs, the rest when it has stopped.

1. `Beside.run`, while the query runs. Each piece of a store is written at the version that is the newest when
   the piece is begun (`catching_up.FirstTableWriter`). Then rounds bring all new stores to the newest
   version, each from the deltas of the versions between. A round is shorter than what went before it, as
   there are fewer versions to catch up with; the rounds end when a few versions are left, or when they are
   not fewer than before.
2. `Beside.finish`, when the query has stopped: a last round, and a snapshot of each new store.

A running query retires versions, and so their deltas. From the first look on leases hold all deltas that a
later round needs, also of the versions that come while the work goes on (`HeldDeltas`). Between the two calls
nothing holds them: a query that runs on for longer than it retains versions has to be caught up with by
another `run`.

The target has the mark of an incomplete checkpoint from the first call to the end of the second. Each first
table has a receipt of the task that wrote it. Since tables of a round need what the round before has written,
the driver alone says how far all stores are, in a document that it writes after each round: files that it
does not name do not count, and the end removes them. A snapshot has a receipt, as a store of a stopped query
has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType

from state_store.core.checkpoint.lineage import ChainDelta, Lineages
from state_store.core.checkpoint.names import VersionId
from state_store.core.checkpoint.stored_documents import Marker, decode, encode, marker_of
from state_store.core.deletion.lease import DEFAULT_EXPIRY_MS, KeptLease, ReaderLease, read_listing
from state_store.core.files.transfer import parallel
from state_store.core.runtime import Running, Runtime
from state_store.core.storage import Storage, open_storage
from state_store.core.storage.contract import Failures
from state_store.data.dataset.partitions import identified
from state_store.data.dataset.rewriting.catching_up import (
    CatchingUp,
    FamilyRemoved,
    FirstTableWriter,
    NewStore,
    SourceVersion,
    Step,
)
from state_store.data.dataset.rewriting.store_writer import (
    Piece,
    Receipts,
    WrittenStore,
    check_room,
    needed_bytes,
    pieces,
    remove_files,
)
from state_store.data.jobs import Workers
from state_store.data.query import (
    LISTED_AT_ONCE,
    Operator,
    Progress,
    ProgressOption,
    Query,
    StoreKey,
    reporting,
)
from state_store.data.query.arguments import absolute
from state_store.data.query.targets import RECEIPTS, Owner
from state_store.errors import ConflictError, MissingError, StateStoreError, StorageError, UnknownOutcomeError

_LOOK_S = 20.0
"""Seconds between two questions for the newest version."""

_RETAINED, _LOOKS_OF_RETAINED = 100, 4
"""Versions that Spark retains by default, and the number of leases that are taken while as many come."""

_TRIES = 3
"""Looks for a version that the query retires meanwhile."""

MAX_ROUNDS = 10
FEW_VERSIONS = 5
"""Versions that are left for the last round, if there are no more."""

_PIECES = 4
"""Pieces of a step that a process works on at a time: small requests take most of the time."""

_DOCUMENT = f"{RECEIPTS}/reached.json"


def operation_beside(partitions: int) -> str:
    """Return what writes the target, in words."""
    return f"repartition into {partitions} partitions beside the running query"


def is_beside(location: str, source: str, partitions: int) -> bool:
    """Return True if a directory has a part of such a repartition of a checkpoint."""
    with suppress(StateStoreError), closing(open_storage(location)) as storage:
        marker = marker_of(storage)
        same = Marker(operation_beside(partitions), absolute(source), True).call
        return marker is not None and marker.call == same
    return False  # whoever makes the checkpoint says what is wrong with the place


@dataclass(frozen=True)
class Reached:
    """The document: the new stores by the paths of their directories."""

    stores: Mapping[str, NewStore]


@dataclass(frozen=True)
class Segment:
    """Consecutive deltas of a store, leased, and the version that the last of them made. Perhaps none."""

    version: VersionId
    deltas: tuple[ChainDelta, ...]
    oldest: int
    """The oldest version on that lineage that was there."""
    storage: Storage
    lease: KeptLease | None

    @classmethod
    def hold(
        cls, key: StoreKey, storage: Storage, newest: VersionId, since: int, runtime: Runtime
    ) -> Segment:
        """Lease the deltas of a store after version `since` up to the newest one, as far as they are there.

        A storage that refuses a lease, as one that cannot be written does, is read without.

        Raises:
            MissingError: the store does not have the newest version.
        """
        listing = read_listing(storage)
        version = identified(listing, newest.number, newest, f"store {key}")
        lineages = Lineages(listing.deltas, listing.snapshots)
        history = lineages.history(version)
        names = [lineages.delta(earlier) for earlier in reversed(history) if earlier.number > since]
        deltas = [ChainDelta.from_listing(name, listing.deltas[name]) for name in names if name is not None]
        kept_lease: KeptLease | None = None
        lost: frozenset[str] = frozenset()
        if deltas:
            lease = ReaderLease(storage, expiry_ms=DEFAULT_EXPIRY_MS, runtime=runtime)
            with suppress(StorageError, UnknownOutcomeError):
                lost = lease.hold({delta.name.path for delta in deltas})
                kept_lease = KeptLease(lease, runtime)
        deltas = [delta for delta in deltas if delta.name.path not in lost]
        return cls(version, tuple(deltas), history[-1].number, storage, kept_lease)

    def release(self) -> None:
        """Give the lease back."""
        if self.lease is not None:
            with suppress(StateStoreError):  # it runs out by itself
                self.lease.release()
        self.storage.close()


@dataclass(frozen=True)
class HeldStore:
    """A store of the query at the version that Spark had committed last, and leased deltas up to it."""

    version: VersionId
    deltas: tuple[ChainDelta, ...]

    def after(self, source: SourceVersion) -> tuple[ChainDelta, ...] | None:
        """Return the deltas from a version of the store to this one, oldest first.

        None: some are gone, or this version does not build on that one.
        """
        deltas = tuple(delta for delta in self.deltas if delta.name.version > source.number)
        chain = [source.version_id, *(delta.name.version_id for delta in deltas)]
        builds_on = [delta.name.builds_on for delta in deltas]
        return deltas if chain[:-1] == builds_on and chain[-1] == self.version else None


@dataclass(frozen=True)
class Look:
    """A query at the version that it had committed last."""

    query: Query
    version: int
    stores: Mapping[StoreKey, HeldStore]


class HeldDeltas:
    """Leases on the deltas of a running query after some versions; a context manager.

    A cleaner that has condemned files leaves them as long as the lease is there that it has seen. So each
    look adds a lease on the deltas that have come, and a lease stays until none of its deltas is needed. Safe
    for any thread.

    Args:
        location: the query's checkpoint.
        since: returns the version of a store after which its deltas are needed.
        runtime: clocks and threads.
    """

    def __init__(self, location: str, since: Callable[[StoreKey], int], runtime: Runtime) -> None:
        self._location = location
        self._since = since
        self._runtime = runtime
        self._changed = runtime.condition()
        self._looking = runtime.lock()
        self._segments: dict[StoreKey, list[Segment]] = {}
        self._version = 0
        self._stride = 0
        self._is_over = False
        self._follower: Running | None = None

    def __enter__(self) -> HeldDeltas:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        if self._follower is not None:
            self._follower.join()
        for segments in self._segments.values():
            _release(segments)
        self._segments = {}

    def follow(self) -> None:
        """Look again now and then from now on, in a thread. Without a thread to start only calls look."""
        if self._follower is None:
            with suppress(RuntimeError, MemoryError):
                self._follower = self._runtime.start(self._run, name="held-deltas")

    def look(self) -> Look:
        """Hold the deltas up to the newest version.

        Raises:
            MissingError: a store does not have the newest version.
        """
        with self._looking:
            for attempt in range(_TRIES):
                query = Query.open(self._location)
                batch = query.newest_batch()
                try:
                    return self._held(query, batch)
                except MissingError:
                    if attempt == _TRIES - 1 or query.newest_batch() == batch:
                        raise
        raise AssertionError("unreachable")

    def _held(self, query: Query, batch: int) -> Look:
        versions = query.committed(batch)
        keys = query.stores()

        def hold(key: StoreKey) -> None:
            segments, since = self._segments.setdefault(key, []), self._since(key)
            needed = [segment for segment in segments if segment.version.number > since]
            _release(segment for segment in segments if segment not in needed)
            segments[:] = needed
            if segments and segments[-1].version.number == batch + 1:
                return
            if segments:
                since = segments[-1].version.number
            storage = query.storage(key)
            try:
                segments.append(Segment.hold(key, storage, versions[key], since, self._runtime))
            except BaseException:
                storage.close()
                raise

        parallel(LISTED_AT_ONCE, hold, keys, runtime=self._runtime)
        stores = {
            key: HeldStore(
                self._segments[key][-1].version,
                tuple(delta for segment in self._segments[key] for delta in segment.deltas),
            )
            for key in keys
        }
        self._version = batch + 1
        if not self._stride:  # later the leases make more versions stay
            retained = batch + 1 - max(segments[-1].oldest for segments in self._segments.values())
            self._stride = max(1, min(retained, _RETAINED) // _LOOKS_OF_RETAINED)
        return Look(query, batch + 1, stores)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over, _LOOK_S)
                if self._is_over:
                    return
            with suppress(Exception):  # the leases before hold on, and the next look tries again
                if Query.open(self._location).newest_batch() + 1 >= self._version + self._stride:
                    self.look()


def _release(segments: Iterable[Segment]) -> None:
    for segment in segments:
        segment.release()


class Beside:
    """The repartition of one query into one target.

    Args:
        location: the query's checkpoint.
        storage: the target.
        target: its path or URI.
        partitions: the new number.
        workers: who do the work, a piece at a time in a process.
        progress: as for `repartition`.
        owner: this process, which stops when another one owns the target.
        runtime: clocks and threads.
    """

    def __init__(
        self,
        location: str,
        storage: Storage,
        target: str,
        partitions: int,
        workers: Workers,
        progress: ProgressOption,
        owner: Owner,
        runtime: Runtime,
    ) -> None:
        self._location = location
        self._storage = storage
        self._target = target
        self._partitions = partitions
        self._workers = workers
        self._progress = progress
        self._owner = owner
        self._runtime = runtime
        self._first_tables = Receipts(target)
        self._stores: dict[StoreKey, NewStore] = {}
        self._first = 0
        """The version from which on the deltas are needed of which no new store says more."""

    # ---- while the query runs ----------------------------------------------------------------------------

    def run(self) -> dict[StoreKey, NewStore]:
        """Write all new stores, and catch up with the query; return the stores.

        Raises:
            MissingError: there is no state.
            StateStoreError: as the files and the storages are.
        """
        query = Query.open(self._location)
        self._first = query.newest_batch() + 1
        self._stores = self._known(query)
        writings = rounds = behind = 0
        with HeldDeltas(self._location, self._since, self._runtime) as held:
            while True:
                look = self._look(held)
                if len(self._stores) < len(self._keys(query)):
                    writings += 1
                    if writings > _TRIES:
                        raise ConflictError(
                            f"the query of {self._location} removes its versions sooner than they are "
                            "copied: let it retain more (spark.sql.streaming.minBatchesToRetain)",
                            file=self._location,
                        )
                    held.follow()
                    self._write_first_tables(look.query)
                    self._stores = self._known(query)
                else:
                    before, behind = behind, look.version - min(self._versions())
                    is_enough = rounds > 0 and (behind <= FEW_VERSIONS or behind >= before)
                    if behind == 0 or is_enough or rounds == MAX_ROUNDS:
                        return self._stores
                    rounds += 1
                    self._round(look)
                self._note()

    def _versions(self) -> set[int]:
        return {store.version for store in self._stores.values()}

    def _look(self, held: HeldDeltas) -> Look:
        """Hold what is needed from now on, and give up the stores that cannot be caught up with."""
        look = held.look()
        self._forget(self._lost(look))
        return look

    def _write_first_tables(self, query: Query) -> None:
        """Write the stores that have no receipt, each piece at the version that is the newest then."""
        keys = self._keys(query)
        operators = {operator.id: operator for operator in query.operators}
        todo = [piece for operator in query.operators for piece in self._pieces(operator)]
        if not self._workers.are_elsewhere:
            version = query.newest_batch() + 1
            check_room(
                max(
                    needed_bytes(query, operator, self._pieces(operator), version)
                    for operator in query.operators
                )
            )
        write = partial(
            _write_first_tables, query, operators, self._target, self._first_tables, self._runtime
        )
        with reporting(self._progress, "written", len(keys)) as meter:
            self._workers.run(write, todo, at_once=1, meter=meter)

    def _round(self, look: Look) -> None:
        """Bring all stores to the version of a look."""
        operators = {operator.id: operator for operator in look.query.operators}
        advance = partial(_advance, look.query, operators, self._target, self._runtime)
        steps = self._steps(look)
        for step, stores in zip(steps, self._workers.run(advance, steps, at_once=_PIECES), strict=True):
            for number, store in stores.items():
                self._stores[StoreKey(step.piece.operator, number, step.piece.store)] = store
            if not stores:
                self._forget([key for key in _keys_of(step.piece) if key in self._stores])

    def _forget(self, keys: Sequence[StoreKey]) -> None:
        """Give up stores that cannot be caught up with: they are written anew."""
        lost_stores = {key: self._stores.pop(key) for key in keys}
        if not lost_stores:
            return
        self._note()

        def forget(key: StoreKey) -> None:
            self._first_tables.forget(key)
            remove_files(self._storage, key, [table.path for table in lost_stores[key].tables])

        failures = Failures()
        parallel(LISTED_AT_ONCE, partial(failures.attempt, forget), keys, runtime=self._runtime)
        failures.check()

    # ---- when the query has stopped ----------------------------------------------------------------------

    def finish(self, query: Query, *, has_ids: bool) -> dict[StoreKey, WrittenStore]:
        """Bring all new stores to the version that was committed last, and make snapshots of them.

        Args:
            query: the query, which is stopped.
            has_ids: its commit log has ids of versions.

        Raises:
            ConflictError: not all stores are written yet.
            MissingError: the query has run on for so long that deltas are gone.
            StateStoreError: as the files and the storages are.
        """
        self._first = query.newest_batch() + 1
        self._stores = self._known(query)
        keys = self._keys(query)
        if len(self._stores) < len(keys):
            raise ConflictError(
                f"'{self._target}' has {len(self._stores)} of {len(keys)} stores so far: go on with "
                "running=True (--running) first, which works with a stopped query, too",
                file=self._target,
            )
        with HeldDeltas(self._location, self._since, self._runtime) as held:
            look = held.look()
            self._refuse_lost(self._lost(look), look, "are not all there any more")
            receipts = Receipts(self._target, _stage(look))
            finish = partial(
                _finish,
                look.query,
                {operator.id: operator for operator in look.query.operators},
                self._target,
                receipts,
                has_ids,
                self._runtime,
            )
            steps = self._steps(look)
            written: dict[StoreKey, WrittenStore] = {}
            with reporting(self._progress, "written", len(keys)) as meter:
                results = self._workers.run(finish, steps, at_once=_PIECES, meter=meter)
                for step, stores in zip(steps, results, strict=True):
                    if not stores:
                        self._refuse_lost(_keys_of(step.piece), look, "remove a part of its state variables")
                    for number, store in stores.items():
                        written[StoreKey(step.piece.operator, number, step.piece.store)] = store
        self._owner.check(self._storage, self._target)
        receipts.remove_orphans(written.items(), runtime=self._runtime)
        return written

    def _refuse_lost(self, keys: Sequence[StoreKey], look: Look, why: str) -> None:
        """Raise MissingError if there are stores that cannot be brought to the version of a look."""
        if keys:
            raise MissingError(
                f"'{self._target}' has version {self._stores[keys[0]].version} of store {keys[0]}, and the "
                f"changes of '{self._location}' since then, up to version {look.version}, {why}. Call it "
                "with running=True (--running) once more, which writes such stores anew; the query may run "
                "meanwhile, and need not",
                file=self._target,
            )

    # ---- how far the new stores are ----------------------------------------------------------------------

    def _keys(self, query: Query) -> list[StoreKey]:
        return [
            StoreKey(operator.id, number, store)
            for operator in query.operators
            for store in operator.stores
            for number in range(self._count(operator))
        ]

    def _count(self, operator: Operator) -> int:
        return operator.partitions if operator.is_in_one_partition else self._partitions

    def _pieces(self, operator: Operator) -> list[Piece]:
        at_least, count = self._workers.parallelism, self._count(operator)
        return [
            piece
            for store, before in operator.stores.items()
            for piece in pieces(operator.id, store, before, count, at_least)
        ]

    def _known(self, query: Query) -> dict[StoreKey, NewStore]:
        """Return the stores that are written, as the document or else their receipts say."""
        stores: Mapping[str, NewStore] = {}
        with suppress(MissingError):
            stores = decode(Reached, self._storage.read(_DOCUMENT), f"{self._target}/{_DOCUMENT}").stores

        def known_store(key: StoreKey) -> NewStore | None:
            store = stores.get(key.path)
            if store is None:
                receipt = self._first_tables.of(key)
                store = None if receipt is None else NewStore.of_receipt(receipt)
            return store

        keys = self._keys(query)
        known_stores = parallel(LISTED_AT_ONCE, known_store, keys, runtime=self._runtime)
        return {key: store for key, store in zip(keys, known_stores, strict=True) if store is not None}

    def _note(self) -> None:
        """Write the document, unless another process has taken the work over or ended it meanwhile."""
        self._owner.check(self._storage, self._target)
        document = Reached({key.path: store for key, store in self._stores.items()})
        self._storage.write(_DOCUMENT, encode(document), overwrite=True)

    def _since(self, key: StoreKey) -> int:
        """Return the version of an old partition after which its deltas are needed."""
        stores = list(self._stores.items())
        same = [store for new, store in stores if (new.operator, new.name) == (key.operator, key.name)]
        return min((store.version for store in same), default=self._first)

    def _lost(self, look: Look) -> list[StoreKey]:
        """Return the new stores that cannot be brought to the version of a look."""
        return [
            key
            for key, store in self._stores.items()
            if any(
                look.stores[StoreKey(key.operator, int(number), key.name)].after(source) is None
                for number, source in store.sources.items()
            )
        ]

    def _steps(self, look: Look) -> list[Step]:
        return [
            self._step(piece, look) for operator in look.query.operators for piece in self._pieces(operator)
        ]

    def _step(self, piece: Piece, look: Look) -> Step:
        stores = {
            number: self._stores[StoreKey(piece.operator, number, piece.store)] for number in piece.targets
        }
        oldest = min(stores.values(), key=lambda store: store.version)
        deltas: dict[int, tuple[ChainDelta, ...]] = {}
        sources: dict[int, VersionId] = {}
        for number in piece.sources:
            held = look.stores[StoreKey(piece.operator, number, piece.store)]
            after = held.after(oldest.sources[str(number)])
            assert after is not None  # else the store was lost
            deltas[number], sources[number] = after, held.version
        return Step(piece, deltas, sources, stores, look.version)


def _keys_of(piece: Piece) -> list[StoreKey]:
    """Return the new stores of a piece."""
    return [StoreKey(piece.operator, number, piece.store) for number in piece.targets]


def _stage(look: Look) -> str:
    """Return the name of the receipts of snapshots of exactly these versions."""
    texts = sorted(f"{key.path} {held.version}" for key, held in look.stores.items())
    return f"version-{look.version}-{hashlib.sha256(' '.join(texts).encode()).hexdigest()[:16]}/"


# ---- what tasks do --------------------------------------------------------------------------------------


def _write_first_tables(
    query: Query,
    operators: Mapping[int, Operator],
    target: str,
    receipts: Receipts,
    runtime: Runtime,
    piece: Piece,
    progress: Progress | None,
) -> None:
    """Write the first tables of a piece, at a newer version if the query retires theirs meanwhile."""
    for attempt in range(_TRIES):
        version = query.newest_batch() + 1
        writer = FirstTableWriter(
            query, operators[piece.operator], piece, target, version, True, receipts, progress, runtime
        )
        try:
            writer.write()
            return
        except MissingError:
            if attempt == _TRIES - 1 or query.newest_batch() + 1 == version:
                raise


def _advance(
    query: Query,
    operators: Mapping[int, Operator],
    target: str,
    runtime: Runtime,
    step: Step,
    progress: Progress | None,
) -> dict[int, NewStore]:
    """Bring the new stores of a step to its version; return none if the state has lost a column family."""
    try:
        return CatchingUp(query, operators[step.piece.operator], step, target, progress, runtime).advance()
    except FamilyRemoved:
        return {}


def _finish(
    query: Query,
    operators: Mapping[int, Operator],
    target: str,
    receipts: Receipts,
    has_ids: bool,
    runtime: Runtime,
    step: Step,
    progress: Progress | None,
) -> dict[int, WrittenStore]:
    """Do as `_advance`, and make snapshots."""
    work = CatchingUp(query, operators[step.piece.operator], step, target, progress, runtime)
    try:
        return work.finish(receipts, has_ids=has_ids)
    except FamilyRemoved:
        return {}
