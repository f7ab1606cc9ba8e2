"""The examples with Spark of README.md and of the pages tutorial, state and cookbook run as they stand."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import quick_java
from dataset.golden_states import VERSIONS, checkpoint, expected

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the fenced blocks of a page in order, each with its language."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def heading(line: str) -> list[str]:
    """Return the names of columns, without the time zone behind one."""
    return [word for word in line.split() if not word.startswith("(")]


def run(command: list[str], directory: Path) -> str:
    """Return what a command prints in `directory`; it must succeed.

    Its JVM starts quickly; tests/packaging runs the blocks of pages as a reader does.
    """
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "SPARK_HOME": str(quick_java.SPARK_HOME),
        "JAVA_TOOL_OPTIONS": quick_java.spark_options(),
    }
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.dear("the example that a newcomer runs")
def test_the_example_of_the_readme_runs(checkout: Path, tmp_path: Path) -> None:
    (example,) = [code for language, code in blocks(checkout / "README.md") if language == "python"]
    assert len(example.strip().splitlines()) <= 16
    printed = run([sys.executable, "-c", example], tmp_path)
    table = printed[printed.rindex("partition_id") :].strip().splitlines()
    assert len(table) == 11  # a heading and ten users


def test_the_example_of_a_bootstrap_runs(checkout: Path, tmp_path: Path) -> None:
    text = (checkout / "docs/state.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"<!-- with Spark -->\n```python\n(.*?)```", text, re.DOTALL)
    printed = run([sys.executable, "-c", example], tmp_path).strip().splitlines()
    row = ast.literal_eval(printed[-1])
    assert row["user"] == "user2"
    query = tmp_path / "clicks"
    newest = max(int(path.name) for path in (query / "commits").iterdir() if path.name.isdigit())
    seconds = int((query / f"offsets/{newest}").read_text(encoding="utf-8").splitlines()[-1])
    assert seconds > 0
    assert row["n"] == 2000 + 10 * seconds  # a tenth of a hundred rows a second


def test_the_export_of_the_cookbook_runs(checkout: Path, tmp_path: Path) -> None:
    """Parquet stands for Delta, which has no release for this Spark (tests/spark/lakehouse writes Delta)."""
    text = (checkout / "docs/cookbook.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"<!-- with Spark -->\n```python\n(.*?)```", text, re.DOTALL)
    checkpoint("flights", tmp_path).rename(tmp_path / "checkpoint")
    code = example.replace('"/data/', f'"{tmp_path}/').replace('format("delta")', 'format("parquet")')
    assert code.count("parquet") == 2
    run([sys.executable, "-c", code], tmp_path)
    rows = pq.read_table(tmp_path / "counts")
    assert sorted(rows["carrier"].to_pylist()) == sorted(
        row["carrier"] for row in expected("flights", VERSIONS[-1])
    )


def test_the_tutorial_runs_from_top_to_bottom(checkout: Path, tmp_path: Path) -> None:
    count, *others = blocks(checkout / "docs/tutorial.md")
    assert count[0] == "python"
    (tmp_path / "count.py").write_text(count[1])
    printed = []
    for language, code in others:
        if language == "text":  # a part of what the command above prints
            assert heading(code.splitlines()[0]) in map(heading, printed[-1].splitlines())
        if language == "python":
            printed.append(run([sys.executable, "-c", code], tmp_path))
        for line in code.splitlines() if language == "sh" else ():
            words = line.split()
            if words[0] == "python":
                printed.append(run([sys.executable, *words[1:]], tmp_path))
            else:
                printed.append(run([sys.executable, "-m", "state_store.cli", *words[1:]], tmp_path))
    assert len(printed) >= 6
    assert "full" in printed[-1].strip().splitlines()[-1]
    users = next(text for text in printed if "partition_id: int" in text)
    assert all(f" {user} " in users for user in range(10))
