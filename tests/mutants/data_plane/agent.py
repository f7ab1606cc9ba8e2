"""Breaks of the package `agent`."""

from __future__ import annotations

from mutants.data_plane.places import ASKED_AGAIN, KILLED_AT_START, PAGES, ROOT, STORES
from mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "an agent that is killed while it starts fails the task",
        f"{ROOT}/agent/AgentProcess.scala",
        "        if (agent.wasKilled) throw new AgentKilled(agent.exitDescription)\n",
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
    Mutant(
        "a call that is asked again says what was open when it was asked first",
        f"{ROOT}/agent/AgentStore.scala",
        "      () => request(op, arguments: _*), timeout",
        "      { val made = request(op, arguments: _*); () => made }, timeout",
        ASKED_AGAIN,
    ),
    Mutant(
        "a page of a listing begins with the last file of the page before",
        f"{ROOT}/agent/FileCalls.scala",
        "all.dropWhile(_.getPath.getName <= name)",
        "all.dropWhile(_.getPath.getName < name)",
        PAGES,
    ),
    Mutant(
        "a listing ends with its first page",
        f"{ROOT}/agent/FileCalls.scala",
        '"more" -> (left.size > most)',
        '"more" -> false',
        PAGES,
    ),
    Mutant(
        "all file requests go over one connection",
        f"{ROOT}/agent/Agent.scala",
        "Iterator.range(0, connections)",
        "Iterator.range(0, math.min(connections, 1))",
        STORES,
    ),
]
