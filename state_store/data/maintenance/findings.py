"""Findings about the files of stores, and the verdict on a store.

Everything here is immutable, safe for any thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from state_store.core.checkpoint.names import VersionId
from state_store.core.compat import zip
from state_store.data.query import StoreKey

_BAD = ("damaged", "missing", "format")
"""Kinds that say that a file cannot be used; the others say that it could not be looked at."""


@dataclass(frozen=True)
class Finding:
    """A problem.

    `kind` is that of an error. `file` is below the store's directory, and `problem` is a predicate about it.
    `versions` cannot be restored because of it. A file that `is_usable` is whole, and only refers to others
    that it should not refer to.
    """

    key: StoreKey
    kind: str
    file: str
    problem: str
    versions: tuple[VersionId, ...] = ()
    is_usable: bool = False

    @property
    def is_bad(self) -> bool:
        """True if the file was read and cannot be used; False if the storage did not let it be read."""
        return self.kind in _BAD

    def sentence(self) -> str:
        """Return the problem and the versions that it costs."""
        return f"{self.problem}{_costs(self.versions)}"

    def to_json(self) -> dict[str, Any]:
        versions = [_version_json(version) for version in self.versions]
        return {"kind": self.kind, "file": self.file, "what": self.problem, "versions": versions}


@dataclass(frozen=True)
class Verdict:
    """Result of checking one store.

    `restored` is the version that was restored last as the committed one, with `keys` rows. `restorable` are
    the versions that can be made from files that are not bad.
    """

    key: StoreKey
    files: int
    bytes: int
    restored: VersionId | None
    keys: int
    restorable: tuple[VersionId, ...]
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "operator": self.key.operator,
            "partition": self.key.partition,
            "name": self.key.name,
            "files": self.files,
            "bytes": self.bytes,
            "restored": _version_json(self.restored),
            "keys": self.keys,
            "restorable": [_version_json(version) for version in self.restorable],
            "findings": [finding.to_json() for finding in self.findings],
        }


def _costs(versions: Iterable[VersionId]) -> str:
    """Return a clause such as "; versions 3-6 cannot be restored"."""
    numbers = sorted({version.number for version in versions})
    if not numbers:
        return ""
    ends = [number for number in numbers if number + 1 not in numbers]
    starts = [number for number in numbers if number - 1 not in numbers]
    runs = [str(end) if start == end else f"{start}-{end}" for start, end in zip(starts, ends, strict=True)]
    return f"; version{'s' if len(numbers) > 1 else ''} {', '.join(runs)} cannot be restored"


def _version_json(version: VersionId | None) -> dict[str, Any] | None:
    return None if version is None else {"version": version.number, "id": version.checkpoint_id}
