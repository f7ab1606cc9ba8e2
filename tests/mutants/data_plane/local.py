"""Breaks of the package `local`: memory forgets attempts that were refused or failed."""

from __future__ import annotations

from mutants.data_plane.places import ANEW, FAILED, KEPT, ROOT, STILL, TRIED, UPLOADED
from mutants.mutant import Mutant

_FAILED_READER = (
    "tests/bridge/test_damage_in_use.py::test_a_reader_that_failed_becomes_no_writer_and_holds_nothing",
)

MUTANTS = [
    Mutant(
        "the transaction of an upgrade that failed stays open",
        f"{ROOT}/IncrementalStateStore.scala",
        "        try again.transaction.abort()\n",
        "        try ()\n",
        _FAILED_READER,
    ),
    Mutant(
        "memory keeps the parent of a refused commit",
        f"{ROOT}/local/LocalStore.scala",
        "if (LocalStore.isConflict(e)) attempts.refused() else ",
        "if (!LocalStore.isConflict(e)) ",
        ANEW,
    ),
    Mutant(
        "an attempt whose commit failed after its upload counts",
        f"{ROOT}/local/LocalStore.scala",
        " else attempts.uncertain(version)\n",
        "\n",
        UPLOADED,
    ),
    Mutant(
        "an attempt whose commit failed counts if its local file cannot be removed",
        f"{ROOT}/local/LocalStore.scala",
        "        // Later attempts depend on this",
        "        java.nio.file.Files.deleteIfExists(file)\n        // Later attempts depend on this",
        KEPT,
    ),
    Mutant(
        "a number still resolves to the parent of a refused commit",
        f"{ROOT}/local/LocalStore.scala",
        "    takenVersions = Map.empty\n    newest = None\n",
        "    newest = None\n",
        ANEW,
    ),
    Mutant(
        "a number still resolves to the commit of a failed task",
        f"{ROOT}/local/LocalStore.scala",
        "if (takenVersions.get(version.number).contains(version)) takenVersions -= version.number",
        "()",
        FAILED,
    ),
    Mutant(
        "an attempt at a version that this process has tried does not look at storage",
        f"{ROOT}/local/LocalStore.scala",
        "task.exists(!_.again) && version.number + 1 > tried",
        "task.exists(!_.again)",
        TRIED,
    ),
    Mutant(
        "a provider cannot be closed while its agent does not answer",
        f"{ROOT}/local/LocalStore.scala",
        "    try body\n    catch {\n      case e: Throwable",
        "    try synchronized(body)\n    catch {\n      case e: Throwable",
        STILL,
    ),
    Mutant(
        "a base is not taken if the driver does not hear of its snapshot",
        f"{ROOT}/local/LocalStore.scala",
        "    offer(made)\n"
        "    if (made.kind != Declarations.ingestMerge) "
        "LocalStore.later(() => published(made.version.number))\n",
        "    if (made.kind != Declarations.ingestMerge) published(made.version.number)\n    offer(made)\n",
        (
            "tests/bridge/test_stores.py::test_the_bases_of_merges_are_taken_though_no_snapshot_can_be_reported",
        ),
    ),
    Mutant(
        "a new column family gets the id that a removed one had",
        f"{ROOT}/checkpoint/DeltaMetadata.scala",
        "    val id = lastId + 1\n",
        "    val id = byName.values.map(_.id).max + 1\n",
        ("tests/bridge/test_stores.py::test_changes_of_a_removed_family_are_not_those_of_a_later_one",),
    ),
    Mutant(
        "the change feed shows each value of a list that was put as a put",
        f"{ROOT}/IncrementalStateStoreProvider.scala",
        "return change(RecordType.MERGE_RECORD, values.next())",
        "return change(RecordType.PUT_RECORD, values.next())",
        ("tests/bridge/test_beside_rocksdb.py::test_calls_are_answered_as_by_sparks_store[4-families feed]",),
    ),
]
