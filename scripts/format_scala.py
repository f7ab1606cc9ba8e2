"""Format Scala sources with scalafmt, as `.scalafmt.conf` says.

    python scripts/format_scala.py [--check] [PATH...]

The default of `PATH` is every Scala file of the checkout. `--check` changes nothing, names the files that
would change, and exits with 1 if there are any. Maven fetches scalafmt into the user's cache once; each jar
must have the digest that `scripts/scalafmt.sha256` names.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
CONFIGURATION = CHECKOUT / ".scalafmt.conf"
DIGESTS = CHECKOUT / "scripts" / "scalafmt.sha256"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "incremental-state-store"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_POM = """
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>scripts</groupId><artifactId>scalafmt</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.scalameta</groupId><artifactId>scalafmt-cli_2.13</artifactId><version>{}</version>
  </dependency></dependencies>
</project>
"""


def version() -> str:
    """Return the version of scalafmt that the configuration asks for."""
    match = re.search(r"^version = (\S+)$", CONFIGURATION.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if match is None:
        raise SystemExit(f"{CONFIGURATION} has no version")
    return match[1]


def digests() -> dict[str, str]:
    """Return the SHA-256 of each jar by its name."""
    lines = DIGESTS.read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def verify(directory: Path) -> None:
    """Raise SystemExit unless the jars in a directory are those of `digests`."""
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.glob("*.jar")}
    wrong = sorted(name for name, digest in digests().items() if sums.get(name) != digest)
    wrong += sorted(set(sums) - set(digests()))
    if wrong:
        raise SystemExit(
            f"{directory} differs from {DIGESTS.name}: {', '.join(wrong)}. Remove the directory."
        )


def jars() -> Path:
    """Return the directory of scalafmt's jars, which Maven fills if it is missing."""
    directory = CACHE / f"scalafmt-{version()}"
    if not directory.is_dir():
        if shutil.which("mvn") is None:
            raise SystemExit(
                "scalafmt is fetched with Maven, and there is no 'mvn': install the package maven"
            )
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
            fresh = Path(temporary) / "jars"
            (Path(temporary) / "pom.xml").write_text(_POM.format(version()), encoding="utf-8")
            command = ["mvn", "-B", "-q", _COPY, "-DincludeScope=runtime", f"-DoutputDirectory={fresh}"]
            subprocess.run(command, cwd=temporary, check=True, timeout=600)
            verify(fresh)
            if not directory.is_dir():
                fresh.replace(directory)
    verify(directory)
    return directory


def sources() -> list[str]:
    """Return the Scala files of the checkout, new ones included, without those that git ignores."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "*.scala"]
    listing = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    return [name for name in listing.splitlines() if (CHECKOUT / name).is_file()]


def main(arguments: list[str] | None = None) -> int:
    """Format or check; return scalafmt's exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit with 1 if a file would change"
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="Scala files (default: all)")
    options = parser.parse_args(arguments)
    paths = [str(Path(path).resolve()) for path in options.paths] or sources()
    command = ["java", "-Xss8m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}{os.sep}*"]
    command += ["org.scalafmt.cli.Cli", "--config", str(CONFIGURATION), "--non-interactive", "--mode=any"]
    command += ["--list"] * options.check
    return 1 if subprocess.run([*command, *paths], cwd=CHECKOUT, check=False).returncode else 0


if __name__ == "__main__":
    sys.exit(main())
