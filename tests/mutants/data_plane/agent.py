"""Breaks of the package `agent`."""

from __future__ import annotations

from mutants.data_plane.places import ASKED_AGAIN, KILLED_AT_START, PAGES, ROOT, STORES, THREADS
from mutants.mutant import Mutant

_CLIENT = ("tests/jvm/test_agent_client.py",)
_LOCAL_DISK = ("tests/bridge/test_local_disk.py",)

MUTANTS = [
    Mutant(
        "an error that is no exception ends the event thread",
        f"{ROOT}/agent/AgentEvents.scala",
        "      case e: Throwable =>\n        logQuietly(",
        "      case e: RuntimeException =>\n        logQuietly(",
        THREADS,
    ),
    Mutant(
        "an event whose handler fails is repeated forever",
        f"{ROOT}/agent/AgentEvents.scala",
        'catch { case e: Throwable => logQuietly(logWarning(s"An event',
        'catch { case e: RuntimeException => logQuietly(logWarning(s"An event',
        THREADS,
    ),
    Mutant(
        "events that were handled are handled again",
        f"{ROOT}/agent/AgentEvents.scala",
        "case (number, event) if number > handled =>",
        "case (number, event) if number >= 0 =>",
        THREADS,
    ),
    Mutant(
        "an error of memory ends a thread that serves files",
        f"{ROOT}/agent/Supervised.scala",
        "case _: OutOfMemoryError | _: InternalError | ",
        "case ",
        THREADS,
    ),
    Mutant(
        "the first call of a store is bounded by another option",
        f"{ROOT}/agent/AgentStore.scala",
        'durationMs("callTimeout"), settings',
        'durationMs("agentStartTimeout"), settings',
        _CLIENT,
    ),
    Mutant(
        "a socket that a cleaner removed is not made again",
        f"{ROOT}/agent/AgentDirectory.scala",
        "    if (!Files.isDirectory(sockets)) sockets = AgentDirectory.shortDirectory()\n",
        "",
        _LOCAL_DISK,
    ),
    Mutant(
        "a directory that a cleaner removed is made for everybody",
        f"{ROOT}/local/LocalStore.scala",
        "AgentDirectory.createPrivately(agent.opened.incoming)",
        "Files.createDirectories(agent.opened.incoming)",
        _LOCAL_DISK,
    ),
    Mutant(
        "a disk that fails while rows are moved to it is not named",
        f"{ROOT}/memory/SpillFile.scala",
        "    catch { case e: IOException => throw new LocalDiskException(directory, e) }\n",
        "    catch { case e: IOException => throw e }\n",
        _LOCAL_DISK,
    ),
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
        "a repeated call lists the stores of the first call",
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
        '"more" -> (left.size > limit)',
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
