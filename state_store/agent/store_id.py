"""Which store a call is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from state_store.core.checkpoint.names import EMPTY_PARENT, DeltaName
from state_store.core.deletion.policy import RetentionPolicy
from state_store.core.settings.options import Options
from state_store.errors import InternalError


@dataclass(frozen=True)
class StoreId:
    """Which store it is, as the JVM names it; `label` is for the log."""

    location: str
    operator: int
    partition: int
    name: str
    run: str
    has_checkpoint_ids: bool
    retain: int

    @property
    def label(self) -> str:
        return f"{self.operator}/{self.partition}/{self.name}"

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> StoreId:
        """From the `store` object of a call."""
        return cls(
            location=fields["location"],
            operator=fields["operator"],
            partition=fields["partition"],
            name=fields["name"],
            run=fields["run"],
            has_checkpoint_ids=fields["ids"],
            retain=fields["retain"],
        )

    def retention(self, options: Options) -> RetentionPolicy:
        """What the options and Spark's `minBatchesToRetain` keep."""
        return RetentionPolicy(
            self.retain,
            options.retained_checkpoints,
            options.retained_age_ms,
            options.lease_expiry_ms,
            options.temporary_expiry_ms,
        )

    def delta(self, version: int, id_: str | None, parent: str | None, crc: int) -> DeltaName:
        """The name under which the JVM's delta is committed."""
        if id_ is None:
            raise InternalError(f"version {version} came without its id")
        return DeltaName(version, id_, parent or EMPTY_PARENT, crc)
