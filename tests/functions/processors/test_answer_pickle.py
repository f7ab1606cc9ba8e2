"""Answers about state are pickles that Python reads as the values that the JVM wrote."""

from __future__ import annotations

import math
import pickle
import struct
from typing import Any

import pytest

pytestmark = pytest.mark.spark

PACKAGE = "org.apache.spark.sql.execution.streaming.state.incremental.processors"


@pytest.fixture
def written(spark):
    """Return a function that gives what Python reads of the answers of one writer, written in a row."""
    jvm, gateway = spark._jvm, spark.sparkContext._gateway

    def in_java(value: Any) -> Any:
        if isinstance(value, tuple):
            array = gateway.new_array(jvm.java.lang.Object, len(value))
            for place, item in enumerate(value):
                array[place] = in_java(item)
            return array
        if isinstance(value, list):
            found = jvm.java.util.ArrayList()
            for item in value:
                found.add(in_java(item))
            return found
        return value

    def read(*answers: Any) -> list[Any]:
        pickler = getattr(jvm, f"{PACKAGE}.AnswerPickle")()
        stream = jvm.java.io.ByteArrayOutputStream()
        out = jvm.java.io.DataOutputStream(stream)
        for answer in answers:
            pickler.write(in_java(answer), out)
        data, found, at = bytes(stream.toByteArray()), [], 0
        while at < len(data):
            (length,) = struct.unpack_from("!i", data, at)
            found.append(pickle.loads(data[at + 4 : at + 4 + length]))
            at += 4 + length
        return found

    return read


NUMBERS = [0, 1, 255, 256, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, -(2**63)]
VALUES = {
    "numbers": NUMBERS,
    "doubles": [0.5, -0.0, 1e300, math.inf],
    "flags and null": [True, False, None],
    "texts": ["", "ascii", "üñ\U0001f600", "x" * 200_000],
    "bytes": [b"", bytes(range(256)), b"y" * 100_000],
    "tuples": [(), (1,), (1, "b"), (1, 2, None), (1, 2, 3, 4), (1, (2, (3,)), [4, (5,)])],
    "lists": [[], [[]], [(1, [2.5, None])], list(range(1000))],
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_arrive(written, kind):
    (found,) = written(VALUES[kind])
    assert repr(found) == repr(VALUES[kind])


def test_numbers_that_are_none_arrive(written):
    assert math.isnan(written(math.nan)[0])


@pytest.mark.parametrize("kind", ["java.math.BigDecimal", "java.lang.Float"])
def test_values_of_other_types_are_refused(spark, written, kind):
    """A cut decimal would be a wrong answer."""
    value = spark._jvm.java.lang.reflect.Array.newInstance(spark._jvm.java.lang.Class.forName(kind), 1)
    value[0] = getattr(spark._jvm, kind)("1.5")
    with pytest.raises(Exception, match="MatchError"):
        written(value)
    assert written((0, None)) == [(0, None)]


@pytest.mark.tier("more")
def test_answers_follow_each_other(written):
    answers = [(0, [1]), (1, "x" * (17 << 20)), (0, None), (0, ["y" * 70_000] * 3)]
    assert written(*answers) == answers
