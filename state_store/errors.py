"""Errors, a class for each kind of remedy that a caller has.

The kinds are those of docs/protocol.md. An error that crosses the bridge keeps its kind, message, file and
option.
"""

from __future__ import annotations

import re
from typing import ClassVar, TypedDict

MASK = "***"
"""Stands for a secret wherever a location is shown."""

_SECRETS = (
    # A secret may have a slash that should be %2F; a number before a slash is a port.
    re.compile(r"(\b(?:s3[an]?|gs|abfss?)://[^/:@\s]*:)(?!\d+/)[^@\s'\"]+(?=@)", re.IGNORECASE),
    re.compile(r"(\b[a-z][a-z0-9+.-]*://[^/:@\s]*:)[^/@\s'\"]+(?=@)", re.IGNORECASE),
    re.compile(
        r"([?&]sig=|[?&]delegation=|\bAccountKey=|\bSharedAccessSignature=)[^&;\s'\"]+", re.IGNORECASE
    ),
)


def masked(text: str) -> str:
    """Return a text with `***` for the secrets in its URIs, such as `s3://key:secret@bucket`."""
    if "://" not in text and "=" not in text:
        return text
    for secret in _SECRETS:
        text = secret.sub(rf"\g<1>{MASK}", text)
    return text


class _ErrorText(TypedDict):
    kind: str
    message: str


class ErrorFields(_ErrorText, total=False):
    """The `error` object of docs/protocol.md."""

    file: str
    option: str


class StateStoreError(Exception):
    """Base of all errors: `kind` of docs/protocol.md, a message, and the file or option it names."""

    def __init__(self, kind: str, message: str, file: str | None = None, option: str | None = None) -> None:
        message = masked(message)
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.file = None if file is None else masked(file)
        self.option = option

    def to_json(self) -> ErrorFields:
        """Return the `error` object of an answer: kind and message, and file and option if they are known."""
        fields: ErrorFields = {"kind": self.kind, "message": self.message}
        if self.file is not None:
            fields["file"] = self.file
        if self.option is not None:
            fields["option"] = self.option
        return fields


class _KindError(StateStoreError):
    KIND: ClassVar[str]

    def __init__(self, message: str, *, file: str | None = None, option: str | None = None) -> None:
        super().__init__(self.KIND, message, file, option)


class OptionError(_KindError):
    """A setting is wrong: fix the option that is named."""

    KIND = "option"


class MissingError(_KindError):
    """A version or file does not exist."""

    KIND = "missing"


class DamagedError(_KindError):
    """A file is not what its checksum or structure says."""

    KIND = "damaged"

    @classmethod
    def of(cls, file: object, why: str) -> DamagedError:
        """Return the error for a file, whose message ends with the reason."""
        return cls(f"'{file}' is damaged: {why}", file=str(file))


class FormatError(_KindError):
    """A file was written in a format newer than this release knows: use a newer release."""

    KIND = "format"


class StorageError(_KindError):
    """The storage refused or failed: check it, then retry."""

    KIND = "storage"


class LocalDiskError(StorageError):
    """A disk of this machine is full or fails: free space, or use another directory.

    Checkpoint storage is not at fault. The kind is that of StorageError.
    """


class UnknownOutcomeError(_KindError):
    """The outcome of a write is unknown: look whether it took effect before you act."""

    KIND = "unknown"


class ConflictError(_KindError):
    """Another writer was there first."""

    KIND = "conflict"


class BusyError(_KindError):
    """Not possible just now: retry later."""

    KIND = "busy"


class InternalError(_KindError):
    """A defect of this program."""

    KIND = "internal"


KINDS: dict[str, type[_KindError]] = {
    kind.KIND: kind
    for kind in (
        OptionError,
        MissingError,
        DamagedError,
        FormatError,
        StorageError,
        UnknownOutcomeError,
        ConflictError,
        BusyError,
        InternalError,
    )
}


def from_json(fields: ErrorFields) -> StateStoreError:
    """Return the exception of an `error` object; an unknown kind becomes an InternalError."""
    cls = KINDS.get(str(fields.get("kind")), InternalError)
    message = str(fields.get("message", "the other side gave no message"))
    return cls(message, file=fields.get("file"), option=fields.get("option"))


class Interrupted(KeyboardInterrupt):
    """An interrupt from the keyboard whose message says what was left behind, and how to go on."""


def as_store_error(error: StateStoreError | OSError) -> StateStoreError:
    """Return the error itself, or a StorageError for a failure of the operating system (a full disk, say)."""
    if isinstance(error, StateStoreError):
        return error
    if error.filename is None or error.strerror is None:
        return StorageError(str(error))
    return StorageError(f"cannot use '{error.filename}': {error.strerror}", file=str(error.filename))
