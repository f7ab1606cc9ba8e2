"""`configure` adds to what a configuration has, in any order, and twice does no harm."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf, SparkContext
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
from state_store.session import build, configuration

DELTA = "io.delta.sql.DeltaSparkSessionExtension"


@pytest.fixture(autouse=True)
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(build, "JAR_DIRECTORY", tmp_path)
    monkeypatch.setattr(build, "is_checkout", lambda: False)
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


def test_a_second_call_changes_its_own_settings_alone() -> None:
    key = "spark.sql.streaming.stateStore.incremental."
    first = configured({}, settings={"maxDeltas": 7, "agentPython": "/opt/python"})
    second = configured(dict(first), settings={"maxDeltas": 8})
    assert second == {**first, f"{key}maxDeltas": "8"}


def test_blanks_and_duplicates_in_lists_go(jar: str) -> None:
    extensions = f" {DELTA} , ,{DELTA},{EXTENSION_CLASS},\n{EXTENSION_CLASS}"
    conf = configured({"spark.sql.extensions": extensions, "spark.jars": ""})
    assert conf["spark.sql.extensions"] == f"{DELTA},{EXTENSION_CLASS}"
    assert conf["spark.jars"] == jar


def test_a_list_that_is_no_text_is_refused() -> None:
    with pytest.raises(OptionError, match=r"spark.jars is a text with commas, not \['/a.jar'\]"):
        configured({"spark.jars": ["/a.jar"]})


KEYS = ("spark.jars", "spark.sql.extensions", "spark.sql.streaming.streamingQueryListeners")
OF_THE_FILE = """# a comment
spark.jars            /file.jar
spark.sql.extensions = org.File,\\
    org.Continued
spark.sql.streaming.streamingQueryListeners:org.Listener
java.thing            x
"""


@pytest.fixture
def defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(configuration, "_has_jvm", lambda: False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    path = tmp_path / "spark-defaults.conf"
    path.write_text(OF_THE_FILE, encoding="utf-8")
    return path


@pytest.mark.parametrize("target", [SparkSession.Builder, lambda: SparkConf(loadDefaults=False)])
def test_lists_of_spark_defaults_are_added_to(target: Any, defaults: Path, jar: str) -> None:
    made = configured(target())
    found = dict(made.getAll()) if isinstance(made, SparkConf) else made._options
    assert [found[key] for key in KEYS] == [
        f"/file.jar,{jar}",
        f"org.File,org.Continued,{EXTENSION_CLASS}",
        f"org.Listener,{LISTENER_CLASS}",
    ]


def test_a_dictionary_is_for_any_machine(defaults: Path, jar: str) -> None:
    assert configured({})["spark.jars"] == jar


def test_arguments_of_submission_come_before_spark_defaults(
    defaults: Path, monkeypatch: pytest.MonkeyPatch, jar: str
) -> None:
    words = "--jars /given.jar --conf 'spark.sql.extensions=org.A, org.B' --name x pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", words)
    found = configured(SparkSession.Builder())._options
    assert found["spark.jars"] == f"/given.jar,{jar}"
    assert found["spark.sql.extensions"] == f"org.A,org.B,{EXTENSION_CLASS}"
    assert found[KEYS[2]] == f"org.Listener,{LISTENER_CLASS}"


def test_a_file_of_properties_replaces_spark_defaults(
    defaults: Path, monkeypatch: pytest.MonkeyPatch, jar: str
) -> None:
    other = defaults.with_name("other.conf")
    other.write_text("spark.jars /other.jar\n", encoding="utf-8")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--properties-file={other} pyspark-shell")
    found = configured(SparkSession.Builder())._options
    assert found["spark.jars"] == f"/other.jar,{jar}"
    assert found["spark.sql.extensions"] == EXTENSION_CLASS


@pytest.mark.parametrize(
    ("words", "jars", "extensions"),
    [
        ("--load-spark-defaults --properties-file A", ["/a.jar"], ["org.File", "org.Continued"]),
        ("--properties-file=A --load-spark-defaults", ["/a.jar"], ["org.File", "org.Continued"]),
        ("--extra-properties-file A", ["/a.jar"], ["org.File", "org.Continued"]),
        ("--extra-properties-file A --extra-properties-file B", ["/b.jar"], ["org.B"]),
        ("--extra-properties-file B --properties-file A", ["/b.jar"], ["org.B"]),
    ],
)
def test_other_files_of_properties_are_added_to(
    words: str,
    jars: list[str],
    extensions: list[str],
    defaults: Path,
    monkeypatch: pytest.MonkeyPatch,
    jar: str,
) -> None:
    """The files and their order are those of Spark's `SparkSubmitArguments`."""
    (defaults.parent / "A").write_text("spark.jars /a.jar\n", encoding="utf-8")
    (defaults.parent / "B").write_text("spark.jars /b.jar\nspark.sql.extensions org.B\n", encoding="utf-8")
    monkeypatch.chdir(defaults.parent)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{words} pyspark-shell")
    found = configured(SparkSession.Builder())._options
    assert found["spark.jars"] == ",".join([*jars, jar])
    assert found["spark.sql.extensions"] == ",".join([*extensions, EXTENSION_CLASS])


def test_a_value_of_the_builder_comes_before_all_others(defaults: Path, jar: str) -> None:
    found = configured(SparkSession.Builder().config("spark.jars", "/own.jar"))._options
    assert found["spark.jars"] == f"/own.jar,{jar}"


@pytest.mark.parametrize("by", ["option", "variable"])
def test_a_client_of_spark_connect_gets_what_it_can_set(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = SparkSession.Builder()
    if by == "option":
        builder.remote("sc://server:15002")
    else:
        monkeypatch.setenv("SPARK_REMOTE", "sc://server:15002")
    found = configured(builder, settings={"maxDeltas": 7})._options
    assert {key: value for key, value in found.items() if key != "spark.remote"} == {
        "spark.sql.streaming.stateStore.providerClass": PROVIDER_CLASS,
        FORMAT_KEY: "2",
        FILE_MANAGER_KEY: FILE_MANAGER_CLASS,
        "spark.sql.streaming.stateStore.incremental.maxDeltas": "7",
    }


def test_a_local_server_of_spark_connect_gets_all(jar: str) -> None:
    found = configured(SparkSession.Builder().remote("local[1]"))._options
    assert found["spark.jars"] == jar and found["spark.sql.extensions"] == EXTENSION_CLASS


class FakeUtils:
    """Spark's `Utils` in a JVM that has some classes."""

    def __init__(self, *classes: str) -> None:
        self.org = self.apache = self.spark = self.util = self.Utils = self
        self._classes = classes

    def classIsLoadable(self, name: str) -> bool:
        return name in self._classes


def test_a_jvm_without_the_jar_is_named(monkeypatch: pytest.MonkeyPatch, defaults: Path) -> None:
    """As in a program of `spark-submit`, or beside a session."""
    monkeypatch.setattr(SparkContext, "_jvm", FakeUtils())
    with pytest.warns(RuntimeWarning, match="a JVM without this store's jar is running.*--jars"):
        configured(SparkSession.Builder())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        configured({})
        monkeypatch.setattr(SparkContext, "_jvm", FakeUtils(PROVIDER_CLASS))
        configured(SparkSession.Builder())


@pytest.mark.parametrize("value", ["true", "True", "false", None])
def test_encryption_of_local_files_that_does_not_reach_the_store_is_said(value):
    conf = {} if value is None else {"spark.io.encryption.enabled": value}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        state_store.configure(conf)
    expected = (value or "").lower() == "true"
    assert any("does not reach the local state" in str(warning.message) for warning in said) == expected
