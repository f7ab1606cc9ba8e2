"""Dependencies that the sources import are listed in docs/dependencies.md."""

from __future__ import annotations

import ast
import re
import sys

LIBRARIES = {
    "com.codahale.metrics": "Dropwizard Metrics",
    "com.fasterxml.jackson": "Jackson",
    "com.github.luben.zstd": "`zstd-jni`",
    "jakarta.servlet": "Jakarta Servlet",
    "net.jpountz.lz4": "`lz4-java`",
    "net.razorvine.pickle": "Pickle (`net.razorvine`)",
    "org.apache.arrow": "Arrow Java",
    "org.apache.hadoop": "Hadoop client",
    "org.xerial.snappy": "`snappy-java`",
}
OWN = ("org.apache.spark", "scala", "java", "jdk.", "sun.", "com.sun.management.")


def test_libraries_of_the_data_plane_are_named(checkout):
    page = (checkout / "docs/dependencies.md").read_text(encoding="utf-8")
    sources = "\n".join(
        path.read_text(encoding="utf-8") for path in (checkout / "jvm_bridge").rglob("*.scala")
    )
    imported = set(re.findall(r"^\s*import ((?:\w+\.)+)", sources, flags=re.MULTILINE))
    foreign = {name for name in imported if not name.startswith(OWN) and name.count(".") > 1}
    used = {root for name in foreign for root in LIBRARIES if name.startswith(root + ".")}
    assert [name for name in foreign if not any(name.startswith(root + ".") for root in used)] == []
    assert used == set(LIBRARIES), "a library that is not imported any more is still in the table"
    for root in used:
        assert f"| {LIBRARIES[root]} |" in page


def test_packages_of_the_control_plane_are_named(checkout):
    page = (checkout / "docs/dependencies.md").read_text(encoding="utf-8")
    used = set()
    for path in (checkout / "state_store").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                used |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                used.add(node.module.split(".")[0])
    foreign = used - sys.stdlib_module_names - {"state_store"}
    assert {"rocksdict", "pyarrow", "click"} <= foreign
    assert [name for name in sorted(foreign) if f"`{name}`" not in page] == []
