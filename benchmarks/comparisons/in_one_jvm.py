"""Comparisons of subjects that take turns in one JVM: Scala of `benchmarks/scala`, compiled on demand."""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

from benchmarks.environment import jvm, providers

Figure = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """The comparison of a module of this package.

    Args:
        name: the module, and the directory of its Scala sources.
        main: the class to run.
        opened: packages of the JDK that it needs.
        settings: settings of the module, beside those of its user.
        is_inside: True if its sources use classes of the store.
    """

    name: str
    main: str
    opened: Sequence[str]
    settings: Sequence[str] = ()
    is_inside: bool = False

    @property
    def sources(self) -> list[Path]:
        return sorted((Path(__file__).resolve().parents[1] / "scala" / self.name).glob("*.scala"))

    def measure(
        self, settings: Sequence[str], *, jar: Path | None = None, timeout_s: int = 1800
    ) -> list[Figure]:
        """Run the comparison, and return a figure for each measurement and each subject.

        Without a jar it uses the checkout's. Raises DriverError if it fails.
        """
        jar = jar or providers.jar_for(pyspark.__version__)
        if jar is None:
            raise jvm.DriverError(
                f"there is no jar of the state store for Spark {pyspark.__version__}: run `make setup`"
            )
        classes = jvm.compiled_sources(self.name, self.sources, [jar] if self.is_inside else [])
        opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in self.opened]
        path = ":".join([str(classes), str(jar), f"{jvm.SPARK_JARS}/*"])
        with tempfile.TemporaryDirectory(prefix="state-store-benchmark-") as work:
            command = [jvm.java(), "-Xmx2g", *opens, "-cp", path, self.main, *settings]
            command += [f"directory={work}", *self.settings]
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
        if done.returncode:
            raise jvm.DriverError(f"the comparison ended with {done.returncode}:\n{done.stderr[-4000:]}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def run(self, doc: str | None, table: Callable[[Iterable[Figure]], str]) -> None:
        """Measure with the settings of the command line, and print the table.

        Args:
            doc: the help of the module, whose first line is shown.
            table: makes the table of figures.
        """
        parser = argparse.ArgumentParser(
            prog=f"python -m benchmarks.comparisons.{self.name}", description=(doc or "").split("\n", 1)[0]
        )
        parser.add_argument("--json", type=Path, metavar="OUT", help="file for the figures")
        parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
        arguments = parser.parse_args()
        figures = self.measure(arguments.settings)
        if arguments.json:
            arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
        print(table(figures))
