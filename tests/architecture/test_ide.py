"""`build.sbt`, which opens the Scala sources in an IDE, agrees with the build of the jar and of the tests."""

from __future__ import annotations

import re
from pathlib import Path

import pyspark

from state_store.session import releases


def _listed(text: str, name: str) -> list[str]:
    """Return the texts of a `val` that is a `Seq`."""
    match = re.search(rf"^val {name} = Seq\((.*?)\)", text, flags=re.MULTILINE | re.DOTALL)
    assert match, name
    return re.findall(r'"([^"]+)"', match[1])


def test_the_ide_compiles_against_the_newest_spark(checkout: Path) -> None:
    text = (checkout / "build.sbt").read_text(encoding="utf-8")
    newest = releases.RELEASES[-1]
    assert f'val spark = "{newest.tested}"' in text
    if pyspark.__version__ == newest.tested:
        jars = Path(pyspark.__file__).parent / "jars"
        (scala,) = (path.stem.removeprefix("scala-library-") for path in jars.glob("scala-library-*.jar"))
        assert f'ThisBuild / scalaVersion := "{scala}"' in text


def test_the_ide_knows_the_sources_for_each_spark(checkout: Path) -> None:
    text = (checkout / "build.sbt").read_text(encoding="utf-8")
    expected = [f"scala-{release.minor}" for release in reversed(releases.RELEASES)]
    assert _listed(text, "releases") == expected
    assert sorted(expected) == sorted(path.name for path in (checkout / "jvm_bridge").glob("scala-*"))


def test_the_ide_knows_the_scala_of_tests_and_benchmarks(checkout: Path) -> None:
    text = (checkout / "build.sbt").read_text(encoding="utf-8")
    folders = [path for path in checkout.glob("tests/**/scala*") if path.is_dir()]
    folders.append(checkout / "benchmarks/scala")
    assert _listed(text, "tests") == sorted(path.relative_to(checkout).as_posix() for path in folders)
