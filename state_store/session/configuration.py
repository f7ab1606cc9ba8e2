"""The configuration of a Spark session that uses the store, and the check of a checkpoint's store.

A session also has what the program does not set (`inherited`): the configuration of `spark-submit`, and of
files. A value that a builder sets replaces that of `spark-submit --jars`, of PYSPARK_SUBMIT_ARGS or of
`spark-defaults.conf`. Code that adds to a list, such as `spark.jars`, therefore has to know these.

Nothing here starts a JVM. Safe for any thread.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from state_store.core.settings import session
from state_store.core.settings.option import PREFIX
from state_store.core.settings.options import parse
from state_store.errors import OptionError
from state_store.session.jar import jar_path
from state_store.session.releases import BuildError, installed_pyspark

_AGENT_PYTHON = PREFIX + "agentPython"
_LISTS = (session.EXTENSIONS_KEY, session.LISTENERS_KEY, "spark.jars")


def spark_conf(
    settings: Mapping[str, Any] | None = None,
    *,
    agent_python: str | None = None,
    spark_version: str | None = None,
) -> dict[str, Any]:
    """Return the configuration with which every stateful query of a session uses this store.

        SparkSession.builder.config(map=state_store.spark_conf({"restoreObjective": "5s"})).getOrCreate()

    It sets the provider class, Spark's checkpoint format 2, the jar (`spark.jars`), the session extension for
    `transformWithState` and vectorised functions (`spark.sql.extensions`), the listener that warns if Spark
    keeps a query on the store that it was started with (`spark.sql.streaming.streamingQueryListeners`), the
    manager that is quick if checkpoints are on a local disk
    (`spark.sql.streaming.checkpointFileManagerClass`), and the Python of the agent. If a session has other
    jars, extensions or listeners, append them, separated by commas, or use `configure`. A package without a
    jar for the version compiles it once (`state_store.session.jar`).

    Args:
        settings: options of docs/options.md by name, with or without their prefix, as texts, numbers or
            booleans.
        agent_python: the interpreter that runs the agent on executors. Default: `PYSPARK_PYTHON` if it is
            set, else the running interpreter, which is right if executors share this machine or its image.
        spark_version: the version of the cluster. Default: that of the installed pyspark.

    Raises:
        OptionError: a setting does not exist or has a wrong value, or there is no jar for the version.
    """
    if spark_version is not None and not isinstance(spark_version, str):
        raise OptionError(f"spark_version is a text, not {spark_version!r}", option="spark_version")
    conf = _conf_of_a_query(settings, agent_python)
    conf.setdefault(_AGENT_PYTHON, os.environ.get("PYSPARK_PYTHON") or sys.executable)
    parse({_AGENT_PYTHON.removeprefix(PREFIX): conf[_AGENT_PYTHON]})
    return {
        session.EXTENSIONS_KEY: session.EXTENSION_CLASS,
        session.LISTENERS_KEY: session.LISTENER_CLASS,
        "spark.jars": str(jar_path(spark_version)),
        **dict(sorted(conf.items())),
    }


def _conf_of_a_query(settings: Mapping[str, Any] | None, agent_python: str | None) -> dict[str, Any]:
    """Return what may be set when a session has started; raise OptionError for a wrong setting."""
    if settings is not None and not isinstance(settings, Mapping):
        raise OptionError(f"settings are options by name, not {settings!r}", option="settings")
    if agent_python is not None and not isinstance(agent_python, str):
        raise OptionError(f"agent_python is a text, not {agent_python!r}", option="agent_python")
    options = {str(name).removeprefix(PREFIX): _text(value) for name, value in (settings or {}).items()}
    if agent_python:
        options.setdefault("agentPython", agent_python)
    parse(options)
    return {
        session.PROVIDER_KEY: session.PROVIDER_CLASS,
        session.FORMAT_KEY: "2",
        session.FILE_MANAGER_KEY: session.FILE_MANAGER_CLASS,
        **{PREFIX + name: text for name, text in options.items()},
    }


def configure(
    target: Any,
    settings: Mapping[str, Any] | None = None,
    *,
    agent_python: str | None = None,
    spark_version: str | None = None,
) -> Any:
    """Add this store to a configuration that may have other extensions, jars and listeners, and return it.

        builder = state_store.configure(SparkSession.builder.appName("clicks"))
        spark = configure_spark_with_delta_pip(builder).getOrCreate()

    It sets what `spark_conf()` sets. The jar, the extension and the listener are added to those that the
    session has: from the target, else from `spark-submit`, PYSPARK_SUBMIT_ARGS or
    `spark-defaults.conf`, which a dictionary is not compared with. If a later call replaces
    `spark.sql.extensions`, as a builder's `config` does, Spark still finds the extension, because the jar is
    on the class path when the session starts. A manager of checkpoint files, a checkpoint format and a
    Python of the agent that the configuration has stay. A second call changes what its settings name, and
    nothing else.

    A client of Spark Connect (`remote("sc://...")`) gets the provider, the checkpoint format and the settings
    alone: its server needs the jar, the extension and the listener in a configuration of its own.

    Args:
        target: a `SparkSession.builder`, a `SparkConf`, or a dictionary of Spark's configuration.
        settings: options of the store by name, with or without their prefix.
        agent_python: the interpreter of the agent on executors. Default: `spark.pyspark.python` of the
            configuration; see `spark_conf` for what follows if it is not set.
        spark_version: that of the cluster; the installed pyspark's by default.

    Returns:
        The target.

    Raises:
        OptionError: a setting does not exist or has a wrong value, or there is no jar for the version.
        TypeError: the target cannot be configured, for example because it is a running session.

    Warns:
        RuntimeWarning: a JVM without the jar is running, and the session would be part of it; or Spark
            encrypts its local files, and the store would not.
    """
    own, put = _accessors(target)
    if _is_remote(own):
        for key, value in _conf_of_a_query(settings, agent_python).items():
            _put_unless_kept(own, put, key, value)
        return target
    is_for_here = not isinstance(target, MutableMapping)
    elsewhere = inherited() if is_for_here else {}

    def get(key: str) -> str | None:
        return own(key) or elsewhere.get(key)

    python = agent_python or get(_AGENT_PYTHON) or get("spark.pyspark.python")
    for key, value in spark_conf(settings, agent_python=python, spark_version=spark_version).items():
        if key in _LISTS:
            put(key, ",".join(dict.fromkeys([*_listed(key, get(key)), value])))
        else:
            _put_unless_kept(get, put, key, value)
    if (get("spark.io.encryption.enabled") or "").strip().lower() == "true":
        warnings.warn(
            "spark.io.encryption.enabled does not reach the local state of the store, nor of Spark's own "
            "stores: its files lie unencrypted below the local directories of the executors. If the "
            "state is secret, put these on encrypted volumes",
            RuntimeWarning,
            stacklevel=2,
        )
    if is_for_here and runs_without(session.PROVIDER_CLASS):
        warnings.warn(
            "a JVM without this store's jar is running: sessions of this process cannot use the store. Call "
            "configure() before the first session starts, or give the jar to spark-submit (--jars)",
            RuntimeWarning,
            stacklevel=2,
        )
    return target


def _listed(key: str, value: Any) -> list[str]:
    """Return the parts of a list in a configuration."""
    if value is not None and not isinstance(value, str):
        raise OptionError(f"{key} is a text with commas, not {value!r}", option=key)
    return [part.strip() for part in (value or "").split(",") if part.strip()]


def _put_unless_kept(
    get: Callable[[str], str | None], put: Callable[[str, str], Any], key: str, value: str
) -> None:
    if key not in (session.FILE_MANAGER_KEY, session.FORMAT_KEY) or not get(key):
        put(key, value)


def _is_remote(get: Callable[[str], str | None]) -> bool:
    """Return True if a session will be a client of a server of Spark Connect that runs already."""
    return (get("spark.remote") or os.environ.get("SPARK_REMOTE") or "").startswith("sc://")


def _accessors(target: Any) -> tuple[Callable[[str], str | None], Callable[[str, str], Any]]:
    """Return two functions, one that reads a key of a configuration and one that sets it."""
    if isinstance(target, MutableMapping):
        return target.get, target.__setitem__
    if callable(getattr(target, "get", None)) and callable(getattr(target, "set", None)):  # a SparkConf
        return lambda key: target.get(key, None), target.set
    options = getattr(target, "_options", None)
    if isinstance(options, Mapping) and callable(getattr(target, "config", None)):  # a builder
        return options.get, lambda key, value: target.config(key, value)
    raise TypeError(
        f"cannot configure a {type(target).__name__}: give a SparkSession.builder, a SparkConf or a "
        "dictionary, before the session starts"
    )


def check_checkpoint(checkpoint: str | Path) -> None:
    """Raise OptionError if the query of a checkpoint (a path or URI) was started with another store.

    Spark writes the provider's class into the offset log with the first batch, and from then on silently
    ignores the session's setting. A directory in which no query has run passes.

    Raises:
        MissingError: the checkpoint is incomplete: a command is still writing it, or was interrupted.
        StorageError: the directory cannot be read.
    """
    from state_store.core.checkpoint.stored_documents import refuse_incomplete
    from state_store.core.storage import open_storage
    from state_store.core.storage.open import without_secret

    if not isinstance(checkpoint, (str, os.PathLike)) or not str(checkpoint).strip():
        raise OptionError(f"checkpoint is a path or a URI, not {checkpoint!r}", option="checkpoint")
    location = without_secret(str(checkpoint))
    storage = open_storage(location)
    try:
        refuse_incomplete(storage, location)
        batches = [int(entry.name) for entry in storage.list_files("offsets") if entry.name.isdigit()]
        if batches:
            newest = storage.read(f"offsets/{max(batches)}")
            session.check_pinned(session.pinned_conf(newest.decode("utf-8")), location)
    finally:
        storage.close()


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def inherited() -> dict[str, str]:
    """Return the configuration of the JVM if there is one, else the one with which pyspark will start it.

    Starts no JVM. In a program that `spark-submit` started, the JVM is there before Python.
    """
    if _has_jvm():
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    arguments, files = _arguments(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    defaults: dict[str, str] = {}
    for file in files:
        defaults |= properties(file)
    return {**defaults, **arguments}


def runs_without(name: str) -> bool:
    """Return True if there is a JVM, and it cannot load a class."""
    context = sys.modules.get("pyspark.core.context")
    jvm = context.SparkContext._jvm if context is not None else None
    return jvm is not None and not jvm.org.apache.spark.util.Utils.classIsLoadable(name)


def properties(file: Path) -> dict[str, str]:
    """Return the properties of a file in Java's format, with keys that begin with `spark.`."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:  # Spark itself says so, if the file is needed
        return {}
    values = {}
    for line in re.sub(r"\\\r?\n\s*", "", text).splitlines():
        if match := re.match(r"\s*(spark\.[^\s=:]+)(?:\s*[=:]\s*|\s+)(.*?)\s*$", line):
            values[match[1]] = match[2]
    return values


def _has_jvm() -> bool:
    """Return True if a JVM runs to which pyspark is connected or will connect."""
    context = sys.modules.get("pyspark.core.context")
    return "PYSPARK_GATEWAY_PORT" in os.environ or (
        context is not None and context.SparkContext._gateway is not None
    )


def _arguments(text: str) -> tuple[Mapping[str, str], list[Path]]:
    """Return the configuration in arguments of `spark-submit`, and the files of properties that count.

    A later file replaces what is in those before it.
    """
    conf: dict[str, str] = {}
    jars, file, more, has_defaults = "", "", [], False
    for option, value in _options(text):
        if option == "--jars":
            jars = value
        elif option == "--properties-file":
            file = value
        elif option == "--extra-properties-file":
            more.append(value)
        elif option == "--load-spark-defaults":
            has_defaults = True
        elif option in ("--conf", "-c"):
            key, _, setting = value.partition("=")
            conf[key.strip()] = setting
    files = [*(_default_files() if has_defaults or not file else []), *map(Path, filter(None, [file, *more]))]
    return {**conf, **({"spark.jars": jars} if jars else {})}, files


def _options(text: str) -> Iterator[tuple[str, str]]:
    try:
        words = shlex.split(text)
    except ValueError:  # Spark's launcher refuses it
        return
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        option, equals, value = word.partition("=")
        if option.startswith("-"):
            yield option, value if equals else following


def _default_files() -> list[Path]:
    """Return the path of `spark-defaults.conf`, if it can be known."""
    if directory := os.environ.get("SPARK_CONF_DIR"):
        return [Path(directory, "spark-defaults.conf")]
    try:
        home = Path(os.environ.get("SPARK_HOME") or installed_pyspark())
    except BuildError:
        return []
    return [home / "conf" / "spark-defaults.conf"]
