"""Breaks of the package `memory`."""

from __future__ import annotations

from mutants.data_plane.places import EITHER, GUARD, HARD, HEAP, MODEL, ROOT, SIZES
from mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "a buffer for a long key has a negative length",
        f"{ROOT}/memory/RowSizes.scala",
        "math.min(bytes * 2L, mostArrayBytes.toLong).toInt",
        "bytes * 2",
        SIZES,
    ),
    Mutant(
        "a row is as long as an array can be, and its block is longer",
        f"{ROOT}/memory/RowSizes.scala",
        " && keyBytes + valueBytes <= mostBytes",
        "",
        SIZES,
    ),
    Mutant(
        "tables go by a hash that everybody knows",
        f"{ROOT}/memory/KeyHash.scala",
        "  new SecureRandom().nextBytes(secret)\n",
        "  System.arraycopy(Xxh3.published, 0, secret, 0, secret.length)\n",
        HARD,
    ),
    Mutant(
        "a set shows a record that has left it",
        f"{ROOT}/memory/RecordSets.scala",
        "if (slot == shown(set) && size(set) > 0) showNext(set)",
        "",
        MODEL,
    ),
    Mutant(
        "a range begins after its first key",
        f"{ROOT}/memory/SortedRuns.scala",
        "Record.keyLength(record)) > 0) low = middle + 1 else high = middle",
        "Record.keyLength(record)) >= 0) low = middle + 1 else high = middle",
        MODEL,
    ),
    Mutant(
        "a range ends after its end",
        f"{ROOT}/memory/MergedRecords.scala",
        "Record.keyLength(record)) <= 0) i = end",
        "Record.keyLength(record)) < 0) i = end",
        MODEL,
    ),
    Mutant(
        "sources are merged in the wrong order",
        f"{ROOT}/memory/MergedRecords.scala",
        "Record.compare(sources(i + 1).record, source.record) < 0",
        "Record.compare(sources(i + 1).record, source.record) > 0",
        MODEL,
    ),
    Mutant(
        "any range is taken for a prefix",
        f"{ROOT}/memory/PrefixIndex.scala",
        "from.length - headerBytes && isAfter(from, until)",
        "from.length - headerBytes",
        MODEL,
    ),
    Mutant(
        "keys that share eight bytes are not sorted further",
        f"{ROOT}/memory/KeyOrder.scala",
        "      addTies(from, to, sorted, depth + 8)\n",
        "",
        MODEL,
    ),
    Mutant(
        "parts of many records are in order, but unsorted inside",
        f"{ROOT}/memory/PartlySorted.scala",
        "    System.arraycopy(piece, 0, records, sorted, piece.length)\n",
        "",
        MODEL,
    ),
    Mutant(
        "the keys of a delta are in no order",
        f"{ROOT}/memory/RecordList.scala",
        "    KeyOrder.sort(copy, count)\n",
        "",
        EITHER,
    ),
    Mutant(
        "records reach beyond their segment",
        f"{ROOT}/memory/Arena.scala",
        "if (end - next < size) grow(size)",
        "if (end - next < size - 8) grow(size)",
        HARD,
    ),
    Mutant(
        "freed memory is used again at once",
        f"{ROOT}/memory/OffHeap.scala",
        "if (checked) MemoryGuard.free(address) else Platform.freeMemory(address)",
        "Platform.freeMemory(address)",
        GUARD,
    ),
    Mutant(
        "tables are a single allocation",
        f"{ROOT}/memory/Slots.scala",
        "java.lang.Long.highestOneBit(memory.largestPieceBytes)",
        "java.lang.Long.highestOneBit(1L << 40)",
        HARD,
    ),
    Mutant(
        "each small piece of memory that is spilled has a mapping of its own",
        f"{ROOT}/memory/SpillFile.scala",
        "      if (bytes <= mostShared) synchronized(current.put(directory, file))\n",
        "",
        HARD,
    ),
    Mutant(
        "a spill file is removed with its first segment",
        f"{ROOT}/memory/SpillFile.scala",
        "      pieces == 0\n    }\n",
        "      true\n    }\n",
        HARD,
    ),
    Mutant(
        "a scan in key order uses heap for all changes of the transaction",
        f"{ROOT}/memory/OrderedSnapshot.scala",
        "    if (some.size == SortedRuns.sortedAtOnce) moveOut()\n",
        "",
        HEAP,
    ),
    Mutant(
        "sorted keys of a scan stay until the transaction ends",
        f"{ROOT}/transaction/OrderedScan.scala",
        "    transaction.scans.free(changes)\n",
        "",
        HEAP,
    ),
]
