"""Findings about the files of stores, and the file of them that a verification leaves in the checkpoint.

`_verified.json` lies in the checkpoint directory itself, beside Spark's `metadata`: Spark, the query and all
commands but `verify`, `doctor` and `serve` neither list nor read it, and copies of a checkpoint do not have
it. A verification of some stores replaces the problems of these stores alone.

Findings are immutable, safe for any thread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from state_store.core.checkpoint.names import VersionId
from state_store.core.codec import INLINE, OMITTED, JsonObject, Mismatch, from_json, json_names
from state_store.core.compat import zip
from state_store.core.storage import Storage, open_storage
from state_store.data.query import StoreKey
from state_store.errors import LocalDiskError, MissingError, StateStoreError, StorageError, as_store_error

_BAD = ("damaged", "missing", "format")
"""Kinds that say that a file cannot be used; the others say that it could not be looked at."""

FILE = "_verified.json"
"""Name of the file, in the checkpoint directory."""

_FORMAT = 1
_MAX_PROBLEMS = 1000
_NAMED = re.compile(r"(delta|shared|snapshot)/(\d+)")
_KINDS = {"delta": "delta", "shared": "table", "snapshot": "archive of the snapshot"}


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


def failed_store(key: StoreKey, error: StateStoreError) -> Finding:
    """Return the finding that the storage failed at the directory of a store as a whole.

    Raises:
        StateStoreError: another error than one of checkpoint storage.
    """
    if isinstance(error, LocalDiskError) or not isinstance(error, StorageError):
        raise error
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


@dataclass(frozen=True)
class KnownProblem(JsonObject):
    """A file that could not be used when it was verified.

    Attributes:
        operator: number of the operator.
        partition: number of the partition.
        store: name of the store.
        file: the file, below the store's directory.
        kind: kind of the error.
        problem: the finding's sentence, a predicate about the file.
        bytes: size of the file then; None: it was not there.
        modified_ms: time of the file then, by the storage's clock.
    """

    operator: int
    partition: int
    store: str
    file: str
    kind: str
    problem: str
    bytes: int | None = None
    modified_ms: int | None = None

    @property
    def key(self) -> StoreKey:
        """The store."""
        return StoreKey(self.operator, self.partition, self.store)

    def sentence(self) -> str:
        """Return the file by its kind and version, the store, and the problem."""
        match = _NAMED.match(self.file)
        file = f"the {_KINDS[match[1]]} of version {int(match[2])}" if match else self.file
        return f"{file} in store {self.operator}/{self.partition}/{self.store} {self.problem}"


@dataclass(frozen=True)
class Verified(JsonObject):
    """Everything that verifications of a query have left.

    Attributes:
        verified_ms: when the newest verification of all stores ended; None: there was none.
        version: the version of the state that it restored.
        problems: the problems, of the newest verification of each store.
        format: format of the file.
    """

    verified_ms: int | None = None
    version: int | None = None
    problems: tuple[KnownProblem, ...] = ()
    format: int = _FORMAT

    def after(
        self,
        checked: Collection[StoreKey],
        problems: Sequence[KnownProblem],
        *,
        whole_ms: int | None,
        version: int | None,
    ) -> Verified:
        """Return what is known after another verification.

        Args:
            checked: the stores that it read.
            problems: the problems that it found in them.
            whole_ms: when it ended if it read all stores; None: it did not.
            version: the version that it restored.
        """
        kept = tuple(each for each in self.problems if each.key not in checked) if whole_ms is None else ()
        return Verified(
            self.verified_ms if whole_ms is None else whole_ms,
            self.version if whole_ms is None else version,
            (*problems, *kept)[:_MAX_PROBLEMS],
        )


NEVER_VERIFIED = Verified()
"""The result where there is none."""


def read_verified(storage: Storage) -> Verified:
    """Return what verifications have left in a checkpoint directory; nothing if nobody can read it.

    Raises:
        StorageError: the storage fails.
    """
    try:
        verified = from_json(Verified, json.loads(storage.read(FILE)))
    except (MissingError, ValueError, Mismatch):  # none, cut off, or of a later release
        return NEVER_VERIFIED
    return verified if verified.format == _FORMAT else NEVER_VERIFIED


def leave_result(
    location: str,
    checked: Sequence[tuple[StoreKey, Sequence[Finding]]],
    *,
    is_whole: bool,
    version: int | None,
    now_ms: int,
) -> str | None:
    """Write what a verification found into the checkpoint directory, beside what is known of other stores.

    Args:
        location: the checkpoint directory.
        checked: the stores that were read, with the findings about their files.
        is_whole: these are all stores of the query.
        version: the version that was restored.
        now_ms: the time, milliseconds since 1970 UTC.

    Returns:
        The reason if that cannot be done, such as that the user may not write there; None if it is done.
    """
    try:
        problems = [problem for key, findings in checked for problem in _problems(location, key, findings)]
        with closing(open_storage(location)) as storage:
            before = read_verified(storage)
            after = before.after(
                {key for key, _ in checked}, problems, whole_ms=now_ms if is_whole else None, version=version
            )
            storage.write(FILE, json.dumps(after.to_json(), indent=1).encode(), overwrite=True)
    except (StateStoreError, OSError) as error:
        return as_store_error(error).message
    return None


def _problems(location: str, key: StoreKey, findings: Sequence[Finding]) -> Iterator[KnownProblem]:
    """Yield the findings of a store that cost rows or versions, each with its file as it is listed now."""
    costly = [finding for finding in findings if finding.is_bad and not finding.is_usable]
    if not costly:
        return
    directories = {finding.file.rpartition("/")[0] for finding in costly} - {""}
    with closing(open_storage(f"{location}/{key.path}")) as storage:
        listed = {f"{name}/{entry.name}": entry for name in directories for entry in storage.list_files(name)}
    for finding in costly:
        entry = listed.get(finding.file)
        yield KnownProblem(
            key.operator,
            key.partition,
            key.name,
            finding.file,
            finding.kind,
            finding.sentence(),
            entry.size_bytes if entry else None,
            entry.modified_ms if entry else None,
        )
