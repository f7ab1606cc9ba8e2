"""Breaks of the package `agent`: its threads outlive every error, and an event is handled once."""

from __future__ import annotations

from mutants.data_plane.places import KILLED_AT_START, RANGES, ROOT, THREADS
from mutants.mutant import Mutant

_LOCAL_DISK = ("tests/bridge/test_removed_directories.py",)
_CLIENT = "tests/jvm/test_agent_client.py"
_STORED_HERE = (f"{_CLIENT}::test_deltas_are_stored_without_the_agent_or_left_to_it",)

MUTANTS = [
    Mutant(
        "files are opened for the user of the first thread that serves a request",
        f"{ROOT}/agent/FileCalls.scala",
        "    user.doAs(action).get\n",
        "    action.run().get\n",
        ("tests/jvm/test_state_model.py::test_files_are_opened_for_the_user_who_opened_the_store",),
    ),
    Mutant(
        "files are opened with the tokens that the user had when the store was opened",
        f"{ROOT}/agent/FileCalls.scala",
        "  private val user = UserGroupInformation.getCurrentUser\n",
        "  private val user = {\n"
        "    val now = UserGroupInformation.getCurrentUser\n"
        "    val copy = UserGroupInformation.createRemoteUser(now.getUserName)\n"
        "    copy.addCredentials(now.getCredentials)\n"
        "    copy\n"
        "  }\n",
        ("tests/jvm/test_state_model.py::test_files_are_opened_for_the_user_who_opened_the_store",),
    ),
    Mutant(
        "the loser of two writers is not told of the other",
        f"{ROOT}/agent/FileCalls.scala",
        "if !overwrite && Try(manager.exists(path)).getOrElse(false) =>",
        "if false =>",
        ("tests/jvm/test_state_model.py::test_the_loser_of_two_writers_is_told_of_the_other",),
    ),
    Mutant(
        "a store that is closed is called again",
        f"{ROOT}/agent/AgentStore.scala",
        '    if (isClosed) throw new AgentException("busy", s"$id is closed")\n',
        "",
        (f"{_CLIENT}::test_the_log_is_read_after_any_error_and_the_first_call_is_bounded",),
    ),
    Mutant(
        "nobody waits for the end of a killed agent",
        f"{ROOT}/agent/AgentProcess.scala",
        "    kill()\n    endsWithin(AgentProcess.KilledWaitMs)\n",
        "    kill()\n",
        (f"{_CLIENT}::test_a_killed_agent_counts_as_ended_although_its_process_is_still_there",),
    ),
    Mutant(
        "a file is removed before the one that replaces it has its name",
        f"{ROOT}/agent/FileCalls.scala",
        "overwrite && !removesBeforeItRenames\n",
        "overwrite\n",
        ("tests/jvm/test_state_model.py::test_a_file_is_replaced_in_one_step_or_kept",),
    ),
    Mutant(
        "an error that is not an exception ends the event thread",
        f"{ROOT}/agent/Agent.scala",
        "      case e: Throwable =>\n        logQuietly(",
        "      case e: RuntimeException =>\n        logQuietly(",
        THREADS,
    ),
    Mutant(
        "events that were handled are handled again",
        f"{ROOT}/agent/Agent.scala",
        "case (number, event) if number > handled =>",
        "case (number, event) if number >= 0 =>",
        THREADS,
    ),
    Mutant(
        "an error of memory ends a thread that serves files",
        f"{ROOT}/agent/AgentProcess.scala",
        "case _: OutOfMemoryError | _: InternalError | ",
        "case ",
        THREADS,
    ),
    Mutant(
        "a killed agent is asked again until its process has ended",
        f"{ROOT}/agent/AgentProcess.scala",
        "!isKilled && process.isAlive",
        "process.isAlive",
        ("tests/jvm/test_agent_client.py",),
    ),
    Mutant(
        "a delta on another attempt than the agent's last is stored without the agent",
        f"{ROOT}/agent/AgentStore.scala",
        " && version.id.contains(delta.parent)",
        "",
        _STORED_HERE,
    ),
    Mutant(
        "a delta that could not be synced is left to the agent, whose sync succeeds",
        f"{ROOT}/agent/AgentStore.scala",
        "throw AgentException.ofLocalDisk(delta.path.toString, e)",
        "throw e",
        _STORED_HERE,
    ),
    Mutant(
        "a call does not wait until the agent has heard of a commit",
        f"{ROOT}/agent/AgentStore.scala",
        "    told.awaited()\n    writeUnwrittenRefusals()\n",
        "    writeUnwrittenRefusals()\n",
        _STORED_HERE,
    ),
    Mutant(
        "a version of which the agent could not hear is built on before it has answered again",
        f"{ROOT}/agent/AgentStore.scala",
        "      if (answer.isEmpty) last = None\n      else if (",
        "      if (",
        _STORED_HERE,
    ),
    Mutant(
        "an answer that was given before a merge counts after it",
        f"{ROOT}/agent/AgentStore.scala",
        "    synchronized { if (merges == before) last = Some(",
        "    synchronized { if (merges >= before) last = Some(",
        _STORED_HERE,
    ),
    Mutant(
        "the figures after a merge lack the deltas that the agent had not heard of",
        f"{ROOT}/agent/AgentStore.scala",
        "stored.takeRight(later.toInt)",
        "stored.takeRight(0)",
        _STORED_HERE,
    ),
    Mutant(
        "any number of commits go on without the agent",
        f"{ROOT}/agent/AgentStore.scala",
        "told.awaitedBut(AgentStore.MaxUntold)",
        "told",
        _STORED_HERE,
    ),
    Mutant(
        "a store closes before the agent has heard of its last commit",
        f"{ROOT}/agent/AgentStore.scala",
        "    told.awaitFor(AgentStore.BestEffortTimeoutMs)\n",
        "",
        _STORED_HERE,
    ),
    Mutant(
        "a directory that a cleaner removed is made for everybody",
        f"{ROOT}/local/LocalStore.scala",
        "AgentDirectory.createPrivately(agent.opened.incoming)",
        "Files.createDirectories(agent.opened.incoming)",
        _LOCAL_DISK,
    ),
    Mutant(
        "connections that could not be lent are forgotten when a store opens",
        f"{ROOT}/agent/Agent.scala",
        "    lacking += math.max(0, connections - total)\n",
        "    lacking = math.max(0, connections - total)\n",
        THREADS,
    ),
    Mutant(
        "an agent that replaces another is lent no connections",
        f"{ROOT}/agent/Agent.scala",
        "def lackAll(): Unit = lacking = total\n",
        "def lackAll(): Unit = ()\n",
        THREADS,
    ),
    Mutant(
        "a connection whose time ends with its call is closed during the next",
        f"{ROOT}/agent/Agent.scala",
        "      if (!isOver.compareAndSet(false, true)) resource.close()\n",
        "      isOver.set(true)\n",
        THREADS,
    ),
    Mutant(
        "behind a view the connector that removes before it renames is not seen",
        f"{ROOT}/agent/FileCalls.scala",
        "    if (fileSystem.isInstanceOf[ViewFileSystem]) ",
        "    if (false) ",
        ("tests/jvm/test_state_model.py::test_a_file_is_replaced_in_one_step_or_kept",),
    ),
    Mutant(
        "agents that are killed while they start are started for ever",
        f"{ROOT}/agent/Agent.scala",
        "start(settings, left - 1)",
        "start(settings, left)",
        KILLED_AT_START,
    ),
    Mutant(
        "a download gives way for a second after each of its buffers",
        f"{ROOT}/agent/FileCalls.scala",
        "    def giveWay(): Unit = BulkTransfers.synchronized {\n",
        "    def giveWay(): Unit = BulkTransfers.synchronized {\n      leftNanos = maxWaitNanos\n",
        RANGES,
    ),
    Mutant(
        "downloads do not give way",
        f"{ROOT}/agent/FileCalls.scala",
        "while (urgent.isAny && leftNanos > 0) {",
        "while (false) {",
        RANGES,
    ),
    Mutant(
        "downloads give way to a look-ahead for a second each",
        f"{ROOT}/agent/FileCalls.scala",
        "while (aheadNanos > 0) {",
        "while (false) {",
        RANGES,
    ),
    Mutant(
        "downloads give way to a look-ahead for as long as there is one",
        f"{ROOT}/agent/FileCalls.scala",
        "maxAheadNanos - (ahead.nanos - aheadBefore)",
        "maxAheadNanos",
        RANGES,
    ),
    Mutant(
        "each download gives way to a look-ahead for as long as all may together",
        f"{ROOT}/agent/FileCalls.scala",
        "if (isFirst) aheadBefore = ",
        "aheadBefore = ",
        RANGES,
    ),
    Mutant(
        "bytes that come while the clock of downloads stands still count",
        f"{ROOT}/agent/FileCalls.scala",
        "      isBeside = urgent.isAny\n",
        "",
        RANGES,
    ),
    Mutant(
        "streams stay open after one that its client fails to close",
        f"{ROOT}/agent/FileCalls.scala",
        "case NonFatal(_) => () } // it was only read",
        "case _: java.io.IOException => () } // it was only read",
        RANGES,
    ),
    Mutant(
        "bytes that a read at a position leaves for another are not read",
        f"{ROOT}/agent/FileCalls.scala",
        "while (read < bytes.length && count >= 0) {",
        "while (read < bytes.length && count == 0) {",
        RANGES,
    ),
    Mutant(
        "ranges of two files come with one request",
        f"{ROOT}/agent/FileCalls.scala",
        "        path == before && offset - (last",
        "        offset - (last",
        RANGES,
    ),
]
