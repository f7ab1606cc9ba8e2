"""Breaks of the package `transaction`."""

from __future__ import annotations

from mutants.data_plane.places import CONTRADICTIONS, EITHER, HARD, MODEL, ROOT
from mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "two threads are in a transaction at once",
        f"{ROOT}/transaction/Transaction.scala",
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
        "    if (readOnly) {\n      exit()\n",
        "    if (false) {\n      exit()\n",
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
        f"{ROOT}/transaction/Transaction.scala",
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
        "if (n < 0 || readOnly && n < indexed.generations.size) None",
        "if (n < 0) None",
        EITHER,
    ),
    Mutant(
        "a base of a version that was rolled back is adopted",
        f"{ROOT}/transaction/StoreVersions.scala",
        "      if (offered != null && offered.at.version > transaction.at.version) dropOffered()\n",
        "",
        MODEL,
    ),
    Mutant(
        "what was committed on a view that is gone is appended",
        f"{ROOT}/transaction/StoreVersions.scala",
        "if (closed || (transaction.view.indexed ne indexed)) -1 else",
        "if (closed) -1 else",
        EITHER,
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
        "there are fewer keys than were put",
        f"{ROOT}/transaction/Transaction.scala",
        "if (keys < memtable.puts || memtable.unknown != 0) {",
        "if (memtable.unknown != 0) {",
        CONTRADICTIONS,
    ),
]
