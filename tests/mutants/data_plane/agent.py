"""Breaks of the package `agent`."""

from __future__ import annotations

from mutants.data_plane.places import KILLED_AT_START, ROOT
from mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "an agent that is killed while it starts fails the task",
        f"{ROOT}/agent/AgentProcess.scala",
        "        if (agent.wasKilled) throw new AgentKilled(agent.obituary)\n",
        "",
        KILLED_AT_START,
    ),
    Mutant(
        "agents that are killed while they start are started for ever",
        f"{ROOT}/agent/Agent.scala",
        "start(settings, left - 1)",
        "start(settings, left)",
        KILLED_AT_START,
    ),
]
