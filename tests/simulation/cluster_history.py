"""A history of a simulated cluster: a query that goes on, and the invariants that hold meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from simulation.deeds import Deeds
from simulation.ending import calm_down, check_end
from simulation.executor import Executor
from simulation.machine import machine
from simulation.partition import Partition, Terms
from simulation.provider import Task
from simulation.simulated_storage import Weather, storage_clock
from simulation.site import Site
from simulation.stage import Stage
from simulation.terms import LEASE_EXPIRY_S, QueryFailedError
from simulation.troubles import MIN_RETAINED, Troubles
from simulation.turns import Scheduler, Thread

HONEST = ("error-before", "error-after", "unavailable", "full-disk")
DAMAGE = ("damaged-read", "short-read")
LYING = ("torn-write", "silently-torn-write", "stale-listing")

PROFILES = ("calm", "failing", "failing", "failing", "damaging", "lying")


class History:
    """The history of a seed. `run` raises AssertionError if an invariant does not hold.

    The state has this many `partitions`; `trace` has every step. In a prompt history no process is slower
    than a lease allows. `troubles` are names of TROUBLES.
    """

    def __init__(
        self,
        seed: int,
        *,
        ids: bool = True,
        batches: int | None = None,
        profile: str | None = None,
        partitions: int = 2,
        troubles: Iterable[str] = (),
    ) -> None:
        self.chance = random.Random(f"{seed} history")
        self.seed = seed
        self.profile = self.chance.choice(PROFILES)
        self.batches = self.chance.randrange(8, 24)
        self.is_prompt = self.chance.random() < 0.5
        self.profile = profile or self.profile
        self.batches = batches or self.batches
        self.scheduler = Scheduler(seed)
        self.weather = Weather(self.scheduler, random.Random(f"{seed} weather"))
        self.counts: dict[str, int] = {}
        self.ids = ids
        self.retain = self.chance.randrange(2, 5)
        self.is_calm = self.is_quiet = False
        self.troubles = Troubles(self, frozenset(troubles))
        self.weather.trouble = self.troubles.storage_fault
        is_reduced = self.troubles.has("retention") or self.troubles.has("policy")
        is_late = self.troubles.has("late-effect")
        terms = Terms(
            ids,
            MIN_RETAINED if is_reduced else self.retain,
            self.is_lying,
            self.is_prompt and not is_late,
        )
        clock_ms = storage_clock(self.scheduler, self.troubles.clock_ahead_ms)
        self.partitions = [Partition(number, terms, clock_ms) for number in range(partitions)]
        self._runs = self._applications = 1
        self._jobs = self._tasks = 0
        self.executors: list[Executor] = []
        self._born = 0
        self._driver: Thread | None = None
        self.driver_dies = False
        self.site: Any = None

    @property
    def trace(self) -> list[str]:
        return self.scheduler.trace

    @property
    def is_lying(self) -> bool:
        return self.profile == "lying"

    @property
    def is_honest(self) -> bool:
        """True if storage returns the bytes that were written, if it returns any."""
        return self.profile in ("calm", "failing")

    @property
    def caches_pages(self) -> bool:
        """True if executors cache the files of bases by pages."""
        return bool(self.site.options["localDiskLimit"] != "0")

    @property
    def run_id(self) -> str:
        """Number of the query's run."""
        return f"run-{self._runs}"

    @property
    def committed(self) -> int:
        """Number of committed batches."""
        return len(self.partitions[0].committed) - 1

    def run(self) -> None:
        with machine() as directory, self.troubles.on_the_machine():
            self.site = Site(
                self.scheduler,
                self.partitions,
                self.weather,
                self.ids,
                self.retain,
                self.is_honest,
                self._options(),
                directory,
                self.count,
                self.troubles.has("cleaner"),
            )
            self._set_weather()
            self.scheduler.run(self._main)
            check_end(self, directory)

    # ---- the set-up --------------------------------------------------------------------------------------

    def _options(self) -> dict[str, str]:
        chance = self.chance
        options = {
            "maxDeltas": str(chance.randrange(1, 5)),
            "fullAfterMerges": str(chance.randrange(0, 5)),
            "minPauseBetweenMerges": chance.choice(["0", "2s"]),
            "maxConcurrentMerges": str(chance.randrange(1, 3)),
            "mergeTimeout": "60s",
            "leaseExpiry": f"{LEASE_EXPIRY_S}s",
            "cleanupTimeout": "60s",
            "transferThreads": str(chance.randrange(1, 4)),
            "localRecovery": chance.choice(["true", "false"]),
            "restoreMode": chance.choice(["eager", "eager", "lazy"]),
            "hydrationRateLimit": chance.choice(["0", "200"]),
            "restoreVerification": chance.choice(["blocks", "blocks", "blocks", "files"]),
        }
        options["localDiskLimit"] = chance.choice(["0", "0", "1", "4k", "64k"])
        return options | self.troubles.options()

    def _set_weather(self) -> None:
        chance, weather = self.chance, self.weather
        names = {
            "calm": (),
            "failing": HONEST,
            "damaging": HONEST + DAMAGE,
            "lying": HONEST + DAMAGE + LYING,
        }[self.profile]
        if names:
            weather.names = tuple(chance.sample(names, chance.randrange(1, len(names) + 1)))
            weather.rate = chance.choice([0.003, 0.01, 0.05])
        if self.profile == "damaging":
            weather.damaged_tables_rate = chance.choice([0.0, 0.1, 0.3])
        weather.usual_s = chance.choice([0.02, 0.2, 1.0])
        weather.slow_rate = chance.choice([0.0, 0.01, 0.05])
        weather.slow_s = 2.0 if self.is_prompt else chance.choice([2.0, 20.0, 150.0])

    # ---- the query ---------------------------------------------------------------------------------------

    def _main(self) -> None:
        self._driver = self.scheduler.current
        for _ in range(self.chance.randrange(2, 4)):
            self.executors.append(self.new_executor())
        self.scheduler.start(self.scheduler.process("chaos"), "chaos", Deeds(self).go_on)
        tries = 0
        while self.committed < self.batches:
            tries += 1
            if tries > 3 * self.batches:
                break  # the faults leave it no chance; what is there must be right all the same
            try:
                self.batch(self.chance)
            except QueryFailedError:
                self.note("the query starts again")
                self._runs += 1
                self.troubles.restarted()
                self.scheduler.sleep(self.chance.uniform(0, 5))
            self.scheduler.sleep(self.chance.uniform(0, 3))
        calm_down(self)

    def batch(self, chance: random.Random) -> None:
        """Run a batch. Raises QueryFailedError if the query has to start again."""
        self._jobs += 1
        stages = [Stage(self, partition, chance) for partition in self.partitions]
        while open_stages := [stage for stage in stages if stage.winner is None]:
            if self.driver_dies:
                self.driver_dies = False
                self._applications += 1
                raise QueryFailedError
            for stage in open_stages:
                stage.go_on()
            self.scheduler.wait(chance.uniform(0.1, 5))
        if chance.random() < 0.05 and not self.is_calm:
            raise QueryFailedError  # the driver dies between the tasks' success and its own log
        for partition, stage in zip(self.partitions, stages, strict=True):
            winner = stage.winner
            assert winner is not None
            partition.committed.append(winner)
            self.note("committed", winner[0], winner[1], "in partition", partition.number)

    def preferred(self, chance: random.Random) -> Executor:
        """Return the executor on which a task runs by preference."""
        return self.executors[0] if chance.random() < 0.8 else chance.choice(self.executors)

    def new_task(self, *, again: bool) -> Task:
        self._tasks += 1
        application = self._applications
        return Task(f"{application:08x}", self._tasks, again, lambda: application == self._applications)

    def chance_of_job(self, partition: int) -> random.Random:
        """Return a chance that is the same for all tasks of a partition in a batch."""
        return random.Random(f"{self.seed} job {self._jobs}" + (f" {partition}" if partition else ""))

    def wake_driver(self) -> None:
        if self._driver is not None and not self._driver.has_ended:
            self.scheduler.wake(self._driver)

    def any_partition(self, chance: random.Random) -> Partition:
        return self.partitions[0] if len(self.partitions) == 1 else chance.choice(self.partitions)

    def new_executor(self) -> Executor:
        self._born += 1
        ahead_ms = self.chance.choice([0, 0, -3_600_000, 3_600_000])
        return Executor(self.site, f"executor-{self._born}", ahead_ms)

    def note(self, *words: object) -> None:
        self.scheduler.note("--", *words)

    def count(self, event: str) -> None:
        self.counts[event] = self.counts.get(event, 0) + 1
