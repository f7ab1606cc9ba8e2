"""Option: its name in Spark's configuration, its type, default, meaning and trade-off.

`state_store.core.settings.options` declares all options. Immutable, safe for any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from state_store.core.settings.option_types import OptionType
from state_store.errors import OptionError

PREFIX = "spark.sql.streaming.stateStore.incremental."
QUERY = "query"
"""Scope of an option that each query has for itself."""
EXECUTOR = "executor"
"""Scope of an option that all queries on an executor share: it counts as the first of them sets it."""


@dataclass(frozen=True)
class Option:
    """Declaration of an option. `default` is a text as users write it; `scope` is QUERY or EXECUTOR."""

    name: str
    type: OptionType
    default: str
    group: str
    doc: str
    trade_off: str
    scope: str = QUERY

    @property
    def key(self) -> str:
        """The full name in Spark's configuration."""
        return PREFIX + self.name

    @property
    def unit(self) -> str:
        """Unit of the value: bytes, milliseconds, or an empty text."""
        return self.type.unit

    def parse(self, text: str) -> Any:
        """Return the value that `text` stands for.

        Raises:
            OptionError: The text has no value of this type; the error names the option.
        """
        try:
            return self.type.parse(text.strip())
        except ValueError as error:
            default = self.default or "empty"
            message = f"option {self.key} is set to {text!r}, but {error}. Its default is {default}."
            raise OptionError(message, option=self.key) from None


def option(
    name: str,
    type: OptionType,
    default: str,
    *,
    group: str,
    doc: str,
    trade_off: str,
    scope: str = QUERY,
) -> Any:
    """Return a field of `Options` that carries its declaration."""
    declared = Option(name, type, default, group, " ".join(doc.split()), " ".join(trade_off.split()), scope)
    return field(default=declared.parse(default), metadata={"option": declared})
