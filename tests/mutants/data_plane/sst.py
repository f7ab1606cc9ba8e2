"""Breaks of the package `sst`."""

from __future__ import annotations

from mutants.data_plane.places import DAMAGE, EITHER, MODEL, ROOT
from mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "a removal is written as a value",
        f"{ROOT}/sst/SstWriter.scala",
        "out.putLong(if (valueLength == Record.removed) SstFormat.removal else SstFormat.put)",
        "out.putLong(SstFormat.put)",
        MODEL,
    ),
    Mutant(
        "keys are not in the bloom filter",
        f"{ROOT}/sst/SstWriter.scala",
        "    filter.add(KeyHash.of(null, key, keyLength))\n",
        "    if (entries == 0) filter.add(KeyHash.of(null, key, keyLength))\n",
        MODEL,
    ),
    Mutant(
        "the checksum of a block is not masked",
        f"{ROOT}/sst/SstBlockWriter.scala",
        "putInt(SstFormat.masked(checksum.getValue.toInt))",
        "putInt(checksum.getValue.toInt)",
        MODEL,
    ),
    Mutant(
        "the checksum of a delta misses what was flushed",
        f"{ROOT}/sst/SstBlockWriter.scala",
        "    whole.update(buffer)\n",
        "    if (written > 0) whole.update(buffer)\n",
        EITHER,
    ),
    Mutant(
        "a seek passes over the key that it seeks",
        f"{ROOT}/sst/SstCursor.scala",
        "while (valid && Bytes.compare(key, keyAddress, keyLength) > 0) next()",
        "while (valid && Bytes.compare(key, keyAddress, keyLength) >= 0) next()",
        MODEL,
    ),
    Mutant(
        "a file that was written again counts as verified",
        f"{ROOT}/sst/Verified.scala",
        "FileId(_, found.size, found.lastModifiedTime)",
        "FileId(_, found.size, FileTime.fromMillis(0))",
        DAMAGE,
    ),
    Mutant(
        "what was verified is forgotten with the base that it was verified in",
        f"{ROOT}/base/TableCache.scala",
        "if (missing == null) Verified.of(file) else null",
        "null: AnyRef",
        DAMAGE,
    ),
    Mutant(
        "fences are asked about keys that begin with something else",
        f"{ROOT}/sst/SstIndex.scala",
        "else if (known.know(key, keyAt, keyLength)) {",
        "else {",
        DAMAGE,
    ),
    Mutant(
        "fences pass over blocks whose keys have the same word",
        f"{ROOT}/sst/SstFences.scala",
        "else (less - 1) * SstFences.every + 1",
        "else less * SstFences.every",
        DAMAGE,
    ),
    Mutant(
        "blocks count as verified unread",
        f"{ROOT}/sst/SstTable.scala",
        "      metadata.blocks.verify(content, (one.offset - handle.offset).toInt, one)\n",
        "",
        DAMAGE,
    ),
    Mutant(
        "blocks that are read ahead count as verified unread",
        f"{ROOT}/sst/SstTable.scala",
        "      metadata.blocks.verify(content, (one.offset - handle.offset).toInt, one)\n",
        "      if (i == first) metadata.blocks.verify(content, (one.offset - handle.offset).toInt, one)\n",
        DAMAGE,
    ),
    Mutant(
        "a garbage collection waits for the disk that a block is first read from",
        f"{ROOT}/sst/SstTable.scala",
        "    var content = source",
        "    OffHeap.getByte(null, address + handle.offset)\n    var content = source",
        ("tests/jvm/test_state_model.py::test_the_disk_is_not_waited_for_in_page_faults",),
    ),
    Mutant(
        "blocks of deltas and of metadata are not verified",
        f"{ROOT}/sst/SstBlocks.scala",
        "    verify(block, 0, handle)\n",
        "",
        DAMAGE,
    ),
    Mutant(
        "keys of a delta are written in any order",
        f"{ROOT}/sst/SstWriter.scala",
        "    checkOrder(common, key, keyLength)\n",
        "",
        DAMAGE,
    ),
    Mutant(
        "a delta has fewer keys than it says",
        f"{ROOT}/sst/SstWriter.scala",
        "if (entries != keys) throw",
        "if (false) throw",
        DAMAGE,
    ),
]
