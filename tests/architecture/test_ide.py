"""`build.sbt`, which opens the Scala sources in an IDE, agrees with the build of the jar and of the tests."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import build_server
import pinned_jars
import pyspark
import pytest

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
    folders = {path for path in checkout.glob("tests/**/scala*") if path.is_dir()}
    folders |= {checkout / "benchmarks/scala", checkout / "tests/benchmarks"}
    assert _listed(text, "tests") == sorted(path.relative_to(checkout).as_posix() for path in folders)


def test_the_launcher_is_that_of_the_project(checkout: Path) -> None:
    version = (checkout / "project/build.properties").read_text(encoding="utf-8").strip()
    assert version == f"sbt.version={pinned_jars.pins(pinned_jars.SBT)[0].version}"


@pytest.mark.tier("long")
def test_an_ide_opens_and_compiles_all_sources(checkout: Path, tmp_path: Path) -> None:
    spark_jars = Path(pyspark.__file__).parent / "jars"
    root = build_server.project(checkout, spark_jars, tmp_path)
    with build_server.running(root) as server:
        targets = {
            target["displayName"]: target["id"] for target in server.call("workspace/buildTargets")["targets"]
        }
        main = [targets["bridge"], targets["probes"]]
        for name, folders in (("bridge", ["jvm_bridge"]), ("probes", ["tests", "benchmarks"])):
            (item,) = server.call("buildTarget/sources", {"targets": [targets[name]]})["items"]
            opened = {_file(source["uri"]) for source in item["sources"]}
            files = {path for path in opened if path.suffix == ".scala"}
            for folder in [path for path in opened if path.is_dir()]:
                files |= set(folder.rglob("*.scala"))
            expected = {path for folder in folders for path in (root / folder).rglob("*.scala")}
            expected -= {*(root / "tests/suites").rglob("*"), *(root / "benchmarks/scala_s3").rglob("*")}
            assert {path.name for path in files} == {path.name for path in expected}
        assert server.call("buildTarget/compile", {"targets": main})["statusCode"] == 1
        errors = [uri for uri, found in server.diagnostics.items() if any(_is_error(x) for x in found)]
        assert errors == []
        wrong = root / "tests/jvm/scala/StateModel.scala"
        wrong.write_text(wrong.read_text(encoding="utf-8") + '\nobject Wrong { val number: Int = "text" }\n')
        with pytest.raises(build_server.RefusedError, match="Compilation failed"):
            server.call("buildTarget/compile", {"targets": main})
        errors = [uri for uri, found in server.diagnostics.items() if any(_is_error(x) for x in found)]
        assert [_file(uri) for uri in errors] == [wrong]


def _file(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


def _is_error(diagnostic: dict[str, object]) -> bool:
    return diagnostic["severity"] == 1
