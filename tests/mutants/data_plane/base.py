"""Breaks of the package `base`."""

from __future__ import annotations

from mutants.data_plane.places import CONTRADICTIONS, DAMAGE, HARD, MODEL, ROOT, SPARSE
from mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "of two runs the older one wins",
        f"{ROOT}/base/MergingCursor.scala",
        "order < 0 || order == 0 && a.age < b.age",
        "order < 0 || order == 0 && a.age > b.age",
        MODEL,
    ),
    Mutant(
        "scans of a base give removed rows",
        f"{ROOT}/base/MergingCursor.scala",
        "    while (size > 0 && heap(0).cursor.valueLength == Record.removed) skipKey()\n",
        "",
        MODEL,
    ),
    Mutant(
        "files of level 0 are asked oldest first",
        f"{ROOT}/base/TableBase.scala",
        "newest.sortBy(-_.newest)",
        "newest.sortBy(_.newest)",
        MODEL,
    ),
    Mutant(
        "look-ups pass over the file that ends with the key",
        f"{ROOT}/base/TableBase.scala",
        "compareUnsigned(run(middle).largest, key) < 0) low = middle + 1 else high = middle",
        "compareUnsigned(run(middle).largest, key) <= 0) low = middle + 1 else high = middle",
        MODEL,
    ),
    Mutant(
        "tables that nobody reads stay mapped",
        f"{ROOT}/base/TableCache.scala",
        "closeDownTo(maxOpen)",
        "()",
        DAMAGE,
    ),
    Mutant(
        "a base does not know that it is damaged",
        f"{ROOT}/base/MergingCursor.scala",
        "    failure = failed(error)\n",
        "    failure = error\n",
        DAMAGE,
    ),
    Mutant(
        "a scan that failed ends as if there were no more rows",
        f"{ROOT}/base/MergingCursor.scala",
        "    if (failure != null) throw failure\n",
        "",
        DAMAGE,
    ),
    Mutant(
        "each compressed base has a cache of its own",
        f"{ROOT}/base/BlockCache.scala",
        "all.computeIfAbsent(memory, new BlockCache(_))",
        "new BlockCache(memory)",
        HARD,
    ),
    Mutant(
        "a base is opened as another version",
        f"{ROOT}/base/Base.scala",
        "      base.verify()\n",
        "",
        CONTRADICTIONS,
    ),
    Mutant(
        "a file of another length is opened",
        f"{ROOT}/base/TableBase.scala",
        "    files.find(_.isOtherLength).foreach(file => throw file.otherLength)\n",
        "",
        CONTRADICTIONS,
    ),
    Mutant(
        "a database that nobody opened may have other files than it lists",
        f"{ROOT}/base/TableBase.scala",
        "      checkNames(runs)\n",
        "",
        DAMAGE,
    ),
    Mutant(
        "a delta beside a database may be another",
        f"{ROOT}/base/TableBase.scala",
        "    check(Array(Array(run)), delta.path, delta.at, -1)\n",
        "",
        DAMAGE,
    ),
    Mutant(
        "a database below deltas may be another version",
        f"{ROOT}/base/TableBase.scala",
        "      if (beside.deltas.nonEmpty) check(",
        "      if (false) check(",
        DAMAGE,
    ),
    Mutant(
        "rows that are far are taken for damaged",
        f"{ROOT}/base/Base.scala",
        "    case e: FarRowsException => e\n",
        "",
        DAMAGE,
    ),
    Mutant(
        "look-ups of many far keys wait for one request after the other",
        f"{ROOT}/base/FarBlocks.scala",
        "    if (requests.size > 1) FarBlocks.atOnce(",
        "    if (false) FarBlocks.atOnce(",
        SPARSE,
    ),
    Mutant(
        "requests are under way when a look-up that was interrupted has ended",
        f"{ROOT}/base/FarBlocks.scala",
        "    while (left.getCount > 0) {",
        "    if (left.getCount > 0) {",
        SPARSE,
    ),
    Mutant(
        "blocks that one request brings are asked for one by one",
        f"{ROOT}/base/FarBlocks.scala",
        "        end = handle.offset + SstTable.fetchedBytes\n",
        "",
        SPARSE,
    ),
    Mutant(
        "a delta that is not there as a whole is not asked for",
        f"{ROOT}/base/TableBase.scala",
        "val name = new File(directory.path).toPath.relativize(file.toPath).toString",
        "val name = file.getName",
        SPARSE,
    ),
    Mutant(
        "a base has fewer entries than keys",
        f"{ROOT}/base/TableBase.scala",
        "if (entries < keys) {",
        "if (false) {",
        CONTRADICTIONS,
    ),
]
