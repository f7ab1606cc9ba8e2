"""Breaks of the package `sst`: a block is read only after its checksum was compared, and lengths are
checked.
"""

from __future__ import annotations

from mutants.data_plane.places import DAMAGE, EITHER, MODEL, ROOT, SIZES, TABLES
from mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "the checksum of a block is not masked",
        f"{ROOT}/sst/SstWriter.scala",
        "putInt(SstFormat.masked(checksum.getValue.toInt))",
        "putInt(checksum.getValue.toInt)",
        MODEL,
    ),
    Mutant(
        "the checksum of a delta misses what was flushed",
        f"{ROOT}/sst/SstWriter.scala",
        "    fileCrc.update(buffer)\n",
        "    if (written > 0) fileCrc.update(buffer)\n",
        EITHER,
    ),
    Mutant(
        "a block begins anywhere",
        f"{ROOT}/sst/SstTable.scala",
        "|| OffHeap.getInt(null, at) != 0) changed(start)",
        ") changed(start)",
        TABLES,
    ),
    Mutant(
        "an index may name a block twice",
        f"{ROOT}/sst/SstTable.scala",
        "    if (!known.metadata) index.verify()\n",
        "",
        TABLES,
    ),
    Mutant(
        "the number of entries of metadata is believed",
        f"{ROOT}/sst/SstIndex.scala",
        "if (restarts < 0 || end < start) damaged()",
        "if (end < start) damaged()",
        TABLES,
    ),
    Mutant(
        "the lengths of metadata are believed",
        f"{ROOT}/sst/SstIndex.scala",
        " || entry.at + rest + length > end) damaged()",
        ") damaged()",
        TABLES,
    ),
    Mutant(
        "a file that was written again counts as verified",
        f"{ROOT}/sst/SstFile.scala",
        "FileId(_, found.size, found.lastModifiedTime)",
        "FileId(_, found.size, FileTime.fromMillis(0))",
        DAMAGE,
    ),
    Mutant(
        "blocks count as verified unread",
        f"{ROOT}/sst/SstTable.scala",
        "      metadata.blocks.verify(content, (part.offset - handle.offset).toInt, part)\n",
        "",
        DAMAGE,
    ),
    Mutant(
        "blocks that are read ahead count as verified unread",
        f"{ROOT}/sst/SstTable.scala",
        "      metadata.blocks.verify(content, (part.offset - handle.offset).toInt, part)\n",
        "      if (i == first) metadata.blocks.verify(content, (part.offset - handle.offset).toInt, part)\n",
        DAMAGE,
    ),
    Mutant(
        "blocks of deltas and of metadata are not verified",
        f"{ROOT}/sst/SstCursor.scala",
        "    verify(block, 0, handle)\n    block\n",
        "    block\n",
        DAMAGE,
    ),
    Mutant(
        "a block across two mappings is read in the first",
        f"{ROOT}/sst/SstFile.scala",
        "if (from + block.length > pieceBytes) 0 else addresses",
        "if (from + SstFormat.trailerBytes > pieceBytes) 0 else addresses",
        SIZES,
    ),
    Mutant(
        "a filter that was cut off says that keys are absent",
        f"{ROOT}/sst/SstTable.scala",
        "    checkWhole()\n    false\n",
        "    false\n",
        DAMAGE,
    ),
    Mutant(
        "an index that was cut off leads to another block",
        f"{ROOT}/sst/SstTable.scala",
        "    table.checkWhole()\n    isThere\n",
        "    isThere\n",
        DAMAGE,
    ),
    Mutant(
        "the length of a compressed block is believed",
        f"{ROOT}/sst/SstCursor.scala",
        "if (length > most) throw",
        "if (length < 0) throw",
        TABLES,
    ),
    Mutant(
        "a dictionary of a compression is left out",
        f"{ROOT}/sst/SstIndex.scala",
        "name != SstFormat.dictionaryName,",
        "true,",
        SIZES,
    ),
    Mutant(
        "keys of a delta are written in any order",
        f"{ROOT}/sst/SstWriter.scala",
        "    checkOrder(common, key, keyLength)\n",
        "",
        DAMAGE,
    ),
]
