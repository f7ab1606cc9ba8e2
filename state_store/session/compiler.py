"""The Scala compiler that pyspark brings, and the Java that runs it. A JRE is enough; no JDK is needed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from state_store.session.releases import SUPPORTED_JAVAS, BuildError

MIN_JAVA = SUPPORTED_JAVAS[0]
_HOW = (
    f"Java {', '.join(map(str, SUPPORTED_JAVAS[:-1]))} or {SUPPORTED_JAVAS[-1]} is needed, as by Spark; "
    "on Debian or Ubuntu: `sudo apt-get install openjdk-17-jdk-headless`. If several are installed, "
    "JAVA_HOME chooses."
)


class NoJava(BuildError):
    """Java is missing, or its version is not supported by Spark."""


def java() -> str:
    """Return the path of the Java that Spark starts: that of JAVA_HOME, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java") or "java"


def java_version() -> int:
    """Return the major version of that Java. Raises NoJava unless it is supported."""
    program = java()
    try:
        version_text = subprocess.run(
            [program, "-version"], capture_output=True, text=True, check=True, timeout=60
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise NoJava(f"{program} cannot be run ({error}). {_HOW}") from None
    match = re.search(r'version "(\d+)', version_text)
    if match is None or int(match[1]) not in SUPPORTED_JAVAS:
        version_line = version_text.splitlines()[0] if version_text else "of an unknown version"
        raise NoJava(f"{program} is {version_line}. {_HOW}")
    return int(match[1])


def compile_scala(jars: Path, sources: Iterable[Path], out: Path, libraries: Iterable[Path] = ()) -> None:
    """Compile with the scalac among Spark's `jars`.

    Args:
        jars: the directory of Spark's jars.
        sources: the Scala files.
        out: a directory or a jar for the classes.
        libraries: further jars for the class path.

    Raises:
        BuildError: the sources do not compile; the message has the compiler's output.
        NoJava: no Java can run the compiler.
    """
    spark = f"{jars}{os.sep}*"
    class_path = os.pathsep.join([*map(str, libraries), spark])
    command = [
        java(), "-Xss8m", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", spark,
        "scala.tools.nsc.Main", "-deprecation", *_target(), "-d", str(out),
        "-classpath", class_path, *map(str, sources),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise BuildError(f"the Scala sources do not compile:\n{done.stdout}{done.stderr}")


def _target() -> list[str]:
    """Return options for classes that run on the oldest supported Java.

    A JRE lacks the signatures of older Javas (`lib/ct.sym`), so these cannot be checked there.
    """
    if java_version() == MIN_JAVA or (_java_home() / "lib" / "ct.sym").is_file():
        return ["-release", str(MIN_JAVA)]
    return [f"-target:{MIN_JAVA}", "-nowarn"]


def _java_home() -> Path:
    return Path(shutil.which(java()) or java()).resolve().parent.parent
