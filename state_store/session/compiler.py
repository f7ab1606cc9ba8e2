"""The Scala compiler that pyspark brings, and the Java that runs it. Needs no JDK: a JRE will do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from state_store.session.installed import BuildError
from state_store.session.releases import SUPPORTED_JAVAS

LEAST_JAVA = SUPPORTED_JAVAS[0]
_HOW = (
    f"Java {', '.join(map(str, SUPPORTED_JAVAS[:-1]))} or {SUPPORTED_JAVAS[-1]} is needed, as by Spark; "
    "on Debian or Ubuntu: `sudo apt-get install openjdk-17-jdk-headless`. Where several are installed, "
    "JAVA_HOME chooses."
)


class NoJava(BuildError):
    """There is no Java, or none that Spark runs on."""


def java() -> str:
    """The Java that Spark would start: that of JAVA_HOME, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java") or "java"


def java_version() -> int:
    """The major version of that Java; raises NoJava unless it is a supported one."""
    program = java()
    try:
        shown = subprocess.run(
            [program, "-version"], capture_output=True, text=True, check=True, timeout=60
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise NoJava(f"{program} cannot be run ({error}). {_HOW}") from None
    match = re.search(r'version "(\d+)', shown)
    if match is None or int(match[1]) not in SUPPORTED_JAVAS:
        found = shown.splitlines()[0] if shown else "of an unknown version"
        raise NoJava(f"{program} is {found}. {_HOW}")
    return int(match[1])


def compile_scala(jars: Path, sources: Iterable[Path], out: Path, libraries: Iterable[Path] = ()) -> None:
    """Compiles into `out`, a directory or a jar, with the scalac among Spark's `jars`.

    Raises BuildError with what the compiler prints, NoJava where none can run it.
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
    """Options for classes that the oldest supported Java runs. A JRE has no signatures of older Javas
    (`lib/ct.sym`) to check against.
    """
    if java_version() == LEAST_JAVA or (_java_home() / "lib" / "ct.sym").is_file():
        return ["-release", str(LEAST_JAVA)]
    return [f"-target:{LEAST_JAVA}", "-nowarn"]


def _java_home() -> Path:
    return Path(shutil.which(java()) or java()).resolve().parent.parent
