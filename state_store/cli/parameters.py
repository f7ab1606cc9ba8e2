"""Values on the command line in the texts of the options: sizes and durations with their units."""

from __future__ import annotations

from typing import Any

import click

from state_store.core.settings.option_types import OptionType


class OptionValue(click.ParamType):
    """A text of an option's type, such as 512m or 10s; the parameter is what it stands for."""

    def __init__(self, type_: OptionType) -> None:
        self._type = type_
        self.name = type_.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._type.parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(f"'{value}': {error}", param, ctx)
