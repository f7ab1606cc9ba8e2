"""Breaks of the package `base`: a base is of the version that was asked for, and damage is an error, never a
missing row.
"""

from __future__ import annotations

from mutants.data_plane.places import CONTRADICTIONS, DAMAGE, MANIFESTS, MODEL, ROOT, SPARSE, VERIFIED
from mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "files of a level may overlap",
        f"{ROOT}/base/DatabaseManifest.scala",
        "if (level > 0) checkOrder(",
        "if (false) checkOrder(",
        MANIFESTS,
    ),
    Mutant(
        "files of level 0 are asked oldest first",
        f"{ROOT}/base/BaseReader.scala",
        "newest.sortBy(-_.newest)",
        "newest.sortBy(_.newest)",
        MODEL,
    ),
    Mutant(
        "a base does not know that it is damaged",
        f"{ROOT}/base/MergingCursor.scala",
        "    failure = failed(error)\n",
        "    failure = error\n",
        DAMAGE,
    ),
    Mutant(
        "damage that is found before it is read is not reported",
        f"{ROOT}/base/Base.scala",
        "case e @ (_: DamagedSstException | _: InternalError) => throw noteFailure(e)",
        "case e @ (_: DamagedSstException | _: InternalError) => throw e",
        VERIFIED,
    ),
    Mutant(
        "a scan that failed ends as if there were no more rows",
        f"{ROOT}/base/MergingCursor.scala",
        "    if (failure != null) throw failure\n",
        "",
        DAMAGE,
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
        f"{ROOT}/base/BaseReader.scala",
        "    files.find(_.isOtherLength).foreach(file => throw file.otherLength)\n",
        "",
        CONTRADICTIONS,
    ),
    Mutant(
        "a database that nobody opened may have other files than it lists",
        f"{ROOT}/base/BaseReader.scala",
        "      checkNames(runs)\n",
        "",
        DAMAGE,
    ),
    Mutant(
        "a delta beside a database may be another",
        f"{ROOT}/base/BaseReader.scala",
        "    check(Array(Array(run)), delta.path, delta.version, -1)\n",
        "",
        DAMAGE,
    ),
    Mutant(
        "a database below deltas may be another version",
        f"{ROOT}/base/BaseReader.scala",
        "      if (restored.deltas.nonEmpty) check(",
        "      if (false) check(",
        DAMAGE,
    ),
    Mutant(
        "remote rows are reported as damaged",
        f"{ROOT}/base/Base.scala",
        "(_: RemoteRowsException | _: UnsupportedSstException) => e",
        "(_: UnsupportedSstException) => e",
        DAMAGE,
    ),
    Mutant(
        "an incomplete delta is not fetched",
        f"{ROOT}/base/BaseReader.scala",
        "val sparseName = new File(directory.path).toPath.relativize(file.toPath).toString",
        "val sparseName = file.getName",
        SPARSE,
    ),
    Mutant(
        "a slow read past the disk is taken for an interrupt",
        f"{ROOT}/base/Base.scala",
        "      case _: SocketTimeoutException => None\n",
        "",
        SPARSE,
    ),
    Mutant(
        "an unchecked exception of a client of storage ends look-ahead",
        f"{ROOT}/base/Base.scala",
        "case _: Exception => None // clients",
        "case _: IOException => None // clients",
        SPARSE,
    ),
    Mutant(
        "a full disk fails look-ahead",
        f"{ROOT}/base/RowsAhead.scala",
        "      catch { case _: RemoteRowsException => forMemory ++= forDisk } // the disk may be full\n",
        "      finally ()\n",
        SPARSE,
    ),
    Mutant(
        "lent blocks stay in memory after their rows were read",
        f"{ROOT}/base/RowsAhead.scala",
        "      finally borrow(BlockLender.none)\n",
        "      finally ()\n",
        SPARSE,
    ),
    Mutant(
        "nothing is read ahead any more once memory was full",
        f"{ROOT}/base/RowsAhead.scala",
        "    if (bytes > maxBytes) forget()\n",
        "",
        SPARSE,
    ),
    Mutant(
        "rows that are read ahead do not count for the budget",
        f"{ROOT}/base/RowsAhead.scala",
        "    while (after > takenBytes && take(stepBytes)) takenBytes += stepBytes\n",
        "    takenBytes = math.max(takenBytes, after)\n",
        SPARSE,
    ),
    Mutant(
        "memory of blocks that were read ahead is not given back",
        f"{ROOT}/base/RowsAhead.scala",
        "    override def close(): Unit = memory.release(takenForBlocks)\n",
        "    override def close(): Unit = ()\n",
        SPARSE,
    ),
    Mutant(
        "a key that is announced often leaves no memory for others",
        f"{ROOT}/base/RowsAhead.scala",
        "if (count == 0 || !Arrays.equals(keys(count - 1), key)) {",
        "if (true) {",
        SPARSE,
    ),
    Mutant(
        "a file that cannot be mapped fails its reader",
        f"{ROOT}/base/BaseReader.scala",
        "              tryHold(SstTable.read(_, _))\n",
        "              throw e\n",
        DAMAGE,
    ),
    Mutant(
        "a delta of a newer format is read as if it were known",
        f"{ROOT}/checkpoint/DeltaMetadata.scala",
        "    CheckpointFormat.check(fields, file)\n",
        "    ()\n",
        DAMAGE,
    ),
]
