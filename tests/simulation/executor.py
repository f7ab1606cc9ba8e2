"""Executors of a simulated cluster: a JVM with its providers, and the real agent beside it."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulation.partition import Partition
from simulation.provider import Provider
from simulation.simulated_agent import Agent, Exchange, never_internal
from simulation.site import Site
from state_store.errors import BusyError, StateStoreError, StorageError

_AGENT_TRIES = 3


class Executor:
    """An executor: its JVM, its agent (replaced if it is gone), its providers by run and partition."""

    def __init__(self, site: Site, name: str, wall_ahead_ms: int = 0) -> None:
        self.site = site
        self.name = name
        self.jvm = site.scheduler.process(f"{name}/jvm")
        self.chance = self.jvm.chance
        self.directory = site.directory / name
        self.directory.mkdir()
        self.providers: dict[tuple[str, int], Provider] = {}
        self.unheard: set[Path] = set()
        self.owed: dict[int, dict[str, Any]] = {}
        """The closed stores of which a merge is owed, by their numbers: another agent closes them again."""
        self.wall_ahead_ms = wall_ahead_ms
        self._agents = itertools.count(1)
        self._instances = itertools.count(1)
        self.agent: Agent | None = None
        self._given_up: list[Agent] = []
        self.reported: dict[int, Agent | None] = {}
        """The agents that heard of a damaged base, by partition, until its next restore."""
        site.scheduler.start(self.jvm, "maintenance", self._maintain)

    @property
    def is_dead(self) -> bool:
        return self.jvm.is_dead

    def has_agent(self, agent: Agent) -> bool:
        """Return True if that agent is the one that answers."""
        return self.agent is agent and not agent.process.is_dead

    def kill(self) -> None:
        """The machine is gone, with everything on it."""
        self.site.scheduler.kill(self.jvm)
        for agent in [self.agent, *self._given_up]:
            if agent is not None:
                self.site.scheduler.kill(agent.process)
        shutil.rmtree(self.directory)

    def kill_agent(self) -> None:
        """The agent's process is gone; its files on disk stay as they were."""
        if self.agent is None or self.agent.process.is_dead:
            return
        aside = self.directory.with_name(f"{self.directory.name}-aside")
        self.directory.rename(aside)
        self.site.scheduler.kill(self.agent.process)
        shutil.rmtree(self.directory, ignore_errors=True)
        aside.rename(self.directory)

    def give_agent_up(self, seconds: float) -> None:
        """The JVM starts another agent in place of one that hangs, and that wakes up after this time."""
        if self.agent is not None:
            self.site.scheduler.pause(self.agent.process, seconds)
            self._given_up.append(self.agent)
            self.agent = None

    def pause(self, seconds: float, *, agent_only: bool = False) -> None:
        if not agent_only:
            self.site.scheduler.pause(self.jvm, seconds)
        if self.agent is not None:
            self.site.scheduler.pause(self.agent.process, seconds)

    def provider(self, run: str, partition: Partition) -> Provider:
        """Return the provider of the run; the maintenance unloads those of earlier runs."""
        key = run, partition.number
        if key not in self.providers:
            self.providers[key] = Provider(self, run, partition, next(self._instances))
        return self.providers[key]

    def check_local_files(self) -> None:
        """While nothing runs: the databases here are those that the JVM has, or is going to hear of, and for
        each store the one from which its next merge starts. A close that no agent has heard leaves what it
        has until the executor ends: the JVM says it once.
        """
        held = {path for provider in self.providers.values() for path in provider.held}
        held |= self.agent.offered() if self.agent is not None else set()
        found = {str(path) for path in self.directory.rglob("base-*") if path.parent not in self.unheard}
        over = sorted(found - held)
        assert len(over) <= len(self.providers), f"left on the local disk: {over}"

    def call(
        self, op: str, timeout_s: float, store: Callable[[], dict[str, Any]], **arguments: Any
    ) -> dict[str, Any]:
        """Call the agent from a thread of the JVM; a dead agent is replaced and asked again, with what the
        store is then. Raises what it answers, and BusyError where it does not in time.
        """
        for _ in range(_AGENT_TRIES):
            agent = self._living_agent()
            exchange = Exchange(agent.calls, {"op": op, "store": store(), **arguments})
            self.site.scheduler.start(agent.process, op, exchange.serve).join(timeout_s)
            agent.check()
            if agent in self._given_up:
                exchange.is_abandoned = True
                continue
            if exchange.failure is not None:
                raise exchange.failure
            if exchange.answer is not None:
                return exchange.answer
            if not agent.process.is_dead:
                exchange.is_abandoned = True
                raise BusyError(f"the agent did not answer {op!r} in time")
        raise StorageError("the agent dies again and again")

    def _living_agent(self) -> Agent:
        if self.agent is None or self.agent.process.is_dead:
            name = f"{self.name}/agent-{next(self._agents)}"
            self.agent = Agent(self.site, name, self.directory, self.wall_ahead_ms)
            self.site.scheduler.start(self.jvm, "events", lambda: self._listen(self.agent))
            if self.owed:
                self.site.scheduler.start(self.jvm, "closes", lambda: self._close_again(self.agent))
        return self.agent

    def _close_again(self, agent: Agent) -> None:
        """Close the stores whose merges were owed by an agent that is gone: their files are still there."""
        for instance, store in list(self.owed.items()):
            exchange = Exchange(agent.calls, {"op": "close", "store": store})
            self.site.scheduler.start(agent.process, "close", exchange.serve).join()
            if self.has_agent(agent) and exchange.answer is not None and not exchange.answer["owed"]:
                self.owed.pop(instance, None)

    def _listen(self, agent: Agent) -> None:
        """Fetch the events of one agent as long as it lives."""
        last = 0
        while self.has_agent(agent):
            self.site.scheduler.sleep(10 * (self.site.weather.calm_factor - 1))
            exchange = Exchange(agent.calls, {"op": "events", "after": last, "wait_ms": 30_000})
            self.site.scheduler.start(agent.process, "events", exchange.serve).join()
            heard = (exchange.answer or {}) if self.has_agent(agent) else {}
            for event in heard.get("events", ()):
                last = event["number"]
                if event["event"] == "merge_failed":
                    self._check_failure(event)
                if event["event"] == "closed":
                    self.owed.pop(event["store"], None)
                for provider in list(self.providers.values()):
                    if provider.instance == event["store"] and event["event"] == "merged":
                        provider.offered(event["merged"]["base"])

    def _check_failure(self, event: dict[str, Any]) -> None:
        """Merges fail as storage does, and where a clean-up was quicker."""
        kind = event["error"]["kind"]
        self.site.count(f"merge: {kind}")
        was_cleaned = self.site.is_cleaned and str(self.site.directory) in event["error"]["message"]
        is_damage = kind in ("damaged", "format", "internal") and self.site.is_honest and not was_cleaned
        assert not is_damage, f"a merge failed: {event}"

    def _maintain(self) -> None:
        while True:
            self.site.scheduler.sleep(self.chance.uniform(0.5, 15) * self.site.weather.calm_factor)
            for provider in list(self.providers.values()):
                try:
                    provider.maintain()
                except StateStoreError as error:
                    self.site.scheduler.note("maintenance failed:", type(error).__name__)
                    never_internal(error)
