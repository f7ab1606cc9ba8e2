"""Breaks of the package `delta`."""

from __future__ import annotations

from mutants.data_plane.places import DAMAGE, EITHER, HARD, LOCALE, MODEL, ROOT
from mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "half a delta stays where it could not be written",
        f"{ROOT}/delta/DeltaWriter.scala",
        "        Files.deleteIfExists(file.toPath)\n",
        "",
        HARD,
    ),
    Mutant(
        "a delta lacks the removed rows",
        f"{ROOT}/delta/DeltaWriter.scala",
        "      sst.add(Record.keyAddress(record), ",
        "      if (!Record.isRemoved(record)) sst.add(Record.keyAddress(record), ",
        EITHER,
    ),
    Mutant(
        "the change feed repeats the end of a list that it has reported by value",
        f"{ROOT}/delta/DeltaReader.scala",
        "if (told.isEmpty || !told.contains(ByteBuffer.wrap(key))) {",
        "if (true) {",
        MODEL,
    ),
    Mutant(
        "the change feed shows the reserved record",
        f"{ROOT}/delta/DeltaReader.scala",
        "cursor.valid && Bytes.compare(Reserved.from, cursor.keyAddress, cursor.keyLength) > 0",
        "cursor.valid",
        EITHER,
    ),
    Mutant(
        "the number of a block is written with the digits of the locale",
        f"{ROOT}/delta/OverwrittenChanges.scala",
        '"%06d".formatLocal(Locale.ROOT, n)',
        '"%06d".format(n)',
        LOCALE,
    ),
    Mutant(
        "a delta is not read back",
        f"{ROOT}/delta/DeltaWriter.scala",
        "        readBack(file)\n",
        "",
        DAMAGE,
    ),
    Mutant(
        "a delta has other counts than it says",
        f"{ROOT}/delta/DeltaWriter.scala",
        "if (sst.added != puts + removes || sst.removed != removes) {",
        "if (false) {",
        DAMAGE,
    ),
    Mutant(
        "half a delta is a delta",
        f"{ROOT}/delta/DeltaReader.scala",
        "      checkEnd()\n",
        "",
        DAMAGE,
    ),
    Mutant(
        "the change feed reads a delta of a newer format",
        f"{ROOT}/delta/DeltaReader.scala",
        "    DeltaMetadata.parse(",
        "    if (false) DeltaMetadata.parse(",
        DAMAGE,
    ),
]
