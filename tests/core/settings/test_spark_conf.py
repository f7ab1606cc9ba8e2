"""The configuration for a session, the choice of the jar, and a checkpoint of another store."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import state_store
from state_store.core.settings import session
from state_store.core.settings.option import PREFIX
from state_store.errors import OptionError
from state_store.session import build, configuration, releases


@pytest.fixture
def jars(tmp_path, monkeypatch):
    """Return a directory with the jars of both versions in place of the package's own."""
    for version in releases.SUPPORTED_SPARKS:
        (tmp_path / releases.jar_name(version)).write_bytes(b"")
    monkeypatch.setattr(build, "JAR_DIRECTORY", tmp_path)
    monkeypatch.setattr(build, "is_checkout", lambda: False)
    return tmp_path


def test_spark_conf_switches_everything_on(jars, monkeypatch):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    conf = state_store.spark_conf(spark_version="4.3.1")
    assert conf == {
        session.PROVIDER_KEY: session.PROVIDER_CLASS,
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
        "spark.sql.extensions": session.EXTENSION_CLASS,
        "spark.sql.streaming.streamingQueryListeners": session.LISTENER_CLASS,
        "spark.sql.streaming.checkpointFileManagerClass": session.FILE_MANAGER_CLASS,
        "spark.jars": str(jars / "incremental-state-store-spark-4.3.jar"),
        PREFIX + "agentPython": sys.executable,
    }


def test_settings_may_have_prefix_or_not_and_be_of_any_type(jars):
    conf = configuration.spark_conf(
        {"localRecovery": False, PREFIX + "maxDeltas": 7, "memoryBudget": "64m"}, spark_version="4.2.0"
    )
    assert conf[PREFIX + "localRecovery"] == "false"
    assert conf[PREFIX + "maxDeltas"] == "7"
    assert conf[PREFIX + "memoryBudget"] == "64m"


def test_the_python_of_the_agent_is_that_of_the_workers(jars, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    key = PREFIX + "agentPython"
    assert configuration.spark_conf(spark_version="4.3.0")[key] == "./environment/bin/python"
    assert configuration.spark_conf(spark_version="4.3.0", agent_python="/a/python")[key] == "/a/python"
    assert configuration.spark_conf({"agentPython": "/b/python"}, spark_version="4.3.0")[key] == "/b/python"


def test_a_misspelt_setting_is_refused_before_a_session_exists(jars):
    with pytest.raises(OptionError, match=r"nearest is .*memoryBudget"):
        configuration.spark_conf({"memoryBugdet": "1g"})


def write_offset_log(checkpoint, batch, conf):
    offsets = checkpoint / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": conf})
    (offsets / str(batch)).write_text(f'v1\n{metadata}\n{{"logOffset":{batch}}}', encoding="utf-8")


def test_a_checkpoint_of_another_store_is_refused_by_class_and_remedy(tmp_path):
    other = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    write_offset_log(tmp_path, 9, {session.PROVIDER_KEY: session.PROVIDER_CLASS})
    write_offset_log(tmp_path, 10, {session.PROVIDER_KEY: other})
    for checkpoint in (tmp_path, str(tmp_path), f"file://{tmp_path}", f"file:{tmp_path}"):
        with pytest.raises(OptionError) as refused:
            configuration.check_checkpoint(checkpoint)
        assert refused.value.option == session.PROVIDER_KEY
        assert other in refused.value.message
        assert "new checkpoint directory" in refused.value.message


def test_our_own_checkpoints_and_new_ones_pass(tmp_path):
    configuration.check_checkpoint(tmp_path / "never-used")
    write_offset_log(tmp_path, 0, {session.PROVIDER_KEY: session.PROVIDER_CLASS})
    (tmp_path / "offsets" / ".0.crc").write_bytes(b"x")
    configuration.check_checkpoint(tmp_path)


def test_offset_logs_without_metadata_pin_nothing():
    assert session.pinned_conf('v1\n-\n{"x":1}') == {}
    assert session.pinned_conf("") == {}


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys, state_store; "
        "print([m for m in ('pyspark', 'pyarrow', 'pandas', 'numpy', 'rocksdict') if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240
    )
    assert out.stdout.strip() == "[]"


def test_the_package_names_what_it_exports():
    assert set(state_store.__all__) <= set(dir(state_store))
    with pytest.raises(AttributeError, match="no attribute 'spark_config'"):
        state_store.spark_config  # noqa: B018
