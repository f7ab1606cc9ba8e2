"""Requests to checkpoint storage and their price, as docs/operations.md counts them."""

from __future__ import annotations

import math
from dataclasses import dataclass

UPLOAD_PART_BYTES = 64 << 20
"""Part size of uploads, S3A's default: each part of a larger file, its start and its end are requests."""

NAME_NODE_OPERATIONS_PER_PUT = 5
"""A status, a new file, its block, its end, and a rename."""

_MINUTES_PER_MONTH = 30 * 24 * 60
_BYTES_PER_GB = 1e9


@dataclass(frozen=True)
class Requests:
    """Numbers of requests by kind, in S3's terms: LIST, GET, PUT and DELETE. They can be added."""

    lists: float = 0.0
    gets: float = 0.0
    puts: float = 0.0
    deletes: float = 0.0

    def __add__(self, other: Requests) -> Requests:
        return Requests(
            self.lists + other.lists,
            self.gets + other.gets,
            self.puts + other.puts,
            self.deletes + other.deletes,
        )

    def __mul__(self, times: float) -> Requests:
        return Requests(self.lists * times, self.gets * times, self.puts * times, self.deletes * times)

    @property
    def total(self) -> float:
        """Requests of all kinds."""
        return self.lists + self.gets + self.puts + self.deletes

    @property
    def name_node_operations(self) -> float:
        """Operations of an HDFS NameNode for these requests."""
        return self.lists + self.gets + self.deletes + NAME_NODE_OPERATIONS_PER_PUT * self.puts


@dataclass(frozen=True)
class Prices:
    """US dollars for 1,000 PUT or LIST requests, for 1,000 GET requests, and for a GB (1e9 bytes) a month.

    The defaults are the list prices of S3 Standard in us-east-1, in 2025. DELETE is free there. Traffic
    within the region is free as well.
    """

    puts: float = 0.005
    gets: float = 0.0004
    gigabyte_months: float = 0.023

    def requests_a_month(self, a_minute: Requests) -> float:
        """Return the price of requests in 30 days, in dollars."""
        dollars = (a_minute.puts + a_minute.lists) * self.puts + a_minute.gets * self.gets
        return dollars / 1000 * _MINUTES_PER_MONTH

    def storage_a_month(self, size_bytes: float) -> float:
        """Return the price of stored bytes in a month, in dollars."""
        return size_bytes / _BYTES_PER_GB * self.gigabyte_months


def commit(size_bytes: float) -> Requests:
    """Return the requests of a commit whose delta has this size, under checkpoint format 2."""
    return Requests(puts=_puts(size_bytes))


def incremental_merge(new_bytes: list[int]) -> Requests:
    """Return the requests of an incremental merge that writes files of these sizes."""
    return Requests(4, 1, 3 + sum(map(_puts, new_bytes)), 2)


def full_merge(new_bytes: list[int]) -> Requests:
    """Return the requests of a full merge that writes files of these sizes."""
    return Requests(3, 0, 2 + sum(map(_puts, new_bytes)), 1)


def clean_up(deleted: int, archives: int) -> Requests:
    """Return the requests of a clean-up that deletes files, and reads archives that are new to it."""
    return Requests(6, archives, 1, 1 + deleted)


def _puts(size_bytes: float) -> int:
    return 1 if size_bytes <= UPLOAD_PART_BYTES else 2 + math.ceil(size_bytes / UPLOAD_PART_BYTES)
