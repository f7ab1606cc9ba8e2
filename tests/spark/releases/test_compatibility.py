"""The compatibility page has the features of this Spark, as its jars show them."""

from __future__ import annotations

import zipfile

import pyspark
import pytest
import scala_jars

from state_store.session import releases

pytestmark = [pytest.mark.older(more=("4.2",), long=("4.1",)), pytest.mark.older(more=("4.1", "4.0"))]

STATE = "org/apache/spark/sql/execution/streaming/state/"
# The classes of a row's feature in Spark's jars, or their members after a colon.
EVIDENCE = {
    "Spark checks that every store committed": ["StateStoreCommitValidationFailed"],
    "last uploaded snapshot of each store in the progress": ["StateStoreSnapshotLastUploadInstanceMetric"],
    "Spark is told of snapshots that lag": ["ReportSnapshotUploaded"],
    "state reader under checkpoint format 2": ["SupportsFineGrainedReplay:snapshotVersionStateStoreCkptId"],
    "Spark forces snapshots": ["StateStoreCoordinator:forceSnapshot"],
    "range scans, deletion of ranges, many look-ups at once": [
        "ReadStateStore:rangeScan",
        "StateStore:deleteRange",
        "ReadStateStore:multiGet",
    ],
    "cleanup at the same time as a batch": ["StateStoreProvider:doCleanupMaintenance"],
}


@pytest.fixture(scope="module")
def table(checkout) -> dict[str, str]:
    """Return the cell of each row for the running Spark."""
    lines = (checkout / "docs/compatibility.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    column = cells[0].index(f"Spark {releases.minor_of(pyspark.__version__)}")
    return {row[0]: row[column] for row in cells}


@pytest.fixture(scope="module")
def classes() -> dict[str, bytes]:
    """Return the classes of Spark's state stores by name, as its jar has them."""
    (jar,) = scala_jars.SPARK_JARS.glob("spark-sql_2.13-*.jar")
    with zipfile.ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if name.startswith(STATE)]
        return {name.removeprefix(STATE).removesuffix(".class"): archive.read(name) for name in names}


@pytest.mark.parametrize("row", EVIDENCE)
def test_a_row_lists_the_features_of_this_spark(table, classes, row):
    wanted = [evidence.partition(":") for evidence in EVIDENCE[row]]
    has = [name in classes and member.encode() in classes[name] for name, _, member in wanted]
    assert len(set(has)) == 1
    assert table[row] == ("yes" if has[0] else "-")


def test_the_jar_is_compiled_for_the_version_that_is_tested(table):
    assert table["the jar is compiled for"] == pyspark.__version__
