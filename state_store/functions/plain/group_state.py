"""The `GroupState` of functions for one group at a time."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.state import GroupState

from state_store.functions.group_context import NO_TIMESTAMP
from state_store.functions.plain.flat_values import UnfitValueError
from state_store.functions.plain.row_schemas import RowSchema
from state_store.functions.plain.session_zone import SessionZone

if TYPE_CHECKING:
    from state_store.functions.group_context import Header


class PlainState(GroupState):
    """PySpark's `GroupState`; its states are named tuples, and datetimes are in the session's zone."""

    def __init__(self, common: CommonState, value: Any, group: Callable[[], str]) -> None:
        header = common.header
        super().__init__(
            optionalValue=value,
            batchProcessingTimeMs=header.batch_time_ms,
            eventTimeWatermarkMs=header.watermark_ms,
            timeoutConf=header.timeout_conf,
            hasTimedOut=header.timed_out,
            watermarkPresent=header.watermark_present,
            defined=value is not None,
            updated=False,
            removed=False,
            timeoutTimestamp=NO_TIMESTAMP,
            keyAsUnsafe=b"",
            valueSchema=header.state,
        )
        self._common = common
        self._group = group

    @property
    def get(self) -> Any:
        """The state as a named tuple; without state a `PySparkValueError`."""
        return self._value if self._defined else super().get

    @property
    def getOption(self) -> Any:
        """The state as a named tuple, or `None`."""
        return self._value if self._defined else None

    def update(self, newValue: Any) -> None:
        """Make `newValue` the state: a value for each column of the state schema, or a mapping by name.

        Raises:
            BadResultError: It has too many values or too few, or one that its column cannot take.
        """
        if newValue is None:
            super().update(newValue)  # which refuses it
        if not isinstance(newValue, (tuple, list, dict)):
            newValue = tuple(newValue)
        try:
            self._value = self._common.make(self._common.schema.own(newValue))
        except UnfitValueError as error:
            raise self._common.fail(f"the new state of {self._group()}: {error}.") from None
        self._defined = self._updated = True
        self._removed = False

    def setTimeoutTimestamp(self, timestampMs: float | datetime.datetime) -> None:
        """Set the timeout as PySpark does; a `datetime` without a zone is in the session's."""
        if isinstance(timestampMs, datetime.datetime):
            timestampMs = self._common.zone.micros(timestampMs) / 1000
        super().setTimeoutTimestamp(timestampMs)


@dataclasses.dataclass(frozen=True)
class CommonState:
    """The facts that the states of all groups of a stream share. `fail` makes the error with a message."""

    header: Header
    schema: RowSchema
    zone: SessionZone
    make: Callable[[Any], Any]
    fail: Callable[[str], Exception]
