"""Jars that PySpark does not bring, fetched with Maven into the user's cache, once.

If Maven's registry cannot be reached the test that asks is skipped, unless the environment says CI=true.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from scala_jars import CACHE, SPARK_JARS

AWS_SDK = "2.35.4"
"""The version with which `hadoop-aws` 3.5.0 is built."""

GCS_CONNECTOR = "hadoop3-2.2.26"
"""The version of Google's connector that docs/storage.md names."""

PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
_UNREACHABLE = (
    "Could not transfer",
    "Unknown host",
    "Connection refused",
    "Network is unreachable",
    "timed out",
)
_TIMEOUT_S = 600

# hadoop-aws depends on the bundle of all of Amazon's services, 690 MB; these are the parts it uses, 15 MB.
# Spark brings the libraries that are left out.
_S3A_POM = """
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>s3a</artifactId><version>1</version><packaging>pom</packaging>
  <dependencyManagement><dependencies><dependency>
    <groupId>software.amazon.awssdk</groupId><artifactId>bom</artifactId><version>{sdk}</version>
    <type>pom</type><scope>import</scope>
  </dependency></dependencies></dependencyManagement>
  <dependencies>
    <dependency>
      <groupId>org.apache.hadoop</groupId><artifactId>hadoop-aws</artifactId><version>{hadoop}</version>
      <exclusions><exclusion>
        <groupId>software.amazon.awssdk</groupId><artifactId>bundle</artifactId>
      </exclusion></exclusions>
    </dependency>
    {parts}
  </dependencies>
</project>
"""
_ABFS_POM = """
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>abfs</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.apache.hadoop</groupId><artifactId>hadoop-azure</artifactId><version>{hadoop}</version>
  </dependency></dependencies>
</project>
"""
_S3A_PARTS = ("s3", "s3-transfer-manager", "sts", "apache-client")
_SPARK_BRINGS = ("netty-buffer", "netty-codec", "netty-common", "netty-handler", "netty-resolver")
_SPARK_BRINGS += ("netty-transport", "slf4j-api", "httpc", "commons-")


def hadoop_version() -> str:
    """Return the version of the Hadoop client inside pyspark."""
    return next(SPARK_JARS.glob("hadoop-client-api-*.jar")).stem.removeprefix("hadoop-client-api-")


def minicluster_class_path() -> list[Path]:
    """Return the class path of Hadoop's own test cluster, of Spark's version of Hadoop.

    Its web pages come first, as files: from the jar, each daemon would unpack all of it to find them.
    """
    name, version = "hadoop-client-minicluster", hadoop_version()
    command = [f"{PLUGIN}:copy", f"-Dartifact=org.apache.hadoop:{name}:{version}"]
    (jar,) = fetched(f"{name}-{version}", command)
    if not (jar.parent / "pages").is_dir():
        with tempfile.TemporaryDirectory(dir=jar.parent) as room, zipfile.ZipFile(jar) as archive:
            pages = [page for page in archive.namelist() if page.startswith("webapps/")]
            archive.extractall(Path(room) / "pages", pages)
            with contextlib.suppress(OSError):  # another process moved its jars first
                (Path(room) / "pages").rename(jar.parent / "pages")
    return [jar.parent / "pages", jar]


def s3a_jars() -> list[Path]:
    """Return the jars that a class path with Spark needs for `s3a:` URIs."""
    dependency = (
        "<dependency><groupId>software.amazon.awssdk</groupId><artifactId>{}</artifactId></dependency>"
    )
    parts = "".join(dependency.format(part) for part in _S3A_PARTS)
    pom = _S3A_POM.format(sdk=AWS_SDK, hadoop=hadoop_version(), parts=parts)
    command = [f"{PLUGIN}:copy-dependencies", "-DincludeScope=runtime"]
    jars = fetched(f"s3a-{hadoop_version()}-{AWS_SDK}", command, pom)
    return [jar for jar in jars if not jar.name.startswith(_SPARK_BRINGS) or jar.name.startswith("netty-nio")]


def gcs_jars() -> list[Path]:
    """Return the jar that a class path with Spark needs for `gs:` URIs: Google's connector."""
    artifact = f"com.google.cloud.bigdataoss:gcs-connector:{GCS_CONNECTOR}:jar:shaded"
    return fetched(f"gcs-connector-{GCS_CONNECTOR}", [f"{PLUGIN}:copy", f"-Dartifact={artifact}"])


def abfs_jars() -> list[Path]:
    """Return the jars that a class path with Spark needs for `abfs:` URIs."""
    command = [f"{PLUGIN}:copy-dependencies", "-DincludeScope=runtime"]
    jars = fetched(f"abfs-{hadoop_version()}", command, _ABFS_POM.format(hadoop=hadoop_version()))
    return [jar for jar in jars if not jar.name.startswith("commons-")]


def fetched(
    name: str,
    command: Sequence[str],
    pom: str | None = None,
    check: Callable[[Path], None] = lambda directory: None,
) -> list[Path]:
    """Return the jars of the cache's directory `name`, which Maven fills if it is missing.

    `check` gets the directory before it is in the cache, and raises if its files are not right.
    """
    directory = CACHE / name
    if not directory.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as room:
            fresh = Path(room) / name
            where = [f"-DoutputDirectory={fresh}"]
            if pom is not None:
                (Path(room) / "pom.xml").write_text(pom, encoding="utf-8")
            _run(name, ["mvn", "-B", "-q", *command, *where], Path(room))
            check(fresh)
            if not directory.is_dir():
                fresh.replace(directory)
    return sorted(directory.glob("*.jar"))


def _run(artifact: str, command: Sequence[str], directory: Path) -> None:
    if shutil.which("mvn") is None:
        _unavailable(f"{artifact} is needed, and there is no 'mvn' to fetch it")
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode == 0:
        return
    output = done.stdout + done.stderr
    if any(sign in output for sign in _UNREACHABLE):
        _unavailable(f"the registry with {artifact} cannot be reached")
    raise RuntimeError(f"cannot fetch {artifact}: {output[-2000:]}")


def _unavailable(why: str) -> None:
    if os.environ.get("CI") == "true":
        raise RuntimeError(why)
    pytest.skip(why)
