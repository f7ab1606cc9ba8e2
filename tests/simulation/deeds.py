"""Deeds that go wrong in a history, one after the other, at random moments."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

from simulation.simulated_storage import DistantStorage, storage_clock
from simulation.truth import EMPTY, rows_of
from state_store.data.embedded import EmbeddedStore
from state_store.errors import StateStoreError

if TYPE_CHECKING:
    from simulation.cluster_history import History


class Deeds:
    """The deeds of one history, with chance of their own."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._scheduler = history.scheduler
        self._executors = history.executors

    def go_on(self) -> None:
        """Do one after the other until the history is calm."""
        chance = random.Random(f"{self._history.seed} chaos")
        pause_s = chance.choice([3.0, 15.0, 60.0])
        deeds = [
            self._kill_agent,
            self._kill_executor,
            self._pause_executor,
            self._pause_agent,
            self._storm,
            self._jump,
            self._end_driver,
            self._move,
            self._full_from_outside,
            self._ask_for_a_snapshot,
        ]
        if self._history.is_lying:
            deeds.append(self._power_cut)
        weights = [chance.choice([0, 1, 1, 4]) for _ in deeds]
        if wanted := self._history.troubles.deeds():
            deeds += wanted
            weights += [4] * len(wanted)
            pause_s = min(pause_s, 5.0)
        weights[0] += 1
        while True:
            self._scheduler.sleep(chance.expovariate(1 / pause_s))
            if self._history.is_calm:
                return
            (deed,) = chance.choices(deeds, weights)
            self._history.note(deed.__name__.strip("_").replace("_", " "))
            self._history.count(deed.__name__.strip("_"))
            deed(chance)

    def _kill_agent(self, chance: random.Random) -> None:
        chance.choice(self._executors).kill_agent()

    def _kill_executor(self, chance: random.Random) -> None:
        number = chance.randrange(len(self._executors))
        self._executors[number].kill()
        self._executors[number] = self._history.new_executor()

    def _pause_executor(self, chance: random.Random) -> None:
        chance.choice(self._executors).pause(self._pause_s(chance))

    def _pause_agent(self, chance: random.Random) -> None:
        chance.choice(self._executors).pause(self._pause_s(chance), agent_only=True)

    def _pause_s(self, chance: random.Random) -> float:
        """In a prompt history nobody is slower than a lease allows."""
        longest_s = [1, 5, 20] if self._history.is_prompt else [1, 20, 200, 700]
        return chance.choice(longest_s) * chance.random()

    def _storm(self, chance: random.Random) -> None:
        if self._history.profile != "calm":
            self._history.weather.storm_until_s = self._scheduler.now_s + chance.uniform(0.1, 20)

    def _jump(self, chance: random.Random) -> None:
        """The wall clock of a machine jumps. Leases hold as long as the storage's clock does not jump too."""
        for process in self._scheduler.processes:
            if not process.is_dead and chance.random() < 0.3:
                process.wall_ahead_ms += chance.choice([-1, 1]) * chance.randrange(86_400_000)

    def _end_driver(self, chance: random.Random) -> None:
        self._history.driver_dies = True

    def _move(self, chance: random.Random) -> None:
        """Partitions prefer another executor from now on."""
        self._executors.append(self._executors.pop(0))

    def _full_from_outside(self, chance: random.Random) -> None:
        """Somebody makes a full checkpoint of a committed version from another machine."""
        history = self._history
        number = len(self._scheduler.processes)
        process = self._scheduler.process(f"outside-{number}")
        partition = history.any_partition(chance)
        version = chance.choice(partition.committed[-2:])
        if version == EMPTY:
            return
        directory = history.site.directory / f"outside-{number}"

        def work() -> None:
            storage = DistantStorage(partition.bucket, history.weather, self._scheduler, process)
            with contextlib.suppress(StateStoreError):
                store = EmbeddedStore(
                    storage, directory, has_checkpoint_ids=history.ids, runtime=process.runtime
                )
                with store:
                    store.load(partition.named(version))
                    partition.truth.check(version, rows_of(store), "a read")
                    store.checkpoint(full=True)

        self._scheduler.start(process, "full", work)

    def _ask_for_a_snapshot(self, chance: random.Random) -> None:
        executor = chance.choice(self._executors)
        partition = self._history.any_partition(chance)
        provider = executor.providers.get((self._history.run_id, partition.number))
        if provider is None or provider.newest is None:
            return
        kind = chance.choice(["incremental", "full"])

        def work() -> None:
            with contextlib.suppress(StateStoreError):
                provider.snapshot(kind)

        self._scheduler.start(executor.jvm, "snapshot", work)

    def _power_cut(self, chance: random.Random) -> None:
        """The storage loses some of the files that were written last, or keeps them empty."""
        now_ms = storage_clock(self._scheduler)()
        for files in [partition.bucket.files for partition in self._history.partitions]:
            for path, (_, at_ms) in sorted(files.items()):
                if now_ms - at_ms < 10_000 and chance.random() < 0.3:
                    if chance.random() < 0.5:
                        del files[path]
                    else:
                        files[path] = b"", at_ms
