"""Terms that the parts of a history share: durations, and failures of a query."""

LEASE_EXPIRY_S = 120
MAX_LEASE_S = 3600  # that of an embedded store
TEMPORARY_EXPIRY_S = 24 * LEASE_EXPIRY_S
LARGE_BYTES = 1000
"""Files of this many bytes are fetched in parts."""

PAGE_BYTES = 64
"""Bytes of a page of a file that is cached by pages."""


class QueryFailedError(Exception):
    """A task failed too often, or the driver died; the query starts again from its last committed batch."""
