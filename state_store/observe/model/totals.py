"""Figures over the stores of a query that rules and metrics are about."""

from __future__ import annotations

from dataclasses import dataclass

from state_store.observe.model.declared import SERVE, declared


@dataclass(frozen=True)
class Totals:
    """Figures of a query."""

    unreadable: int = declared("1 if the last look at the checkpoint failed, else 0.")
    damaged_stores: int | None = declared(
        "Stores that cannot be restored; a driver, which reads no files, does not know.",
        sources=(SERVE,),
        default=None,
    )
    start_problems: int | None = declared(
        "Files of Spark's without which the query cannot start again; a driver does not look at them.",
        sources=(SERVE,),
        default=None,
    )
    verify_problems: int | None = declared(
        "Problems that the last `state-store verify` found and whose files are still there as they were.",
        sources=(SERVE,),
        default=None,
    )
    verified_ms: int | None = declared(
        "When `state-store verify` last checked the whole query, since 1970 UTC; absent if it never did.",
        sources=(SERVE,),
        default=None,
    )
    unverified_since_ms: int | None = declared(
        "The same or, if it never did, when the query began.", sources=(SERVE,), default=None
    )
    committed_ms: int | None = declared("When the newest version was written, since 1970 UTC.", default=None)
    wasted_ratio: float | None = declared(
        "Bytes in storage that no restorable version needs, per byte that one needs; absent below 1 GiB.",
        sources=(SERVE,),
        default=None,
    )


@dataclass(frozen=True)
class Group:
    """Figures over the partitions of one store of one operator."""

    operator: int = declared("Number of the operator.")
    store: str = declared("Name of the store.")
    operator_name: str | None = declared("Spark's name of the operator.", default=None)
    largest_partition: int | None = declared("The partition with the most bytes.", default=None)
    largest_bytes: int | None = declared("Bytes of the largest partition.", default=None)
    largest_ratio: float | None = declared(
        "Bytes of the largest partition, per byte of the median; absent if that is 0.", default=None
    )
    skewed_ratio: float | None = declared(
        "The same, absent with fewer than three partitions or less than 64 MiB in the largest.", default=None
    )
