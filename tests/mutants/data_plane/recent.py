"""Breaks of the package `recent`: readers see their version while others write, roll back and free memory."""

from __future__ import annotations

from mutants.data_plane.places import CONTRADICTIONS, EITHER, HARD, MODEL, ROOT
from mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "a row that an iterator stands on is overwritten in place",
        f"{ROOT}/recent/MemTable.scala",
        "if (old != 0 && pins == 0 && Record.valueRoom(old) >= length) old",
        "if (old != 0 && Record.valueRoom(old) >= length) old",
        MODEL,
    ),
    Mutant(
        "a table is freed before its slots are copied",
        f"{ROOT}/recent/MemTable.scala",
        "    foreachSlot { slot =>\n      val to = freeSlot(grown",
        "    if (table != null) table.free()\n    foreachSlot { slot =>\n      val to = freeSlot(grown",
        HARD,
    ),
    Mutant(
        "a generation grows after its commit",
        f"{ROOT}/recent/IndexedGenerations.scala",
        "if (put != generation.records) {",
        "if (false) {",
        CONTRADICTIONS,
    ),
    Mutant(
        "the index has no table for earlier readers",
        f"{ROOT}/recent/IndexedGenerations.scala",
        "      if (!newest.isShared) { // else",
        "      if (true) { // else",
        HARD,
    ),
    Mutant(
        "a version that was rolled back is taken for the one that has its number",
        f"{ROOT}/recent/RecentVersions.scala",
        "all.indexWhere(_.version == version)",
        "all.indexWhere(_.version.number == version.number)",
        EITHER,
    ),
    Mutant(
        "a version that a commit rolled back keeps its memory",
        f"{ROOT}/recent/RecentVersions.scala",
        "      dropOthers()\n      replaced.foreach(_.release())\n",
        "      dropOthers()\n",
        HARD,
    ),
    Mutant(
        "the first attempt at a version is dropped when the second is committed",
        f"{ROOT}/recent/RecentVersions.scala",
        "if (replaced.size == 1) keepOther(",
        "if (false) keepOther(",
        HARD,
    ),
    Mutant(
        "an attempt that was not taken stays readable on a newer version",
        f"{ROOT}/recent/RecentVersions.scala",
        "      dropOthers()\n      replaced.foreach(_.release())\n",
        "      replaced.foreach(_.release())\n",
        EITHER,
    ),
    Mutant(
        "a batch that runs again has rows of memory that was freed",
        f"{ROOT}/recent/IndexedGenerations.scala",
        "    forgetReplacedIn(holds)\n",
        "",
        HARD,
    ),
]
