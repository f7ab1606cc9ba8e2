"""The two engines behind one face: the JVM's store, and the one without a JVM.

Keys and values are texts; in the files they are what Spark's encoders make of a row with one string.
"""

from __future__ import annotations

import itertools
import struct
from pathlib import Path
from typing import Protocol

from driver import Jvm

from state_store.core.checkpoint.names import VersionId
from state_store.data.embedded import EmbeddedStore

EMPTY = VersionId(0, None)
_ROW_HEADER = struct.Struct("<BQII")  # encoding version, null bits, then length and offset of the text
_TEXT_OFFSET = 16


class Engine(Protocol):
    """A store that is open at one version, with the changes made since."""

    def put(self, key: str, value: str) -> None: ...

    def remove(self, key: str) -> None: ...

    def get(self, key: str) -> str | None: ...

    def scan(self) -> dict[str, str]: ...

    def commit(self, *, merge: bool = False) -> VersionId:
        """Commit the changes as a version; with `merge` make a snapshot of it, too."""

    def abort(self) -> None:
        """Drop the changes."""

    def load(self, version: VersionId) -> None:
        """Drop the changes and go to that version."""

    def close(self) -> None: ...


class JvmEngine:
    """A provider in the JVM; `location` is that of operator 0, partition 0 of a state directory."""

    _numbers = itertools.count()

    def __init__(self, jvm: Jvm, location: Path) -> None:
        self._jvm = jvm
        self._name = f"conformance-{next(self._numbers)}"
        jvm.provider(self._name, location.parents[1], minPauseBetweenMerges="0ms")
        self._version = EMPTY
        self._open = False

    def put(self, key: str, value: str) -> None:
        self._do("put", rows={key: value})

    def remove(self, key: str) -> None:
        self._do("remove", key=key)

    def get(self, key: str) -> str | None:
        return self._do("get", key=key)

    def scan(self) -> dict[str, str]:
        return self._do("scan")

    def commit(self, *, merge: bool = False) -> VersionId:
        committed = self._do("commit")
        self._open = False
        self._version = VersionId(committed["version"], committed["id"])
        if merge:
            self._begin(force=True)
            return self.commit()
        return self._version

    def abort(self) -> None:
        if self._open:
            self._do("abort")
            self._open = False

    def load(self, version: VersionId) -> None:
        self.abort()
        self._version = version

    def close(self) -> None:
        self.abort()
        self._jvm("close", provider=self._name)

    def _begin(self, *, force: bool = False) -> None:
        number, id_ = self._version
        self._jvm("begin", provider=self._name, store=self._name, version=number, id=id_, force=force)
        self._open = True

    def _do(self, command: str, **arguments: object):
        if not self._open:
            self._begin()
        return self._jvm(command, store=self._name, **arguments)


class EmbeddedEngine:
    """The store in this process."""

    def __init__(self, location: Path) -> None:
        self._store = EmbeddedStore.open(str(location), version=EMPTY)

    def put(self, key: str, value: str) -> None:
        self._store.put(_row(key), _row(value))

    def remove(self, key: str) -> None:
        self._store.remove(_row(key))

    def get(self, key: str) -> str | None:
        value = self._store.get(_row(key))
        return None if value is None else _text(value)

    def scan(self) -> dict[str, str]:
        return {_text(key): _text(value) for key, value in self._store.scan()}

    def commit(self, *, merge: bool = False) -> VersionId:
        version = self._store.commit()
        if merge:
            version = self._store.commit()
            self._store.checkpoint(full=version.number % 2 == 0)
        return version

    def abort(self) -> None:
        self._store.abort()

    def load(self, version: VersionId) -> None:
        self._store.load(version)

    def close(self) -> None:
        self._store.close()


def _row(text: str) -> bytes:
    data = text.encode()
    return _ROW_HEADER.pack(0, 0, len(data), _TEXT_OFFSET) + data + bytes(-len(data) % 8)


def _text(row: bytes) -> str:
    version, nulls, length, offset = _ROW_HEADER.unpack_from(row)
    assert (version, nulls, offset) == (0, 0, _TEXT_OFFSET)
    assert len(row) == 1 + offset + length + -length % 8
    return row[1 + offset : 1 + offset + length].decode()
