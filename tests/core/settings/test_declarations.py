"""The jar carries the declarations, and the data plane reads texts as the control plane does."""

from __future__ import annotations

import json
import subprocess
import zipfile

import pytest
import quick_java
import scala_jars

from state_store.core.checkpoint.stored_documents import META_KEY
from state_store.core.settings import session
from state_store.core.settings.option import PREFIX
from state_store.core.settings.options import OPTIONS
from state_store.errors import OptionError
from state_store.session import build

PROBE = "org.apache.spark.sql.execution.streaming.state.incremental.settings.SettingsProbe"
READ_IN_SCALA = {"boolean": "boolean", "size": "bytes", "duration": "durationMs", "integer": "count"}
TEXTS = {
    "integer": ["3", " 0 ", "+4", "-1", "1.5", "many", "3000000000", "99999999999999999999", "٣"],
    "boolean": ["true", " FALSE ", "yes", "1"],
    "size": [
        "64m",
        "1G",
        "33554432",
        "2gb",
        "2 GiB",
        " 16m ",
        "1m",
        "lots",
        "-1",
        "1.5g",
        "5ib",
        "1e9",
        "9p",
        "٣m",
    ],
    "duration": [
        *("500ms", "5s", "2min", "2 m", "36H", "7d", "0", "5", "5 fortnights", "-1s", "00", "٣s"),
        *("36500d", "36501d", "876001h", "99999999999999999999d"),
    ],
}

MOST = 2**31 - 1
"""The JVM counts as far; more of anything that an option counts is as good as that."""


def declared(name: str):
    return next(option for option in OPTIONS if option.name == name)


def read_in_python(name: str, text: str):
    try:
        return declared(name).parse(text) if text.strip() else declared(name).parse(declared(name).default)
    except OptionError:
        return "wrong"


@pytest.mark.spark
def test_the_jar_carries_the_declarations_and_the_classes_that_they_name():
    with zipfile.ZipFile(scala_jars.state_store_jar()) as archive:
        assert archive.read(build.DECLARATIONS_RESOURCE) == build.declarations()
        names = set(archive.namelist())
    classes = (session.PROVIDER_CLASS, session.EXTENSION_CLASS, session.LISTENER_CLASS)
    for name in (*classes, session.FILE_MANAGER_CLASS):
        assert name.replace(".", "/") + ".class" in names


@pytest.mark.spark
@pytest.mark.tier("more")
def test_the_data_plane_reads_texts_as_the_control_plane_does():
    asked = [
        (READ_IN_SCALA[option.type.name], option.name, text)
        for option in OPTIONS
        if option.type.name in READ_IN_SCALA
        for text in ["", *TEXTS[option.type.name]]
    ]
    command = ["java", *quick_java.probe_options(), "-cp", scala_jars.probes_class_path(), PROBE]
    questions = "".join(json.dumps(question) + "\n" for question in asked)
    answered = subprocess.run(
        command, input=questions, capture_output=True, text=True, timeout=240, check=True, encoding="utf-8"
    )
    answers = [json.loads(line) for line in answered.stdout.splitlines()]
    head, answers = answers[0], answers[1:]
    assert head == {"prefix": PREFIX, "meta_key": META_KEY.hex(), "log_level": declared("logLevel").default}
    assert len(answers) == len(asked)
    for (_, name, text), answer in zip(asked, answers, strict=True):
        wanted = read_in_python(name, text)
        if declared(name).type.name == "integer" and wanted != "wrong":
            wanted = min(wanted, MOST)
        assert answer.get("value", "wrong") == wanted, (name, text, answer)
        if "error" in answer:
            assert PREFIX + name in answer["error"]
            assert f"'{text.strip()}'" in answer["error"]
            assert declared(name).default in answer["error"]
        if wanted == "wrong" and declared(name).type.name in ("size", "duration"):
            with pytest.raises(OptionError) as refused:
                declared(name).parse(text)
            assert answer["error"].split("', but ")[1] == refused.value.message.split("', but ")[1]
