"""Breaks of the data plane (Scala), by package."""

from __future__ import annotations

from mutants.mutant import Mutant

_ROOT = "jvm_bridge/scala/org/apache/spark/sql/execution/streaming/state/incremental"
_WALKS = [f"test_random_walk[{seed}]" for seed in (1, 2, 3)]
_MODEL = tuple(f"tests/jvm/test_state_model.py::{test}" for test in [*_WALKS, "test_single_pieces"])
_HARD = ("tests/jvm/test_state_model.py::test_hard_cases",)
_STORES = ("tests/bridge/test_stores.py",)
_EITHER = (*_STORES, *_MODEL)
_DAMAGE = ("tests/jvm/test_state_model.py::test_damaged_files_give_no_wrong_row",)
_GUARD = ("tests/jvm/test_state_model.py::test_wrong_uses_of_memory_are_found",)
_SPARSE = ("tests/jvm/test_state_model.py::test_look_ups_in_files_that_are_far",)
_CONTRADICTIONS = ("tests/jvm/test_state_model.py::test_what_contradicts_itself_is_not_used",)
_LOCALE = ("tests/jvm/test_state_model.py::test_single_pieces_in_a_locale_with_other_digits",)

RECENT = [
    Mutant(
        "what a change replaces is counted on",
        f"{_ROOT}/recent/MemTable.scala",
        "    account(at, -1, if (old == 0) Record.removed else Record.valueLength(old))\n",
        "",
        _MODEL,
    ),
    Mutant(
        "a row that an iterator stands on is overwritten in place",
        f"{_ROOT}/recent/MemTable.scala",
        "if (old != 0 && pins == 0 && Record.valueRoom(old) >= length) old",
        "if (old != 0 && Record.valueRoom(old) >= length) old",
        _MODEL,
    ),
    Mutant(
        "the change feed misses what a batch changed twice",
        f"{_ROOT}/recent/MemTable.scala",
        "    if (old != 0 && isChange(slot) && !wasTold) overwritten.add(old)\n",
        "",
        _EITHER,
    ),
    Mutant(
        "a scan sees the first change after its begin as made before",
        f"{_ROOT}/recent/MemTable.scala",
        "isChange(slot) && OffHeap.getInt(null, slot + 12) < ordinal",
        "isChange(slot) && OffHeap.getInt(null, slot + 12) <= ordinal",
        _MODEL,
    ),
    Mutant(
        "a prefix scan finds the value before",
        f"{_ROOT}/recent/MemTable.scala",
        "    else if (prefixes != null && target != old) orElseDoWithout(prefixes.replace(old, target))\n",
        "",
        _MODEL,
    ),
    Mutant(
        "a range scan misses a key that was read before it was changed",
        f"{_ROOT}/recent/MemTable.scala",
        "if (unsorted != null && (target != old || (head & changed) == 0)) unsorted.add(target)",
        "if (unsorted != null && head == 0) unsorted.add(target)",
        _MODEL,
    ),
    Mutant(
        "a range scan gives replaced values",
        f"{_ROOT}/recent/MemTable.scala",
        "this.record(slot) == record && isChange(slot)",
        "isChange(slot)",
        _MODEL,
    ),
    Mutant(
        "what the base lacks counts as there",
        f"{_ROOT}/recent/MemTable.scala",
        "at | (if (value == null) wasAbsent else wasPresent))",
        "at | wasPresent)",
        _MODEL,
    ),
]

TRANSACTION = [
    Mutant(
        "two threads are in a transaction at once",
        f"{_ROOT}/transaction/Transaction.scala",
        "if (!busy.compareAndSet(false, true)) acquireLater()",
        "busy.set(true)",
        _HARD,
    ),
    Mutant(
        "what failed half way can be committed",
        f"{_ROOT}/transaction/Transaction.scala",
        "    failure = e\n",
        "",
        _HARD,
    ),
    Mutant(
        "a transaction for reading takes changes",
        f"{_ROOT}/transaction/Transaction.scala",
        "    if (readOnly) {\n      exit()\n",
        "    if (false) {\n      exit()\n",
        _EITHER,
    ),
    Mutant(
        "a row that was found removed counts as there",
        f"{_ROOT}/transaction/Transaction.scala",
        "      else if (Record.isRemoved(lastFound)) MemTable.wasAbsent\n",
        "",
        _MODEL,
    ),
    Mutant(
        "a transaction that has ended answers",
        f"{_ROOT}/transaction/Transaction.scala",
        "    if (ended) {\n      exit()\n",
        "    if (false) {\n      exit()\n",
        _EITHER,
    ),
    Mutant(
        "the values of one key run together",
        f"{_ROOT}/transaction/Transaction.scala",
        "          joined(old.length) = delimiter\n",
        "",
        _MODEL,
    ),
    Mutant(
        "a reader of an old version takes the newer ones away",
        f"{_ROOT}/transaction/StoreVersions.scala",
        "if (n < 0 || readOnly && n < indexed.generations.size) None",
        "if (n < 0) None",
        _EITHER,
    ),
    Mutant(
        "a base of a version that was rolled back is adopted",
        f"{_ROOT}/transaction/StoreVersions.scala",
        "      if (offered != null && offered.at.version > transaction.at.version) dropOffered()\n",
        "",
        _MODEL,
    ),
    Mutant(
        "what was committed on a view that is gone is appended",
        f"{_ROOT}/transaction/StoreVersions.scala",
        "if (closed || (transaction.view.indexed ne indexed)) -1 else",
        "if (closed) -1 else",
        _EITHER,
    ),
]

MEMORY = [
    Mutant(
        "tables go by a hash that everybody knows",
        f"{_ROOT}/memory/KeyHash.scala",
        "  new SecureRandom().nextBytes(secret)\n",
        "  System.arraycopy(Xxh3.published, 0, secret, 0, secret.length)\n",
        _HARD,
    ),
    Mutant(
        "a set shows a record that has left it",
        f"{_ROOT}/memory/RecordSets.scala",
        "if (slot == shown(set) && size(set) > 0) showNext(set)",
        "",
        _MODEL,
    ),
    Mutant(
        "a range begins after its first key",
        f"{_ROOT}/memory/SortedRuns.scala",
        "Record.keyLength(record)) > 0) low = middle + 1 else high = middle",
        "Record.keyLength(record)) >= 0) low = middle + 1 else high = middle",
        _MODEL,
    ),
    Mutant(
        "a range ends after its end",
        f"{_ROOT}/memory/MergedRecords.scala",
        "Record.keyLength(record)) <= 0) i = end",
        "Record.keyLength(record)) < 0) i = end",
        _MODEL,
    ),
    Mutant(
        "sources are merged in the wrong order",
        f"{_ROOT}/memory/MergedRecords.scala",
        "Record.compare(sources(i + 1).record, source.record) < 0",
        "Record.compare(sources(i + 1).record, source.record) > 0",
        _MODEL,
    ),
    Mutant(
        "any range is taken for a prefix",
        f"{_ROOT}/memory/PrefixIndex.scala",
        "from.length - headerBytes && isAfter(from, until)",
        "from.length - headerBytes",
        _MODEL,
    ),
    Mutant(
        "keys that share eight bytes are not sorted further",
        f"{_ROOT}/memory/KeyOrder.scala",
        "      addTies(from, to, sorted, depth + 8)\n",
        "",
        _MODEL,
    ),
]

SST = [
    Mutant(
        "a removal is written as a value",
        f"{_ROOT}/sst/SstWriter.scala",
        "out.putLong(if (valueLength == Record.removed) SstFormat.removal else SstFormat.put)",
        "out.putLong(SstFormat.put)",
        _MODEL,
    ),
    Mutant(
        "keys are not in the bloom filter",
        f"{_ROOT}/sst/SstWriter.scala",
        "    filter.add(KeyHash.of(null, key, keyLength))\n",
        "    if (entries == 0) filter.add(KeyHash.of(null, key, keyLength))\n",
        _MODEL,
    ),
    Mutant(
        "the checksum of a block is not masked",
        f"{_ROOT}/sst/SstBlockWriter.scala",
        "putInt(SstFormat.masked(checksum.getValue.toInt))",
        "putInt(checksum.getValue.toInt)",
        _MODEL,
    ),
    Mutant(
        "the checksum of a delta misses what was flushed",
        f"{_ROOT}/sst/SstBlockWriter.scala",
        "    whole.update(buffer)\n",
        "    if (written > 0) whole.update(buffer)\n",
        _EITHER,
    ),
    Mutant(
        "a seek passes over the key that it seeks",
        f"{_ROOT}/sst/SstCursor.scala",
        "while (valid && Bytes.compare(key, keyAddress, keyLength) > 0) next()",
        "while (valid && Bytes.compare(key, keyAddress, keyLength) >= 0) next()",
        _MODEL,
    ),
    Mutant(
        "a delta lacks the removed rows",
        f"{_ROOT}/delta/DeltaWriter.scala",
        "      sst.add(Record.keyAddress(record), ",
        "      if (!Record.isRemoved(record)) sst.add(Record.keyAddress(record), ",
        _EITHER,
    ),
    Mutant(
        "the keys of a delta are in no order",
        f"{_ROOT}/memory/RecordList.scala",
        "    KeyOrder.sort(copy)\n",
        "",
        _EITHER,
    ),
    Mutant(
        "the change feed tells the end of a list that it has told value by value",
        f"{_ROOT}/delta/DeltaReader.scala",
        "if (told.isEmpty || !told.contains(ByteBuffer.wrap(key))) {",
        "if (true) {",
        _MODEL,
    ),
    Mutant(
        "the change feed misses what a list had before a value was appended",
        f"{_ROOT}/recent/MemTable.scala",
        "    if (!isTold(slot)) {\n      overwritten.add(at)\n",
        "    if (!isTold(slot)) {\n",
        _MODEL,
    ),
    Mutant(
        "the change feed shows the reserved record",
        f"{_ROOT}/delta/DeltaReader.scala",
        "cursor.valid && Bytes.compare(Reserved.from, cursor.keyAddress, cursor.keyLength) > 0",
        "cursor.valid",
        _EITHER,
    ),
    Mutant(
        "blocks count as verified unread",
        f"{_ROOT}/sst/SstTable.scala",
        "      verify(content, (one.offset - handle.offset).toInt, one)\n",
        "",
        _DAMAGE,
    ),
    Mutant(
        "blocks that are read ahead count as verified unread",
        f"{_ROOT}/sst/SstTable.scala",
        "      verify(content, (one.offset - handle.offset).toInt, one)\n",
        "      if (i == first) verify(content, (one.offset - handle.offset).toInt, one)\n",
        _DAMAGE,
    ),
    Mutant(
        "blocks of deltas and of metadata are not verified",
        f"{_ROOT}/sst/SstTable.scala",
        "    verify(block, 0, handle)\n",
        "",
        _DAMAGE,
    ),
    Mutant(
        "the number of a block is written with the digits of the locale",
        f"{_ROOT}/delta/OverwrittenChanges.scala",
        '"%06d".formatLocal(Locale.ROOT, n)',
        '"%06d".format(n)',
        _LOCALE,
    ),
    Mutant(
        "a delta is not read back",
        f"{_ROOT}/delta/DeltaWriter.scala",
        "        readBack(file)\n",
        "",
        _DAMAGE,
    ),
]

BASE = [
    Mutant(
        "of two runs the older one wins",
        f"{_ROOT}/base/MergingCursor.scala",
        "order < 0 || order == 0 && a.age < b.age",
        "order < 0 || order == 0 && a.age > b.age",
        _MODEL,
    ),
    Mutant(
        "scans of a base give removed rows",
        f"{_ROOT}/base/MergingCursor.scala",
        "    while (size > 0 && heap(0).cursor.valueLength == Record.removed) skipKey()\n",
        "",
        _MODEL,
    ),
    Mutant(
        "files of level 0 are asked oldest first",
        f"{_ROOT}/base/TableBase.scala",
        "newest.sortBy(-_.newest)",
        "newest.sortBy(_.newest)",
        _MODEL,
    ),
    Mutant(
        "look-ups pass over the file that ends with the key",
        f"{_ROOT}/base/TableBase.scala",
        "compareUnsigned(run(middle).largest, key) < 0) low = middle + 1 else high = middle",
        "compareUnsigned(run(middle).largest, key) <= 0) low = middle + 1 else high = middle",
        _MODEL,
    ),
    Mutant(
        "tables that nobody reads stay mapped",
        f"{_ROOT}/base/TableCache.scala",
        "closeDownTo(maxOpen)",
        "()",
        _DAMAGE,
    ),
    Mutant(
        "a base does not know that it is damaged",
        f"{_ROOT}/base/MergingCursor.scala",
        "    failure = failed(error)\n",
        "    failure = error\n",
        _DAMAGE,
    ),
    Mutant(
        "a scan that failed ends as if there were no more rows",
        f"{_ROOT}/base/MergingCursor.scala",
        "    if (failure != null) throw failure\n",
        "",
        _DAMAGE,
    ),
    Mutant(
        "a damaged base is read again",
        f"{_ROOT}/transaction/StoreVersions.scala",
        "    else if (base != null && base.damaged) None // to be restored, from what is not\n",
        "",
        ("tests/bridge/test_damage.py",),
    ),
]

INVARIANTS = [
    Mutant(
        "a table is freed before its slots are copied",
        f"{_ROOT}/recent/MemTable.scala",
        "    foreachSlot { slot =>\n      val to = freeSlot(grown",
        "    if (table != null) table.free()\n    foreachSlot { slot =>\n      val to = freeSlot(grown",
        _HARD,
    ),
    Mutant(
        "records reach beyond their segment",
        f"{_ROOT}/memory/Arena.scala",
        "if (end - next < size) grow(size)",
        "if (end - next < size - 8) grow(size)",
        _HARD,
    ),
    Mutant(
        "freed memory is used again at once",
        f"{_ROOT}/memory/OffHeap.scala",
        "if (checked) MemoryGuard.free(address) else Platform.freeMemory(address)",
        "Platform.freeMemory(address)",
        _GUARD,
    ),
    Mutant(
        "tables lie in one piece",
        f"{_ROOT}/memory/Slots.scala",
        "java.lang.Long.highestOneBit(memory.largestPieceBytes)",
        "java.lang.Long.highestOneBit(1L << 40)",
        _HARD,
    ),
    Mutant(
        "a prefix with many rows ends the query",
        f"{_ROOT}/recent/MemTable.scala",
        "      orElseDoWithout(foreachChange(prefixes.add))\n",
        "      foreachChange(prefixes.add)\n",
        _HARD,
    ),
    Mutant(
        "each compressed base has a cache of its own",
        f"{_ROOT}/base/BlockCache.scala",
        "all.computeIfAbsent(memory, new BlockCache(_))",
        "new BlockCache(memory)",
        _HARD,
    ),
    Mutant(
        "keys of a delta are written in any order",
        f"{_ROOT}/sst/SstWriter.scala",
        "    checkOrder(common, key, keyLength)\n",
        "",
        _DAMAGE,
    ),
    Mutant(
        "a delta has fewer keys than it says",
        f"{_ROOT}/sst/SstWriter.scala",
        "if (entries != keys) throw",
        "if (false) throw",
        _DAMAGE,
    ),
    Mutant(
        "a delta has other counts than it says",
        f"{_ROOT}/delta/DeltaWriter.scala",
        "if (sst.added != puts + removes || sst.removed != removes) {",
        "if (false) {",
        _DAMAGE,
    ),
    Mutant(
        "half a delta is a delta",
        f"{_ROOT}/delta/DeltaReader.scala",
        "      checkEnd()\n",
        "",
        _DAMAGE,
    ),
    Mutant(
        "a base is opened as another version",
        f"{_ROOT}/base/Base.scala",
        "      base.verify()\n",
        "",
        _CONTRADICTIONS,
    ),
    Mutant(
        "a file of another length is opened",
        f"{_ROOT}/base/TableBase.scala",
        "    files.find(_.isOtherLength).foreach(file => throw file.otherLength)\n",
        "",
        _CONTRADICTIONS,
    ),
    Mutant(
        "a database that nobody opened may have other files than it lists",
        f"{_ROOT}/base/TableBase.scala",
        "      checkNames(runs)\n",
        "",
        _DAMAGE,
    ),
    Mutant(
        "a delta beside a database may be another",
        f"{_ROOT}/base/TableBase.scala",
        "    check(Array(Array(run)), delta.path, delta.at, -1)\n",
        "",
        _DAMAGE,
    ),
    Mutant(
        "a database below deltas may be another version",
        f"{_ROOT}/base/TableBase.scala",
        "      if (beside.deltas.nonEmpty) check(",
        "      if (false) check(",
        _DAMAGE,
    ),
    Mutant(
        "rows that are far are taken for damaged",
        f"{_ROOT}/base/Base.scala",
        "    case e: FarRowsException => e\n",
        "",
        _DAMAGE,
    ),
    Mutant(
        "look-ups of many far keys wait for one request after the other",
        f"{_ROOT}/base/FarBlocks.scala",
        "    if (requests.size > 1) FarBlocks.atOnce(",
        "    if (false) FarBlocks.atOnce(",
        _SPARSE,
    ),
    Mutant(
        "requests are under way when a look-up that was interrupted has ended",
        f"{_ROOT}/base/FarBlocks.scala",
        "    while (left.getCount > 0) {",
        "    if (left.getCount > 0) {",
        _SPARSE,
    ),
    Mutant(
        "blocks that one request brings are asked for one by one",
        f"{_ROOT}/base/FarBlocks.scala",
        "        end = handle.offset + SstTable.fetchedBytes\n",
        "",
        _SPARSE,
    ),
    Mutant(
        "a delta that is not there as a whole is not asked for",
        f"{_ROOT}/base/TableBase.scala",
        "val name = new File(directory.path).toPath.relativize(file.toPath).toString",
        "val name = file.getName",
        _SPARSE,
    ),
    Mutant(
        "a base has fewer entries than keys",
        f"{_ROOT}/base/TableBase.scala",
        "if (entries < keys) {",
        "if (false) {",
        _CONTRADICTIONS,
    ),
    Mutant(
        "memory has more keys than there are",
        f"{_ROOT}/recent/IndexedGenerations.scala",
        "if (present > keys || !hasBase && present < keys ||",
        "if (!hasBase && present < keys ||",
        _CONTRADICTIONS,
    ),
    Mutant(
        "memory has fewer keys than there are",
        f"{_ROOT}/recent/IndexedGenerations.scala",
        "if (present > keys || !hasBase && present < keys ||",
        "if (present > keys ||",
        _CONTRADICTIONS,
    ),
    Mutant(
        "a generation grows after its commit",
        f"{_ROOT}/recent/IndexedGenerations.scala",
        "if (put != generation.records) {",
        "if (false) {",
        _CONTRADICTIONS,
    ),
    Mutant(
        "what contradicts itself is used again",
        f"{_ROOT}/transaction/StoreVersions.scala",
        "      case e: InconsistentStateException =>\n        restart(null)\n",
        "      case e: InconsistentStateException =>\n",
        _CONTRADICTIONS,
    ),
    Mutant(
        "there are fewer keys than were put",
        f"{_ROOT}/transaction/Transaction.scala",
        "if (keys < memtable.puts || memtable.unknown != 0) {",
        "if (memtable.unknown != 0) {",
        _CONTRADICTIONS,
    ),
    Mutant(
        "a record that is saved has too little room",
        f"{_ROOT}/recent/EvictableSegment.scala",
        "if (end + size > segment.address + segment.bytes) {",
        "if (false) {",
        _CONTRADICTIONS,
    ),
]

_KILLED_AT_START = ("tests/bridge/test_life.py::test_an_agent_killed_before_it_answers_is_replaced",)

AGENT = [
    Mutant(
        "an agent that is killed while it starts fails the task",
        f"{_ROOT}/agent/AgentProcess.scala",
        "        if (agent.wasKilled) throw new AgentKilled(agent.obituary)\n",
        "",
        _KILLED_AT_START,
    ),
    Mutant(
        "agents that are killed while they start are started for ever",
        f"{_ROOT}/agent/Agent.scala",
        "start(settings, left - 1)",
        "start(settings, left)",
        _KILLED_AT_START,
    ),
]

MUTANTS = [*RECENT, *TRANSACTION, *MEMORY, *SST, *BASE, *INVARIANTS, *AGENT]
