"""Build script that adds the Scala sources and the jars to the package.

A jar that the tree has already (`make wheel`) is taken if it is of the sources as they are. If pyspark can
be imported during the build, its jar is made. An isolated build has neither: the installed package compiles
its jar on first use, from the sources that it carries (`state_store.session.jar`).
"""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from state_store.session import build, releases  # noqa: E402

_log = logging.getLogger(__name__)


class BuildPackage(build_py):
    """Copy the package, and then the sources and jars below it. An editable install stays as it is."""

    def run(self) -> None:
        package = Path(self.build_lib) / "state_store"
        if not self.editable_mode:
            # What an earlier build left may have been renamed since.
            shutil.rmtree(package, ignore_errors=True)
        super().run()
        if not self.editable_mode:
            carry_sources(package)
            carry_jars(package / "jars")


def carry_sources(package: Path) -> None:
    """Copy the Scala sources and resources into the package."""
    target = package / build.CARRIED.relative_to(build.PACKAGE)
    shutil.copytree(build.CHECKOUT, target, ignore=shutil.ignore_patterns("__pycache__"))


def carry_jars(target: Path) -> None:
    """Put the up-to-date jars of the tree and the jar for the installed pyspark into the package."""
    for jar in sorted(build.JAR_DIRECTORY.glob("*.jar")):
        stamp = build.stamped(jar)
        if stamp is not None and stamp == build.current(stamp.spark):
            target.mkdir(exist_ok=True)
            shutil.copy2(jar, target)
        else:
            _log.warning("%s is not of these sources: it is left out", jar)
    try:
        build.build(releases.installed_pyspark(), target)
    except (releases.NoSpark, build.NoJava) as missing:
        _log.warning("the package carries no jar but those of the tree: %s", missing)


setup(cmdclass={"build_py": BuildPackage})
