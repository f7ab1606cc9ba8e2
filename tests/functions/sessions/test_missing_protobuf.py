"""Spark needs protobuf for processors on the driver; pyspark does not install it, so its lack is named."""

from __future__ import annotations

import importlib.util
import warnings
from types import SimpleNamespace

import pytest

from state_store.functions import binding


def grouped(**session):
    return SimpleNamespace(_df=SimpleNamespace(sparkSession=SimpleNamespace(**session)))


def without(monkeypatch, error):
    def find(name):
        assert name == "google.protobuf.descriptor"
        if error is not None:
            raise error
        return

    monkeypatch.setattr(importlib.util, "find_spec", find)


@pytest.mark.parametrize("error", [None, ModuleNotFoundError("No module named 'google'")])
def test_a_driver_without_protobuf_is_told_what_to_install(monkeypatch, error):
    without(monkeypatch, error)
    with pytest.warns(RuntimeWarning, match=r"transformWithState needs .*pip install protobuf"):
        binding._warn_without_protobuf(grouped(_jsparkSession=object()), "transformWithState")


def test_a_client_of_spark_connect_needs_none(monkeypatch):
    without(monkeypatch, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        binding._warn_without_protobuf(grouped(), "transformWithState")


def test_a_driver_with_protobuf_is_not_warned():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        binding._warn_without_protobuf(grouped(_jsparkSession=object()), "transformWithState")


def test_both_methods_look_for_it(monkeypatch):
    seen = []
    monkeypatch.setattr(binding, "_warn_without_protobuf", lambda grouped, name: seen.append(name))
    for name in ("transformWithState", "transformWithStateInPandas"):
        method = binding._processor_binding(lambda *arguments: arguments, name)
        method(grouped(), object(), "k string", "update", "none")
    assert seen == ["transformWithState", "transformWithStateInPandas"]
