"""Breaks of the package `delta`: a delta has all changes, or it is none."""

from __future__ import annotations

from mutants.data_plane.places import DAMAGE, EITHER, HARD, ROOT
from mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "half a delta stays where it could not be written",
        f"{ROOT}/delta/Deltas.scala",
        "        file.delete()\n",
        "",
        HARD,
    ),
    Mutant(
        "a delta lacks the removed rows",
        f"{ROOT}/delta/Deltas.scala",
        "      sst.add(Record.keyAddress(record), ",
        "      if (!Record.isRemoved(record)) sst.add(Record.keyAddress(record), ",
        EITHER,
    ),
    Mutant(
        "a delta is not read back",
        f"{ROOT}/delta/Deltas.scala",
        "        readBack(file)\n",
        "",
        DAMAGE,
    ),
    Mutant(
        "half a delta is a delta",
        f"{ROOT}/delta/Deltas.scala",
        "      checkEnd()\n",
        "",
        DAMAGE,
    ),
    Mutant(
        "the change feed reads a delta of a newer format",
        f"{ROOT}/delta/Deltas.scala",
        "    DeltaMetadata.parse(",
        "    if (false) DeltaMetadata.parse(",
        DAMAGE,
    ),
]
