"""Breaks of the package `transaction`: a transaction that failed or ended answers no more, and has one
thread.
"""

from __future__ import annotations

from mutants.data_plane.places import CONTRADICTIONS, EITHER, HARD, ROOT, SHARED, SIZES
from mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "a row is put that cannot be read",
        f"{ROOT}/transaction/Transaction.scala",
        'RowSizes.check(if (value == null) "remove" else "put", key.length, ',
        'RowSizes.check("put", 0, ',
        SIZES,
    ),
    Mutant(
        "two threads are in a transaction at once",
        f"{ROOT}/transaction/Transaction.scala",
        "if (!busy.compareAndSet(false, true)) acquireLater()",
        "busy.set(true)",
        HARD,
    ),
    Mutant(
        "a transaction answers after a call that failed",
        f"{ROOT}/transaction/Transaction.scala",
        "    isOpen = false\n    throw cause\n",
        "    throw cause\n",
        HARD,
    ),
    Mutant(
        "rows are put while the changes are being committed",
        f"{ROOT}/transaction/Transaction.scala",
        "    if (delta != null) {\n      exitFromChange()\n",
        "    if (false) {\n      exitFromChange()\n",
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
        "a transaction that has ended answers",
        f"{ROOT}/transaction/Transaction.scala",
        "    if (!isOpen) refuse()\n",
        "    if (!isOpen && !hasEnded) refuse()\n",
        EITHER,
    ),
    Mutant(
        "a reader of an old version drops the newer ones",
        f"{ROOT}/transaction/Transaction.scala",
        "if (n < 0 || readOnly && n < recent.indexedCount && !recent.canStepBackTo(n)) None",
        "if (n < 0) None",
        EITHER,
    ),
    Mutant(
        "a damaged base is read again",
        f"{ROOT}/transaction/Transaction.scala",
        "    else if (base != null && base.isOver) None "
        "// to be restored from files that are there, and not damaged\n",
        "",
        ("tests/bridge/test_damage_in_use.py",),
    ),
    Mutant(
        "an inconsistent version is used again",
        f"{ROOT}/transaction/Transaction.scala",
        "      case e: InconsistentStateException =>\n        restart(null)\n",
        "      case e: InconsistentStateException =>\n",
        CONTRADICTIONS,
    ),
    Mutant(
        "a store drops rows that a transaction reads, for another store",
        f"{ROOT}/transaction/Transaction.scala",
        "(recent.indexed.readers == 0 || recent.indexed.readers == 1 && ",
        "(recent.indexed.readers >= 0 || recent.indexed.readers == 1 && ",
        SHARED,
    ),
    Mutant(
        "a transaction that does not end keeps all later versions in memory",
        f"{ROOT}/transaction/Transaction.scala",
        "recent.indexedCount && isPinned) restartAbove(",
        "recent.indexedCount && false) restartAbove(",
        HARD,
    ),
    Mutant(
        "a version is rebased on a base that lacks forgotten generations",
        f"{ROOT}/recent/RecentVersions.scala",
        "waiting.splitAt(n - indexedCount)",
        "waiting.splitAt(n + 1 - indexedCount)",
        HARD,
    ),
    Mutant(
        "a row is put where the last get found it, though an append has freed that memory since",
        f"{ROOT}/transaction/Transaction.scala",
        "    lastFound = 0\n    calls.exit()\n",
        "    calls.exit()\n",
        HARD,
    ),
]
