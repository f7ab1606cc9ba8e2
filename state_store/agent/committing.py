"""Commit: make a version in checkpoint storage of a delta that the JVM wrote."""

from __future__ import annotations

from dataclasses import dataclass

from state_store.agent.open_store import OpenStore
from state_store.agent.wire.answers import Committed, Prediction, SeenAttempts
from state_store.agent.wire.requests import CommitRequest
from state_store.core.checkpoint.lineage import ObservedAttempts
from state_store.core.checkpoint.names import DELTA_DIRECTORY, SHARED_DIRECTORY, DeltaName
from state_store.core.files.checksums import crc32_of
from state_store.core.planning.chain import Chain, ChainDelta
from state_store.core.snapshots.attempt import store_attempt, touch
from state_store.core.snapshots.restore import read_chain
from state_store.errors import ConflictError, DamagedError, InternalError, MissingError


@dataclass(frozen=True)
class CommitResult:
    """An answer, and the chain of the version before, which is certain now: Spark builds on it."""

    answer: Committed
    before: Chain


def commit(store: OpenStore, request: CommitRequest) -> CommitResult:
    """Store the delta under its name, whose appearance is the commit. The same commit again is fine.

    Raises:
        DamagedError: The local file has other bytes than the JVM announced.
        MissingError: The local file or the version before does not exist.
        ConflictError: Another delta has that name; or, without Spark's ids, the attempt is refused (see
            `store_attempt`).
        StateStoreError: The storage failed.
    """
    clock_s = store.context.runtime.monotonic_s
    start_s = clock_s()
    delta = store.store_id.delta(request.version, request.parent, request.crc32)
    before = _chain_before(store, delta)
    _check_follows(delta, before)
    stored_from_s = clock_s()
    seen: ObservedAttempts = frozenset()
    if store.store_id.has_checkpoint_ids:
        _store_delta(store, delta, request)
    else:
        touch(request.path)
        seen = store_attempt(
            store.context.storage, delta, request.seen, lambda: _store_delta(store, delta, request)
        )
    store.context.cache.adopt(delta.path, request.path)
    stored_until_s = clock_s()
    chain = store.head.committed(ChainDelta(delta, request.size_bytes, request.crc32), before, request.keys)
    phases = {
        "chain_ms": (stored_from_s - start_s) * 1000,
        "store_ms": (stored_until_s - stored_from_s) * 1000,
    }
    attempts = SeenAttempts(delta.version, seen)
    hydration = store.hydrations.progress()
    answer = Committed(chain, predict(store, chain), store.head.ages(), attempts, phases, hydration)
    return CommitResult(answer, before)


def predict(store: OpenStore, chain: Chain) -> Prediction:
    """Return the time that a restore of the last version of `chain` would take now, and its objective."""
    return Prediction(store.head.predict_restore_ms(chain), store.options.restore_objective_ms)


def _check_follows(delta: DeltaName, before: Chain) -> None:
    """Raise InternalError unless the delta follows the chain: it must not become visible otherwise."""
    if before.version not in (delta.builds_on, delta.version_id):
        raise InternalError(
            f"'{delta.path}' was not stored: it builds on version {delta.builds_on}, and what the agent "
            f"knows leads to {before.version}. Run the batch again; please report this with the agent's log",
            file=delta.path,
        )


def learn_age(store: OpenStore, chain: Chain) -> None:
    """Learn the age of the chain from its oldest file, if full checkpoints depend on it and it is unknown."""
    options = store.options
    if not (options.full_interval_ms or options.full_schedule) or store.head.knows_full_age:
        return
    paths = chain.paths()
    times = [
        entry.modified_ms
        for directory in (DELTA_DIRECTORY, SHARED_DIRECTORY)
        for entry in store.context.storage.list_files(directory)
        if f"{directory}/{entry.name}" in paths
    ]
    store.head.note_chain_start(min(times, default=store.context.runtime.wall_ms()))


def _chain_before(store: OpenStore, delta: DeltaName) -> Chain:
    known = store.head.chain_before(delta)
    if known is not None:
        if known.version is None:
            learn_age(store, known)
        return known
    before = delta.builds_on
    assert before is not None
    chain, warnings = read_chain(store.context.storage, before)
    for warning in warnings:
        store.log.warning(warning)
    store.head.found(chain)
    learn_age(store, chain)
    return chain


def _store_delta(store: OpenStore, delta: DeltaName, request: CommitRequest) -> None:
    """Write the delta durably under its name; the same delta again is a success."""
    storage, path, size_bytes, name = store.context.storage, request.path, request.size_bytes, delta.path
    try:
        received_bytes = path.stat().st_size
    except FileNotFoundError:
        if _is_stored(store, delta, size_bytes):
            return
        file = f"{storage.location}/{name}"
        raise MissingError(f"'{path}', which should become '{file}', does not exist", file=file) from None
    crc = crc32_of(path)
    if received_bytes != size_bytes or crc != request.crc32:
        file = f"{storage.location}/{name}"
        raise DamagedError(
            f"'{path}', which should become '{file}', has {received_bytes} bytes and CRC-32 {crc:08x} "
            f"instead of {size_bytes} and {request.crc32:08x}: run the batch again",
            file=file,
        )
    try:
        storage.upload(path, name)
    except ConflictError:
        if not _is_stored(store, delta, size_bytes):
            raise


def _is_stored(store: OpenStore, delta: DeltaName, size_bytes: int) -> bool:
    directory, _, name = delta.path.partition("/")
    entries = store.context.storage.list_files(directory)
    return any(entry.name == name and entry.size_bytes == size_bytes for entry in entries)
