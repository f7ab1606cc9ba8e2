"""`configure` adds to what a configuration has, in any order, and twice does no harm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

import state_store
from state_store.core.settings.session import (
    EXTENSION_CLASS,
    FILE_MANAGER_CLASS,
    FILE_MANAGER_KEY,
    FORMAT_KEY,
    LISTENER_CLASS,
    PROVIDER_CLASS,
)
from state_store.errors import OptionError
from state_store.session import build, sources

DELTA = "io.delta.sql.DeltaSparkSessionExtension"


@pytest.fixture(autouse=True)
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(build, "JAR_DIRECTORY", tmp_path)
    monkeypatch.setattr(sources, "is_checkout", lambda: False)
    path = tmp_path / "incremental-state-store-spark-4.3.jar"
    path.touch()
    return str(path)


def configured(target: Any, **arguments: Any) -> Any:
    return state_store.configure(target, spark_version="4.3.0", **arguments)


def test_an_empty_dictionary_gets_the_store(jar: str) -> None:
    conf = configured({})
    assert conf["spark.sql.streaming.stateStore.providerClass"] == PROVIDER_CLASS
    assert conf["spark.jars"] == jar
    assert conf["spark.sql.extensions"] == EXTENSION_CLASS


def test_jars_extensions_and_listeners_of_others_stay(jar: str) -> None:
    keys = ("spark.jars", "spark.sql.extensions", "spark.sql.streaming.streamingQueryListeners")
    conf = configured(dict(zip(keys, ("/a.jar, /b.jar", DELTA, "org.Listener"), strict=True)))
    assert [conf[key] for key in keys] == [
        f"/a.jar,/b.jar,{jar}",
        f"{DELTA},{EXTENSION_CLASS}",
        f"org.Listener,{LISTENER_CLASS}",
    ]


def test_a_second_call_changes_nothing() -> None:
    once = configured({"spark.sql.extensions": DELTA})
    assert configured(dict(once)) == once


def test_a_manager_of_checkpoint_files_stays() -> None:
    assert configured({})[FILE_MANAGER_KEY] == FILE_MANAGER_CLASS
    assert configured({FILE_MANAGER_KEY: "org.Manager"})[FILE_MANAGER_KEY] == "org.Manager"


def test_a_checkpoint_format_stays() -> None:
    assert configured({})[FORMAT_KEY] == "2"
    assert configured({FORMAT_KEY: "1"})[FORMAT_KEY] == "1"


def test_a_spark_conf_and_a_builder_are_configured_alike(jar: str) -> None:
    settings = {"maxDeltas": 7}
    spark_conf = configured(SparkConf(loadDefaults=False).set("spark.jars", "/a.jar"), settings=settings)
    builder = configured(SparkSession.Builder().config("spark.jars", "/a.jar"), settings=settings)
    assert dict(spark_conf.getAll()) == builder._options
    assert spark_conf.get("spark.jars") == f"/a.jar,{jar}"
    assert builder._options["spark.sql.streaming.stateStore.incremental.maxDeltas"] == "7"


def test_a_running_session_is_refused_with_a_sentence() -> None:
    with pytest.raises(TypeError, match="cannot configure a object: give"):
        configured(object())


def test_a_misspelt_option_is_refused() -> None:
    with pytest.raises(OptionError, match="memoryBugdet"):
        configured({}, settings={"memoryBugdet": "1g"})


@pytest.mark.parametrize("of", [dict, lambda values: SparkConf(loadDefaults=False).setAll(values.items())])
def test_the_agent_has_the_python_of_the_configuration(of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python")
    key = "spark.sql.streaming.stateStore.incremental.agentPython"
    packed = {"spark.pyspark.python": "./environment/bin/python"}
    assert configured(of(packed)).get(key) == "./environment/bin/python"
    assert configured(of(packed), agent_python="/opt/python").get(key) == "/opt/python"
    assert configured(of({})).get(key) == "/usr/bin/python"
