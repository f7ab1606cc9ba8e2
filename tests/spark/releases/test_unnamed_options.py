"""Options that an offset log does not name have the values that Spark itself gives them."""

from __future__ import annotations

from typing import Any

import pytest

from state_store.core.settings.session import UNNAMED

pytestmark = [pytest.mark.spark, pytest.mark.older(more=("4.2", "4.1", "4.0"))]

PACKAGE = "org.apache.spark.sql.execution.streaming"


@pytest.fixture(scope="module")
def metadata(spark) -> Any:
    """Return Spark's object of the metadata in offset logs, which Spark 4.0 has in another package."""
    for name in (f"{PACKAGE}.checkpointing.OffsetSeqMetadata$", f"{PACKAGE}.OffsetSeqMetadata$"):
        try:
            found = spark._jvm.java.lang.Class.forName(name)
        except Exception as error:
            assert "ClassNotFoundException" in str(error)
        else:
            return found.getField("MODULE$").get(None)
    raise AssertionError("this Spark has the table in yet another place")


def test_the_table_is_that_of_this_spark(metadata):
    field = metadata.getClass().getDeclaredField("relevantSQLConfDefaultValues")
    field.setAccessible(True)
    table = field.get(metadata)
    has = {key: table.get(key).get() for key in UNNAMED if table.contains(key)}
    assert has
    pinned = {entry.key() for entry in _elements(metadata.relevantSQLConfs())}
    assert has == {key: value for key, value in UNNAMED.items() if key in pinned}


def _elements(scala: Any) -> list[Any]:
    return [scala.apply(number) for number in range(scala.size())]
