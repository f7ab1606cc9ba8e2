"""Troubles of a history beyond its profile, by name: of the machine, of the service, and of its operators.

A history has the troubles that it is given. They draw from a chance of their own, so that a seed without them
decides the same as before they were added.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from faults import WRITES, Call, Fault

from simulation.simulated_storage import DistantStorage
from simulation.truth import EMPTY, random_changes
from simulation.turns import SimulatedRuntime, is_simulated
from state_store.core.deletion.retention import Retention, RetentionPolicy
from state_store.data.maintenance.verification import verify_store
from state_store.data.query import StoreKey
from state_store.errors import StateStoreError

if TYPE_CHECKING:
    from simulation.cluster_history import History

TROUBLES = {
    "late-effect": "a write or deletion fails, and takes effect up to 90 s later",
    "threads": "an agent cannot start a thread now and then",
    "local-disk": "an agent cannot read or write a local file now and then: EIO, EMFILE, ENOSPC",
    "retention": "the query starts again with another `minBatchesToRetain`",
    "policy": "checkpoints retire by age and size, and full ones are made by the clock",
    "tools": "`verify` and the sweep of `repair` run beside the query",
    "storage-clock": "the clock of the storage is days wrong",
    "second-driver": "a driver that was taken for dead runs batches again beside its successor",
    "woken-agent": "an agent that was given up wakes up beside its successor",
    "cleaner": "a cleaner of temporary directories removes local files that no process has open",
}

MIN_RETAINED = 2
"""Versions that stay, whatever policy there is."""

_RATES = {"late-effect": 0.02, "threads": 0.1, "local-disk": 0.01}
_LATE_S = (2, 20, 90)
_DAY_MS = 86_400_000

_READERS = {"core.files.transfer": ("_each_chunk", "read_end"), "core.files.sparse": ("read_end",)}
_WRITERS = {
    "core.files.workspace": ("link_or_copy", "make_private"),
    "core.snapshots.merge": ("link_or_copy",),
    "core.snapshots.restore": ("make_private",),
}


class Troubles:
    """The troubles of one history. Without names there are none."""

    def __init__(self, history: History, names: frozenset[str]) -> None:
        unknown = names - TROUBLES.keys()
        assert not unknown, f"unknown troubles: {unknown}"
        self._history = history
        self._names = names
        self._chance = random.Random(f"{history.seed} troubles")

    def has(self, name: str) -> bool:
        return name in self._names

    @property
    def hides_leftovers(self) -> bool:
        """True if files may be left that nobody has to delete, or versions be gone that others would keep."""
        return bool(self._names & {"late-effect", "retention", "policy"})

    @property
    def leaves_local_files(self) -> bool:
        """True if an agent may end a merge beside its successor, which has made room before."""
        return self.has("woken-agent")

    @property
    def hits_machines(self) -> bool:
        """True if machines fail in a way from which each executor has to recover by itself."""
        return bool(self._names & {"threads", "local-disk", "woken-agent", "cleaner"})

    @property
    def clock_ahead_ms(self) -> int:
        """Milliseconds that the clock of the storage is ahead, for good."""
        return self._chance.choice([-3, -1, 1, 3]) * _DAY_MS if self.has("storage-clock") else 0

    def options(self) -> dict[str, str]:
        """Return options in addition to those of the history."""
        if not self.has("policy"):
            return {}
        chance = self._chance
        return {
            "retainedAge": chance.choice(["0", "10s", "60s"]),
            "retainedCheckpoints": chance.choice(["0", "2", "3"]),
            "fullInterval": chance.choice(["0", "1m", "5m"]),
            "fullSchedule": chance.choice(["", "* * * * *"]),
        }

    def restarted(self) -> None:
        """Change what a query may have changed when it starts again."""
        if self.has("retention"):
            self._history.retain = self._history.site.retain = self._chance.randrange(MIN_RETAINED, 7)
            self._history.count("retention changed")

    def storage_fault(self, operation: str, path: str) -> Fault | None:
        """Return a fault of this call, or None."""
        is_late = (
            self.has("late-effect") and operation in WRITES and self._chance.random() < _RATES["late-effect"]
        )
        return self._take_effect_later if is_late and not self._history.is_calm else None

    def deeds(self) -> list[Callable[[random.Random], None]]:
        deeds = {
            "tools": [self._sweep, self._verify],
            "second-driver": [self._second_driver],
            "woken-agent": [self._give_agent_up],
            "cleaner": [self._clean],
        }
        return [deed for trouble, found in deeds.items() if self.has(trouble) for deed in found]

    @contextlib.contextmanager
    def on_the_machine(self) -> Iterator[None]:
        """Let calls of agents to their machine fail, for the time of a history."""
        with contextlib.ExitStack() as stack:
            if self.has("threads"):
                real = SimulatedRuntime.start
                stack.enter_context(mock.patch.object(SimulatedRuntime, "start", self._starting(real)))
            if self.has("local-disk"):
                for module, name, codes in _local_calls():
                    target = f"state_store.{module}.{name}"
                    real = getattr(importlib.import_module(f"state_store.{module}"), name)
                    stack.enter_context(mock.patch(target, self._failing(real, name, codes)))
            yield

    # ---- faults ------------------------------------------------------------------------------------------

    def _hits(self, trouble: str) -> bool:
        """Draw whether a call of an agent, or of a tool, fails."""
        history = self._history
        if not is_simulated() or history.is_calm:
            return False
        process = history.scheduler.current.process.name
        return ("/agent-" in process or process.startswith("outside")) and self._chance.random() < _RATES[
            trouble
        ]

    def _take_effect_later(self, call: Call) -> Any:
        history, scheduler = self._history, self._history.scheduler
        data = call.local.read_bytes() if call.operation == "upload" else call.data
        delay_s = self._chance.choice(_LATE_S) * self._chance.random()

        def work() -> None:
            scheduler.sleep(delay_s)
            if history.is_calm:
                return
            scheduler.note("takes effect late:", call.operation, f"{call.inner.location}/{call.path}")
            with contextlib.suppress(StateStoreError):
                if call.operation == "delete":
                    call.inner.delete(call.path)
                else:
                    call.inner.write(call.path, data, overwrite=call.overwrite)

        scheduler.start(scheduler.process(f"in flight {len(scheduler.processes)}"), "request", work)
        history.count(f"late {call.operation}")
        raise call.unknown("injected: no answer in time")

    def _starting(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def start(runtime: SimulatedRuntime, work: Callable[[], object], *, name: str) -> Any:
            if self._hits("threads"):
                self._history.count("thread not started")
                raise RuntimeError("can't start new thread")
            return real(runtime, work, name=name)

        return start

    def _failing(self, real: Callable[..., Any], name: str, codes: tuple[int, ...]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if self._hits("local-disk"):
                code = self._chance.choice(codes)
                self._history.count(f"{errno.errorcode[code]} of {name.strip('_')}")
                raise OSError(code, os.strerror(code), str(arguments[0]))
            return real(*arguments, **named)

        return call

    # ---- deeds -------------------------------------------------------------------------------------------

    def _sweep(self, chance: random.Random) -> None:
        """Somebody runs the cleaner of `state-store repair --apply`."""
        history, older_ms = self._history, chance.choice([3_600_000, 700_000])
        process, partition = self._tool("sweep", chance)
        version = partition.committed[-1]
        if version == EMPTY:
            return

        def work() -> None:
            storage = DistantStorage(partition.bucket, history.weather, history.scheduler, process)
            policy = RetentionPolicy(batches=version[0], lease_expiry_ms=max(3_600_000, older_ms))
            named = partition.named(version)
            with contextlib.suppress(StateStoreError):
                if named.checkpoint_id is None:
                    named = type(named)(*version)
                Retention(storage, policy, runtime=process.runtime).sweep(named, older_ms)

        history.scheduler.start(process, "sweep", work)

    def _verify(self, chance: random.Random) -> None:
        """Somebody runs `state-store verify`: on storage that is honest it finds no damage."""
        history = self._history
        process, partition = self._tool("verify", chance)

        def work() -> None:
            storage = DistantStorage(partition.bucket, history.weather, history.scheduler, process)
            with contextlib.suppress(StateStoreError):
                verdict = verify_store(
                    StoreKey(0, partition.number),
                    storage,
                    lambda: partition.named(partition.committed[-1]),
                    every=True,
                    runtime=process.runtime,
                )
                damaged = [finding for finding in verdict.findings if finding.kind == "damaged"]
                assert not (damaged and history.is_honest), f"verify finds {damaged} on honest storage"

        history.scheduler.start(process, "verify", work)

    def _second_driver(self, chance: random.Random) -> None:
        """Its attempts build on versions that Spark committed, and are never committed themselves.

        Without ids its rows would be taken for those of the attempt that counts: Spark's log ends such a
        driver before it runs a batch that another has committed.
        """
        history = self._history
        partition, executor = history.any_partition(chance), chance.choice(history.executors)
        before = chance.choice(partition.committed[-3:])
        if not history.ids:
            return
        provider = executor.provider(f"second-{len(history.scheduler.trace)}", partition)

        def work() -> None:
            with contextlib.suppress(StateStoreError):
                provider.run_task(before, random_changes(chance), history.new_task(again=True))
                history.count("attempt of a second driver")

        history.scheduler.start(executor.jvm, "second-driver", work)

    def _give_agent_up(self, chance: random.Random) -> None:
        """An agent hangs for a while, in mid-merge if there is one; its JVM does not wait for it."""
        history = self._history
        merging = [
            executor for executor in history.executors if executor.agent is not None and executor.agent.merges
        ]
        executor = chance.choice(merging or history.executors)
        history.count("agent given up in mid-merge" if merging else "agent given up")
        executor.give_agent_up((20 if history.is_prompt else 300) * chance.random())

    def _clean(self, chance: random.Random) -> None:
        """All that lies in one directory of an executor's disk, but for the bases that its JVM has open."""
        executor = chance.choice(self._history.executors)
        below = sorted(path for path in executor.directory.rglob("*") if path.is_dir())
        held = [Path(path) for provider in executor.providers.values() for path in provider.held]
        chosen = executor.directory if not below or chance.random() < 0.5 else chance.choice(below)
        for path in sorted(chosen.rglob("*"), reverse=True):
            is_open = any(path == base or path in base.parents or base in path.parents for base in held)
            if not is_open:
                path.rmdir() if path.is_dir() else path.unlink()
                self._history.count("local file cleaned")

    def _tool(self, name: str, chance: random.Random) -> tuple[Any, Any]:
        scheduler = self._history.scheduler
        process = scheduler.process(f"outside-{name}-{len(scheduler.processes)}")
        return process, self._history.any_partition(chance)


def _local_calls() -> Iterator[tuple[str, str, tuple[int, ...]]]:
    for module, names in _READERS.items():
        yield from ((module, name, (errno.EIO, errno.EMFILE)) for name in names)
    for module, names in _WRITERS.items():
        yield from ((module, name, (errno.ENOSPC, errno.EIO)) for name in names)
