"""Breaks of the package `transaction`."""

from __future__ import annotations

from mutants.data_plane.places import CONTRADICTIONS, EITHER, HARD, MODEL, ROOT, SHARED
from mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "two threads are in a transaction at once",
        f"{ROOT}/transaction/CallLock.scala",
        "if (!busy.compareAndSet(false, true)) acquireLater()",
        "busy.set(true)",
        HARD,
    ),
    Mutant(
        "what failed half way can be committed",
        f"{ROOT}/transaction/Transaction.scala",
        "    failure = e\n",
        "",
        HARD,
    ),
    Mutant(
        "a transaction for reading takes changes",
        f"{ROOT}/transaction/Transaction.scala",
        "    if (readOnly) {\n      calls.exit()\n",
        "    if (false) {\n      calls.exit()\n",
        EITHER,
    ),
    Mutant(
        "a row that was found removed counts as there",
        f"{ROOT}/transaction/Transaction.scala",
        "      else if (Record.isRemoved(lastFound)) MemTable.wasAbsent\n",
        "",
        MODEL,
    ),
    Mutant(
        "a transaction that has ended answers",
        f"{ROOT}/transaction/CallLock.scala",
        "    if (ended) {\n      exit()\n",
        "    if (false) {\n      exit()\n",
        EITHER,
    ),
    Mutant(
        "the values of one key run together",
        f"{ROOT}/transaction/Transaction.scala",
        "          joined(old.length) = delimiter\n",
        "",
        MODEL,
    ),
    Mutant(
        "a reader of an old version takes the newer ones away",
        f"{ROOT}/transaction/StoreVersions.scala",
        "if (n < 0 || readOnly && n < recent.indexedCount) None",
        "if (n < 0) None",
        EITHER,
    ),
    Mutant(
        "a row that was put where there were none is not scanned",
        f"{ROOT}/transaction/EmptyRanges.scala",
        "ranges.flatMap(range => parts(range, putsIn(range)))",
        "ranges",
        EITHER,
    ),
    Mutant(
        "every scan passes all removed keys",
        f"{ROOT}/transaction/CommittedRows.scala",
        "    if (view.empty.isWorth(all - passedAtRow) || joins && all > passedAtRow) {",
        "    if (false) {",
        HARD,
    ),
    Mutant(
        "a scan ends where rows are known to lack",
        f"{ROOT}/transaction/CommittedRows.scala",
        "    while (!findInPart() && nextRange < ranges.length) openNext()\n",
        "    findInPart()\n",
        EITHER,
    ),
    Mutant(
        "a prefix scan shows rows of the base that were removed since",
        f"{ROOT}/transaction/CommittedRows.scala",
        "    else isPrefix && view.overrides(",
        "    else false && view.overrides(",
        MODEL,
    ),
    Mutant(
        "a damaged base is read again",
        f"{ROOT}/transaction/StoreVersions.scala",
        "    else if (base != null && base.damaged) None // to be restored, from what is not\n",
        "",
        ("tests/bridge/test_damage.py",),
    ),
    Mutant(
        "what contradicts itself is used again",
        f"{ROOT}/transaction/StoreVersions.scala",
        "      case e: InconsistentStateException =>\n        restart(null)\n",
        "      case e: InconsistentStateException =>\n",
        CONTRADICTIONS,
    ),
    Mutant(
        "a row is counted as new where another was not found",
        f"{ROOT}/transaction/Transaction.scala",
        "      else if (key eq lastAbsent) MemTable.wasAbsent\n",
        "      else if (lastAbsent != null) MemTable.wasAbsent\n",
        MODEL,
    ),
    Mutant(
        "there are fewer keys than were put",
        f"{ROOT}/transaction/KeyCount.scala",
        "if (keys < memtable.puts || memtable.unknown != 0) {",
        "if (memtable.unknown != 0) {",
        CONTRADICTIONS,
    ),
    Mutant(
        "a store drops rows that a transaction reads, for another store",
        f"{ROOT}/transaction/StoreVersions.scala",
        "(recent.indexed.readers == 0 || recent.indexed.readers == 1 && ",
        "(recent.indexed.readers >= 0 || recent.indexed.readers == 1 && ",
        SHARED,
    ),
    Mutant(
        "a transaction that does not end keeps all later versions in memory",
        f"{ROOT}/transaction/StoreVersions.scala",
        "recent.indexedCount && isPinned) beginAbove(",
        "recent.indexedCount && false) beginAbove(",
        HARD,
    ),
    Mutant(
        "a version is begun anew above a base that has less than is forgotten",
        f"{ROOT}/recent/RecentVersions.scala",
        "waiting.splitAt(n - indexedCount)",
        "waiting.splitAt(n + 1 - indexedCount)",
        HARD,
    ),
    Mutant(
        "a column family that has the id of a removed one begins with no keys to count from",
        f"{ROOT}/checkpoint/ColumnFamilies.scala",
        "name -> one.copy(keys = known(one.id) + (",
        "name -> one.copy(keys = (if (one.id == 0) known(0) else 0L) + (",
        HARD,
    ),
]
