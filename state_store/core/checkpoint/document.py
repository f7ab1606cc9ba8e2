"""Reading of the JSON objects that a checkpoint carries: one place that checks
format, presence and type of fields.
"""

from __future__ import annotations

import json
from typing import Any

from state_store.errors import DamagedError, FormatError

FORMAT = 1
"""The only checkpoint format so far; a reader refuses any other."""

_MOST = (1 << 63) - 1


class Document:
    """A JSON object read from `file`, whose fields are asked for by name and type.

    Raises DamagedError, naming the file and the field, when something is absent or of another type, and
    FormatError when `format` is not the one known here.
    """

    def __init__(self, fields: Any, file: str) -> None:
        self._file = file
        if not isinstance(fields, dict):
            raise self.damaged("is not a JSON object")
        self._fields = fields

    @classmethod
    def parse(cls, data: bytes, file: str) -> Document:
        """The object in the bytes of `file`. Raises DamagedError, or FormatError for another format."""
        try:
            fields = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise DamagedError(f"'{file}' is damaged: it is not JSON ({error})", file=file) from error
        document = cls(fields, file)
        document._check_format()
        return document

    def _check_format(self) -> None:
        format_ = self.integer("format", least=0)
        if format_ != FORMAT:
            raise FormatError(
                f"'{self._file}' has checkpoint format {format_}, this program knows format {FORMAT}: "
                "read it with the version of the program that wrote it, or a newer one",
                file=self._file,
            )

    def damaged(self, what: str) -> DamagedError:
        """An error that names the file: "it", then `what`. To be raised by the caller."""
        return DamagedError(f"'{self._file}' is damaged: it {what}", file=self._file)

    def nested(self, name: str) -> Document:
        """The object in field `name`. It and the readers below raise DamagedError for anything else."""
        return Document(self._field(name, dict), self._file)

    def items(self) -> list[tuple[str, Document]]:
        """The members of an object of objects, by name."""
        return [(name, Document(value, self._file)) for name, value in self._fields.items()]

    def documents(self, name: str) -> list[Document]:
        """The objects in the list `name`."""
        return [Document(value, self._file) for value in self._field(name, list)]

    def texts(self, name: str) -> list[str]:
        """The texts in the list `name`."""
        values: list[str] = self._field(name, list)
        if not all(isinstance(value, str) for value in values):
            raise self.damaged(f"has something else than texts in '{name}'")
        return values

    def integer(self, name: str, *, least: int = 0) -> int:
        """The number in field `name`, which is `least` or more, and fits 64 bits."""
        value: int = self._field(name, int)
        if isinstance(value, bool) or not least <= value <= _MOST:
            raise self.damaged(f"has {value!r} as '{name}', where a number from {least} up belongs")
        return value

    def optional_integer(self, name: str, *, least: int = 0) -> int | None:
        """Like `integer`; None where the field is absent or null."""
        return None if self.is_null(name) else self.integer(name, least=least)

    def text(self, name: str) -> str:
        """The text in field `name`."""
        value: str = self._field(name, str)
        return value

    def optional_text(self, name: str) -> str | None:
        """Like `text`; None where the field is absent or null."""
        return None if self.is_null(name) else self.text(name)

    def boolean(self, name: str) -> bool:
        """The truth value in field `name`."""
        value: bool = self._field(name, bool)
        return value

    def is_null(self, name: str) -> bool:
        """Whether field `name` is absent or null."""
        return self._fields.get(name) is None

    def _field(self, name: str, kind: type) -> Any:
        if name not in self._fields:
            raise self.damaged(f"lacks the field '{name}'")
        value = self._fields[name]
        if not isinstance(value, kind):
            raise self.damaged(f"has {type(value).__name__} as '{name}', where {kind.__name__} belongs")
        return value


def encode(fields: dict[str, Any]) -> bytes:
    """One JSON object in UTF-8, `format` first, without white space."""
    text = json.dumps({"format": FORMAT, **fields}, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8")
