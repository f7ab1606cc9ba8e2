"""Breaks of the package `recent`."""

from __future__ import annotations

from mutants.data_plane.places import CONTRADICTIONS, EITHER, HARD, MODEL, ROOT
from mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "what a change replaces is counted on",
        f"{ROOT}/recent/MemTable.scala",
        "    account(at, -1, if (old == 0) Record.removed else Record.valueLength(old))\n",
        "",
        MODEL,
    ),
    Mutant(
        "a row that an iterator stands on is overwritten in place",
        f"{ROOT}/recent/MemTable.scala",
        "if (old != 0 && pins == 0 && Record.valueRoom(old) >= length) old",
        "if (old != 0 && Record.valueRoom(old) >= length) old",
        MODEL,
    ),
    Mutant(
        "the change feed misses what a batch changed twice",
        f"{ROOT}/recent/MemTable.scala",
        "    if (old != 0 && isChange(slot) && !wasTold) overwritten.add(old)\n",
        "",
        EITHER,
    ),
    Mutant(
        "a scan sees the first change after its begin as made before",
        f"{ROOT}/recent/MemTable.scala",
        "isChange(slot) && OffHeap.getInt(null, slot + 12) < ordinal",
        "isChange(slot) && OffHeap.getInt(null, slot + 12) <= ordinal",
        MODEL,
    ),
    Mutant(
        "a prefix scan finds the value before",
        f"{ROOT}/recent/OrderedChanges.scala",
        "    else if (prefixes != null && record != old) orElseDoWithout(prefixes.replace(old, record))\n",
        "",
        MODEL,
    ),
    Mutant(
        "a range scan misses a key that was read before it was changed",
        f"{ROOT}/recent/OrderedChanges.scala",
        "if (unsorted != null && (record != old || isFirst)) unsorted.add(record)",
        "if (unsorted != null && old == 0) unsorted.add(record)",
        MODEL,
    ),
    Mutant(
        "a range scan gives replaced values",
        f"{ROOT}/recent/MemTable.scala",
        "this.record(slot) == record && isChange(slot)",
        "isChange(slot)",
        MODEL,
    ),
    Mutant(
        "what the base lacks counts as there",
        f"{ROOT}/recent/MemTable.scala",
        "at | (if (value == null) wasAbsent else wasPresent))",
        "at | wasPresent)",
        MODEL,
    ),
    Mutant(
        "the change feed misses what a list had before a value was appended",
        f"{ROOT}/recent/MemTable.scala",
        "    if (!isTold(slot)) {\n      overwritten.add(at)\n",
        "    if (!isTold(slot)) {\n",
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
        "a prefix with many rows ends the query",
        f"{ROOT}/recent/OrderedChanges.scala",
        "      orElseDoWithout(memtable.foreachChange(prefixes.add))\n",
        "      memtable.foreachChange(prefixes.add)\n",
        HARD,
    ),
    Mutant(
        "prefix scans pass every row that was removed",
        f"{ROOT}/recent/OrderedIndex.scala",
        "    if (Record.isRemoved(record)) { if (isShown) prefixes.remove(old) }\n    else if",
        "    if",
        HARD,
    ),
    Mutant(
        "a range lacks what it has of the next column family",
        f"{ROOT}/recent/FamilyOrders.scala",
        "idOf(until) == family + 1 && until.length == 2",
        "idOf(until) == family + 1",
        MODEL,
    ),
    Mutant(
        "memory has more keys than there are",
        f"{ROOT}/recent/IndexedGenerations.scala",
        "if (present > keys || !hasBase && present < keys ||",
        "if (!hasBase && present < keys ||",
        CONTRADICTIONS,
    ),
    Mutant(
        "memory has fewer keys than there are",
        f"{ROOT}/recent/IndexedGenerations.scala",
        "if (present > keys || !hasBase && present < keys ||",
        "if (present > keys ||",
        CONTRADICTIONS,
    ),
    Mutant(
        "a generation grows after its commit",
        f"{ROOT}/recent/IndexedGenerations.scala",
        "if (put != generation.records) {",
        "if (false) {",
        CONTRADICTIONS,
    ),
    Mutant(
        "a record that is saved has too little room",
        f"{ROOT}/recent/EvictableSegment.scala",
        "if (end + size > segment.address + segment.bytes) {",
        "if (false) {",
        CONTRADICTIONS,
    ),
    Mutant(
        "what is in the index has no table for who began before",
        f"{ROOT}/recent/IndexedGenerations.scala",
        "    if (!generation.isShared) { // else",
        "    if (true) { // else",
        HARD,
    ),
    Mutant(
        "a closed store counts generations that it has given back",
        f"{ROOT}/recent/IndexedGenerations.scala",
        "    generations.clear()\n    merged = 0\n",
        "    generations.clear()\n",
        MODEL,
    ),
]
