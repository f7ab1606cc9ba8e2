"""Findings about the files of stores, and the verdict on a store.

Everything here is immutable, safe for any thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from state_store.core.checkpoint.names import VersionId
from state_store.core.codec import INLINE, OMITTED, JsonObject, json_names
from state_store.core.compat import zip
from state_store.data.query import StoreKey
from state_store.errors import StorageError

_BAD = ("damaged", "missing", "format")
"""Kinds that say that a file cannot be used; the others say that it could not be looked at."""


@json_names(key=OMITTED, problem="what", is_usable=OMITTED)
@dataclass(frozen=True)
class Finding(JsonObject):
    """A problem.

    `kind` is that of an error. `file` is below the store's directory, and `problem` is a predicate about it.
    Without a `key` it is one of Spark's files, below the checkpoint directory.
    `versions` cannot be restored because of it. A file that `is_usable` is whole, and only refers to others
    that it should not refer to.
    """

    key: StoreKey | None
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


@json_names(key=INLINE)
@dataclass(frozen=True)
class Verdict(JsonObject):
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


def failed_store(key: StoreKey, error: StorageError) -> Finding:
    """Return the finding that the storage failed at the directory of a store as a whole."""
    return Finding(key, error.kind, error.file or key.path, f"could not be read or written: {error.message}")


def _costs(versions: Iterable[VersionId]) -> str:
    """Return a clause such as "; versions 3-6 cannot be restored"."""
    numbers = sorted({version.number for version in versions})
    if not numbers:
        return ""
    ends = [number for number in numbers if number + 1 not in numbers]
    starts = [number for number in numbers if number - 1 not in numbers]
    runs = [str(end) if start == end else f"{start}-{end}" for start, end in zip(starts, ends, strict=True)]
    return f"; version{'s' if len(numbers) > 1 else ''} {', '.join(runs)} cannot be restored"
