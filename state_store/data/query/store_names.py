"""Names of the stores of a query: values, no I/O."""

from __future__ import annotations

from dataclasses import dataclass

from state_store.data.query.arguments import check_name, check_number

DEFAULT_NAME = "default"


@dataclass(frozen=True, order=True)
class StoreKey:
    """A store of a query: Spark's operator id, partition and store name."""

    operator: int
    partition: int
    name: str = DEFAULT_NAME

    @property
    def path(self) -> str:
        """Its directory below the checkpoint directory."""
        path = f"state/{self.operator}/{self.partition}"
        return path if self.name == DEFAULT_NAME else f"{path}/{self.name}"

    def __str__(self) -> str:
        return f"{self.operator}/{self.partition}/{self.name}"


@dataclass(frozen=True)
class Filter:
    """A choice of stores; None stands for all.

    `name` is Spark's name of a store, a side of a join (`left`, `right`), or a state variable.

    Raises:
        OptionError: a number or a name is of another type.
    """

    operator: int | None = None
    partition: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        """Check the types of the values."""
        check_number("operator", self.operator, optional=True)
        check_number("partition", self.partition, optional=True)
        check_name("store", self.name)
