"""The batches of a query, by Spark's logs: `offsets/<batch>` is written when a batch begins, with the pinned
configuration, `commits/<batch>` when it has ended. Safe for any thread.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from state_store.core.compat import zip
from state_store.core.storage import Storage
from state_store.data.query.keys import StoreKey
from state_store.data.query.operators import Operator, text_of
from state_store.errors import DamagedError, MissingError
from state_store.session.configuration import pinned_conf


class BatchLogs:
    """The offset log and the commit log in the checkpoint directory of a query."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def pinned_conf(self) -> dict[str, str]:
        """What Spark pinned of the configuration when the query began; empty before its first batch."""
        newest = self._newest("offsets")
        return {} if newest is None else pinned_conf(text_of(self._storage, f"offsets/{newest}"))

    def newest_begun(self) -> int | None:
        """The newest batch that Spark has begun; None before the first."""
        return self._newest("offsets")

    def newest_committed(self) -> int | None:
        """The newest batch that Spark has committed; None before the first."""
        return self._newest("commits")

    def commit_times_ms(self) -> dict[int, int]:
        """When each batch of Spark's commit log was committed, by the storage's clock."""
        return {
            int(entry.name): entry.modified_ms
            for entry in self._storage.list_files("commits")
            if entry.name.isdigit()
        }

    def watermark_ms(self, batch: int) -> int | None:
        """The watermark with which a batch ran, milliseconds since 1970 UTC; 0 without one, None where Spark
        has forgotten the batch.
        """
        return self._time_ms(f"offsets/{batch}", "batchWatermarkMs")

    def next_watermark_ms(self, batch: int) -> int | None:
        """The watermark that a batch left to the next one; 0 and None as for `watermark_ms`."""
        return self._time_ms(f"commits/{batch}", "nextBatchWatermarkMs")

    def batch_ms(self, batch: int) -> int | None:
        """When a batch ran, which is the processing time that its rows saw; None where Spark has forgotten
        the batch, or it has not run.
        """
        return self._time_ms(f"offsets/{batch}", "batchTimestampMs")

    def _time_ms(self, path: str, name: str) -> int | None:
        try:
            return int(json.loads(text_of(self._storage, path).splitlines()[1])[name])
        except (MissingError, IndexError, KeyError, ValueError):
            return None

    def committed_ids(self, batch: int, operators: Sequence[Operator]) -> dict[StoreKey, str]:
        """The id of each store's version after a batch; empty under checkpoint format 1.

        The log has, for each operator, for each partition, one id a store, in the order of the stores' names
        in the operator's metadata. Raises MissingError for a batch that the log has not, DamagedError when
        its entry cannot be read.
        """
        path = f"commits/{batch}"
        lines = text_of(self._storage, path).splitlines()
        by_store: dict[StoreKey, str] = {}
        try:
            by_operator = json.loads(lines[1]).get("stateUniqueIds") or {} if len(lines) > 1 else {}
            for operator in operators:
                for partition, ids in enumerate(by_operator.get(str(operator.id), [])):
                    for name, id_ in zip(operator.stores, ids, strict=False):
                        by_store[StoreKey(operator.id, partition, name)] = str(id_)
        except (AttributeError, TypeError, ValueError) as error:
            raise DamagedError(
                f"{path} is not an entry of Spark's commit log: {error!r}", file=path
            ) from error
        return by_store

    def _newest(self, log: str) -> int | None:
        batches = [int(entry.name) for entry in self._storage.list_files(log) if entry.name.isdigit()]
        return max(batches, default=None)
